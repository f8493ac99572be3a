// Package telemetry is what a box says of itself to programs that watch it: figures in Prometheus's text format, spans
// and metrics for an OpenTelemetry collector, and alerts to a webhook.
//
// What was asked and answered, by whom, and with which key is in none of them: the labels are routes, the names of
// models, devices and states, so that there are only ever as many series as the operator has models.
package telemetry

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"onebit/engine"
)

// bounds are the upper ends of the histograms of times, in seconds.
var bounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300}

// perToken are those of the time between two tokens.
var perToken = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}

// Call is one request that has ended.
type Call struct {
	ID        string // that the log shows
	Route     string // a name of the table of routes; never what a client wrote
	Operation string // chat, text_completion, embeddings, rerank; empty when it made nothing
	Model     string // as resolved; empty when it got no further
	Device    engine.Device
	Stream    bool
	Status    int // 499 when the client went before the answer began
	Answered  bool

	Begin  time.Time
	Took   time.Duration
	First  time.Duration // to the first byte of the answer
	Waited time.Duration // of that, for the model
	Queued bool          // it waited in line for it
	Loaded bool          // the model was not in memory when it came
	Usage  engine.Usage

	Traceparent, Tracestate string // as the client sent them
}

// between is the mean time between two tokens of a stream; 0 when it cannot be told.
func (c Call) between() time.Duration {
	if !c.Stream || c.Usage.Completion < 2 || c.Took <= c.First {
		return 0
	}
	return (c.Took - c.First) / time.Duration(c.Usage.Completion-1)
}

// Config describes Metrics.
type Config struct {
	Version string          // of the program
	Runtime bool            // with figures of the Go runtime and the process
	State   func() []Family // asked at each look; may be nil
}

// Metrics counts requests and writes what it has counted. Its methods may be called from many goroutines.
type Metrics struct {
	cfg      Config
	registry *prometheus.Registry
	export   atomic.Pointer[Export]

	// Events counts events of streamed answers that were passed on. It is bare, since it is counted for each.
	Events atomic.Uint64

	inFlight atomic.Int64
	requests *prometheus.CounterVec
	tokens   *prometheus.CounterVec
	byRoute  *prometheus.HistogramVec
	first    *prometheus.HistogramVec
	between  *prometheus.HistogramVec
	took     *prometheus.HistogramVec
	waited   *prometheus.HistogramVec
	queued   *prometheus.HistogramVec
}

// New returns Metrics that have counted nothing.
func New(cfg Config) *Metrics {
	m := &Metrics{cfg: cfg, registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(v)
		return v
	}
	histogram := func(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{label})
		m.registry.MustRegister(v)
		return v
	}
	m.requests = counter("onebit_requests_total", "Requests that have ended, by route, model and status (499: the client went first).", "route", "model", "status")
	m.tokens = counter("onebit_tokens_total", "Tokens of ended requests: of prompts, of those the cached ones, and generated.", "model", "kind")
	m.byRoute = histogram("onebit_time_to_first_byte_seconds", "From a request's arrival to the first byte of its answer.", bounds, "route")
	m.first = histogram("onebit_time_to_first_token_seconds", "From a request's arrival to the first event of its stream, a load of the model included.", bounds, "model")
	m.between = histogram("onebit_inter_token_latency_seconds", "Mean time between two tokens of a stream.", perToken, "model")
	m.took = histogram("onebit_request_duration_seconds", "From a request's arrival to the end of its answer.", bounds, "model")
	m.waited = histogram("onebit_load_wait_seconds", "What requests have waited for a model that was not in memory.", bounds, "model")
	m.queued = histogram("onebit_queue_wait_seconds", "What requests have waited in line for a model, a load included.", bounds, "model")
	m.registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "onebit_requests_in_flight", Help: "Requests that are being answered."},
			func() float64 { return float64(m.inFlight.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "onebit_events_relayed_total", Help: "Events of streamed answers that were passed on."},
			func() float64 { return float64(m.Events.Load()) }),
	)
	if cfg.Runtime {
		m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	return m
}

// Began notes a request that has come.
func (m *Metrics) Began() { m.inFlight.Add(1) }

// Ended notes a request that has ended, one of those that Began has noted.
func (m *Metrics) Ended(c Call) {
	m.inFlight.Add(-1)
	m.requests.WithLabelValues(c.Route, c.Model, strconv.Itoa(c.Status)).Inc()
	if c.Answered {
		m.byRoute.WithLabelValues(c.Route).Observe(c.First.Seconds())
	}
	if c.Operation == "" || c.Model == "" {
		return
	}
	for _, t := range [...]struct {
		kind string
		n    int
	}{{"prompt", c.Usage.Prompt}, {"cached", c.Usage.Cached}, {"completion", c.Usage.Completion}} {
		if t.n > 0 {
			m.tokens.WithLabelValues(c.Model, t.kind).Add(float64(t.n))
		}
	}
	m.took.WithLabelValues(c.Model).Observe(c.Took.Seconds())
	if c.Answered && c.Stream && c.Status < 400 {
		m.first.WithLabelValues(c.Model).Observe(c.First.Seconds())
	}
	if d := c.between(); d > 0 {
		m.between.WithLabelValues(c.Model).Observe(d.Seconds())
	}
	if c.Queued {
		m.queued.WithLabelValues(c.Model).Observe(c.Waited.Seconds())
	}
	if c.Loaded {
		m.waited.WithLabelValues(c.Model).Observe(c.Waited.Seconds())
	}
	if e := m.export.Load(); e != nil {
		e.record(c)
	}
}

// SetExport sends what ends from now on to a collector as well; nil ends that. It returns what was set before, which the
// caller closes.
func (m *Metrics) SetExport(e *Export) *Export { return m.export.Swap(e) }

// Family is one metric as it stands at the moment.
type Family struct {
	Name    string
	Help    string
	Counter bool // it only grows; else it is a gauge
	Labels  []string
	Values  []Value
}

// Value is one value of a family, with a text for each of its labels.
type Value struct {
	Labels []string
	Value  float64
}

// One returns a gauge without labels.
func One(name, help string, value float64) Family {
	return Family{Name: name, Help: help, Values: []Value{{Value: value}}}
}

// Bool is 1 for true, as gauges say it.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// ContentType is that of what Write writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Write writes all that there is in Prometheus's text format, with further families among it.
func (m *Metrics) Write(w io.Writer, more ...Family) error {
	if m.cfg.State != nil {
		more = append(slices.Clone(more), m.cfg.State()...)
	}
	now := &moment{families: more}
	if e := m.export.Load(); e != nil {
		now.families = append(now.families, Family{
			Name: "onebit_telemetry_failures_total", Help: "Sendings that the collector has not taken.", Counter: true,
			Values: []Value{{Value: float64(e.Failures())}},
		})
	}
	if m.cfg.Version != "" {
		now.families = append(now.families, Family{
			Name: "onebit_build_info", Help: "1, with the version of the program.", Labels: []string{"version"},
			Values: []Value{{[]string{m.cfg.Version}, 1}},
		})
	}
	other := prometheus.NewRegistry()
	if err := other.Register(now); err != nil {
		return fmt.Errorf("gathering metrics: %w", err)
	}
	all, err := prometheus.Gatherers{m.registry, other}.Gather()
	if err != nil {
		return fmt.Errorf("gathering metrics: %w", err)
	}
	return write(w, all)
}

func write(w io.Writer, all []*dto.MetricFamily) error {
	for _, f := range all {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return fmt.Errorf("writing metrics: %w", err)
		}
	}
	return nil
}

// moment shows families to a registry.
type moment struct{ families []Family }

// Describe says nothing: what there is changes with the models.
func (*moment) Describe(chan<- *prometheus.Desc) {}

// Collect sends each value.
func (m *moment) Collect(to chan<- prometheus.Metric) {
	for _, f := range m.families {
		kind := prometheus.GaugeValue
		if f.Counter {
			kind = prometheus.CounterValue
		}
		desc := prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
		for _, v := range f.Values {
			metric, err := prometheus.NewConstMetric(desc, kind, v.Value, v.Labels...)
			if err != nil {
				metric = prometheus.NewInvalidMetric(desc, err)
			}
			to <- metric
		}
	}
}

// Figures are the values of metrics, each family's added up over its series that fit.
type Figures struct{ families map[string]*dto.MetricFamily }

// Read reads what Write has written.
func Read(r io.Reader) (Figures, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	all, err := p.TextToMetricFamilies(r)
	if err != nil {
		return Figures{}, fmt.Errorf("reading metrics: %w", err)
	}
	return Figures{all}, nil
}

// Sum adds up the series of a counter or a gauge whose labels have the values, given as label, value, label, value.
func (f Figures) Sum(name string, labels ...string) float64 {
	sum := 0.0
	for _, m := range f.families[name].GetMetric() {
		if fits(m, labels) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

func fits(m *dto.Metric, labels []string) bool {
	for i := 0; i+1 < len(labels); i += 2 {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == labels[i] && l.GetValue() == labels[i+1] }) {
			return false
		}
	}
	return true
}
