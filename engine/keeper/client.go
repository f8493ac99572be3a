package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"onebit/engine/backend"
)

// Client asks a keeper for processes.
type Client struct {
	Socket   string
	Patience time.Duration // how long a keeper that is not there is waited for
}

// planLimit is how long a keeper may take to start a process: it may have to ask several programs what they are.
const planLimit = time.Minute

// Launch returns how the keeper starts a process of the plan that options make: the one of this number, in the order of
// Plan.Children. Options whose place is not a Request are the keeper's own.
func (c Client) Launch(o backend.Options, child int) backend.Launch {
	return func(at backend.Place, stdout, stderr io.Writer) (backend.Process, error) {
		p, err := c.start(requestOf(o, child, at.Port), &kept{end: at.End, stdout: stdout, stderr: stderr})
		if err != nil {
			return nil, fmt.Errorf("asking the keeper of engines at %s: %w", c.Socket, err)
		}
		return p, nil
	}
}

// Plan asks how the keeper would run a model: with the programs that it finds. Command lines in it are for looking at.
func (c Client) Plan(ctx context.Context, o backend.Options) (*backend.Plan, error) {
	p, err := c.plan(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("asking the keeper of engines at %s: %w", c.Socket, err)
	}
	return p, nil
}

func (c Client) plan(ctx context.Context, o backend.Options) (*backend.Plan, error) {
	ctx, cancel := context.WithTimeout(ctx, planLimit)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	r := requestOf(o, 0, 0)
	r.Plan = true
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("writing the request: %w", err)
	}
	p := &kept{conn: conn, in: bufio.NewReaderSize(conn, eventLimit)}
	unsent := send(conn, append(b, '\n'), nil)
	e, err := p.next()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, errors.Join(unsent, err)
	case e.Error != "":
		return nil, errors.New(e.Error)
	case e.Plan == nil:
		return nil, errors.New("it says no plan")
	}
	return e.Plan, nil
}

// dial connects. A keeper that is being started, or started again, is waited for.
func (c Client) dial(ctx context.Context) (net.Conn, error) {
	for end := time.Now().Add(c.Patience); ; {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", c.Socket)
		if err == nil || !time.Now().Before(end) || ctx.Err() != nil {
			return conn, err
		}
		select {
		case <-time.After(dialPause):
		case <-ctx.Done():
		}
	}
}

// dialPause is between two tries to connect.
const dialPause = 50 * time.Millisecond

// start asks for the process that p is to be.
func (c Client) start(r Request, p *kept) (*kept, error) {
	ctx, cancel := context.WithTimeout(context.Background(), planLimit)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	p.conn, p.in = conn, bufio.NewReaderSize(conn, eventLimit)
	if err := p.ask(r); err != nil {
		conn.Close()
		return nil, err
	}
	return p, nil
}

// kept is a process that a keeper runs for us. It implements backend.Process.
type kept struct {
	conn           net.Conn
	in             *bufio.Reader
	end            *os.File // of a conduit, to be handed over; nil for none
	stdout, stderr io.Writer
	pid, uid       int
	closing        sync.Once
}

// ask sends the request and waits for the start.
func (p *kept) ask(r Request) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing the request: %w", err)
	}
	if err := p.conn.SetDeadline(time.Now().Add(planLimit)); err != nil {
		return err
	}
	unsent := send(p.conn, append(b, '\n'), p.end)
	for {
		e, err := p.next() // who refuses us before we have spoken says why
		if err != nil {
			return errors.Join(unsent, err)
		}
		switch {
		case e.Error != "":
			return errors.New(e.Error)
		case e.PID > 0:
			p.pid, p.uid = e.PID, e.UID
			return p.conn.SetDeadline(time.Time{})
		case e.Ended:
			return fmt.Errorf("it ended at once: %s", e.Status)
		}
		p.show(e) // it was quicker to write than the keeper to say that it runs
	}
}

func (p *kept) next() (event, error) {
	line, err := p.in.ReadSlice('\n')
	if err != nil {
		return event{}, err
	}
	return parseEvent(line)
}

// show passes on what the process has written.
func (p *kept) show(e event) {
	if e.Stdout != "" && p.stdout != nil {
		_, _ = io.WriteString(p.stdout, e.Stdout) // as with a pipe of its own, it is not the process's concern
	}
	if e.Stderr != "" && p.stderr != nil {
		_, _ = io.WriteString(p.stderr, e.Stderr)
	}
}

func (p *kept) Pid() int { return p.pid }

// UID is whom the process runs as.
func (p *kept) UID() int { return p.uid }

// Wait returns once the process has ended, or the keeper is gone, with whom the process goes.
func (p *kept) Wait() error {
	defer p.Kill()
	for {
		e, err := p.next()
		switch {
		case err != nil:
			return fmt.Errorf("the keeper of engines is gone: %w", err)
		case e.Ended && e.Status != "":
			return errors.New(e.Status)
		case e.Ended:
			return nil
		}
		p.show(e)
	}
}

// Terminate asks the process to end.
func (p *kept) Terminate() {
	if err := p.conn.SetWriteDeadline(time.Now().Add(time.Second)); err == nil {
		_, _ = io.WriteString(p.conn, wishEnd+"\n") // who does not hear it is killed
	}
}

// Kill makes the keeper kill the process.
func (p *kept) Kill() { p.closing.Do(func() { p.conn.Close() }) }
