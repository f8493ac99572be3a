package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"onebit/appliance/catalog"
	"onebit/appliance/config"
	"onebit/appliance/gateway"
	"onebit/appliance/pool"
	"onebit/appliance/route"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/extensions/policy"
	"onebit/store"
)

// boxAssembly is all that one configuration makes. It does not change.
type boxAssembly struct {
	cfg     config.Box
	origins config.Origins
	models  []boxModel
	policy  json.RawMessage // for routing, of a file; nil for none
	problem []string        // what is wrong with it and does not keep the rest from working
}

// boxModel is one model of an assembly.
type boxModel struct {
	config.BoxModel
	path     string // where its file is; empty when it is not there
	bytes    int64
	created  time.Time
	source   string
	editable bool   // made through the control plane
	why      string // of the device
	problem  string // why it cannot be loaded
	need     pool.Need
	options  backend.Options

	start   pool.Start // brings up what another server runs; nil for a file
	version string     // changes when that does
}

// role is what the data plane calls the model's role.
func (m boxModel) role() gateway.Role {
	if m.Role == "chat" {
		return gateway.Chat
	}
	return gateway.Role(m.Role)
}

// perSlot is the context of one conversation as far as it is known before the model is loaded; 0 when it is not.
func (m boxModel) perSlot() int {
	if m.Context == 0 || m.Parallel == 0 {
		return 0
	}
	return m.Context / m.Parallel
}

// model finds a model by name.
func (a *boxAssembly) model(name string) (boxModel, bool) {
	for _, m := range a.models {
		if m.Name == name {
			return m, true
		}
	}
	return boxModel{}, false
}

// settingsName is where the store keeps what the control plane has set.
const settingsName = "configuration"

// stored are the settings that were made through the control plane.
func (b *box) stored(ctx context.Context) (map[string]string, error) {
	raw, err := b.store.Setting(ctx, settingsName)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the settings: %w", err)
	}
	values := map[string]string{}
	return values, json.Unmarshal(raw, &values)
}

// read makes an assembly of the configuration and the models of the moment.
func (b *box) read(ctx context.Context) (*boxAssembly, error) {
	values, err := b.stored(ctx)
	if err != nil {
		return nil, err
	}
	return b.readWith(ctx, values)
}

// readWith does so with other settings.
func (b *box) readWith(ctx context.Context, values map[string]string) (*boxAssembly, error) {
	stamp := b.options.stamp() // before it is read: a change meanwhile is read again
	cfg, origins, err := b.options.read(values)
	if err == nil {
		b.policyFile.Store(&cfg.Extensions.RoutePolicy)
	}
	stamp += stampOf(b.policyFile.Load())
	b.seen.Store(&stamp)
	if err != nil {
		return nil, err
	}
	records, err := b.store.Models(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the models: %w", err)
	}
	a := &boxAssembly{cfg: cfg, origins: origins}
	if file := cfg.Extensions.RoutePolicy; file != "" {
		if a.policy, err = route.ReadPolicy(file); err != nil {
			return nil, fmt.Errorf("extensions.route_policy: %w", err)
		}
	}
	if warning := b.options.exposed(origins); warning != "" {
		b.log.Warn("the configuration", "problem", warning)
		a.problem = append(a.problem, warning)
	}
	if err := wanderingCopies(cfg.Backup); err != nil {
		b.log.Warn("the configuration", "problem", "backup.folder: "+err.Error())
		a.problem = append(a.problem, "backup.folder: "+err.Error())
	}
	if warning := ineffective(cfg, os.Getenv(enginesVariable) != ""); warning != "" {
		b.log.Warn("the configuration", "problem", warning)
		a.problem = append(a.problem, warning)
	}
	for _, m := range cfg.Models {
		a.models = append(a.models, boxModel{BoxModel: m, source: "configuration"})
	}
	for _, r := range records {
		if _, ok := a.model(r.ID); ok {
			a.problem = append(a.problem, fmt.Sprintf("the model %q is in the configuration and was added as well; the configuration counts", r.ID))
			continue
		}
		m, err := fromRecord(r)
		if err != nil {
			a.problem = append(a.problem, fmt.Sprintf("the model %q cannot be read: %v", r.ID, err))
			continue
		}
		a.models = append(a.models, m)
	}
	if len(a.models) == 0 {
		a.models = b.fresh()
	}
	for i := range a.models {
		b.examine(ctx, cfg, &a.models[i])
	}
	if names := a.strangers(); names != "" {
		a.problem = append(a.problem, fmt.Sprintf("the policy %q names %s: no model here is called so, and no device", cfg.Extensions.RoutePolicy, names))
	}
	return a, nil
}

// strangers are names in the routing policy that are neither those of models nor of devices.
func (a *boxAssembly) strangers() string {
	var here []string
	for _, m := range a.models {
		here = append(here, m.Name)
	}
	for _, name := range policy.Names(a.policy) {
		if engine.Device(name).Known() || name == string(engine.Elsewhere) {
			here = append(here, name)
		}
	}
	return strangers(a.policy, here)
}

// fresh is what a box without any models serves: the catalogue's own, as far as they are here.
func (b *box) fresh() (models []boxModel) {
	add := func(role string, names ...string) {
		for _, name := range names {
			if path, _ := b.find(config.Box{}, name); path != "" {
				models = append(models, boxModel{BoxModel: config.BoxModel{Name: name, File: name, Role: role, Device: string(engine.Auto)}, source: "catalogue"})
				return
			}
		}
	}
	add(catalog.Chat, catalog.Default, catalog.Small)
	add(catalog.Embedding, catalog.DefaultEmbedding)
	return models
}

// modelSettings is what the store keeps of a model's settings beside its own columns.
type modelSettings struct {
	File   string `json:"file"`
	Device string `json:"device"`
	Slots  int    `json:"slots"`
}

// fromRecord makes a model of what the control plane has stored.
func fromRecord(r store.ModelRecord) (boxModel, error) {
	var more modelSettings
	if len(r.Options) > 0 {
		if err := json.Unmarshal(r.Options, &more); err != nil {
			return boxModel{}, err
		}
	}
	return boxModel{
		BoxModel: config.BoxModel{
			Name: r.ID, File: cmp.Or(more.File, r.Path), Role: cmp.Or(r.Role, "chat"), Device: cmp.Or(more.Device, string(engine.Auto)),
			Pin: r.Pinned, Preload: r.Preload, TTL: time.Duration(r.TTLSeconds) * time.Second, Context: r.ContextSize, Parallel: more.Slots,
		},
		source: cmp.Or(r.Source, "catalogue"), editable: true,
	}, nil
}

// find looks for a model's file: a path, the name of a model that is here, or of a file in one of the folders. When it is
// not there the second result says why, and what to do.
func (b *box) find(cfg config.Box, file string) (path, why string) {
	if filepath.IsAbs(file) {
		if _, err := os.Stat(file); err != nil {
			return "", fmt.Sprintf("its file cannot be read: %v; put it there, or correct the path", err)
		}
		return file, ""
	}
	if m, err := b.library(cfg).Find(file); err == nil {
		return m.Path(), ""
	}
	for _, dir := range append([]string{b.models.Dir}, cfg.Folders...) {
		if root, err := os.OpenRoot(dir); err == nil { // a name may not lead out of the folder
			_, err := root.Stat(filepath.FromSlash(file))
			_ = root.Close()
			if err == nil {
				return filepath.Join(dir, filepath.FromSlash(file)), ""
			}
		}
	}
	if _, ok := catalog.Find(file); ok {
		return "", "it is not on this box yet: `1bit model pull " + file + "` fetches it"
	}
	return "", fmt.Sprintf("no model here is called %q, and there is no such file in %s", file, strings.Join(append([]string{b.models.Dir}, cfg.Folders...), ", "))
}

// examine finds a model's file and says where it would run and what it would take.
func (b *box) examine(ctx context.Context, cfg config.Box, m *boxModel) {
	if m.Elsewhere() {
		b.examineRemote(cfg, m)
		return
	}
	m.created = time.Unix(0, 0)
	m.path, m.problem = b.find(cfg, m.File)
	if m.path == "" {
		return
	}
	if info, err := os.Stat(m.path); err == nil {
		m.bytes, m.created = info.Size(), info.ModTime()
	}
	var err error
	if m.options, err = cfg.Options(m.BoxModel, m.path); err != nil {
		m.problem = err.Error()
		return
	}
	m.options.Append = groupOfTheBox()
	if m.role() == gateway.Chat && b.slots {
		m.options.SlotDir = b.cache.Folder(m.Name)
	}
	p, err := b.plan(ctx, m.options)
	if err != nil {
		m.problem = err.Error()
		m.need, _ = pool.Estimate(m.options, cmp.Or(m.options.Device, engine.CPU)) // it may be possible later; of nothing nothing is known
		return
	}
	m.Device, m.why = string(p.Device), p.Why
	if m.need, err = pool.Estimate(m.options, p.Device); err != nil {
		m.problem = err.Error()
	}
}

// groupOfTheBox is what the box puts behind the command line of every llama-server: its own metrics, and no prompt of
// one conversation in the slot of another.
func groupOfTheBox() []string { return []string{"--metrics", "--cache-ram", "0"} }
