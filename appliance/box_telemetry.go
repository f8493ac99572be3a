package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/doctor"
	"onebit/appliance/egress"
	"onebit/appliance/pool"
	"onebit/appliance/queue"
	"onebit/appliance/telemetry"
)

// lookLimit bounds one look at the box's own state.
const lookLimit = 2 * time.Second

// reporting is what the box says of itself to others, as one configuration wants it.
type reporting struct {
	of      string // what of the configuration it depends on
	clients []*egress.Client
	export  *telemetry.Export // nil for no collector
	hook    telemetry.Sender  // nil for no webhook
}

// close gives up one that nobody uses any more: what it has is sent if that goes fast.
func (r *reporting) close(ctx context.Context, log *slog.Logger) {
	if r.export != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookLimit)
		defer cancel()
		if err := r.export.Close(ctx); err != nil {
			log.Debug("what was left for the collector is dropped", "why", err)
		}
	}
	for _, c := range r.clients {
		c.Close()
	}
}

// startReporting makes what counts and tells. It tells nobody yet.
func (b *box) startReporting() {
	b.metrics = telemetry.New(telemetry.Config{Version: version, Runtime: true, State: func() []telemetry.Family {
		ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
		defer cancel()
		return slices.Concat(b.state(ctx).Families(), b.extensionFamilies(), b.cacheFamilies())
	}})
	b.alerts = telemetry.NewAlerts(telemetry.AlertsConfig{
		Box: func() string { return b.now.Load().cfg.Name }, Version: version, Log: b.log,
		Look: func(ctx context.Context) []telemetry.Condition {
			ctx, cancel := context.WithTimeout(ctx, lookLimit)
			defer cancel()
			return b.state(ctx).Conditions()
		},
	})
}

// newReporting makes the collector and the webhook of a configuration, or nil when they are those that are told already.
func (b *box) newReporting(ctx context.Context, cfg config.Box) (_ *reporting, err error) {
	t := cfg.Telemetry
	next := &reporting{of: fmt.Sprintf("%q", []string{cfg.Name, t.OTLP, string(t.Webhook), string(t.Secret), fmt.Sprint(cfg.Egress.Private)})}
	if next.of == b.reporting.of {
		return nil, nil
	}
	defer func() {
		if err != nil {
			next.close(ctx, b.log)
		}
	}()
	if t.OTLP != "" {
		client, err := next.client(t.OTLP, cfg.Egress.Private)
		if err != nil {
			return nil, fmt.Errorf("telemetry.otlp: %w", err)
		}
		if next.export, err = telemetry.NewExport(ctx, telemetry.ExportConfig{URL: t.OTLP, Box: cfg.Name, Version: version, Client: client, Log: b.log}); err != nil {
			return nil, fmt.Errorf("telemetry.otlp: %w", err)
		}
	}
	if t.Webhook != "" {
		client, err := next.client(string(t.Webhook), cfg.Egress.Private)
		if err != nil {
			return nil, fmt.Errorf("telemetry.webhook: %w", err)
		}
		next.hook = telemetry.Webhook{URL: t.Webhook, Secret: t.Secret, Client: client}
	}
	return next, nil
}

// tell makes a collector and a webhook the ones that are told; those before have a moment to send what they have.
func (b *box) tell(ctx context.Context, next *reporting) {
	old := b.reporting
	b.alerts.Tell(next.hook)
	b.metrics.SetExport(next.export)
	b.reporting = *next
	old.close(ctx, b.log)
}

// client makes one that may reach a URL.
func (r *reporting) client(to string, private []string) (*egress.Client, error) {
	at, err := url.Parse(to)
	if err != nil {
		return nil, errors.New("it is no URL") // the URL itself may be a secret
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: at})
	if err != nil {
		return nil, err
	}
	c, err := egress.New(egress.Config{Allow: private, Proxy: proxy})
	if err != nil {
		return nil, err
	}
	r.clients = append(r.clients, c)
	return c, nil
}

// state is where the box stands.
func (b *box) state(ctx context.Context) telemetry.State {
	counts, backups, cfg := b.store.Counts(), b.store.BackupStatus(), b.now.Load().cfg
	s := telemetry.State{
		Now: time.Now(), Ready: b.ready(), Running: b.auth.Running(), Refused: b.problems.get("reload"),
		Store: telemetry.Store{Queued: counts.Queued, Dropped: counts.Dropped, Commits: counts.Commits, Bytes: counts.FileBytes, Full: counts.Full},
	}
	s.Claimed, _ = b.auth.IsClaimed(ctx) // a store that does not answer is said below
	if err := b.store.Health(ctx); err != nil {
		s.Store.Silent = err.Error()
	}
	if d := b.store.Degraded(); d != nil {
		s.Store.Degraded = d.Reason
	}
	if cfg.Backup.Folder != "" {
		s.Backup = telemetry.Backup{Every: cfg.Backup.Every, Since: b.began, Last: backups.Last, Problem: backups.Problem}
	}
	for _, v := range b.edge.Validities() {
		s.Certificates = append(s.Certificates, telemetry.Certificate{Name: v.Name, Begins: v.Begins, Expire: v.Ends})
	}
	for name, dir := range map[string]string{"state": b.options.state, "backups": cfg.Backup.Folder} {
		if _, err := os.Stat(dir); dir == "" || err != nil {
			continue // a drive that is away is the backup's to tell
		}
		if free, err := doctor.Space(dir); err == nil {
			s.Disks = append(s.Disks, telemetry.Disk{Name: name, Free: int64(free)})
		}
	}
	for _, p := range b.extensions.Problems() {
		s.Extensions = append(s.Extensions, telemetry.Extension{Place: p.Place, Reason: p.Text})
	}
	s.Models = b.modelStates()
	return s
}

func (b *box) modelStates() []telemetry.Model {
	counts := map[string]pool.Count{}
	for _, c := range b.pool.Counts() {
		counts[c.Name] = c
	}
	var all []telemetry.Model
	for _, m := range b.pool.List() {
		n := counts[m.Name]
		one := telemetry.Model{
			Name: m.Name, Running: m.Busy, Waiting: m.Waiting, Failures: m.Failures, Reason: m.Reason,
			Loads: n.Loads, Evictions: n.Evictions, LoadFailures: n.Failures, LoadTime: n.LoadTime,
			Swaps: n.Swaps, Refused: n.Refused, Queued: map[string]int{},
		}
		for i, of := range queue.Priorities {
			one.Queued[of.String()] = m.Line.Lengths[i]
		}
		if m.Phase == pool.Loaded || m.Phase == pool.Draining || m.Phase == pool.Loading {
			one.Memory = int64(m.Need.Bytes + m.Need.Host)
		}
		all = append(all, one)
	}
	return all
}
