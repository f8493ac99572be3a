package worker

import (
	"bytes"
	"context"
	"io"
	"time"

	"onebit/extensions/host"
)

// RewriteVersion is the version in the names of rewritten modules.
const RewriteVersion = rewriteVersion

// Pid is the process that serves; 0 for none.
func (w *Worker) Pid() int {
	g := w.look().now
	if g == nil {
		return 0
	}
	return g.process.cmd.Process.Pid
}

// Hurry makes the pauses of a worker short.
func (w *Worker) Hurry() { w.pauseMin, w.pauseMax = time.Millisecond, 4*time.Millisecond }

// Waiting is how many calls wait for an instance.
func (w *Worker) Waiting() int { return int(w.waiting.Load()) }

// canned is a connection that says what it was given and hears nothing.
type canned struct{ io.Reader }

func (canned) Write(b []byte) (int, error) { return len(b), nil }
func (canned) Close() error                { return nil }

// Hear lets the box read bytes as if a worker had sent them while one call of number 1 is out, and returns what the call
// came to.
func Hear(said []byte, c *host.Call) (host.Result, error) {
	ended := make(chan struct{})
	close(ended)
	g := &generation{process: &process{ended: ended}}
	g.links = []*link{newLink(canned{bytes.NewReader(said)}, maxFromChild)}
	p, err := g.send(1, c, 0, time.Second)
	if err != nil {
		return host.Result{}, err
	}
	o, err := p.wait(context.Background(), context.Background())
	if o.failed != nil {
		return o.result, o.failed
	}
	return o.result, err
}

// Frame makes the bytes of a frame.
func Frame(k byte, id uint64, payload []byte) []byte {
	return finish(append(begin(nil, kind(k), id), payload...))
}

// ResultFrame makes the frame with which a worker ends a call; AskFrame one with which it asks for the tokens of a text.
func ResultFrame(id uint64, r host.Result, failed *host.CallError) []byte {
	o := outcome{result: r, failed: failed}
	return Frame(byte(kindResult), id, o.append(nil))
}

func AskFrame(id uint64, text string) []byte {
	return Frame(byte(kindAsk), id, appendBytes([]byte{byte(opTokens)}, text))
}

// ReadCallFrame reads what a child reads.
func ReadCallFrame(payload []byte) error {
	_, err := readCall(payload)
	return err
}

// ReadSaid reads what a child says of a preparation.
func ReadSaid(b []byte) (Report, error) {
	if f, err := readFailure(b); err == nil {
		return Report{}, f.error()
	}
	return PrepareConfig{}.withDefaults().readReport(b)
}

// Detecting says that the race detector is built in.
const Detecting = detecting

// Free is how many instances are free.
func (w *Worker) Free() int { return len(w.slots) }
