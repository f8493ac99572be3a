package telemetry

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// State is where a box stands at a moment. What it shows as metrics and what it raises an alert about come from it.
type State struct {
	Now     time.Time
	Ready   bool
	Claimed bool
	Running int // grants

	Models       []Model
	Store        Store
	Backup       Backup
	Certificates []Certificate
	Disks        []Disk
	Extensions   []Extension
	Refused      string // why the configuration of before is still in force; empty when it is not
}

// Model is one model of a box.
type Model struct {
	Name             string
	Running, Waiting int
	Queued           map[string]int // of those that wait, by priority
	Failures         int            // in a row
	Reason           string
	Memory           int64 // bytes that it takes; 0 when it takes none

	Loads, Evictions, LoadFailures int64
	Swaps, Refused                 int64
	LoadTime                       time.Duration // of all loads together
}

// Extension is a module that does not serve where it is bound.
type Extension struct {
	Place  string // its binding and stage
	Reason string // in a sentence
}

// Store is the database.
type Store struct {
	Queued                  int
	Dropped, Commits, Bytes int64
	Full                    bool
	Degraded                string // what happened to the data; empty when nothing did
	Silent                  string // why it does not answer; empty when it does
}

// Backup is the schedule of copies.
type Backup struct {
	Every   time.Duration // 0 without a schedule
	Since   time.Time     // when the schedule began to count for this program
	Last    time.Time     // of the newest copy; zero for none
	Problem string        // why the last try failed
}

// Certificate is one that the box shows or signs with.
type Certificate struct {
	Name           string
	Begins, Expire time.Time
}

// Disk is a file system that the box writes to.
type Disk struct {
	Name string // of what lies on it
	Free int64  // bytes
}

// Severity says how soon somebody should look.
type Severity string

// The severities.
const (
	Warning  Severity = "warning"
	Critical Severity = "critical"
)

// Condition is something that is wrong with a box.
type Condition struct {
	Name     string // steady, such as backup or model NAME
	Severity Severity
	Text     string // in a sentence
}

// How far things go before they are a condition.
const (
	failedLoads = 3                   // of one model in a row
	leastDisk   = int64(1 << 30)      // bytes; below it a disk is nearly full
	lastOfLife  = 10                  // a certificate expires soon in the last tenth of its life,
	longNotice  = 30 * 24 * time.Hour // but not earlier than this
)

// Conditions lists what is wrong, in a steady order.
func (s State) Conditions() []Condition {
	var all []Condition
	add := func(wrong bool, name string, severity Severity, format string, args ...any) {
		if wrong {
			all = append(all, Condition{name, severity, fmt.Sprintf(format, args...)})
		}
	}
	add(s.Refused != "", "reload", Warning, "%s", s.Refused)
	add(s.Store.Degraded != "", "store.degraded", Critical, "the database was damaged and replaced by a copy: %s", s.Store.Degraded)
	add(s.Store.Full, "store.full", Critical, "the disk is full: nothing can be changed until there is room")
	add(s.Store.Silent != "", "store.silent", Critical, "the store does not answer: %s", s.Store.Silent)
	add(s.Backup.Problem != "", "backup.failed", Warning, "the last copy failed: %s", s.Backup.Problem)
	if b := s.Backup; b.Every > 0 {
		newest := b.Last
		if b.Since.After(newest) {
			newest = b.Since // a program that has just started may still make one
		}
		text := "there is no copy of the state yet"
		if !b.Last.IsZero() {
			text = "the newest copy of the state is from " + b.Last.UTC().Format(time.RFC3339)
		}
		add(s.Now.Sub(newest) > 2*b.Every+time.Hour, "backup.old", Warning, "%s", text)
	}
	for _, c := range s.Certificates {
		left, notice := c.Expire.Sub(s.Now), min(c.Expire.Sub(c.Begins)/lastOfLife, longNotice)
		add(left <= 0, "certificate "+c.Name, Critical, "the certificate %s has expired", c.Name)
		add(left > 0 && left < notice, "certificate "+c.Name, Warning, "the certificate %s expires at %s", c.Name, c.Expire.UTC().Format(time.RFC3339))
	}
	for _, m := range s.Models {
		add(m.Failures >= failedLoads, "model "+m.Name, Warning, "the model %s has failed %d times in a row: %s", m.Name, m.Failures, m.Reason)
	}
	for _, e := range s.Extensions {
		add(true, "extension "+e.Place, Warning, "%s", e.Reason)
	}
	for _, d := range s.Disks {
		add(d.Free < leastDisk, "disk "+d.Name, Warning, "the disk of the %s is nearly full: %d MiB are left", d.Name, d.Free>>20)
	}
	return all
}

// Families are the state as metrics.
func (s State) Families() []Family {
	all := []Family{
		One("onebit_ready", "1 when requests can be answered.", Bool(s.Ready)),
		One("onebit_claimed", "1 once the box belongs to somebody.", Bool(s.Claimed)),
		One("onebit_grants_running", "Requests that run under a grant.", float64(s.Running)),
		One("onebit_store_queued_rows", "Rows that are not on the disk yet.", float64(s.Store.Queued)),
		One("onebit_store_bytes", "Size of the database and its log.", float64(s.Store.Bytes)),
		One("onebit_store_full", "1 when the last write failed for lack of space.", Bool(s.Store.Full)),
		One("onebit_store_degraded", "1 when a damaged database was replaced by a copy.", Bool(s.Store.Degraded != "")),
		{Name: "onebit_store_dropped_rows_total", Help: "Rows of the request log that were given up.", Counter: true, Values: []Value{{Value: float64(s.Store.Dropped)}}},
		{Name: "onebit_store_commits_total", Help: "Group commits.", Counter: true, Values: []Value{{Value: float64(s.Store.Commits)}}},
	}
	if s.Backup.Every > 0 {
		all = append(all, One("onebit_backup_failed", "1 when the last try to copy the state failed.", Bool(s.Backup.Problem != "")))
		if !s.Backup.Last.IsZero() {
			all = append(all, One("onebit_backup_age_seconds", "Since the newest copy of the state.", s.Now.Sub(s.Backup.Last).Seconds()))
		}
	}
	expiry := Family{Name: "onebit_certificate_expiry_timestamp_seconds", Help: "When a certificate expires, in seconds since 1970.", Labels: []string{"certificate"}}
	for _, c := range s.Certificates {
		expiry.Values = append(expiry.Values, Value{[]string{c.Name}, float64(c.Expire.Unix())})
	}
	free := Family{Name: "onebit_disk_free_bytes", Help: "Room on a disk that the box writes to.", Labels: []string{"disk"}}
	for _, d := range s.Disks {
		free.Values = append(free.Values, Value{[]string{d.Name}, float64(d.Free)})
	}
	wrong := Family{Name: "onebit_condition", Help: "1 for what is wrong.", Labels: []string{"condition", "severity"}}
	for _, c := range s.Conditions() {
		wrong.Values = append(wrong.Values, Value{[]string{c.Name, string(c.Severity)}, 1})
	}
	return append(append(all, expiry, free, wrong), s.models()...)
}

func (s State) models() []Family {
	kinds := []struct {
		name, help string
		counter    bool
		of         func(Model) float64
	}{
		{"onebit_model_requests_running", "Requests that a model answers.", false, func(m Model) float64 { return float64(m.Running) }},
		{"onebit_model_requests_waiting", "Requests that wait for a model.", false, func(m Model) float64 { return float64(m.Waiting) }},
		{"onebit_model_memory_bytes", "What a model takes, as estimated.", false, func(m Model) float64 { return float64(m.Memory) }},
		{"onebit_model_loads_total", "Loads of a model.", true, func(m Model) float64 { return float64(m.Loads) }},
		{"onebit_model_load_seconds_total", "Time that loads of a model have taken.", true, func(m Model) float64 { return m.LoadTime.Seconds() }},
		{"onebit_model_load_failures_total", "Loads that have failed.", true, func(m Model) float64 { return float64(m.LoadFailures) }},
		{"onebit_queue_swaps_total", "Loads of a model for which others were unloaded.", true, func(m Model) float64 { return float64(m.Swaps) }},
		{"onebit_queue_refused_total", "Requests for a model that found no place in line.", true, func(m Model) float64 { return float64(m.Refused) }},
		{"onebit_model_evictions_total", "How often a model was unloaded to make room.", true, func(m Model) float64 { return float64(m.Evictions) }},
	}
	all := make([]Family, len(kinds)+1)
	for i, k := range kinds {
		all[i] = Family{Name: k.name, Help: k.help, Counter: k.counter, Labels: []string{"model"}}
	}
	length := &all[len(kinds)]
	*length = Family{Name: "onebit_queue_length", Help: "Requests that wait in line for a model.", Labels: []string{"model", "priority"}}
	for _, m := range s.Models {
		for _, priority := range slices.Sorted(maps.Keys(m.Queued)) {
			length.Values = append(length.Values, Value{[]string{m.Name, priority}, float64(m.Queued[priority])})
		}
		for i, k := range kinds {
			all[i].Values = append(all[i].Values, Value{[]string{m.Name}, k.of(m)})
		}
	}
	return all
}
