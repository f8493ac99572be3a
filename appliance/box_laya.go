package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/egress"
	"onebit/appliance/route"
	"onebit/engine/backend"
	"onebit/extensions"
	"onebit/extensions/laya/built"
	"onebit/extensions/laya/scorer"
	"onebit/extensions/policy"
)

// bindBuilt makes the built-in classifier the one that says the class of each conversation, and the built-in policy the one that
// reads the policy file, where the configuration wants it and an admin has bound no other. A new version of the program
// brings its own, which take the place of the old ones. Requests that leave their model to the box wait for it, at the first
// start of a program for about a second and never longer than bindLimit, so that none is routed by another rule than the
// configuration's.
func (b *box) bindBuilt(ctx context.Context) error {
	done := sync.OnceFunc(func() { close(b.built) })
	late := time.AfterFunc(bindLimit, done)
	defer late.Stop()
	defer done()
	b.bindLaya(ctx)
	b.bindPolicy(ctx)
	return nil // the default policy decides
}

// bindLimit is for how long after the start requests wait for the built-in modules.
const bindLimit = 10 * time.Second

// awaitBuilt waits until the built-in modules are bound.
func (b *box) awaitBuilt(ctx context.Context) {
	select {
	case <-b.built:
	case <-ctx.Done():
	}
}

func (b *box) bindLaya(ctx context.Context) {
	e := b.now.Load().cfg.Extensions
	var err error
	switch {
	case b.classifier != nil:
		err = b.withdraw(ctx, builtIn{binding: extensions.ClassifierBinding, name: "laya", by: extensions.System()})
	case e.Laya:
		err = b.place(ctx, builtIn{extensions.ClassifierBinding, "laya", extensions.System(), built.Module, built.Manifest(), nil})
	}
	b.bound(ctx, "classifier", "laya", err)
}

func (b *box) bindPolicy(ctx context.Context) {
	b.binding.Lock()
	defer b.binding.Unlock()
	file := b.now.Load().policy
	var err error
	if file == nil {
		err = b.withdraw(ctx, builtIn{binding: extensions.PolicyBinding, name: policy.Name, by: theConfiguration})
	} else {
		err = b.place(ctx, builtIn{extensions.PolicyBinding, policy.Name, theConfiguration, policy.Module, policy.Manifest(), file})
	}
	b.bound(ctx, "policy", "route_policy", err)
}

// bound tells how binding a built-in module ended.
func (b *box) bound(ctx context.Context, what, problem string, err error) {
	text := ""
	if err != nil && ctx.Err() == nil {
		text = "the built-in " + what + " is not bound: " + err.Error()
		b.log.Warn(text)
	}
	b.problems.set(problem, text)
}

// theConfiguration binds what its file says, and nothing that an admin has bound, who on this machine is the system as well.
var theConfiguration = extensions.Who{Person: "configuration"}

// builtIn is a module that the program carries, and where it goes.
type builtIn struct {
	binding, name string
	by            extensions.Who
	module        func() ([]byte, error)
	manifest      []byte
	config        json.RawMessage
}

// place binds a module of ours unless somebody has bound another, or this one.
func (b *box) place(ctx context.Context, m builtIn) error {
	module, err := m.module()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(module)
	sha := hex.EncodeToString(sum[:])
	now := b.extensions.Status()
	if seat, ok := active(now, m.binding); ok && (!m.bound(seat) || seat.SHA256 == sha && same(seat.Config, m.config)) {
		return nil
	}
	if !slices.ContainsFunc(now.Modules, func(s extensions.Shown) bool { return s.SHA256 == sha }) {
		u := b.extensions.Receive()
		defer u.Close()
		u.Manifest(m.manifest)
		if err := u.Module(bytes.NewReader(module), sha); err != nil {
			return err
		}
		if _, err := b.extensions.Add(ctx, m.by, u); err != nil {
			return err
		}
	}
	p := extensions.Placement{Module: sha, Config: m.config}
	if p.Config == nil {
		p.Config = json.RawMessage("{}")
	}
	if err := b.extensions.Activate(ctx, m.by, m.binding, p); err != nil {
		return fmt.Errorf("activating it: %w", err)
	}
	b.log.Info("bound the built-in "+m.binding, "sha", sha[:8])
	return nil
}

// withdraw takes a module of ours away that is bound and no longer wanted.
func (b *box) withdraw(ctx context.Context, m builtIn) error {
	seat, ok := active(b.extensions.Status(), m.binding)
	if !ok || !m.bound(seat) {
		return nil
	}
	return b.extensions.Unbind(ctx, m.by, m.binding)
}

// bound reports whether the box itself has bound its module.
func (m builtIn) bound(s extensions.Seat) bool {
	return strings.HasPrefix(s.Module, m.name+"@") && s.By == m.by.Person
}

// same reports whether two configurations are one, whatever their white space.
func same(a, b json.RawMessage) bool {
	var one, other bytes.Buffer
	if len(b) == 0 {
		b = json.RawMessage("{}")
	}
	return json.Compact(&one, a) == nil && json.Compact(&other, b) == nil && bytes.Equal(one.Bytes(), other.Bytes())
}

// active is what decides in a binding now.
func active(l extensions.Listing, binding string) (extensions.Seat, bool) {
	for _, bound := range l.Bindings {
		if bound.Name != binding {
			continue
		}
		for _, s := range bound.Seats {
			if s.Stage == "active" {
				return s, true
			}
		}
	}
	return extensions.Seat{}, false
}

// layaSource finds what classifies in place of the built-in module.
func layaSource(option string) (route.Source, error) {
	source, err := route.FindSource(option, func(name string) string {
		if name == "ONEBIT_LAYA_GGML" { // a daemon is a program that nothing would confine
			return ""
		}
		return os.Getenv(name)
	})
	if err != nil {
		return source, errors.New(strings.TrimPrefix(err.Error(), "--laya-model: "))
	}
	return source, nil
}

// newScorer makes what classifies in place of the built-in module; nil for nothing. Its program is started in a sandbox, as other
// model servers are.
func (b *box) newScorer(ctx context.Context, cfg config.Box, stdout, stderr io.Writer) (*classifier, error) {
	if cfg.Extensions.LayaModel == "" {
		return nil, nil
	}
	source, err := layaSource(cfg.Extensions.LayaModel)
	if err != nil {
		return nil, fmt.Errorf("extensions.laya_model: %w", err)
	}
	k := classifierKit{machine: b.starts, options: backend.Options{LlamaServer: cfg.Programs.LlamaServer}, source: source, launch: b.launch}
	if source.URL != "" {
		client, err := egress.New(egress.Config{Allow: cfg.Egress.Private})
		if err != nil {
			return nil, err
		}
		k.transport = client.Transport(egress.Limits{Redirects: -1})
	} else if os.Getenv(enginesVariable) != "" {
		return nil, errors.New("extensions.laya_model: where another process starts the model servers it is the URL of one that runs")
	}
	return newClassifier(ctx, k, outputs{stdout: stdout, stderr: stderr, log: b.log})
}

// scorer is what classifies where no module does.
func (b *box) scorer() scorer.Scorer {
	if b.classifier == nil {
		return nil
	}
	return b.classifier
}

// runScorer keeps it until ctx ends.
func (b *box) runScorer(ctx context.Context) error {
	if b.classifier != nil {
		b.classifier.run(ctx)
	}
	return nil
}
