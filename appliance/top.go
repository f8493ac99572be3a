package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"onebit/appliance/admin"
	"onebit/appliance/telemetry"
)

const topUsage = `usage: 1bit top [--once] [--socket PATH]

Shows what the box on this machine does: requests, tokens, models, memory, what is wrong. It is read anew each second;
to stop: Ctrl-C.

  --once         show one second of it and end
  --socket PATH  the box's socket ($ONEBIT_SOCKET, else admin.sock in the state directory)
`

// top is `1bit top`.
func (p program) top(ctx context.Context, args []string) int {
	return p.runAct(ctx, "top", topUsage, showTop, args)
}

// showTop shows the box until ctx ends.
func showTop(ctx context.Context, p program, args []string) error {
	c := newCommandLine("top")
	once := c.Bool("once", false, "")
	l, err := c.open(args, 0, 0)
	if err != nil {
		return err
	}
	before, err := l.glance(ctx)
	if err != nil {
		return err
	}
	f, isFile := p.stdout.(*os.File)
	screen := isFile && term.IsTerminal(int(f.Fd())) && !*once
	for {
		if !pause(ctx, time.Second) {
			return nil
		}
		now, err := l.glance(ctx)
		if err != nil {
			return unlessEnded(ctx, err)
		}
		var b bytes.Buffer
		if screen {
			b.WriteString("\x1b[H\x1b[J") // from the upper left on, nothing of before
		}
		if err := now.write(&b, before); err != nil {
			return err
		}
		if _, err := b.WriteTo(p.stdout); err != nil || *once {
			return err
		}
		before = now
	}
}

// unlessEnded returns an error that is none when somebody has ended us.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// glance is what a box says of itself at a moment.
type glance struct {
	at     time.Time
	status admin.Status
	figure telemetry.Figures
	errors []admin.LogLine // the last ones
}

// shownErrors is how many lines of the log are shown.
const shownErrors = 5

// glance asks the box.
func (l *local) glance(ctx context.Context) (glance, error) {
	out := glance{at: time.Now()}
	if err := l.call(ctx, "GET", "/status", nil, &out.status); err != nil {
		return out, err
	}
	text, err := l.metrics(ctx)
	if err != nil {
		return out, err
	}
	if out.figure, err = telemetry.Read(bytes.NewReader(text)); err != nil {
		return out, err
	}
	var log struct{ Lines []admin.LogLine }
	if err := l.call(ctx, "GET", "/logs?limit=1000", nil, &log); err != nil {
		return out, err
	}
	for _, line := range log.Lines {
		if line.Level == "ERROR" || line.Level == "WARN" {
			out.errors = append(out.errors, line)
		}
	}
	out.errors = out.errors[max(0, len(out.errors)-shownErrors):]
	return out, nil
}

// metrics returns the box's metrics as text.
func (l *local) metrics(ctx context.Context) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://box/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := l.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the box for its metrics: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, errors.New("asking the box for its metrics: it answers " + res.Status)
	}
	return io.ReadAll(io.LimitReader(res.Body, 16<<20))
}

// write shows a look, with rates since the one before.
func (g glance) write(w io.Writer, before glance) error {
	seconds := max(g.at.Sub(before.at).Seconds(), 0.001)
	rate := func(name string, labels ...string) float64 {
		return max(g.figure.Sum(name, labels...)-before.figure.Sum(name, labels...), 0) / seconds
	}
	s, f := g.status, g.figure
	ready := "ready"
	if !s.Ready {
		ready = "NOT READY"
	}
	waiting := int(f.Sum("onebit_model_requests_waiting"))
	// a client that looks at the metrics is not among what the box does
	served := rate("onebit_requests_total") - rate("onebit_requests_total", "route", "/metrics") - rate("onebit_requests_total", "route", "/health")
	fmt.Fprintf(w, "%s  %s  up %s  %s\n", s.Name, s.Version, time.Since(s.Started).Round(time.Second), ready)
	fmt.Fprintf(w, "requests %.1f/s   running %d   waiting %d\n", max(served, 0), s.Running, waiting)
	fmt.Fprintf(w, "tokens   %.1f/s generated   %.1f/s of prompts, %.1f/s of them cached\n",
		rate("onebit_tokens_total", "kind", "completion"), rate("onebit_tokens_total", "kind", "prompt"), rate("onebit_tokens_total", "kind", "cached"))
	fmt.Fprintf(w, "events   %.1f/s   memory %s of %s for models, %s of the box itself   store %s\n\n", rate("onebit_events_relayed_total"),
		gib(s.Memory.Used), gib(s.Memory.Total), gib(int64(f.Sum("process_resident_memory_bytes"))), gib(s.Store.Bytes))
	if prompts := f.Sum("onebit_prompt_cache_prompt_tokens_total"); prompts > 0 {
		fmt.Fprintf(w, "prompts  %.0f%% of their tokens reused   %s in files   %.0f restored, %.0f claims wrong\n\n", 100*f.Sum("onebit_prompt_cache_saved_tokens_total")/prompts,
			gib(int64(f.Sum("onebit_prompt_cache_bytes"))), f.Sum("onebit_prompt_cache_restores_total"), f.Sum("onebit_prompt_cache_wrong_total"))
	}
	rows := [][]string{{"MODEL", "STATE", "DEVICE", "RUNNING", "SLOTS", "WAITING", "OLDEST", "NEXT IN", "MEMORY", "LOADS", "TOKENS/S"}}
	for _, m := range s.Models {
		rows = append(rows, []string{
			m.Name, m.State, m.Device, strconv.Itoa(m.Running), strconv.Itoa(m.Slots), waitingText(m), lasting(m.Queue.Oldest), lasting(m.Queue.Wait), gib(m.Memory),
			strconv.Itoa(int(f.Sum("onebit_model_loads_total", "model", m.Name))),
			fmt.Sprintf("%.1f", rate("onebit_tokens_total", "kind", "completion", "model", m.Name)),
		})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	for i, text := range s.Problems {
		if i == 0 {
			fmt.Fprintln(w, "\nWRONG")
		}
		fmt.Fprintf(w, "  %s\n", text)
	}
	for i, line := range g.errors {
		if i == 0 {
			fmt.Fprintln(w, "\nLOG")
		}
		fmt.Fprintf(w, "  %s\n", logText(line))
	}
	return nil
}

// waitingText is how many wait for a model, and how many of them are not of normal priority.
func waitingText(m admin.Model) string {
	out := strconv.Itoa(m.Waiting)
	if m.Queue.Interactive > 0 || m.Queue.Background > 0 {
		out += fmt.Sprintf(" (%d/%d/%d)", m.Queue.Interactive, m.Queue.Normal, m.Queue.Background)
	}
	return out
}

// lasting shows milliseconds; nothing for none.
func lasting(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// logText is a line of the log in one line of text.
func logText(line admin.LogLine) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-5s %s", line.Time.Local().Format("2006-01-02 15:04:05"), line.Level, line.Text)
	for _, name := range sortedKeys(line.Attrs) {
		fmt.Fprintf(&b, " %s=%q", name, line.Attrs[name])
	}
	return b.String()
}

// gib shows bytes.
func gib(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
