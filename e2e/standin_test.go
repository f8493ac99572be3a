//go:build unix

package e2e_test

import (
	"bufio"
	"bytes"
	bits "encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// standins is the folder of the programs that play the servers which serve starts: one program under many names.
var standins = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "onebit-standins-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "llama-server")
	cmd := exec.Command("go", "build", "-o", program, "./standin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("building the stand-in: %w\n%s", err, out)
	}
	for _, name := range []string{"zinc", "ds4-server", "lemon-mlx-server", "ryzenai-server", "npu-server", "laya-daemon"} {
		if err := os.Link(program, filepath.Join(dir, name)); err != nil {
			return dir, err
		}
	}
	built = dir
	return dir, nil
})

// built is the folder of standins once it is there.
var built string

func removeStandins() { os.RemoveAll(built) }

// standin returns the path of a stand-in by its name.
func standin(t *testing.T, name string) string {
	t.Helper()
	dir, err := standins()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// stage is where stand-ins act: their log and their models.
type stage struct {
	t   *testing.T
	dir string
	env []string
}

func newStage(t *testing.T, env ...string) *stage {
	dir := t.TempDir()
	return &stage{t: t, dir: dir, env: append(env, "STANDIN_LOG="+filepath.Join(dir, "log"))}
}

// in returns the stage for a test within the test.
func (s *stage) in(t *testing.T) *stage {
	inner := *s
	inner.t = t
	return &inner
}

// file makes a file and returns its path.
func (s *stage) file(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// gguf makes a file without tensors, with whole numbers as metadata.
func (s *stage) gguf(name string, numbers map[string]uint32) string {
	var b bytes.Buffer
	put := func(v any) { _ = bits.Write(&b, bits.LittleEndian, v) } // a buffer takes everything
	text := func(v string) { put(uint64(len(v))); b.WriteString(v) }
	b.WriteString("GGUF")
	put(uint32(3))
	put(uint64(0))
	put(uint64(1 + len(numbers)))
	text("general.architecture")
	put(uint32(8))
	text("qwen3")
	for key, n := range numbers {
		text(key)
		put(uint32(4))
		put(n)
	}
	return s.file(name, b.String())
}

// serve starts the program and waits until it is healthy.
func (s *stage) serve(args ...string) *server {
	s.t.Helper()
	v := launchWith(s.t, s.env, append([]string{"serve", "--port", "0"}, args...)...)
	v.waitHealthy(30 * time.Second)
	return v
}

// vulkan starts the program with a plain model on the stand-in for vulkan.
func (s *stage) vulkan(args ...string) *server {
	s.t.Helper()
	return s.serve(append([]string{"-m", s.gguf("m.gguf", nil), "--device", "vulkan", "--llama-server", standin(s.t, "llama-server")}, args...)...)
}

// entry is a line of the stand-ins' log.
type entry struct {
	Event, Program, Path, Body, ID, Device, Where, Model string
	Pid                                                  int
	Args, Env                                            []string
	At                                                   int64
}

// log reads what the stand-ins wrote down of one event.
func (s *stage) log(event string) (all []entry) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(text[:bytes.LastIndexByte(text, '\n')+1]) { // the last may be under way
		var e entry
		if err := json.Unmarshal(line, &e); err != nil {
			s.t.Fatalf("the stand-in wrote %q", line)
		}
		if e.Event == event && e.ID != "readiness" {
			all = append(all, e)
		}
	}
	return all
}

// last is the latest of one event.
func (s *stage) last(event string) entry {
	s.t.Helper()
	all := s.log(event)
	if len(all) == 0 {
		s.t.Fatalf("the stand-in wrote down no %s", event)
	}
	return all[len(all)-1]
}

// await waits until something holds.
func await(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// get asks for a path.
func (s *server) get(path string) (status int, header http.Header, body string) {
	s.t.Helper()
	res, err := http.Get(s.URL + path)
	if err != nil {
		s.t.Fatalf("GET %s: %v\n%s", path, err, s.log)
	}
	defer res.Body.Close()
	var b strings.Builder
	if _, err := bufio.NewReader(res.Body).WriteTo(&b); err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, res.Header, b.String()
}
