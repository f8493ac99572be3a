package promptcache_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onebit/appliance/promptcache"
	"onebit/engine"
	"onebit/store"
)

// crashDir tells this program that it is the one to be killed, and where it works.
const crashDir = "ONEBIT_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := writeUntilKilled(context.Background(), dir); err != nil {
			fmt.Println("bad", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// recorded is a store as an index.
type recorded struct{ *store.Store }

func (r recorded) Entries(ctx context.Context) ([]promptcache.Entry, error) {
	rows, err := r.Prefixes(ctx)
	if err != nil {
		return nil, err
	}
	var all []promptcache.Entry
	for _, p := range rows {
		e := promptcache.Entry{File: p.File, Model: p.Model, Of: p.Of, Scope: p.Scope, Tokens: int(p.Tokens), Bytes: p.Bytes, Marked: p.Marked, Used: p.Used}
		if err := json.Unmarshal(p.Blocks, &e.Points); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func (r recorded) Put(ctx context.Context, e promptcache.Entry) error {
	blocks, err := json.Marshal(e.Points)
	if err != nil {
		return err
	}
	return r.PutPrefix(ctx, store.Prefix{
		File: e.File, Model: e.Model, Of: e.Of, Scope: e.Scope, Last: e.Points[len(e.Points)-1].Hash, Blocks: blocks,
		Tokens: int64(e.Tokens), Bytes: e.Bytes, Marked: e.Marked, Used: e.Used,
	})
}

func (r recorded) Delete(ctx context.Context, file string) error { return r.DeletePrefix(ctx, file) }

// pointed makes sure that each recorded file is there, and whole.
func pointed(ctx context.Context, s *store.Store, dir string) (n int, err error) {
	rows, err := s.Prefixes(ctx)
	if err != nil {
		return 0, err
	}
	for _, p := range rows {
		b, err := os.ReadFile(filepath.Join(dir, p.Model, p.File))
		if err != nil {
			return 0, err
		}
		if int64(len(b)) != p.Bytes || !bytes.HasPrefix(b, []byte(stateMark)) || !bytes.HasSuffix(b, []byte(stateEnd)) {
			return 0, fmt.Errorf("%s is recorded with %d bytes, and has %d", p.File, p.Bytes, len(b))
		}
	}
	return len(rows), nil
}

// writeUntilKilled talks to a server by a cache with a small budget, so that files come and go all the time.
func writeUntilKilled(ctx context.Context, dir string) error {
	s, err := store.Open(ctx, store.Config{Dir: dir})
	if err != nil {
		return err
	}
	files := filepath.Join(dir, "prompt-cache")
	before, err := pointed(ctx, s, files)
	if err != nil {
		return fmt.Errorf("after the kill: %w", err)
	}
	c, err := promptcache.New(ctx, promptcache.Config{
		Dir: files, Secret: bytes.Repeat([]byte{7}, 32), Index: recorded{s}, Log: discard,
		Settings: func() promptcache.Settings { return promptcache.Settings{Budget: 12000, TTL: time.Hour, Least: 16} },
	})
	if err != nil {
		return err
	}
	after, err := pointed(ctx, s, files)
	if err != nil {
		return fmt.Errorf("after the sweep: %w", err)
	}
	there, err := filepath.Glob(filepath.Join(files, "*", "*"))
	if err != nil {
		return err
	}
	if len(there) != after {
		return fmt.Errorf("after the sweep %d are recorded, and there are %d files", after, len(there))
	}
	fmt.Println("have", before, after)
	server := newFake(nil, 2)
	server.dir = c.Folder("m")
	if err := os.MkdirAll(server.dir, 0o700); err != nil {
		return err
	}
	b := c.Wrap("m", "identity", promptcache.Traits{}, server)
	go func() { _ = c.Run(ctx) }()
	for n := 0; ; n++ {
		system := long(50+rand.IntN(600), rand.IntN(40))
		raw, err := json.Marshal(map[string]any{"messages": []map[string]any{{"role": "system", "content": system}, {"role": "user", "content": long(10, n)}}})
		if err != nil {
			return err
		}
		req := &engine.Request{Kind: engine.Chat, Raw: raw, Scope: fmt.Sprint("key", n%3)}
		if _, err := b.Generate(ctx, req, func(engine.Chunk) error { return nil }); err != nil {
			return err
		}
		if n%50 == 49 {
			if err := c.Clear(ctx); err != nil {
				return err
			}
		}
		fmt.Println("did", n)
	}
}

// TestKill kills a program that uses a cache, again and again: the index never names what is not there, and nothing is
// there after the next start that the index does not name.
func TestKill(t *testing.T) {
	kills := 20
	if testing.Short() {
		kills = 5
	}
	if os.Getenv("ONEBIT_ALL") == "1" {
		kills = 200
	}
	dir := t.TempDir()
	found, did := 0, 0
	for range kills {
		n, steps := killOne(t, dir)
		found, did = found+n, did+steps
	}
	if found == 0 || did < kills {
		t.Errorf("%d files were found after kills in %d steps: this shows nothing", found, did)
	}
	t.Logf("%d kills; %d files were recorded after them, all of them there; %d requests", kills, found, did)
}

// killOne starts the program, lets it do some steps, kills it within the next one, and returns how many files it had found.
func killOne(t *testing.T, dir string) (found, did int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() {
		// it was killed: that is the point
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	left := 1 + rand.IntN(60)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "have "):
			if _, err := fmt.Sscanf(line, "have %d", &found); err != nil {
				t.Fatal(err)
			}
		case strings.HasPrefix(line, "did "):
			did++
			if left--; left == 0 {
				go func() {
					time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
					_ = cmd.Process.Kill()
				}()
			}
		default:
			t.Fatal(line)
		}
	}
	if left > 0 {
		t.Fatal("it ended by itself")
	}
	return found, did
}
