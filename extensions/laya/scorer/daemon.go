package scorer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"time"
)

// DaemonConfig says how the reference's daemon is started and how long it may take.
type DaemonConfig struct {
	Program []string // and its arguments; the arguments of the protocol follow
	Env     []string // beside this program's own
	Model   string   // a GGUF
	Device  string
	Wording int // of the question; see Wordings
	Log     *slog.Logger
	Stderr  io.Writer // of the daemon; nil for nowhere

	Ready, Ask time.Duration // zero for 300 s until it is ready, 30 s a question
}

// Daemon asks the reference's daemon: one process, one JSON line for each question and one for each answer, one question at a time.
// Lines have no number. So a daemon that is late is killed, and the next question starts another: a late answer is never
// read as that of the next question. The first question starts the daemon.
type Daemon struct {
	cfg  DaemonConfig
	turn chan struct{} // held by who uses live
	live *process      // nil when none runs
	done bool
}

// process is one run of the daemon.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // closed at the end of what it says
	gone  chan struct{}
}

// ErrClosed says that Close was called.
var ErrClosed = errors.New("this scorer is closed")

// errEnded says that the process speaks no more.
var errEnded = errors.New("it has ended")

// NewDaemon checks the configuration. It starts nothing.
func NewDaemon(cfg DaemonConfig) (*Daemon, error) {
	switch {
	case len(cfg.Program) == 0 || cfg.Model == "" || cfg.Device == "" || cfg.Log == nil:
		return nil, errors.New("a daemon needs a program, a model, a device and a log")
	case cfg.Wording < 0 || cfg.Wording >= Wordings:
		return nil, fmt.Errorf("there is no wording %d of the question", cfg.Wording)
	}
	if cfg.Ready == 0 {
		cfg.Ready = 300 * time.Second
	}
	if cfg.Ask == 0 {
		cfg.Ask = askTimeout
	}
	return &Daemon{cfg: cfg, turn: make(chan struct{}, 1)}, nil
}

// Score implements Scorer.
func (d *Daemon) Score(ctx context.Context, text string) (Answer, error) {
	if a, ok := long(text); ok {
		return a, nil
	}
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	if d.done {
		return Answer{}, ErrClosed
	}
	a, err := d.ask(ctx, text)
	if err != nil {
		return Answer{}, fmt.Errorf("asking the daemon: %w", err)
	}
	return a, nil
}

// ask asks the live process, or a new one. Whatever goes wrong ends the process: what it may still say is nobody's answer. One
// that has ended, as it may between two questions, is asked a second time when it is new.
func (d *Daemon) ask(ctx context.Context, text string) (Answer, error) {
	for fresh := false; ; {
		if d.live != nil && d.live.stray() { // it has ended, or said what nobody asked
			d.stop(errors.New("it has ended or speaks unasked"))
		}
		if d.live == nil {
			p, err := d.start(ctx)
			if err != nil {
				return Answer{}, err
			}
			d.live, fresh = p, true
		}
		line, err := d.live.exchange(ctx, append(question(text, d.cfg.Wording), '\n'), d.cfg.Ask)
		if err == nil {
			var a Answer
			if a, err = readAnswers(line); err == nil {
				return a, nil
			}
		}
		d.stop(err)
		if fresh || !errors.Is(err, errEnded) {
			return Answer{}, err
		}
	}
}

// stop ends the live process.
func (d *Daemon) stop(why error) {
	d.cfg.Log.Warn("the classifier's daemon is stopped; the next question starts it again", "why", why)
	d.live.kill()
	d.live = nil
}

// start starts the daemon and waits until it says that it is ready.
func (d *Daemon) start(ctx context.Context) (*process, error) {
	args := append(d.cfg.Program[1:len(d.cfg.Program):len(d.cfg.Program)], "daemon", d.cfg.Model, "--family", "typed-decisions", "--device", d.cfg.Device)
	cmd := exec.Command(d.cfg.Program[0], args...) //nolint:noctx // it lives longer than the question that starts it
	cmd.Stderr = d.cfg.Stderr
	cmd.Env = append(os.Environ(), d.cfg.Env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, in: in, lines: make(chan []byte), gone: make(chan struct{})}
	go p.read(out)
	line, err := p.exchange(ctx, nil, d.cfg.Ready)
	var first struct {
		Status string `json:"status"`
	}
	switch {
	case err != nil:
		err = fmt.Errorf("waiting until it is ready: %w", err)
	case json.Unmarshal(line, &first) != nil || first.Status != "ready":
		err = fmt.Errorf("it is not ready, it says %.200q", line)
	default:
		return p, nil
	}
	p.kill()
	return nil, err
}

// read hands on what the daemon says, line by line, until its end or kill.
func (p *process) read(out io.Reader) {
	defer close(p.lines)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, mostAnswer)
	for lines.Scan() {
		select {
		case p.lines <- append([]byte(nil), lines.Bytes()...):
		case <-p.gone:
			return
		}
	}
}

// exchange writes a line, if any, and waits for one.
func (p *process) exchange(ctx context.Context, line []byte, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	wrote := make(chan error, 1)
	go func() { // a daemon that does not read must not hold us; kill ends the write
		_, err := p.in.Write(line)
		wrote <- err
	}()
	for {
		select {
		case err := <-wrote:
			if err != nil { // nobody reads any more
				return nil, fmt.Errorf("%w: %w", errEnded, err)
			}
			wrote = nil
		case answer, ok := <-p.lines:
			if !ok {
				return nil, errEnded
			}
			return answer, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// stray reports whether the process has said something before it was asked, or nothing more comes from it.
func (p *process) stray() bool {
	select {
	case <-p.lines:
		return true
	default:
		return false
	}
}

// kill ends the process and waits for it.
func (p *process) kill() {
	close(p.gone)
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.in.Close()
	for range p.lines { // until read has returned
	}
	_ = p.cmd.Wait()
}

// Close ends the daemon, after the question that it is at. It may be called again.
func (d *Daemon) Close() error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	d.done = true
	if d.live != nil {
		d.live.kill()
		d.live = nil
	}
	return nil
}
