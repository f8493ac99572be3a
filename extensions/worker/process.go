package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// bounds is what a child may use, whatever it becomes.
type bounds struct {
	memory uint64        // bytes of private memory
	cpu    time.Duration // 0 for no bound
	file   uint64        // bytes of one file; memory of a snapshot is one
	files  uint64        // open descriptors
	nice   int           // how far it stands back for others, where the system has that
}

// most of the address space of a child: what Go reserves and never uses is in it.
const addressSpace = 6 << 30

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	conns []conn // one for each instance
	tail  *tail
	ended chan struct{} // closed when it is gone and waited for
	err   error         // of Wait; set before ended is closed
	why   atomic.Pointer[string]
}

// start starts a child with so many connections. Its rights end with the thread that calls this. The child waits for its
// spec, so it has done nothing when its bounds are set.
func start(argv []string, connections int, b bounds) (*process, error) {
	p := &process{ended: make(chan struct{})}
	var theirs []ends
	defer func() {
		for _, e := range theirs {
			e.close()
		}
	}()
	for range connections {
		ours, their, err := pair()
		if err != nil {
			p.close()
			return nil, fmt.Errorf("making a connection: %w", err)
		}
		p.conns, theirs = append(p.conns, ours), append(theirs, their)
	}
	p.tail = &tail{flood: func() { p.kill("it wrote too much to its standard error") }}
	p.cmd = exec.CommandContext(context.Background(), argv[0], argv[1:]...) // it is ended by kill
	p.cmd.Env = []string{}
	p.cmd.Dir = os.TempDir() // any that exists; it cannot see it
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0].in, theirs[0].out, p.tail
	for _, e := range theirs[1:] {
		p.cmd.ExtraFiles = append(p.cmd.ExtraFiles, e.in)
	}
	p.cmd.WaitDelay = time.Second
	p.cmd.SysProcAttr = attributes()
	if err := p.cmd.Start(); err != nil {
		p.close()
		return nil, err
	}
	if err := confine(p.cmd.Process.Pid, b); err != nil {
		p.kill("its bounds could not be set")
		p.err = p.cmd.Wait()
		p.close()
		return nil, fmt.Errorf("bounding a child: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// close closes our ends of the connections.
func (p *process) close() {
	for _, c := range p.conns {
		c.Close()
	}
}

// kill ends the child and whatever it may have started. The first reason stays; an empty one is none.
func (p *process) kill(why string) {
	if why != "" {
		p.why.CompareAndSwap(nil, &why)
	}
	select {
	case <-p.ended: // its number may be somebody else's
	default:
		killGroup(p.cmd.Process)
	}
}

// epitaph says why a child that has ended did so.
func (p *process) epitaph() error {
	if why := p.why.Load(); why != nil {
		return errors.New(*why)
	}
	said := p.tail.first()
	if p.err == nil {
		return errors.New("it ended")
	}
	if said == "" {
		return fmt.Errorf("it ended: %w", p.err)
	}
	return fmt.Errorf("it ended: %w: %s", p.err, said)
}

// tail keeps the beginning of what a child writes to its standard error: a fatal error says there what it is.
type tail struct {
	flood func()

	mu   sync.Mutex
	text []byte
	all  int
}

const (
	tailKept  = 4 << 10
	tailFlood = 1 << 20
)

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b[:min(len(b), tailKept-len(t.text))]...)
	if t.all += len(b); t.all > tailFlood {
		t.flood()
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}

// first is the first line, made fit for a log.
func (t *tail) first() string {
	line, _, _ := strings.Cut(t.String(), "\n")
	return cut(strings.ToValidUTF8(strings.TrimSpace(line), "?"), 300)
}

// cpu is the processor time that a child has used. It must have ended.
func (p *process) cpu() time.Duration {
	s := p.cmd.ProcessState
	if s == nil {
		return 0
	}
	return s.UserTime() + s.SystemTime()
}

// signalled tells whether a signal ended the child.
func (p *process) signalled() bool {
	s := p.cmd.ProcessState
	return s != nil && !s.Exited()
}

// outOfMemory tells whether what Go wrote as it died is about memory.
func outOfMemory(said string) bool {
	for _, words := range []string{"out of memory", "cannot allocate memory", "failed to create new OS thread", "errno=12", "failed to reserve"} {
		if strings.Contains(said, words) {
			return true
		}
	}
	return false
}
