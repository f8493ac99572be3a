// Package keeper lets one program own the model servers of another. The box, which faces the network, asks over a Unix
// socket for a process of a model's plan; the keeper plans anew with what it finds itself, so that no request can name a
// program, an argument or a variable; it starts the process in a sandbox, as a user of its own, and tells what it writes
// and how it ends.
//
// A connection is a process: when it closes, the process and its group are killed. Client and keeper speak in lines of
// JSON:
//
//	client  the Request, and with it the end of a conduit when the process is to have one
//	keeper  {"pid":…,"uid":…}, or {"error":…} and the end
//	keeper  {"stdout":…}, {"stderr":…} as they come
//	client  end                          the process is asked to end
//	keeper  {"ended":true,"status":…}
//
// A Request may also ask for the plan itself; the answer is {"plan":…,"ended":true}. Who asks for processes takes that
// plan, since the keeper may find other programs than it does.
//
// Only the user that the keeper was told to serve is served: the kernel says who has connected. No process outlives
// the keeper, since the kernel kills each with the thread that started it.
package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"onebit/engine/backend"
	"onebit/engine/conduit"
)

// Config describes a Keeper.
type Config struct {
	Machine     *backend.Machine
	Confinement backend.Confinement // As is chosen for each process
	Client      int                 // the user who is served
	Users       Users               // whom processes run as
	Append      []string            // put behind the command line of every llama-server
	Slots       string              // a folder below which the state of slots is kept; "" for nowhere, and then no process keeps any. Its group is the client's.
	Log         *slog.Logger
}

// Users is a range of numbers that belong to nobody. A process has one for itself while it runs.
type Users struct {
	First, Count int // no Count: processes run as the keeper does
}

// leastUser is the first number that systems give to nobody by themselves.
const leastUser = 60706

// Keeper starts processes for a client.
type Keeper struct {
	cfg   Config
	group uint32 // of Slots

	mu    sync.Mutex
	taken map[int]bool // users with a process
}

// times that a client has.
const (
	askLimit  = 10 * time.Second // until it has sent its request
	tellLimit = time.Minute      // to take an event
)

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Keeper, error) {
	switch {
	case cfg.Machine == nil || cfg.Log == nil || cfg.Confinement.Executable == "":
		return nil, errors.New("a keeper needs a machine, a log and our own program")
	case cfg.Users.Count < 0 || (cfg.Users.Count > 0 && cfg.Users.First < leastUser):
		return nil, fmt.Errorf("the users from %d on may be somebody: the first must be %d or more", cfg.Users.First, leastUser)
	}
	k := &Keeper{cfg: cfg, taken: map[int]bool{}}
	if cfg.Slots != "" {
		var err error
		if k.group, err = groupOf(cfg.Slots); err != nil {
			return nil, fmt.Errorf("the folder for the state of slots: %w", err)
		}
		if cfg.Users.Count > 0 && k.group == 0 {
			return nil, fmt.Errorf("the folder for the state of slots, %s, has the group of root: a model server may not have that", cfg.Slots)
		}
	}
	return k, nil
}

// Serve answers clients until ctx ends. Then no process is left.
func (k *Keeper) Serve(ctx context.Context, l *net.UnixListener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for {
		conn, err := l.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("waiting for clients: %w", err)
		}
		group.Go(func() {
			defer func() { _ = conn.Close() }()
			if err := k.client(ctx, conn); err != nil {
				k.cfg.Log.Warn("a process was not started", "why", err)
				_ = (&teller{conn: conn}).tell(event{Error: err.Error()}) // it may have gone
			}
		})
	}
}

// client serves one connection. An error says why no process was started.
func (k *Keeper) client(ctx context.Context, conn *net.UnixConn) error {
	who, err := peer(conn)
	if err != nil {
		return fmt.Errorf("asking who has connected: %w", err)
	}
	if who != k.cfg.Client {
		return fmt.Errorf("user %d is not served here", who)
	}
	if err := conn.SetReadDeadline(time.Now().Add(askLimit)); err != nil {
		return err
	}
	came := &receiver{conn: conn}
	defer came.close()
	in := bufio.NewReaderSize(came, requestLimit)
	line, err := in.ReadSlice('\n')
	if err != nil {
		return fmt.Errorf("waiting for the request: %w", err)
	}
	request, err := ParseRequest(line)
	if err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	options := request.Options()
	options.Append = k.cfg.Append
	if err := k.slotDir(&options); err != nil {
		return err
	}
	plan, err := backend.NewPlan(ctx, k.cfg.Machine, options)
	if err != nil {
		return err
	}
	if request.Plan {
		_ = (&teller{conn: conn}).tell(event{Plan: plan, Ended: true}) // it may have gone
		return nil
	}
	children := plan.Children()
	if request.Child >= len(children) {
		return fmt.Errorf("the plan has no process %d", request.Child)
	}
	j := job{options, children[request.Child], backend.Place{Port: request.Port}, came}
	if j.at.Port == 0 {
		if j.at.End = came.end; j.at.End == nil {
			return errors.New("there is neither a port nor a conduit")
		}
		if err := conduit.Check(j.at.End); err != nil {
			return err
		}
	}
	return k.keep(ctx, conn, in, j)
}

// job is what a client wants.
type job struct {
	options backend.Options
	child   backend.ChildSpec
	at      backend.Place
	came    *receiver
}

// keep runs a process until it ends, its client goes or ctx ends.
func (k *Keeper) keep(ctx context.Context, conn *net.UnixConn, in *bufio.Reader, j job) error {
	confinement, release, err := k.user(j.options.SlotDir != "")
	if err != nil {
		return err
	}
	defer release()
	runtime.LockOSThread() // the kernel kills the process when the thread that started it ends
	defer runtime.UnlockOSThread()
	out := &teller{conn: conn}
	process, err := confinement.Launch(j.options, j.child)(j.at, piece{out, false}, piece{out, true})
	j.came.close() // the process has its own, with which it goes
	if err != nil {
		return err
	}
	log := k.cfg.Log.With("pid", process.Pid(), "device", j.child.Label(), "at", j.at.String())
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		wishes(in, process)
	}()
	log.Info("started a process", "user", confinement.UID())
	if err := out.tell(event{PID: process.Pid(), UID: confinement.UID()}); err != nil {
		log.Warn("the client went at once", "why", err)
	}
	select {
	case err = <-ended:
	case <-gone:
		process.Kill()
		err = <-ended
	case <-ctx.Done():
		process.Kill()
		err = <-ended
	}
	process.Kill() // also what it may have left behind
	end := event{Ended: true}
	if err != nil {
		end.Status = err.Error()
	}
	log.Info("a process ended", "status", end.Status)
	_ = out.tell(end) // the client may have gone
	_ = conn.Close()
	<-gone
	return nil
}

// wishes does what a client asks for, until it goes.
func wishes(in *bufio.Reader, p backend.Process) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if string(line) == wishEnd+"\n" {
			p.Terminate()
		}
	}
}

// user takes a user for a process. release gives it back, and nothing of it runs then. With slots its group is the
// client's.
func (k *Keeper) user(slots bool) (c backend.Confinement, release func(), err error) {
	c = k.cfg.Confinement
	c.Group = slots
	if k.cfg.Users.Count == 0 {
		return c, func() {}, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for n := range k.cfg.Users.Count {
		id := k.cfg.Users.First + n
		if k.taken[id] {
			continue
		}
		k.taken[id] = true
		c.As = &backend.Identity{UID: uint32(id), GID: uint32(id)}
		if slots {
			c.As.GID = k.group
		}
		if c.Scratch != "" {
			c.Scratch = filepath.Join(c.Scratch, strconv.Itoa(id))
		}
		return c, func() {
			err := c.Sweep()
			if err != nil { // it stays taken: somebody may still run as it
				k.cfg.Log.Error("cannot clear a user", "user", id, "why", err)
				return
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.taken, id)
		}, nil
	}
	return c, nil, fmt.Errorf("all %d users have a process", k.cfg.Users.Count)
}

// teller writes events, one at a time.
type teller struct {
	mu   sync.Mutex
	conn net.Conn
}

func (t *teller) tell(e event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("writing an event: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.conn.SetWriteDeadline(time.Now().Add(tellLimit)); err != nil {
		return err
	}
	_, err = t.conn.Write(append(b, '\n'))
	return err
}

// told reports whether the client is still there to be told.
func (t *teller) told(e event) bool { return t.tell(e) == nil }

// piece is one of a process's streams, told as events.
type piece struct {
	to     *teller
	errors bool
}

// Write tells all of b. A client that does not listen any more loses it: the process is not to stand still.
func (p piece) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), pieceLimit)
		e := event{Stdout: string(rest[:n])}
		if p.errors {
			e = event{Stderr: string(rest[:n])}
		}
		if !p.to.told(e) {
			break
		}
		rest = rest[n:]
	}
	return len(b), nil
}

var _ io.Writer = piece{}
