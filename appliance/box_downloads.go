package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/catalog"
	"onebit/appliance/config"
	"onebit/appliance/doctor"
	"onebit/appliance/egress"
	installed "onebit/appliance/program"
	"onebit/engine"
	"onebit/engine/plan"
	"onebit/store"
)

// downloads are those that were begun through the control plane.
type downloads struct {
	mu    sync.Mutex
	all   []*transfer // oldest first
	group sync.WaitGroup
	ended bool
}

// transfer is one of them.
type transfer struct {
	admin.Pull
	cancel context.CancelFunc
}

// keptDownloads is how many ended downloads are still shown.
const keptDownloads = 50

// list returns them, newest first.
func (d *downloads) list() []admin.Pull {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []admin.Pull{}
	for _, one := range slices.Backward(d.all) {
		out = append(out, one.Pull)
	}
	return out
}

// begin runs a download behind the request that asked for it. One of a model that is being fetched already is that one.
func (d *downloads) begin(model string, work func(context.Context, catalog.Progress) error) (admin.Pull, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return admin.Pull{}, errors.New("the box is stopping")
	}
	for _, one := range d.all {
		if one.Model == model && one.State == "running" {
			return one.Pull, nil
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	one := &transfer{Pull: admin.Pull{ID: store.NewID(), Model: model, State: "running", Started: time.Now()}, cancel: cancel}
	d.all = append(d.all, one)
	if len(d.all) > keptDownloads {
		if i := slices.IndexFunc(d.all, func(o *transfer) bool { return o.State != "running" }); i >= 0 {
			d.all = slices.Delete(d.all, i, i+1)
		}
	}
	d.group.Go(func() {
		defer cancel()
		err := work(ctx, func(what string, done, total int64) {
			d.mu.Lock()
			defer d.mu.Unlock()
			one.Step, one.Done, one.Total = what, done, total
		})
		d.mu.Lock()
		defer d.mu.Unlock()
		switch {
		case err == nil:
			one.State = "done"
		case ctx.Err() != nil:
			one.State = "cancelled"
		default:
			one.State, one.Error = "failed", err.Error()
		}
	})
	return one.Pull, nil
}

// cancel stops one.
func (d *downloads) cancel(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		if one.ID == id {
			one.cancel()
			return nil
		}
	}
	return store.ErrNotFound
}

// stop ends all, and returns when none runs.
func (d *downloads) stop() {
	d.mu.Lock()
	d.ended = true
	for _, one := range d.all {
		one.cancel()
	}
	d.mu.Unlock()
	d.group.Wait()
}

// Pulls lists downloads.
func (c control) Pulls() []admin.Pull { return c.b.downloads.list() }

// CancelPull stops a download.
func (c control) CancelPull(_ context.Context, id string) error { return c.b.downloads.cancel(id) }

// StartPull begins a download. By URL it comes only from hosts that the configuration allows.
func (c control) StartPull(ctx context.Context, who store.Actor, in admin.NewPull) (admin.Pull, error) {
	ref, err := catalog.ParseReference(in.Model)
	if err != nil {
		return admin.Pull{}, engine.Invalid("model", "%v", err)
	}
	if len(in.Include) > 1 {
		return admin.Pull{}, engine.Invalid("include", "one pattern is enough: files of one model")
	}
	cfg := c.b.now.Load().cfg.Egress
	shown := in.Model
	if ref.URL != "" {
		u, err := url.Parse(ref.URL)
		if err != nil {
			return admin.Pull{}, engine.Invalid("model", "the URL cannot be read")
		}
		shown = u.Scheme + "://" + u.Host + u.Path // a query may be a secret
		if !slices.Contains(cfg.Hosts, "*") && !slices.Contains(cfg.Hosts, u.Host) {
			return admin.Pull{}, engine.Invalid("model", "models are not fetched from %s; allow it in the configuration: egress.hosts", u.Host)
		}
	}
	puller, err := c.b.puller(cfg)
	if err != nil {
		return admin.Pull{}, err
	}
	if err := c.b.store.Audit(ctx, who, "model.pull", shown, ""); err != nil {
		return admin.Pull{}, err
	}
	want := catalog.Want{Reference: ref, SHA256: strings.ToLower(in.SHA256)}
	if len(in.Include) == 1 {
		want.Include = in.Include[0]
	}
	return c.b.downloads.begin(shown, func(ctx context.Context, p catalog.Progress) error {
		puller.Progress = p
		if _, err := puller.Pull(ctx, want); err != nil {
			c.b.log.Warn("a download failed", "model", shown, "error", err)
			return err
		}
		return c.b.reload(ctx)
	})
}

// puller obtains models for the box.
func (b *box) puller(cfg config.Egress) (*catalog.Puller, error) {
	client := egress.Config{Allow: cfg.Private}
	hub := strings.TrimRight(cfg.Hub, "/")
	if cfg.Token != "" {
		client.Tokens = map[string]egress.Token{hub: egress.NewToken(string(cfg.Token))}
	}
	at, err := url.Parse(hub)
	if err != nil {
		return nil, err
	}
	if client.Proxy, err = http.ProxyFromEnvironment(&http.Request{URL: at}); err != nil {
		return nil, err
	}
	c, err := egress.New(client)
	if err != nil {
		return nil, err
	}
	return &catalog.Puller{
		Library: b.library(b.now.Load().cfg), Hub: catalog.Hub{URL: hub, Client: c}, Space: doctor.Space,
		Note: func(s string) { b.log.Info("obtaining a model", "note", s) },
	}, nil
}

// Catalog lists the models that are here, then those that the box knows and could fetch.
func (c control) Catalog(context.Context) []admin.CatalogEntry {
	cfg := c.b.now.Load().cfg
	out := []admin.CatalogEntry{}
	here := map[string]bool{}
	models, errs := c.b.library(cfg).Models()
	for _, err := range errs {
		c.b.log.Warn("a folder of models", "error", err)
	}
	for _, m := range models {
		if here[m.Name] {
			continue
		}
		here[m.Name] = true
		e := admin.CatalogEntry{Name: m.Name, Bytes: m.Size(), SHA256: m.Files[0].SHA256, Here: true, Source: m.Kind, Fits: []string{}}
		if known, ok := catalog.Find(m.Name); ok {
			e.About, e.License, e.Role, e.Fits = known.About, known.License, known.Role, boxesFor(known)
		}
		out = append(out, e)
	}
	for _, e := range catalog.Entries() {
		if !here[e.Name] {
			out = append(out, admin.CatalogEntry{
				Name: e.Name, About: e.About, Bytes: e.Bytes(), SHA256: e.SHA256, License: e.License, Role: e.Role, Source: "catalogue", Fits: boxesFor(e),
			})
		}
	}
	return out
}

// contextOfFits is the context, in tokens, with which a box is said to hold a model.
const contextOfFits = 8192

// boxesFor names the usual boxes that hold a model.
func boxesFor(e catalog.Entry) []string {
	names := []string{}
	for _, p := range plan.Boxes() {
		if e.Fits(p, contextOfFits) {
			names = append(names, p.Name)
		}
	}
	return names
}

// library is the folders of models that a configuration names, beside those of the box and of its user.
func (b *box) library(cfg config.Box) catalog.Library {
	home, _ := os.UserHomeDir() // without one there are no folders in it
	l := catalog.Library{Roots: []string{b.models.Dir}, Places: catalog.PlacesFromEnv(os.Getenv, home)}
	if user, err := catalog.UserCache(); err == nil {
		l.Roots = append(l.Roots, user.Dir)
	}
	for _, dir := range cfg.Folders {
		l.Places = append(l.Places, catalog.Place{Kind: catalog.Folder, Dir: dir})
	}
	return l
}

// deleteFile removes what was downloaded for a model, unless another model uses it.
func (b *box) deleteFile(ctx context.Context, who store.Actor, r store.ModelRecord) error {
	for _, m := range b.now.Load().models {
		if m.File == r.Path {
			return fmt.Errorf("the model %s uses the same file: %w", m.Name, store.ErrConflict)
		}
	}
	own := catalog.Library{Roots: []string{b.models.Dir}}
	if _, err := own.Remove(r.Path); err != nil {
		return fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return b.store.Audit(ctx, who, "model.delete-file", r.ID, "")
}

// programs are the server programs that were installed for this box.
func (b *box) programs() *installed.Store {
	return &installed.Store{Dir: programsIn(b.options.state), Check: func(ctx context.Context, device, path string) error {
		for _, name := range []string{catalog.Small, catalog.Default} {
			if m, err := b.library(b.now.Load().cfg).Find(name); err == nil {
				return tryProgram(ctx, device, path, m.Path())
			}
		}
		return fmt.Errorf("there is no model to try the program with; fetch %s first", catalog.Small)
	}}
}

// Backends lists installed server programs.
func (c control) Backends(context.Context) []admin.Backend {
	out := []admin.Backend{}
	versions, err := c.b.programs().List()
	if err != nil {
		c.b.log.Warn("listing installed programs", "error", err)
	}
	for _, v := range versions {
		out = append(out, admin.Backend{Device: v.Device, Version: v.Name, Current: v.Current, Previous: v.Previous})
	}
	return out
}

// RollbackBackend returns to the version before, once that has decoded a token.
func (c control) RollbackBackend(ctx context.Context, who store.Actor, device string) error {
	v, err := c.b.programs().Rollback(ctx, device)
	switch {
	case errors.Is(err, installed.ErrNone):
		return fmt.Errorf("%w: %w", store.ErrNotFound, err)
	case errors.Is(err, installed.ErrBusy):
		return fmt.Errorf("%w: %w", store.ErrConflict, err)
	case err != nil:
		return engine.Invalid("device", "%v", err)
	}
	if err := c.b.store.Audit(ctx, who, "backend.rollback", device, v.Name); err != nil {
		return err
	}
	return c.b.reload(ctx)
}
