package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/auth"
	"onebit/appliance/config"
	"onebit/appliance/doctor"
	"onebit/appliance/pool"
	"onebit/appliance/promptcache"
	"onebit/appliance/telemetry"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/plan"
	"onebit/engine/recipe"
	"onebit/store"
)

// cacheName is the folder of the prompt cache in the state directory, and cacheKey the file in it that keys the hashes of
// whose prompts they are. It is in no copy: without its files the index is worth nothing.
const (
	cacheName = "prompt-cache"
	cacheKey  = "key"
)

// openCache opens the prompt cache of the box's state.
func (b *box) openCache(ctx context.Context) (*promptcache.Cache, error) {
	dir, err := filepath.Abs(filepath.Join(b.options.state, cacheName))
	if err != nil {
		return nil, err
	}
	secret, err := cacheSecret(dir)
	if err != nil {
		return nil, fmt.Errorf("the key of the prompt cache: %w", err)
	}
	if slots := slotRoot(dir); slots != "" {
		dir, b.slots = slots, true
	}
	room := &room{dir: dir, space: doctor.Space}
	return promptcache.New(ctx, promptcache.Config{
		Dir: dir, Secret: secret, Index: prefixes{b.store}, Log: b.log,
		Unwritten: func(scope string) bool { return strings.HasPrefix(scope, unwritten) },
		Settings: func() promptcache.Settings {
			var c config.Cache
			if a := b.now.Load(); a != nil { // as it is for each request: the defaults take longer to make than all the rest
				c = a.cfg.Cache
			} else {
				c = config.BoxDefaults().Cache
			}
			return promptcache.Settings{Budget: room.within(int64(c.Budget)), TTL: c.TTL, Least: c.MinTokens, Steady: c.Steady}
		},
	})
}

// cacheSecret reads the key, or makes one.
func cacheSecret(dir string) ([]byte, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, cacheKey)
	secret, err := os.ReadFile(path)
	if err == nil && len(secret) == 32 {
		return secret, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	secret = make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	if err := os.WriteFile(path+".new", secret, 0o600); err != nil {
		return nil, err
	}
	return secret, os.Rename(path+".new", path)
}

// room bounds the budget by what the disk has.
type room struct {
	dir   string
	space func(dir string) (free uint64, err error)

	mu   sync.Mutex
	seen time.Time
	free int64
}

// lookEvery is how often the disk is asked.
const lookEvery = 10 * time.Second

// within is the budget, but no more than half of what is free on the disk.
func (r *room) within(budget int64) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); now.Sub(r.seen) > lookEvery {
		r.seen, r.free = now, -1
		if free, err := r.space(r.dir); err == nil {
			r.free = int64(min(free, 1<<62))
		}
	}
	if r.free < 0 {
		return budget
	}
	return min(budget, r.free/2)
}

// prefixes is the store as the prompt cache's index.
type prefixes struct{ store *store.Store }

// pointSize is a block in the store: its hash, its tokens, and the mark in the highest bit of these.
const (
	pointSize = 20
	pointMark = 1 << 31
)

// Entries reads all that is recorded. What cannot be read is left out, and so swept.
func (p prefixes) Entries(ctx context.Context) ([]promptcache.Entry, error) {
	rows, err := p.store.Prefixes(ctx)
	if err != nil {
		return nil, err
	}
	var all []promptcache.Entry
	for _, r := range rows {
		all = append(all, promptcache.Entry{
			File: r.File, Model: r.Model, Of: r.Of, Scope: r.Scope, Points: pointsOf(r.Blocks), Tokens: int(r.Tokens), Bytes: r.Bytes,
			Marked: r.Marked, Used: r.Used,
		})
	}
	return all, nil
}

// pointsOf reads blocks; nil when they are damaged.
func pointsOf(b []byte) (all []promptcache.Point) {
	if len(b)%pointSize != 0 {
		return nil
	}
	for ; len(b) > 0; b = b[pointSize:] {
		n := binary.LittleEndian.Uint32(b[16:])
		p := promptcache.Point{Tokens: int(n &^ pointMark), Mark: n&pointMark != 0}
		copy(p.Hash[:], b)
		all = append(all, p)
	}
	return all
}

// Put records a file.
func (p prefixes) Put(ctx context.Context, e promptcache.Entry) error {
	var blocks bytes.Buffer
	for _, point := range e.Points {
		n := uint32(min(point.Tokens, pointMark-1))
		if point.Mark {
			n |= pointMark
		}
		blocks.Write(point.Hash[:])
		blocks.Write(binary.LittleEndian.AppendUint32(nil, n))
	}
	return p.store.PutPrefix(ctx, store.Prefix{
		File: e.File, Model: e.Model, Of: e.Of, Scope: e.Scope, Last: e.Points[len(e.Points)-1].Hash, Blocks: blocks.Bytes(),
		Tokens: int64(e.Tokens), Bytes: e.Bytes, Marked: e.Marked, Used: e.Used,
	})
}

// Delete forgets a file.
func (p prefixes) Delete(ctx context.Context, file string) error {
	return p.store.DeletePrefix(ctx, file)
}

// slotted reports whether a device's server has slots whose state can be kept.
func slotted(d engine.Device) bool {
	switch d {
	case engine.CPU, engine.Vulkan, engine.HRX, engine.ROCm:
		return true
	}
	return false
}

// withFolder makes the folder for the states of a model before it is started. Where another process starts the servers, it
// makes the folder, and we cannot.
func withFolder(start pool.Start) pool.Start {
	return func(ctx context.Context, spec pool.ModelSpec) (pool.Instance, error) {
		if dir := spec.Options.SlotDir; dir != "" && os.Getenv(enginesVariable) == "" {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, fmt.Errorf("making the folder for the states of conversations: %w", err)
			}
		}
		return start(ctx, spec)
	}
}

// cached puts the prompt cache before a chat model's server.
func (b *box) cached(spec pool.ModelSpec, c *pool.Children) engine.Backend {
	of := c.Plan.Primary
	if !slotted(of.Device) || of.Role != recipe.Chat || of.Dialect != backend.Llama || spec.Options.SlotDir == "" {
		return c.Backend()
	}
	return b.cache.Wrap(spec.Name, identityOf(spec, of), traitsOf(spec, of), c.Backend())
}

// traitsOf says what llama-server cannot do with the states of a model. A recurrent one has no way back. Layers that look
// at a window forget what is before it; with --swa-full they do so only in files.
func traitsOf(spec pool.ModelSpec, of backend.ChildSpec) promptcache.Traits {
	p, err := plan.Open(spec.Options.Model, plan.Options{Context: spec.Options.Context, Parallel: spec.Options.Parallel})
	if err != nil {
		return promptcache.Traits{} // it shows in the answers
	}
	full := slices.Contains(of.Args, "--swa-full")
	return promptcache.Traits{
		Whole:      p.Cache.State > 0 || p.Cache.Window > 0 && !full,
		WholeFiles: p.Cache.State > 0 || p.Cache.Window > 0,
	}
}

// identityOf says what made the states that fit a server: the model's file, how it is started, and the program's build.
func identityOf(spec pool.ModelSpec, of backend.ChildSpec) string {
	said := fmt.Sprintf("%q %q %q %q", spec.Version, of.Program, of.Args, of.Env)
	for _, path := range append([]string{of.Program}, of.Args...) {
		// an adapter or a projector may be another one under the same name, as the program may
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			said += fmt.Sprintf(" %q %d %d", path, info.Size(), info.ModTime().UnixNano())
		}
	}
	return said
}

// scopeOf is whose prompts may be reused for those of whoever the context is of: a key's, or a person's without one. Those of
// nobody are nobody's.
func scopeOf(ctx context.Context) string {
	p := auth.From(ctx)
	switch {
	case p.Key != nil:
		return scopeOfKey(p.Key)
	case p.Person != "":
		return "person:" + p.Person
	}
	return "nobody:" + rand.Text()
}

// unwritten begins the scope of a key whose privacy is none: nothing of its prompts is written to the disk.
const unwritten = "unwritten:"

func scopeOfKey(k *store.Key) string {
	if k.Privacy == store.PrivacyNone {
		return unwritten + k.ID
	}
	return k.ID
}

// keepScopes lets go of what was kept for keys and people that are no more, or may do nothing any more.
func (b *box) keepScopes(ctx context.Context) error {
	tick := time.NewTicker(time.Minute) // keys expire by themselves
	defer tick.Stop()
	for {
		changed := b.store.AccessChanged()
		scopes, err := b.scopes(ctx)
		if err == nil {
			b.cache.Keep(ctx, scopes)
		} else if ctx.Err() == nil {
			b.log.Warn("what was kept of prompts is not compared with the keys", "why", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// scopes are those of all keys and people that may use the box.
func (b *box) scopes(ctx context.Context) ([]string, error) {
	now := time.Now()
	all := []string{"person:" + store.System().Person}
	keys, err := b.store.Keys(ctx, store.System())
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k.Active(now) {
			all = append(all, scopeOfKey(&k))
		}
	}
	people, err := b.store.People(ctx, store.System())
	if err != nil {
		return nil, err
	}
	for _, p := range people {
		if p.Active(now) {
			all = append(all, "person:"+p.ID)
		}
	}
	return all, nil
}

// cacheFamilies are the figures of the prompt cache.
func (b *box) cacheFamilies() []telemetry.Family {
	s := b.cache.Status()
	family := func(name, help string, n int64) telemetry.Family {
		return telemetry.Family{Name: "onebit_prompt_cache_" + name + "_total", Help: help, Counter: true, Values: []telemetry.Value{{Value: float64(n)}}}
	}
	gauge := func(name, help string, n int64) telemetry.Family {
		return telemetry.Family{Name: "onebit_prompt_cache_" + name, Help: help, Values: []telemetry.Value{{Value: float64(n)}}}
	}
	return []telemetry.Family{
		family("hits", "Requests of which 32 tokens or more were reused, as their servers counted.", s.Hits),
		family("misses", "Requests of which less was.", s.Misses),
		family("prompt_tokens", "Tokens of all prompts.", s.Prompt),
		family("saved_tokens", "Tokens of prompts that were not computed again.", s.Saved),
		family("expected_tokens", "Tokens of prompts that were expected to be reused.", s.Expected),
		family("restores", "States of conversations that were brought back from files.", s.Restores),
		family("saves", "States of conversations that were put into files.", s.Saves),
		family("evictions", "Files that had to go for the budget or their age.", s.Evictions),
		family("wrong", "Expectations that did not hold.", s.Wrong),
		family("written_tokens", "Tokens that were newly kept because clients asked.", s.Written),
		family("steady_bytes", "Bytes of lines that change with each request and were left out.", s.Steady),
		gauge("bytes", "Bytes of all files.", s.Bytes),
		gauge("budget_bytes", "Bytes that they may take.", s.Budget),
		gauge("entries", "Files.", int64(s.Entries)),
	}
}

// PromptCache is what is kept of prompts.
func (c control) PromptCache() admin.PromptCache {
	s := c.b.cache.Status()
	out := admin.PromptCache{
		Budget: s.Budget, Bytes: s.Bytes, Entries: s.Entries, Marked: s.Marked, Hits: s.Hits, Misses: s.Misses, Prompt: s.Prompt,
		Saved: s.Saved, Expected: s.Expected, Wrong: s.Wrong, Restores: s.Restores, Saves: s.Saves, Evictions: s.Evictions,
		Written: s.Written, Steady: s.Steady, Models: []admin.PromptCacheModel{},
	}
	if s.Prompt > 0 {
		out.Share = float64(s.Saved) / float64(s.Prompt)
	}
	for _, m := range s.Models {
		out.Models = append(out.Models, admin.PromptCacheModel{
			Model: m.Model, Loaded: m.Loaded, Entries: m.Entries, Bytes: m.Bytes, Tokens: m.Tokens, Held: m.Held, Slots: m.Slots,
			Busy: m.Busy, Files: m.Files,
		})
	}
	return out
}

// ClearPromptCache forgets all of it.
func (c control) ClearPromptCache(ctx context.Context, _ store.Actor) error {
	return c.b.cache.Clear(ctx)
}
