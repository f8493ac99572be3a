package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"time"
)

const (
	childMemory  = 768 << 20 // what the child's garbage collector aims for
	mostStderr   = 4 << 10
	defaultLimit = 60 * time.Second
)

// answer is what the child says on its standard output: one JSON value.
type answer struct {
	Document *Document `json:"document,omitempty"`
	Error    *Error    `json:"error,omitempty"`
	Broken   string    `json:"broken,omitempty"` // an error of ours, not of the file
}

// Child reads one document from in and writes the answer to out. It is what the
// process of a Runner runs, after it gave its rights away; name is the file's.
func Child(ctx context.Context, in io.Reader, out io.Writer, name string) error {
	debug.SetMemoryLimit(childMemory)
	budget := Default()
	content, err := io.ReadAll(io.LimitReader(in, budget.Input+1))
	if err != nil {
		return fmt.Errorf("reading the document: %w", err)
	}
	var a answer
	a.Document, err = guarded(ctx, content, name, budget)
	var refused *Error
	switch {
	case errors.As(err, &refused):
		a.Error = refused
	case err != nil:
		a.Broken = err.Error()
	}
	return json.NewEncoder(out).Encode(a)
}

// guarded turns a parser's panic into a refusal of the document.
func guarded(ctx context.Context, content []byte, name string, budget Budget) (d *Document, err error) {
	defer func() {
		if p := recover(); p != nil {
			d, err = nil, refuse(saveIt, "its content broke the reader: %v", p)
		}
	}()
	return Read(ctx, content, name, budget)
}

// Runner reads documents in processes of their own.
type Runner struct {
	// Program is the command line of the child, which calls Child; the file's
	// name is added to it.
	Program []string
	// Limit is the wall-clock time for one document; 0 for a minute.
	Limit time.Duration
}

// Extract reads a document. Errors of its content, and running out of time or
// memory, are *Error. The file is read from its beginning.
func (r Runner) Extract(ctx context.Context, f *os.File, name string) (*Document, error) {
	if len(r.Program) == 0 {
		return nil, errors.New("a runner needs a program")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	limit := r.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.Program[0], append(r.Program[1:len(r.Program):len(r.Program)], fileName(name))...)
	cmd.Stdin, cmd.Env = f, []string{}
	cmd.WaitDelay = 5 * time.Second
	var stderr tail
	cmd.Stderr = &stderr
	// What comes back is bounded: text, as JSON at most six times as long, in
	// blocks with some words round each.
	out := &bounded{most: 8*Default().Text + 1<<20}
	cmd.Stdout = out
	err := cmd.Run()
	switch {
	case context.Cause(ctx) == errLate: //nolint:errorlint // our own value
		return nil, refuse(splitIt, "reading it took longer than %s", limit)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case out.over:
		return nil, refuse(splitIt, "it holds too much text")
	}
	var a answer
	if err != nil || json.Unmarshal(out.b.Bytes(), &a) != nil {
		return nil, died(err, stderr.String())
	}
	switch {
	case a.Error != nil:
		return nil, a.Error
	case a.Broken != "":
		return nil, fmt.Errorf("reading a document: %s", a.Broken)
	case a.Document == nil:
		return nil, died(nil, "it said nothing")
	}
	return a.Document.checked()
}

var errLate = errors.New("time is up")

// died explains the end of a child. A signal, or memory that ran out, is the
// document's fault; anything else is ours.
func died(err error, said string) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && (exit.ExitCode() < 0 || strings.Contains(said, "out of memory") || strings.Contains(said, "cannot allocate")) {
		return refuse(splitIt, "reading it took more memory or time than one document may have (%s)", exit.ProcessState)
	}
	if err == nil {
		err = errors.New("its answer is damaged")
	}
	return fmt.Errorf("the process that reads documents failed: %w: %s", err, strings.TrimSpace(said))
}

// checked holds an answer to what Read promises: the child has read a stranger's
// file, and is not trusted either.
func (d *Document) checked() (*Document, error) {
	b := &builder{budget: Default(), doc: Document{Title: clean(cut(d.Title, 1000), false), Pages: max(0, d.Pages)}}
	for _, m := range Media() {
		if m == d.Media {
			b.doc.Media = m
		}
	}
	for _, k := range d.Blocks {
		switch k.Kind {
		case Heading, Paragraph, List, Table, Code:
		default:
			return nil, fmt.Errorf("the process that reads documents answered with a block of kind %q", k.Kind)
		}
		if err := b.add(k.Kind, max(0, min(k.Level, 9)), k.Text, max(0, min(k.Page, d.Pages))); err != nil {
			return nil, err
		}
	}
	return &b.doc, nil
}

// fileName is what the child is told of a file's name: enough for its ending.
func fileName(name string) string {
	name = clean(name, false)
	if len(name) > 200 {
		name = name[len(name)-200:]
	}
	return "file:" + strings.ToValidUTF8(name, "")
}

// FileName takes off what Extract put before a name, so that no name is an
// option.
func FileName(arg string) string { return strings.TrimPrefix(arg, "file:") }

// bounded keeps what is written up to a limit, and fails then.
type bounded struct {
	b    bytes.Buffer
	most int64
	over bool
}

func (w *bounded) Write(p []byte) (int, error) {
	if int64(w.b.Len()+len(p)) > w.most {
		w.over = true
		return 0, errors.New("too much output")
	}
	return w.b.Write(p)
}

// tail keeps the first and the last of what a child says.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*mostStderr {
		t.b = append(t.b[:mostStderr:mostStderr], t.b[len(t.b)-mostStderr:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.b) }
