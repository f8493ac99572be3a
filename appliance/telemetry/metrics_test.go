package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"onebit/appliance/telemetry"
	"onebit/engine"
)

// call is a stream of ten tokens: 100 ms to the first, 20 ms for each other.
func call() telemetry.Call {
	return telemetry.Call{
		ID: "req_1", Route: "/chat/completions", Operation: "chat", Model: "small", Device: engine.CPU, Stream: true, Status: 200, Answered: true,
		Begin: time.Unix(1000, 0), First: 100 * time.Millisecond, Took: 280 * time.Millisecond,
		Usage: engine.Usage{Prompt: 30, Cached: 20, Completion: 10},
	}
}

func TestMetrics(t *testing.T) {
	m := telemetry.New(telemetry.Config{Version: "1.2", Runtime: true, State: func() []telemetry.Family {
		return []telemetry.Family{{Name: "onebit_model_loads_total", Help: "h", Counter: true, Labels: []string{"model"}, Values: []telemetry.Value{
			{Labels: []string{"small"}, Value: 3}, {Labels: []string{"large \"one\"\n"}, Value: 4},
		}}}
	}})
	for range 3 {
		m.Began()
	}
	m.Ended(call())
	failed := call()
	failed.Status, failed.Usage, failed.Waited, failed.Queued, failed.Loaded = 503, engine.Usage{}, 2*time.Second, true, true
	m.Ended(failed)
	m.Events.Add(10)
	var b strings.Builder
	if err := m.Write(&b, telemetry.One("onebit_extra", "h", 7)); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`onebit_requests_total{model="small",route="/chat/completions",status="200"} 1`,
		`onebit_requests_total{model="small",route="/chat/completions",status="503"} 1`,
		`onebit_requests_in_flight 1`,
		`onebit_events_relayed_total 10`,
		`onebit_tokens_total{kind="prompt",model="small"} 30`,
		`onebit_tokens_total{kind="cached",model="small"} 20`,
		`onebit_tokens_total{kind="completion",model="small"} 10`,
		`onebit_time_to_first_token_seconds_count{model="small"} 1`,
		`onebit_inter_token_latency_seconds_sum{model="small"} 0.02`,
		`onebit_request_duration_seconds_count{model="small"} 2`,
		`onebit_load_wait_seconds_sum{model="small"} 2`,
		`onebit_model_loads_total{model="large \"one\"\n"} 4`,
		`onebit_build_info{version="1.2"} 1`,
		`onebit_extra 7`,
		"# TYPE onebit_model_loads_total counter",
		"# TYPE go_goroutines gauge",
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	f, err := telemetry.Read(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		got, want float64
	}{
		{f.Sum("onebit_requests_total"), 2},
		{f.Sum("onebit_requests_total", "status", "503"), 1},
		{f.Sum("onebit_requests_total", "status", "503", "model", "other"), 0},
		{f.Sum("onebit_tokens_total", "kind", "completion"), 10},
		{f.Sum("onebit_extra"), 7},
		{f.Sum("nothing"), 0},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
}

// TestFamiliesThatCollide holds that two families of one name are an error, not half an answer.
func TestFamiliesThatCollide(t *testing.T) {
	m := telemetry.New(telemetry.Config{})
	var b strings.Builder
	if err := m.Write(&b, telemetry.One("x", "h", 1), telemetry.One("x", "h", 2)); err == nil || b.Len() != 0 {
		t.Errorf("%v %s", err, b.String())
	}
}

func BenchmarkEnded(b *testing.B) {
	m := telemetry.New(telemetry.Config{})
	c := call()
	b.ReportAllocs()
	for b.Loop() {
		m.Began()
		m.Ended(c)
	}
}
