package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/catalog"
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

// StartPull begins a download.
func (c control) StartPull(ctx context.Context, who store.Actor, in admin.NewPull) (admin.Pull, error) {
	e, ok := catalog.Find(in.Model)
	if !ok {
		return admin.Pull{}, invalid("model", "there is no model %q in the catalogue; there are %s", in.Model, catalog.Names())
	}
	if err := c.b.store.Audit(ctx, who, "model.pull", in.Model, ""); err != nil {
		return admin.Pull{}, err
	}
	return c.b.downloads.begin(in.Model, func(ctx context.Context, p catalog.Progress) error {
		f := catalog.NewFetcher(c.b.models)
		f.Progress = p
		if _, err := f.Fetch(ctx, e); err != nil {
			c.b.log.Warn("a download failed", "model", in.Model, "error", err)
			return err
		}
		return c.b.reload(ctx)
	})
}

// Catalog lists the files that the box knows.
func (c control) Catalog(context.Context) []admin.CatalogEntry {
	out := []admin.CatalogEntry{}
	for _, e := range catalog.Entries() {
		path, _ := c.b.find(c.b.now.Load().cfg, e.Name)
		out = append(out, admin.CatalogEntry{
			Name: e.Name, About: e.About, Bytes: e.Size, SHA256: e.SHA256, License: e.License, Role: "chat", Here: path != "", Source: "catalogue",
			Fits: []string{},
		})
	}
	return out
}

// deleteFile removes what was downloaded for a model, unless another model uses it.
func (b *box) deleteFile(ctx context.Context, r store.ModelRecord) error {
	e, ok := catalog.Find(r.Path)
	if !ok {
		return fmt.Errorf("%s was not downloaded by the box: %w", r.Path, store.ErrInvalid)
	}
	for _, m := range b.now.Load().models {
		if m.File == r.Path {
			return fmt.Errorf("the model %s uses the same file: %w", m.Name, store.ErrConflict)
		}
	}
	path := b.models.Path(e)
	for _, name := range []string{path, path + ".ok"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return b.store.Audit(ctx, store.System(), "model.delete-file", r.ID, "")
}

// Backends lists installed server programs.
func (c control) Backends(context.Context) []admin.Backend { return []admin.Backend{} }

// RollbackBackend returns to the version before.
func (c control) RollbackBackend(_ context.Context, device string) error {
	return fmt.Errorf("no server program for %s was installed by the box: %w", device, store.ErrNotFound)
}
