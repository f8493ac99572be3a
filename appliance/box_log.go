package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"onebit/appliance/admin"
)

// logLines is how many lines of the log the control plane can show.
const logLines = 2000

// logbook keeps the last lines of the log, beside what writes them out.
type logbook struct {
	mu    sync.Mutex
	lines []admin.LogLine // a ring
	last  int64           // id of the newest; ids begin at 1
}

func newLogbook(n int) *logbook { return &logbook{lines: make([]admin.LogLine, n)} }

// handler returns one that keeps lines and passes them on.
func (l *logbook) handler(next slog.Handler) slog.Handler { return keeper{Handler: next, book: l} }

// keeper is a handler that keeps what passes.
type keeper struct {
	slog.Handler
	book  *logbook
	attrs []slog.Attr
	group string
}

func (k keeper) Handle(ctx context.Context, r slog.Record) error {
	line := admin.LogLine{Time: r.Time, Level: r.Level.String(), Text: r.Message, Attrs: map[string]string{}}
	for _, a := range k.attrs {
		line.Attrs[a.Key] = a.Value.Resolve().String()
	}
	r.Attrs(func(a slog.Attr) bool {
		line.Attrs[k.group+a.Key] = a.Value.Resolve().String()
		return true
	})
	k.book.add(line)
	return k.Handler.Handle(ctx, r)
}

func (k keeper) WithAttrs(attrs []slog.Attr) slog.Handler {
	named := slices.Clone(k.attrs)
	for _, a := range attrs {
		a.Key = k.group + a.Key
		named = append(named, a)
	}
	k.Handler, k.attrs = k.Handler.WithAttrs(attrs), named
	return k
}

func (k keeper) WithGroup(name string) slog.Handler {
	k.Handler, k.group = k.Handler.WithGroup(name), k.group+name+"."
	return k
}

func (l *logbook) add(line admin.LogLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	line.ID = l.last
	l.lines[l.last%int64(len(l.lines))] = line
}

// since returns the oldest lines after an id, at most limit; with id 0 the newest.
func (l *logbook) since(after int64, limit int) []admin.LogLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(len(l.lines))
	limit = min(max(limit, 1), int(n))
	if after == 0 {
		after = l.last - int64(limit)
	}
	out := []admin.LogLine{}
	for id := max(after+1, l.last-n+1, 1); id <= l.last && len(out) < limit; id++ {
		out = append(out, l.lines[id%n])
	}
	return out
}

// problems are what is wrong with a box at the moment, each under a word that says what it is about.
type problems struct {
	mu  sync.Mutex
	all map[string]string
}

// set notes a problem, or with an empty text that it is over.
func (p *problems) set(about, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]string{}
	}
	if text == "" {
		delete(p.all, about)
		return
	}
	p.all[about] = text
}

// get returns the problem under a word; empty when there is none.
func (p *problems) get(about string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[about]
}

// list returns them in a steady order.
func (p *problems) list() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var words, texts []string
	for about := range p.all {
		words = append(words, about)
	}
	slices.Sort(words)
	for _, about := range words {
		texts = append(texts, p.all[about])
	}
	return texts
}
