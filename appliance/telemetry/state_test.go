package telemetry_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"onebit/appliance/telemetry"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func TestConditions(t *testing.T) {
	day := 24 * time.Hour
	certificate := func(life, left time.Duration) []telemetry.Certificate {
		return []telemetry.Certificate{{Name: "own", Begins: noon.Add(left - life), Expire: noon.Add(left)}}
	}
	for _, c := range []struct {
		name string
		in   telemetry.State
		want string // name and severity; empty for nothing
	}{
		{"all is well", telemetry.State{Disks: []telemetry.Disk{{Name: "state", Free: 2 << 30}}}, ""},
		{"degraded", telemetry.State{Store: telemetry.Store{Degraded: "page 7"}}, "store.degraded critical"},
		{"full", telemetry.State{Store: telemetry.Store{Full: true}}, "store.full critical"},
		{"silent", telemetry.State{Store: telemetry.Store{Silent: "locked"}}, "store.silent critical"},
		{"backup failed", telemetry.State{Backup: telemetry.Backup{Every: day, Since: noon, Problem: "no drive"}}, "backup.failed warning"},
		{"backup due", telemetry.State{Backup: telemetry.Backup{Every: day, Since: noon.Add(-9 * day), Last: noon.Add(-2 * day)}}, ""},
		{"backup old", telemetry.State{Backup: telemetry.Backup{Every: day, Since: noon.Add(-9 * day), Last: noon.Add(-3 * day)}}, "backup.old warning"},
		{"backup old, but just started", telemetry.State{Backup: telemetry.Backup{Every: day, Since: noon.Add(-time.Hour), Last: noon.Add(-30 * day)}}, ""},
		{"no backup ever", telemetry.State{Backup: telemetry.Backup{Every: day, Since: noon.Add(-3 * day)}}, "backup.old warning"},
		{"no schedule", telemetry.State{Backup: telemetry.Backup{Since: noon.Add(-30 * day)}}, ""},
		{"certificate fresh", telemetry.State{Certificates: certificate(90*day, 10*day)}, ""},
		{"certificate soon", telemetry.State{Certificates: certificate(90*day, 8*day)}, "certificate own warning"},
		{"certificate of years", telemetry.State{Certificates: certificate(3650*day, 31*day)}, ""},
		{"certificate of years soon", telemetry.State{Certificates: certificate(3650*day, 29*day)}, "certificate own warning"},
		{"certificate expired", telemetry.State{Certificates: certificate(90*day, 0)}, "certificate own critical"},
		{"model fails", telemetry.State{Models: []telemetry.Model{{Name: "a", Failures: 3}, {Name: "b", Failures: 2}}}, "model a warning"},
		{"disk", telemetry.State{Disks: []telemetry.Disk{{Name: "state", Free: 1 << 29}}}, "disk state warning"},
		{"refused", telemetry.State{Refused: "line 3"}, "reload warning"},
		{"a module", telemetry.State{Extensions: []telemetry.Extension{{Place: "policy active", Reason: "it is gone"}}}, "extension policy active warning"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.in.Now = noon
			var got string
			for _, o := range c.in.Conditions() {
				got += o.Name + " " + string(o.Severity)
				if len(o.Text) < 6 {
					t.Errorf("it says %q", o.Text)
				}
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestFamilies(t *testing.T) {
	s := telemetry.State{
		Now: noon, Claimed: true, Running: 2, Store: telemetry.Store{Commits: 5, Full: true},
		Backup:       telemetry.Backup{Every: time.Hour, Last: noon.Add(-time.Minute)},
		Certificates: []telemetry.Certificate{{Name: "root", Begins: noon, Expire: noon.Add(time.Hour)}},
		Models:       []telemetry.Model{{Name: "m", Loads: 2, Evictions: 1, LoadTime: 3 * time.Second, Running: 1}},
	}
	var b bytes.Buffer
	if err := telemetry.New(telemetry.Config{State: s.Families}).Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"onebit_claimed 1", "onebit_grants_running 2", "onebit_store_commits_total 5", "onebit_backup_age_seconds 60",
		`onebit_condition{condition="store.full",severity="critical"} 1`, `onebit_model_loads_total{model="m"} 2`,
		`onebit_model_evictions_total{model="m"} 1`, `onebit_model_load_seconds_total{model="m"} 3`,
		`onebit_model_requests_running{model="m"} 1`, `onebit_certificate_expiry_timestamp_seconds{certificate="root"} 1.79613e+09`,
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no line %s in\n%s", line, &b)
		}
	}
}
