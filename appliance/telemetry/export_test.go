package telemetry_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"onebit/appliance/egress"
	"onebit/appliance/telemetry"
	"onebit/engine"
)

// collector is a stand-in for an OpenTelemetry collector.
type collector struct {
	*httptest.Server
	client *egress.Client

	mu      sync.Mutex
	status  int
	spans   []*traces.Span
	metrics map[string]*metrics.Metric
	who     map[string]string
	raw     strings.Builder
	tries   int
}

func collect(t *testing.T) *collector {
	c := &collector{status: http.StatusOK, metrics: map[string]*metrics.Metric{}, who: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(c.status)
	}))
	t.Cleanup(c.Close)
	at, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	if c.client, err = egress.New(egress.Config{Allow: []string{at.Host}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.client.Close)
	return c
}

func (c *collector) take(r *http.Request) error {
	in := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		in = z
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(b)
	c.tries++
	if r.URL.Path == "/base/v1/traces" {
		var m collectortrace.ExportTraceServiceRequest
		if err := proto.Unmarshal(b, &m); err != nil {
			return err
		}
		for _, of := range m.ResourceSpans {
			c.who = texts(of.Resource.Attributes)
			for _, s := range of.ScopeSpans {
				c.spans = append(c.spans, s.Spans...)
			}
		}
		return nil
	}
	if r.URL.Path != "/base/v1/metrics" {
		return fmt.Errorf("posted to %s", r.URL.Path)
	}
	var m collectormetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(b, &m); err != nil {
		return err
	}
	for _, of := range m.ResourceMetrics {
		for _, s := range of.ScopeMetrics {
			for _, one := range s.Metrics {
				c.metrics[one.Name] = one
			}
		}
	}
	return nil
}

// texts are attributes in words.
func texts(all []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[a.Key] = fmt.Sprint(v.IntValue)
		case *common.AnyValue_DoubleValue:
			m[a.Key] = fmt.Sprint(v.DoubleValue)
		case *common.AnyValue_BoolValue:
			m[a.Key] = fmt.Sprint(v.BoolValue)
		}
	}
	return m
}

func (c *collector) export(t *testing.T, log io.Writer) (*telemetry.Metrics, *telemetry.Export) {
	t.Helper()
	e, err := telemetry.NewExport(t.Context(), telemetry.ExportConfig{
		URL: c.URL + "/base", Box: "attic", Version: "1.2", Client: c.client, Log: slog.New(slog.NewTextHandler(log, nil)), Every: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := telemetry.New(telemetry.Config{})
	if old := m.SetExport(e); old != nil {
		t.Error("there was an exporter")
	}
	return m, e
}

func TestExport(t *testing.T) {
	c := collect(t)
	m, e := c.export(t, io.Discard)
	one := call()
	one.Traceparent, one.Tracestate = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=x"
	failed := call()
	failed.Status, failed.Stream, failed.Operation, failed.Usage, failed.Model = 503, false, "embeddings", engine.Usage{}, "vectors"
	unsampled := call()
	unsampled.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	other := call()
	other.Operation = ""
	for _, each := range []telemetry.Call{one, failed, unsampled, other} {
		m.Began()
		m.Ended(each)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.spans) != 2 {
		t.Fatalf("%d spans", len(c.spans))
	}
	s := c.spans[0]
	if s.Name != "chat small" || fmt.Sprintf("%x", s.TraceId) != "0af7651916cd43dd8448eb211c80319c" || fmt.Sprintf("%x", s.ParentSpanId) != "b7ad6b7169203331" || s.TraceState != "vendor=x" {
		t.Errorf("span %v", s)
	}
	if s.Kind != traces.Span_SPAN_KIND_SERVER || s.StartTimeUnixNano != uint64(one.Begin.UnixNano()) || s.EndTimeUnixNano-s.StartTimeUnixNano != uint64(one.Took) {
		t.Errorf("span %v", s)
	}
	got := texts(s.Attributes)
	for name, want := range map[string]string{
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "1bit", "gen_ai.request.model": "small", "gen_ai.response.model": "small",
		"gen_ai.usage.input_tokens": "30", "gen_ai.usage.output_tokens": "10", "gen_ai.usage.cache_read.input_tokens": "20",
		"gen_ai.request.stream": "true", "gen_ai.response.time_to_first_chunk": "0.1", "http.response.status_code": "200",
		"onebit.device": "cpu", "onebit.request.id": "req_1",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if len(s.Events) != 1 || s.Events[0].TimeUnixNano-s.StartTimeUnixNano != uint64(one.First) {
		t.Errorf("events %v", s.Events)
	}
	if bad := c.spans[1]; bad.Name != "embeddings vectors" || bad.Status.Code != traces.Status_STATUS_CODE_ERROR || texts(bad.Attributes)["error.type"] != "503" {
		t.Errorf("span %v", bad)
	}
	if c.who["service.name"] != "1bit" || c.who["service.instance.id"] != "attic" || c.who["service.version"] != "1.2" {
		t.Errorf("resource %v", c.who)
	}
	for name, sum := range map[string]float64{
		"gen_ai.server.request.duration": 0.84, "gen_ai.server.time_to_first_token": 0.2, "gen_ai.server.time_per_output_token": 0.04, "gen_ai.client.token.usage": 80,
	} {
		total := 0.0
		for _, p := range c.metrics[name].GetHistogram().GetDataPoints() {
			total += p.GetSum()
		}
		if total < sum-1e-9 || total > sum+1e-9 {
			t.Errorf("%s adds up to %v, want %v", name, total, sum)
		}
	}
}

// TestExportFailures holds that a collector that refuses, or is gone, disturbs nothing and is told of once.
func TestExportFailures(t *testing.T) {
	c := collect(t)
	c.status = http.StatusBadRequest
	var log strings.Builder
	m, e := c.export(t, &log)
	for range 5000 { // more than are held
		m.Began()
		m.Ended(call())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		t.Error(err)
	}
	if e.Failures() == 0 || int(e.Failures()) != c.tries || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%d failures, %d tries, log\n%s", e.Failures(), c.tries, log.String())
	}
	var b strings.Builder
	if err := m.Write(&b); err != nil || !strings.Contains(b.String(), fmt.Sprintf("onebit_telemetry_failures_total %d\n", e.Failures())) {
		t.Errorf("%v %s", err, b.String())
	}
	if old := m.SetExport(nil); old != e {
		t.Error("the exporter was not given back")
	}
}
