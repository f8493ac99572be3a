package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"onebit/appliance/config"
	"onebit/appliance/edge"
	"onebit/appliance/gateway"
	"onebit/appliance/pool"
	"onebit/engine"
	"onebit/engine/wire"
	"onebit/store"
)

// change is an assembly with all that it needs to become the current one: ports and certificates, a gateway, a list of
// models, what figures and alerts are sent by. Nothing of it is in force.
type change struct {
	b      *box
	a      *boxAssembly
	api    *gateway.Gateway
	models []pool.ModelSpec
	edge   *edge.Change
	report *reporting // nil when what there is stays
}

// prepare makes what an assembly needs. An error leaves nothing behind.
func (b *box) prepare(ctx context.Context, a *boxAssembly) (_ *change, err error) {
	c := &change{b: b, a: a}
	for _, m := range a.models {
		if m.start != nil {
			c.models = append(c.models, pool.ModelSpec{Name: m.Name, Version: m.version, Start: m.start, Pinned: true, Preload: true})
		}
		if m.path != "" {
			c.models = append(c.models, pool.ModelSpec{
				Name: m.Name, Options: m.options, Version: fmt.Sprint(m.bytes, m.created.UnixNano()), Need: m.need,
				TTL: m.TTL, Pinned: m.Pin, Preload: m.Preload,
			})
		}
	}
	if err := pool.Check(c.models); err != nil {
		return nil, err
	}
	if c.api, err = gateway.New(gateway.Config{
		Fleet: fleet{b}, Door: door{b}, Decider: chooser{b}, Expect: b.cache.Expect, Documents: reading{b}, Responses: archive{b},
		Metrics: b.metrics, Limits: a.cfg.Limits(), Log: b.log,
	}); err != nil {
		return nil, err
	}
	if c.edge, err = b.edge.Prepare(ctx, b.edgeConfig(a.cfg)); err != nil {
		return nil, err
	}
	if c.report, err = b.newReporting(ctx, a.cfg); err != nil {
		c.discard(ctx)
		return nil, err
	}
	return c, nil
}

// discard gives up what was prepared.
func (c *change) discard(ctx context.Context) {
	if c.edge != nil {
		c.edge.Discard()
	}
	if c.report != nil {
		c.report.close(ctx, c.b.log)
	}
}

// use makes the assembly the current one. All that can fail comes first, so that an error leaves the one before it.
func (c *change) use(ctx context.Context) error {
	b, cfg := c.b, c.a.cfg
	if err := c.edge.Use(ctx); err != nil {
		c.edge = nil // it has given itself up
		c.discard(ctx)
		return err
	}
	if err := b.pool.Set(c.models); err != nil {
		panic(err) // prepare has checked it
	}
	b.now.Store(c.a)
	b.api.Store(c.api)
	b.pool.SetWait(cfg.Requests.Load)
	b.pool.SetQueue(pool.Queue{MaxWait: cfg.Queue.MaxWait, Length: cfg.Queue.Length, PerKey: cfg.Queue.PerKey})
	if c.report != nil {
		b.tell(ctx, c.report)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err == nil {
		b.level.Set(level)
	}
	wrong := ""
	if err := b.store.ScheduleBackup(schedule(cfg.Backup, control{b}.BackupFiles())); err != nil {
		wrong = "no copies are made: " + err.Error()
	}
	b.problems.set("backup", wrong)
	return nil
}

// adopt makes an assembly the current one. An error leaves the one before it.
func (b *box) adopt(ctx context.Context, a *boxAssembly) error {
	c, err := b.prepare(ctx, a)
	if err != nil {
		return err
	}
	return c.use(ctx)
}

// schedule is when copies are made; nil for never.
func schedule(c config.Backup, files map[string][]byte) *store.Schedule {
	if c.Folder == "" {
		return nil
	}
	o := store.BackupOptions{Passphrase: string(c.Passphrase)}
	if c.Recipient != "" {
		o = store.BackupOptions{Recipients: []string{c.Recipient}}
	}
	o.Files = files
	return &store.Schedule{Folder: c.Folder, Every: c.Every, Keep: c.Keep, Options: o}
}

// reload reads the configuration anew and takes it on. When it is wrong the old one stays, and the error says why. It
// does not stop half way when whoever asked for it goes.
func (b *box) reload(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	b.reloading.Lock()
	defer b.reloading.Unlock()
	if b.up.Load() {
		b.system.say(reloading())
		defer func() { b.system.say(b.serves()) }()
	}
	a, err := b.read(ctx)
	if err == nil {
		err = b.adopt(ctx, a)
	}
	if err == nil {
		b.bindPolicy(ctx)
	}
	if err != nil {
		b.log.Error("the configuration stays as it was", "why", err)
		b.problems.set("reload", "the configuration is not in force, the one before is: "+err.Error())
		return err
	}
	b.problems.set("reload", "")
	b.log.Info("read the configuration", "models", len(a.models), "at", b.edge.URL())
	return nil
}

// takeOn reloads after a change that the control plane has stored. Where the configuration cannot be taken on at the
// moment, for what is in its file, the change is kept, and takes effect with the next good one.
func (b *box) takeOn(ctx context.Context) error {
	err := b.reload(ctx)
	if err == nil {
		return nil
	}
	return &wire.Error{
		Status: http.StatusConflict, Type: wire.TypeInvalid, Code: "configuration_wrong", NoRetry: true,
		Message: "this is kept, but takes effect only once the configuration is right: " + err.Error(),
	}
}

// wouldTake reports whether other settings could be taken on. Nothing is.
func (b *box) wouldTake(ctx context.Context, next map[string]string) error {
	b.reloading.Lock()
	defer b.reloading.Unlock()
	a, err := b.readWith(ctx, next)
	if err != nil {
		return err
	}
	c, err := b.prepare(ctx, a)
	if err != nil {
		return err
	}
	c.discard(ctx)
	return nil
}

// takeSettings takes other settings on, and keeps them: both or neither.
func (b *box) takeSettings(ctx context.Context, next map[string]string, keep func() error, undo func() error) error {
	ctx = context.WithoutCancel(ctx)
	b.reloading.Lock()
	defer b.reloading.Unlock()
	a, err := b.readWith(ctx, next)
	if err != nil {
		return engine.Invalid("values", "%v", err)
	}
	c, err := b.prepare(ctx, a)
	if err != nil {
		return engine.Invalid("values", "%v", err)
	}
	if err := keep(); err != nil {
		c.discard(ctx)
		return err
	}
	if err := c.use(ctx); err != nil {
		return engine.Invalid("values", "%v", errors.Join(err, undo()))
	}
	b.problems.set("reload", "")
	b.log.Info("took other settings on")
	return nil
}
