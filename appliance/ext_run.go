package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"onebit/appliance/record"
	"onebit/extensions/abi"
	"onebit/extensions/host"
	"onebit/extensions/payload"
	"onebit/extensions/tck"
)

// runExt is `1bit ext run`.
func runExt(ctx context.Context, p program, args []string) error {
	f := newExtFile("run")
	f.StringVar(&f.request, "request", "", "")
	f.StringVar(&f.prompt, "prompt", "", "")
	f.BoolVar(&f.classify, "classify", false, "")
	g, _, err := f.load(ctx, args)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close(ctx) }()
	q, err := f.question(p, g)
	if err != nil {
		return err
	}
	services := tck.Steady()
	services.Now = time.Now
	services.Metric = func(name string, v float64) { fmt.Fprintf(p.stderr, "metric     %s %g\n", name, v) }
	q.Services = &services
	a, err := g.Ask(ctx, q)
	p.lines(a.Log)
	if err != nil {
		return p.failed(err, a)
	}
	if a.Decision == nil {
		fmt.Fprintln(p.stderr, "no opinion: the default policy of the box decides")
	} else {
		fmt.Fprintf(p.stdout, "%s\n", a.Answer)
	}
	return p.spent(ctx, p.stderr, g, q, a)
}

// question makes what the command line asks for.
func (f *extFile) question(p program, g *tck.Guest) (q tck.Question, err error) {
	if (f.request == "") == (f.prompt == "") {
		return q, usageError{errors.New("one of --request and --prompt is needed")}
	}
	if q.Function, err = f.chosen(g); err != nil {
		return q, err
	}
	q.Patience = patientExt
	if f.prompt != "" {
		prompt := f.prompt
		q.Request = tck.Request(prompt)
		q.Text = func(part abi.Part) string {
			if part == abi.System {
				return ""
			}
			return prompt
		}
		return q, nil
	}
	from, name := p.stdin, "standard input"
	if f.request != "-" {
		file, err := os.Open(f.request)
		if err != nil {
			return q, err
		}
		defer file.Close()
		from, name = file, f.request
	}
	q.Request, err = readRequest(from)
	if err != nil {
		return q, fmt.Errorf("reading the request from %s: %w", name, err)
	}
	return q, nil
}

// readRequest reads a request that a person wrote: a name that does not exist is a mistake.
func readRequest(from io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(from, abi.MaxRequest+1))
	if err != nil {
		return nil, err
	}
	if len(b) > abi.MaxRequest {
		return nil, fmt.Errorf("more than %d bytes", abi.MaxRequest)
	}
	if b, err = record.Text(b); err != nil {
		return nil, err
	}
	var r abi.Request
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return nil, err
	}
	r.V = abi.Version
	return payload.AppendRequest(nil, &r)
}

// failed says why a call failed, and what was used until then.
func (p program) failed(err error, a tck.Answer) error {
	var e *host.CallError
	if errors.As(err, &e) && e.Trace != "" {
		fmt.Fprintln(p.stderr, e.Trace)
	}
	if len(a.Answer) > 0 {
		fmt.Fprintf(p.stderr, "its answer: %s\n", a.Answer)
	}
	return err
}

// spent prints what a call used of its budget.
func (p program) spent(ctx context.Context, to io.Writer, g *tck.Guest, q tck.Question, a tck.Answer) error {
	stack, err := g.Stack(ctx, q)
	if err != nil {
		return fmt.Errorf("measuring the stack: %w", err)
	}
	fmt.Fprintf(to, `  units      %d of %d
  stack      %d of %d slots
  memory     %d of %d pages
  time       %.3f of %d ms, on this machine
  calls      %d of %d
`, a.Units, g.Limits.Units, stack, g.Limits.Depth, a.Pages, g.Limits.Memory,
		float64(a.Took.Nanoseconds())/1e6, g.Limits.Deadline.Milliseconds(), a.HostCalls, abi.MaxHostCalls)
	return nil
}

// lines prints a guest's log. What the guest wrote is quoted: it may hold what a terminal obeys.
func (p program) lines(list []host.Line) {
	for _, l := range list {
		fmt.Fprintf(p.stderr, "log %-6s %q\n", [...]string{"debug", "info", "warn", "error"}[l.Level], l.Text)
	}
}

// testExt is `1bit ext test`.
func testExt(ctx context.Context, p program, args []string) error {
	f := newExtFile("test")
	g, m, err := f.load(ctx, args)
	if err != nil {
		return err
	}
	defer func() { _ = g.Close(ctx) }()
	p.describe(g, m)
	failed := 0
	list := g.Test(ctx)
	for _, t := range list {
		if t.Err != nil {
			failed++
			fmt.Fprintf(p.stdout, "FAIL %s: %v\n", t.Test, t.Err)
		}
	}
	fmt.Fprintf(p.stdout, "%d tests, each asked twice: %d passed, %d failed (%d samples)\n", len(list), len(list)-failed, failed, len(m.Manifest.Samples))
	if len(m.Manifest.Samples) == 0 {
		fmt.Fprintln(p.stdout, "the manifest has no samples: nothing here says what it should decide")
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d tests failed", failed, len(list))
	}
	return nil
}
