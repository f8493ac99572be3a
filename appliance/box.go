package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/auth"
	"onebit/appliance/catalog"
	"onebit/appliance/config"
	"onebit/appliance/edge"
	"onebit/appliance/gateway"
	"onebit/appliance/pool"
	"onebit/appliance/promptcache"
	"onebit/appliance/telemetry"
	"onebit/engine/backend"
	"onebit/extensions"
	"onebit/store"
)

const applianceUsage = `usage: 1bit appliance [options]

Runs a box: many models behind HTTPS and HTTP/3, with people, keys and one state directory. The first start shows a
code on the console, with which the box is claimed; until then it answers nothing else.

  --config FILE     the configuration, YAML or TOML (STATE/1bit.yaml or STATE/1bit.toml, when it is there); 1bit config
                    check looks for mistakes
  --state DIR       where the box keeps its state ($STATE_DIRECTORY, else ~/.local/state/1bit)
  --port N          HTTPS and HTTP/3 (443; 0 takes a free one)
  --http-port N     plain HTTP with the trust page (80; -1 turns it off)
  --host ADDR       address to listen on (all)
  --set PATH=VALUE  any other value of the configuration; may be given more than once

SIGHUP, and a change of the file, make the box read its configuration again.
`

// appliance is `1bit appliance`.
func (p program) appliance(ctx context.Context, args []string) int {
	o, err := parseBox(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(p.stdout, applianceUsage)
		return 0
	}
	if err != nil {
		return p.fail("appliance", err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	for {
		err := p.runBox(ctx, o)
		if errors.Is(err, errRestored) && ctx.Err() == nil {
			continue // the same box, with the state of the backup
		}
		if err != nil && ctx.Err() == nil {
			return p.fail("appliance", err)
		}
		return 0
	}
}

// box is a running appliance: what lives as long as the program, and the assembly of the moment.
type box struct {
	options boxOptions
	began   time.Time
	self    string // tells this box from others that a request comes through; it is new at each start
	log     *slog.Logger
	level   *slog.LevelVar
	book    *logbook
	console io.Writer

	store  *store.Store
	auth   *auth.Auth
	admin  *admin.Admin
	edge   *edge.Box
	pool   *pool.Pool
	models catalog.Cache
	starts *backend.Machine
	plan   func(ctx context.Context, o backend.Options) (*backend.Plan, error)
	launch func(o backend.Options, n int, c backend.ChildSpec) backend.Launch

	reloading  sync.Mutex // one reload at a time
	changing   sync.Mutex // one change of the settings at a time; taken before reloading
	now        atomic.Pointer[boxAssembly]
	api        atomic.Pointer[gateway.Gateway]
	seen       atomic.Pointer[string] // the stamp of the configuration's files when they were last read
	policyFile atomic.Pointer[string] // the routing policy that the configuration named then; empty for none
	binding    sync.Mutex             // built-in modules are bound one at a time
	downloads  downloads
	problems   problems

	extensions *extensions.Manager
	built      chan struct{} // closed once the built-in modules are bound, or have taken too long
	classifier *classifier   // in place of the built-in one; nil for that
	shelves    *shelves
	cache      *promptcache.Cache
	slots      bool // model servers can keep the state of their slots

	metrics   *telemetry.Metrics
	alerts    *telemetry.Alerts
	reporting reporting // reloading guards it
	system    system
	up        atomic.Bool // it has been ready once

	restoring atomic.Pointer[restoring] // what is to be restored once the box has stopped
	halt      context.CancelFunc        // ends run
}

// runBox runs a box until ctx ends.
func (p program) runBox(ctx context.Context, o boxOptions) error {
	b := &box{options: o, began: time.Now(), self: rand.Text(), console: p.stderr, level: new(slog.LevelVar), book: newLogbook(logLines), built: make(chan struct{})}
	b.log = slog.New(b.book.handler(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: b.level})))
	p.noNewCode(b.log)
	b.models = catalog.Cache{Dir: modelsIn(o.state)}
	b.system = theSystem(os.Getenv)
	var err error
	if b.starts, err = backend.ThisMachine(); err != nil {
		return err
	}
	b.starts.Installed = programsIn(o.state)
	b.plan, b.launch = b.launcher()
	if b.store, err = store.Open(ctx, store.Config{Dir: o.state, Log: b.log}); err != nil {
		return fmt.Errorf("opening the state in %s: %w", o.state, err)
	}
	defer func() {
		if err := b.store.Close(); err != nil {
			b.log.Error("closing the store", "error", err)
		}
	}()
	if b.cache, err = b.openCache(ctx); err != nil {
		return err
	}
	assembly, err := b.read(ctx)
	if err != nil {
		return err
	}
	if err := b.build(ctx, p, assembly); err != nil {
		return err
	}
	err = errors.Join(b.run(ctx), b.shelves.keeper.Close())
	if r := b.restoring.Load(); r != nil && err == nil {
		return r.finish(ctx, b)
	}
	return err
}

// build makes everything that lives as long as the program. It serves nothing yet.
func (b *box) build(ctx context.Context, p program, a *boxAssembly) (err error) {
	starter := &pool.Starter{Plan: b.plan, Launch: b.launch, Stdout: p.stdout, Stderr: p.stderr, Log: b.log, Wrap: b.cached}
	b.startReporting()
	b.pool, err = pool.New(pool.Config{Start: withFolder(starter.Start), Memory: b.budget, Log: b.log})
	if err != nil {
		return err
	}
	if b.auth, err = auth.New(auth.Config{
		Store: b.store, Log: b.log, Console: b.console,
		URL:      func() string { return b.edge.URL() },
		Root:     func() []byte { pem, _ := b.edge.Root(); return pem },
		Words:    edge.Words,
		Settings: b.chosen,
		Restore:  b.restore,
		Claimed:  b.claimed,
	}); err != nil {
		return err
	}
	if b.classifier, err = b.newScorer(ctx, a.cfg, p.stdout, p.stderr); err != nil {
		return err
	}
	if b.extensions, err = b.newExtensions(b.modules()); err != nil {
		return err
	}
	if b.shelves, err = b.openShelves(ctx, a.cfg.Documents); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.shelves.keeper.Close())
		}
	}()
	if b.admin, err = admin.New(admin.Config{Store: b.store, Auth: b.auth, Box: control{b}, Log: b.log, Extensions: b.extensions, Documents: librarian{b}}); err != nil {
		return err
	}
	if b.edge, err = edge.ListenBox(ctx, b.edgeConfig(a.cfg), http.HandlerFunc(b.serve)); err != nil {
		return err
	}
	if err := b.adopt(ctx, a); err != nil {
		return errors.Join(err, b.edge.Close())
	}
	return nil
}

// run serves until ctx ends, then lets running answers end and leaves no process behind.
func (b *box) run(ctx context.Context) error {
	serving, stop := context.WithCancel(ctx)
	defer stop()
	b.halt = stop
	// what requests need outlives the last of them
	behind, stopBehind := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBehind()
	socket, err := listenSocket(ctx, b.options.state)
	if err != nil {
		return errors.Join(err, b.edge.Close())
	}
	// and the states of conversations are put away at the end of their models
	cached, stopCache := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCache()
	var group, last, end sync.WaitGroup
	failed := make(chan error, 8)
	keep := func(group *sync.WaitGroup, ctx context.Context, f func(context.Context) error) {
		group.Go(func() {
			if err := f(ctx); err != nil {
				failed <- err
				stop()
			}
		})
	}
	keep(&end, cached, b.cache.Run)
	keep(&last, behind, b.store.Run)
	if err := b.extensions.Start(ctx); err != nil { // what was active decides from the first request on
		stopBehind()
		last.Wait()
		stopCache()
		end.Wait()
		return errors.Join(err, socket.Close(), b.edge.Close())
	}
	keep(&last, behind, b.extensions.Run)
	keep(&last, behind, b.runScorer)
	keep(&last, behind, b.pool.Run)
	keep(&group, serving, b.shelves.run)
	keep(&last, behind, b.auth.Run) // what is revoked ends also while the box waits for its last answers
	keep(&group, serving, func(ctx context.Context) error { return b.serveSocket(ctx, socket) })
	keep(&group, serving, b.watch)
	keep(&group, serving, b.bindBuilt)
	keep(&group, serving, b.keepScopes)
	keep(&group, serving, b.welcome)
	keep(&group, serving, b.alerts.Run)
	keep(&group, serving, b.settle)
	stopping := context.AfterFunc(serving, func() { b.system.say(stops(b.now.Load().cfg.Requests.Drain)) })
	defer stopping()
	served := b.edge.Serve(serving)
	stop()
	group.Wait()
	b.downloads.stop()
	b.tell(ctx, &reporting{})
	stopBehind()
	last.Wait()
	stopCache()
	end.Wait()
	close(failed)
	for err := range failed {
		served = errors.Join(served, err)
	}
	return served
}

// welcome tells whoever started the box where it is, and what to do first.
func (b *box) welcome(ctx context.Context) error {
	claimed, err := b.auth.IsClaimed(ctx)
	if err != nil {
		return err
	}
	_, fingerprint := b.edge.Root()
	fmt.Fprintf(b.console, "1bit appliance: %s, state in %s\n", b.edge.URL(), b.options.state)
	if u := b.edge.TrustURL(); u != "" {
		fmt.Fprintf(b.console, "  trust    %s\n", u)
	}
	fmt.Fprintf(b.console, "  root     %s\n", fingerprint)
	if d := b.store.Degraded(); d != nil {
		fmt.Fprintf(b.console, "  DEGRADED the database was damaged (%s); it was restored as of %s; the damaged file is %s\n", d.Reason, d.DataFrom.Format(time.RFC3339), d.SetAside)
	}
	if claimed {
		b.edge.Advertise(true)
		return nil
	}
	_, err = b.auth.Arm(ctx)
	return err
}

// edgeConfig is what a configuration says about the network.
func (b *box) edgeConfig(c config.Box) edge.BoxConfig {
	t := c.TLS
	options := map[string]string{}
	for name, value := range t.ACME.DNSOptions {
		options[name] = string(value)
	}
	return edge.BoxConfig{
		Host: c.Listen.Host, Port: c.Listen.Port, HTTPPort: c.Listen.HTTPPort, HTTP3: c.Listen.HTTP3,
		Name: c.Name, Names: t.Names,
		TLS: edge.TLSConfig{
			Mode: t.Mode, Certificate: t.Certificate, Key: t.Key,
			ACME: edge.ACME{
				Email: t.ACME.Email, Directory: t.ACME.Directory, Root: t.ACME.Root, Challenges: t.ACME.Challenges,
				Profile: t.ACME.Profile, DNS: t.ACME.DNS, DNSOptions: options,
			},
		},
		Storage:        b.store.TLS(),
		TrustedProxies: c.Listen.TrustedProxies, Origins: c.Web.Origins, Discovery: c.Discovery,
		WriteTimeout: c.Requests.Write, Drain: c.Requests.Drain, Log: b.log,
	}
}
