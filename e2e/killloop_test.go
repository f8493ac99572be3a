//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// killers is how many servers live and die at the same time.
const killers = 8

// killer lets servers and their children die, one life of a server after the other, always on the same port.
type killer struct {
	t     *testing.T
	stage *stage
	port  int
	dice  *rand.Rand
	kills *atomic.Int64
	seen  map[int]bool // children that ever were
}

// TestKillLoop kills serve and its children a thousand times (KILLS overrides), each time while clients are served. No
// child may be left, the port must be free for the next server, and no client may wait for ever.
func TestKillLoop(t *testing.T) {
	slow(t)
	wanted := int64(1000)
	if v := os.Getenv("KILLS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		wanted = int64(n)
	}
	end := time.Now().Add(15 * time.Minute)
	var kills, served atomic.Int64
	var group sync.WaitGroup
	for i := range killers {
		group.Go(func() {
			t.Run(fmt.Sprint("killer ", i), func(t *testing.T) { // more at a time than there are processors
				k := &killer{
					t: t, stage: newStage(t), port: steadyPort(t, 18400+100*i),
					dice: rand.New(rand.NewPCG(uint64(i), 11)), kills: &kills, seen: map[int]bool{},
				}
				k.stage.env = nil // a log of a thousand starts helps nobody
				for kills.Load() < wanted && !t.Failed() {
					if time.Now().After(end) {
						t.Fatalf("only %d kills in the time that there is", kills.Load())
					}
					k.life()
					served.Add(1)
				}
				k.nobodyLeft()
			})
		})
	}
	group.Wait()
	t.Logf("%d kills, %d of them of serve", kills.Load(), served.Load())
	if kills.Load() < wanted && !t.Failed() {
		t.Errorf("only %d kills", kills.Load())
	}
}

// steadyPort returns a port, from one on, that the system gives to nobody by itself.
func steadyPort(t *testing.T, from int) int {
	t.Helper()
	for port := from; port < from+100; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatalf("no free port from %d on", from)
	return 0
}

// life is one server: its child dies four times, then it dies itself.
func (k *killer) life() {
	s := launchWith(k.t, k.stage.env, "serve", "--port", strconv.Itoa(k.port), "-m", k.stage.gguf("m.gguf", nil), "--device", "vulkan",
		"--llama-server", standin(k.t, "llama-server"))
	s.waitHealthy(30 * time.Second)
	for range 4 {
		child := k.child(s)
		clients := k.clients(s)
		k.kill(child)
		clients()
		await(k.t, 2*time.Second, fmt.Sprintf("child %d is gone", child), func() bool { return !alive(child) })
		s.waitHealthy(30 * time.Second)
		if r, err := s.tryPost(k.t.Context(), "/v1/chat/completions", chat(capital, nil)); err != nil || r.status != 200 {
			k.t.Fatalf("after a child's death: %v %d %s\n%s", err, r.status, r.body, s.log)
		}
	}
	child := k.child(s)
	clients := k.clients(s)
	k.kill(s.cmd.Process.Pid)
	clients()
	await(k.t, 2*time.Second, fmt.Sprintf("child %d ends with serve", child), func() bool { return !alive(child) })
	<-s.done
}

// child returns the server's one child.
func (k *killer) child(s *server) int {
	kids := children(k.t, s.cmd.Process.Pid)
	if len(kids) != 1 {
		k.t.Fatalf("serve has the children %v\n%s", kids, s.log)
	}
	k.seen[kids[0]] = true
	return kids[0]
}

func (k *killer) kill(pid int) {
	time.Sleep(time.Duration(k.dice.IntN(250)) * time.Millisecond)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		k.t.Errorf("killing %d: %v", pid, err)
	}
	k.kills.Add(1)
}

// clients starts requests that take about a quarter of a second and returns what waits for their end.
func (k *killer) clients(s *server) (wait func()) {
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(k.t.Context(), 30*time.Second)
			defer cancel()
			if err := one(ctx, s, i%2 == 0); err != nil {
				k.t.Errorf("client %d: %v", i, err)
			}
		})
	}
	return group.Wait
}

// one sends a request. Whatever befalls the server, it must end: whole, with an error that says so, or with a broken
// connection. Half an answer must not look like a whole one.
func one(ctx context.Context, s *server, stream bool) error {
	resp, err := s.send(ctx, "/v1/chat/completions", chat("!slow:30!", obj{"stream": stream}))
	if err != nil {
		return hung(ctx)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return hung(ctx)
	}
	if !stream || resp.StatusCode != http.StatusOK {
		if !bytes.Contains(b, []byte(`"error"`)) && !bytes.Contains(b, []byte("Paris")) {
			return fmt.Errorf("%d %q", resp.StatusCode, b)
		}
		return nil
	}
	failed := false
	done, err := events(bytes.NewReader(b), func(v map[string]any) bool {
		failed = failed || v["error"] != nil
		return true
	})
	if err != nil || done == failed {
		return fmt.Errorf("the stream says done %v and failed %v (%w): %q", done, failed, err, b)
	}
	return nil
}

// hung tells a client that has waited too long from one whose connection broke.
func hung(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("it has waited for half a minute")
	}
	return nil
}

// nobodyLeft looks once more at every child that ever was.
func (k *killer) nobodyLeft() {
	for pid := range k.seen {
		if alive(pid) {
			k.t.Errorf("child %d is still there", pid)
		}
	}
}
