package store_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// rows counts the rows of each table that the crashwriter writes.
type rows map[string]int

// TestKill kills a writer in the middle of its work, again and again: what it had acknowledged is there, and nothing is
// half there.
func TestKill(t *testing.T) {
	kills := 20
	if testing.Short() {
		kills = 5
	}
	if os.Getenv("ONEBIT_ALL") == "1" {
		kills = 200
	}
	bin := filepath.Join(t.TempDir(), "crashwriter")
	if out, err := exec.Command("go", "build", "-o", bin, "./crashwriter").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	acked := rows{}
	for range kills {
		have, now := killOne(t, bin, dir)
		acked.within(t, have)
		for table, n := range now {
			acked[table] = n
		}
	}
	out, err := exec.Command(bin, "-dir", dir, "-check").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	acked.within(t, parseHave(t, strings.TrimSpace(string(out))))
	if acked["keys"] < kills || acked["requests"] < kills {
		t.Errorf("only %v was acknowledged: the kills came too early to show anything", acked)
	}
	t.Logf("%d kills; acknowledged and there: %v", kills, acked)
}

// within fails when have lacks something that was acknowledged.
func (acked rows) within(t *testing.T, have rows) {
	t.Helper()
	for table, n := range acked {
		if have[table] < n {
			t.Errorf("%s: %d rows acknowledged, %d there", table, n, have[table])
		}
	}
}

// killOne runs the writer for a random number of acknowledgements, kills it, and returns what it found at the start and the
// last acknowledgement for each table.
func killOne(t *testing.T, bin, dir string) (have, acked rows) {
	t.Helper()
	cmd := exec.Command(bin, "-dir", dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		// it was killed: that is the point
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	acked = rows{}
	lines := bufio.NewScanner(out)
	left := -1
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "have "):
			have = parseHave(t, line)
			left = 5 + rand.IntN(60)
		case strings.HasPrefix(line, "ack "):
			var table string
			var n int
			if _, err := fmt.Sscanf(line, "ack %s %d", &table, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			acked[table] = n
		default:
			t.Fatalf("the writer said %q", line)
		}
		if left--; left == 0 {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := io.Copy(io.Discard, out); err != nil && left > 0 {
		t.Fatal(err)
	}
	if left > 0 {
		t.Fatal("the writer ended by itself")
	}
	return have, acked
}

func parseHave(t *testing.T, line string) rows {
	t.Helper()
	var k, b, s, u, r, c int
	if _, err := fmt.Sscanf(line, "have keys=%d blobs=%d settings=%d usage=%d requests=%d talks=%d", &k, &b, &s, &u, &r, &c); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return rows{"keys": k, "blobs": b, "settings": s, "usage": u, "requests": r, "talks": c}
}
