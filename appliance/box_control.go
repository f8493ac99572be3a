package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/catalog"
	"onebit/appliance/config"
	"onebit/appliance/doctor"
	"onebit/appliance/pool"
	"onebit/appliance/queue"
	"onebit/appliance/shelf"
	"onebit/engine"
	"onebit/store"
)

// control is the box as the control plane sees it.
type control struct{ b *box }

// Status is the box at a glance.
func (c control) Status(ctx context.Context) admin.Status {
	b, a := c.b, c.b.now.Load()
	counts, backups, budget := b.store.Counts(), b.store.BackupStatus(), b.budget()
	s := admin.Status{
		Name: a.cfg.Name, Version: version, Started: b.began, Running: b.auth.Running(), Models: c.Models(),
		Problems:  append(append([]string{}, a.problem...), b.problems.list()...),
		Addresses: []string{b.edge.URL()},
		Store:     admin.StoreStatus{Bytes: counts.FileBytes, Queued: counts.Queued, Dropped: counts.Dropped, Full: counts.Full},
		Backup:    admin.BackupStatus{Folder: a.cfg.Backup.Folder, Last: backups.Last, Error: backups.Problem},
		Memory:    admin.Memory{Total: int64(max(budget.Host.Total, budget.Together)), Measured: "what the machine has, less the reserve"},
	}
	if a.cfg.Backup.Folder != "" {
		s.Backup.Next = backups.Last.Add(a.cfg.Backup.Every)
		if backups.Last.IsZero() {
			s.Backup.Next = b.began
		}
	}
	if wrong := b.edge.Problem(); wrong != "" {
		s.Problems = append(s.Problems, wrong)
	}
	for _, wrong := range b.state(ctx).Conditions() {
		if wrong.Name != "reload" { // it is among the others already
			s.Problems = append(s.Problems, wrong.Text)
		}
	}
	for _, m := range s.Models {
		if m.State == string(pool.Loaded) {
			s.Memory.Used += m.Memory
		}
		if m.Problem != "" {
			s.Problems = append(s.Problems, fmt.Sprintf("the model %s: %s", m.Name, m.Problem))
		}
	}
	if report, err := b.store.LastScrub(ctx); err == nil {
		s.Store.Scrubbed, s.Store.ScrubGood = report.Time, len(report.Damaged) == 0
	}
	if d := b.store.Degraded(); d != nil {
		s.Degraded = &admin.DegradedState{Happened: d.Happened, DataFrom: d.DataFrom, SetAside: d.SetAside, Reason: d.Reason}
	}
	s.Ready = b.ready()
	return s
}

// Models lists the models with where they stand.
func (c control) Models() []admin.Model {
	states := map[string]pool.Status{}
	for _, s := range c.b.pool.List() {
		states[s.Name] = s
	}
	out := []admin.Model{}
	for _, m := range c.b.now.Load().models {
		state := states[m.Name]
		shown := admin.Model{
			Name: m.Name, Role: m.Role, Device: m.Device, Why: m.why, State: string(state.Phase), Problem: m.problem,
			File: fileName(m.File), Bytes: m.bytes, Memory: int64(m.need.Bytes + m.need.Host), Context: m.perSlot(), Slots: m.Parallel,
			Running: state.Busy, Waiting: state.Waiting, Pinned: m.Pin, Preload: m.Preload, TTL: int64(m.TTL / time.Second),
			Used: state.Used, Source: m.source, Editable: m.editable, Queue: lineOf(state.Line),
		}
		switch {
		case !m.here():
			shown.State = "absent"
		case state.Reason != "":
			shown.Problem = state.Reason
		}
		if i := c.b.pool.Instance(m.Name); i != nil {
			shown.Slots = i.Backend().Slots()
			shown.Problem = cmp.Or(shown.Problem, trouble(i))
			if n := i.Info().Context; n > 0 {
				shown.Context = n
			}
		}
		out = append(out, shown)
	}
	return out
}

// fileName is the name of a file without its folder; none has none.
func fileName(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(path)
}

// lineOf shows who waits.
func lineOf(l pool.Line) admin.Queue {
	q := admin.Queue{Keys: l.Keys, Wait: l.Wait.Milliseconds()}
	for i, of := range queue.Priorities {
		switch of {
		case queue.Interactive:
			q.Interactive = l.Lengths[i]
		case queue.Normal:
			q.Normal = l.Lengths[i]
		default:
			q.Background = l.Lengths[i]
		}
	}
	if !l.Oldest.IsZero() {
		q.Oldest = time.Since(l.Oldest).Milliseconds()
	}
	return q
}

// AddModel adds a model that the catalogue knows or that lies in one of the box's folders.
func (c control) AddModel(ctx context.Context, who store.Actor, in admin.NewModel) (admin.Model, error) {
	if filepath.IsAbs(in.File) || strings.Contains(in.File, "..") || in.File == "" {
		return admin.Model{}, engine.Invalid("file", "a file is a name of the catalogue, or of a file in one of the box's model folders; not a path")
	}
	if in.Name == "" {
		in.Name = strings.TrimSuffix(filepath.Base(in.File), ".gguf")
	}
	r := store.ModelRecord{ID: in.Name, Path: in.File, Role: in.Role, Pinned: in.Pinned, Preload: in.Preload, TTLSeconds: in.TTL, ContextSize: in.Context}
	if e, ok := catalog.Find(in.File); ok {
		r.Digest, r.Size, r.Source = "sha256:"+e.SHA256, e.Size, "catalogue"
	}
	return c.put(ctx, who, r, modelSettings{File: in.File, Device: in.Device, Slots: in.Slots}, false)
}

// put checks a model as the configuration would be checked, stores it, and takes it on.
func (c control) put(ctx context.Context, who store.Actor, r store.ModelRecord, more modelSettings, known bool) (admin.Model, error) {
	var err error
	if r.Options, err = json.Marshal(more); err != nil {
		return admin.Model{}, err
	}
	m, err := fromRecord(r)
	if err != nil {
		return admin.Model{}, err
	}
	if problem := config.CheckModel(m.BoxModel); problem != "" {
		return admin.Model{}, engine.Invalid("", "%s", problem)
	}
	if _, there := c.b.now.Load().model(r.ID); there && !known {
		if _, err := c.b.store.Model(ctx, r.ID); err == nil || !errors.Is(err, store.ErrNotFound) {
			return admin.Model{}, fmt.Errorf("adding the model %q: %w", r.ID, store.ErrConflict)
		}
	}
	if err := c.b.store.PutModel(ctx, who, r); err != nil {
		return admin.Model{}, err
	}
	if err := c.b.takeOn(ctx); err != nil {
		return admin.Model{}, err
	}
	return c.shown(r.ID)
}

func (c control) shown(name string) (admin.Model, error) {
	for _, m := range c.Models() {
		if m.Name == name {
			return m, nil
		}
	}
	return admin.Model{}, store.ErrNotFound
}

// editable returns a model that the control plane may change.
func (c control) editable(ctx context.Context, name string) (store.ModelRecord, error) {
	r, err := c.b.store.Model(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		if _, there := c.b.now.Load().model(name); there {
			return r, engine.Invalid("name", "the model %q is in the configuration file; change it there", name)
		}
	}
	return r, err
}

// ChangeModel changes a model that was added through the control plane.
func (c control) ChangeModel(ctx context.Context, who store.Actor, name string, in admin.ModelChange) (admin.Model, error) {
	r, err := c.editable(ctx, name)
	if err != nil {
		return admin.Model{}, err
	}
	var more modelSettings
	if len(r.Options) > 0 {
		if err := json.Unmarshal(r.Options, &more); err != nil {
			return admin.Model{}, err
		}
	}
	admin.Set(&more.Device, in.Device)
	admin.Set(&more.Slots, in.Slots)
	admin.Set(&r.ContextSize, in.Context)
	admin.Set(&r.Pinned, in.Pinned)
	admin.Set(&r.Preload, in.Preload)
	admin.Set(&r.TTLSeconds, in.TTL)
	return c.put(ctx, who, r, more, true)
}

// RemoveModel takes a model off the box, and its file when it was downloaded for it.
func (c control) RemoveModel(ctx context.Context, who store.Actor, name string, file bool) error {
	r, err := c.editable(ctx, name)
	if err != nil {
		return err
	}
	if err := c.b.store.DeleteModel(ctx, who, name); err != nil {
		return err
	}
	if err := c.b.takeOn(ctx); err != nil || !file {
		return err
	}
	return c.b.deleteFile(ctx, who, r)
}

// LoadModel brings a model into memory.
func (c control) LoadModel(ctx context.Context, name string) error {
	if err := c.b.pool.Load(ctx, name); err != nil {
		return unready(name, poolError(err))
	}
	return nil
}

// UnloadModel takes a model out of memory.
func (c control) UnloadModel(ctx context.Context, name string) error {
	return poolError(c.b.pool.Unload(ctx, name))
}

// poolError is an error of the pool in the store's words, which the control plane knows.
func poolError(err error) error {
	if errors.Is(err, pool.ErrUnknown) {
		return fmt.Errorf("%w: %w", store.ErrNotFound, err)
	}
	return err
}

// Settings lists each value that holds.
func (c control) Settings() []admin.Setting {
	a := c.b.now.Load()
	var all []admin.Setting
	for _, v := range config.Values(a.cfg, a.origins) {
		all = append(all, admin.Setting{
			Name: v.Path, Value: v.Text, Origin: v.Origin, About: v.About,
			Changeable: config.Changeable(v.Path) && (v.Origin == "default" || v.Origin == config.Settings),
		})
	}
	return all
}

// ChangeSettings keeps values, and takes them on. When one is wrong nothing changes.
func (c control) ChangeSettings(ctx context.Context, who store.Actor, values map[string]string) error {
	b := c.b
	b.changing.Lock() // what is stored is read, changed and written: two changes at once would lose one
	defer b.changing.Unlock()
	now := map[string]admin.Setting{}
	for _, s := range c.Settings() {
		now[s.Name] = s
	}
	for name := range values {
		s, ok := now[name]
		switch {
		case !ok:
			return engine.Invalid(name, "there is no setting %q", name)
		case !config.Changeable(name):
			return engine.Invalid(name, "%s cannot be changed here; write it into %s", name, b.options.path())
		case !s.Changeable:
			return engine.Invalid(name, "%s is set by %s; change it there", name, s.Origin)
		}
	}
	stored, err := b.stored(ctx)
	if err != nil {
		return err
	}
	next := maps.Clone(stored)
	if next == nil {
		next = map[string]string{}
	}
	maps.Copy(next, values)
	return b.takeSettings(ctx, next, func() error { return b.keepSettings(ctx, who, next) }, func() error { return b.keepSettings(ctx, who, stored) })
}

// keepSettings stores settings.
func (b *box) keepSettings(ctx context.Context, who store.Actor, values map[string]string) error {
	raw, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return b.store.SetSetting(ctx, who, settingsName, raw)
}

// Reload reads the configuration again.
func (c control) Reload(ctx context.Context) error {
	if err := c.b.reload(ctx); err != nil {
		return engine.Invalid("", "%v", err)
	}
	return nil
}

// Certificate is what the box shows to clients.
func (c control) Certificate() admin.Certificate {
	pem, fingerprint := c.b.edge.Root()
	cfg := c.b.now.Load().cfg
	return admin.Certificate{Mode: cfg.TLS.Mode, Names: append([]string{c.b.edge.Name()}, cfg.TLS.Names...), Fingerprint: fingerprint, Root: string(pem)}
}

// Routes lists all that the box answers over the network.
func (c control) Routes() []admin.RouteInfo {
	var all []admin.RouteInfo
	for _, r := range c.b.api.Load().Routes() {
		all = append(all, admin.RouteInfo{Method: r.Method, Path: r.Path, Part: "api", Open: r.Path == "/health"})
	}
	for _, r := range c.b.shelves.api.Routes() {
		method, path, _ := strings.Cut(r, " ")
		all = append(all, admin.RouteInfo{Method: method, Path: path, Part: "api"})
	}
	for _, r := range c.b.admin.Routes() {
		all = append(all, admin.RouteInfo{Method: r.Method, Path: r.Path, Part: "admin"})
	}
	for _, r := range c.b.auth.Routes() {
		all = append(all, admin.RouteInfo{Method: r.Method, Path: r.Path, Part: "door", Open: !strings.HasPrefix(r.Path, "/account/")})
	}
	return append(all, admin.RouteInfo{Method: "GET", Path: "/", Part: "door", Open: true})
}

// Endpoints lists what the scope of a key may name.
func (c control) Endpoints() []string {
	return append(c.b.api.Load().Endpoints(), shelf.Endpoints()...)
}

// Log lists lines of the program's own log.
func (c control) Log(after int64, limit int) []admin.LogLine { return c.b.book.since(after, limit) }

// budget is what there is for models at the moment.
func (b *box) budget() pool.Budget {
	var c config.Memory
	if a := b.now.Load(); a != nil {
		c = a.cfg.Memory
	}
	return budget(doctor.ReadMemory("/"), c)
}
