package tck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/host"
)

// Host is a host under test.
type Host interface {
	// Load takes a module in: it judges it, and sets it up with one warm call by the request {"v":1}. What the manifest asks
	// for is granted, and nothing else.
	Load(ctx context.Context, m Module) (Loaded, error)
}

// Loaded is a module that a host is ready to ask. It serves one goroutine.
type Loaded interface {
	Call(ctx context.Context, c host.Call) (host.Result, error)
	Close(ctx context.Context) error
}

// Case is one promise of the contract with what shows whether a host keeps it.
type Case struct {
	Name string // the row or sentence of ABI.md
	Try  func(ctx context.Context, h Host) error
}

// Cases returns all of them.
func Cases() []Case {
	return slices.Concat(refusals(), exports(), memories(), imports(), keyCases(), quotas(), standards(), budgets())
}

// Own is the host of this program: extensions/host in the process that calls it.
type Own struct{ Cache string }

// Load implements Host.
func (o Own) Load(ctx context.Context, m Module) (Loaded, error) {
	g := &Guest{m: m, Limits: limits(m)}
	if err := g.judge(); err != nil {
		return nil, err
	}
	compiled, err := host.Compile(ctx, g.config(o.Cache))
	if err != nil {
		return nil, err
	}
	s := g.setup()
	s.Warm = []byte(warm)
	i, err := compiled.Instance(ctx, s)
	if err != nil {
		return nil, errors.Join(err, compiled.Close(ctx))
	}
	return owned{i, compiled}, nil
}

// owned closes both.
type owned struct {
	*host.Instance
	m *host.Module
}

func (o owned) Close(ctx context.Context) error {
	return errors.Join(o.Instance.Close(ctx), o.m.Close(ctx))
}

const warm = `{"v":1}`

// question is a call of route with services.
func question(s host.Services) host.Call {
	return host.Call{
		Function: abi.Route, Request: []byte(warm), Seed: 7, Services: s, Deadline: time.Now().Add(3 * time.Second),
		Text: func(p abi.Part) string { return []string{"the user", "a system", "all of it"}[p] },
	}
}

// refused is a case in which a host must not take a module.
func refused(name string, m Module) Case {
	return Case{name, func(ctx context.Context, h Host) error {
		l, err := h.Load(ctx, m)
		if err == nil {
			return errors.Join(errors.New("the host takes it"), l.Close(ctx))
		}
		return nil
	}}
}

// asked is a case in which a module is loaded and judged by what it answers.
func asked(name string, m Module, try func(ctx context.Context, l Loaded) error) Case {
	return Case{name, func(ctx context.Context, h Host) error {
		l, err := h.Load(ctx, m)
		if err != nil {
			return fmt.Errorf("loading: %w", err)
		}
		return errors.Join(try(ctx, l), l.Close(ctx))
	}}
}

// same3 is a case in which each of three calls must answer the same bytes.
func same3(name string, m Module, want string) Case {
	return asked(name, m, func(ctx context.Context, l Loaded) error {
		for n := range 3 {
			r, err := l.Call(ctx, question(Willing()))
			if err != nil {
				return fmt.Errorf("call %d: %w", n+1, err)
			}
			if string(r.Answer) != want {
				return fmt.Errorf("call %d answers %q, it must be %q", n+1, r.Answer, want)
			}
		}
		return nil
	})
}

// numbered is a case in which a probe must answer numbers.
func numbered(name string, p *probe, s func() host.Services, want ...int64) Case {
	return asked(name, p.module(), func(ctx context.Context, l Loaded) error {
		r, err := l.Call(ctx, question(s()))
		if err != nil {
			return err
		}
		if got := words(r.Answer); !slices.Equal(got, want) {
			return fmt.Errorf("it answers %d, it must be %d", got, want)
		}
		return nil
	})
}

// fails is a case in which a call must fail, by one of the causes, and the next ones must be as if it had not been.
func fails(name string, m Module, causes ...host.Cause) Case {
	return asked(name, m, func(ctx context.Context, l Loaded) error {
		for range 2 {
			r, err := l.Call(ctx, question(Willing()))
			if err == nil {
				return fmt.Errorf("the call succeeds with %q", r.Answer)
			}
			var e *host.CallError
			if !errors.As(err, &e) || !slices.Contains(causes, e.Cause) {
				return errors.Join(fmt.Errorf("the call fails otherwise than by %q", causes), err)
			}
		}
		return nil
	})
}

// contains tells whether a log has a line.
func contains(log []host.Line, level abi.Level, text string) error {
	for _, l := range log {
		if l.Level == level && l.Text == text {
			return nil
		}
	}
	return fmt.Errorf("the log has no line %q of level %d: %q", text, level, log)
}

// differ compares two answers.
func differ(a, b host.Result) error {
	if !bytes.Equal(a.Answer, b.Answer) {
		return fmt.Errorf("it answers %q, then %q", a.Answer, b.Answer)
	}
	if a.Units != b.Units {
		return fmt.Errorf("it uses %d units, then %d", a.Units, b.Units)
	}
	return nil
}
