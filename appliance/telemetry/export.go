package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	metrics "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	spans "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"onebit/appliance/egress"
)

// ExportConfig describes an Export. All but Every must be given.
type ExportConfig struct {
	URL     string         // of the collector; /v1/traces and /v1/metrics are put behind its path
	Box     string         // the instance's name
	Version string         // of the program
	Client  *egress.Client // that may reach the collector
	Log     *slog.Logger
	Every   time.Duration // between two sendings of metrics; default 1 min
}

// Export sends a span and metrics for each request to an OpenTelemetry collector, under the conventions for generative
// models. It holds what cannot be sent for a while and then drops it; nothing waits for it.
type Export struct {
	cfg     ExportConfig
	spans   *spans.TracerProvider
	metrics *metrics.MeterProvider
	tracer  trace.Tracer
	parent  propagation.TraceContext

	duration, first, between metric.Float64Histogram
	tokens                   metric.Int64Histogram

	failures atomic.Int64
	failing  atomic.Bool
}

// sendLimit bounds one sending.
const sendLimit = 10 * time.Second

// NewExport returns an Export whose workers run until it is closed.
func NewExport(ctx context.Context, cfg ExportConfig) (*Export, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || base.Host == "" {
		return nil, errors.New("the address of the collector is no URL")
	}
	if cfg.Every == 0 {
		cfg.Every = time.Minute
	}
	e := &Export{cfg: cfg}
	client := &http.Client{Transport: outward{cfg.Client}, Timeout: sendLimit}
	traces, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(base.JoinPath("v1", "traces").String()), otlptracehttp.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("preparing to send spans: %w", err)
	}
	figures, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(base.JoinPath("v1", "metrics").String()), otlpmetrichttp.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("preparing to send metrics: %w", err)
	}
	who := resource.NewSchemaless(
		attribute.String("service.name", "1bit"), attribute.String("service.version", cfg.Version), attribute.String("service.instance.id", cfg.Box),
	)
	e.spans = spans.NewTracerProvider(spans.WithResource(who), spans.WithBatcher(spanSender{traces, e}, spans.WithExportTimeout(sendLimit)))
	e.metrics = metrics.NewMeterProvider(metrics.WithResource(who),
		metrics.WithReader(metrics.NewPeriodicReader(metricSender{figures, e}, metrics.WithInterval(cfg.Every), metrics.WithTimeout(sendLimit))))
	e.tracer = e.spans.Tracer("onebit")
	if err := e.instruments(e.metrics.Meter("onebit")); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	return e, nil
}

// instruments makes the metrics of the conventions, with their buckets.
func (e *Export) instruments(m metric.Meter) (err error) {
	seconds := func(name, about string, bounds ...float64) metric.Float64Histogram {
		h, failed := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(bounds...))
		err = errors.Join(err, failed)
		return h
	}
	e.duration = seconds("gen_ai.server.request.duration", "Time to the last byte of an answer.",
		0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
	e.first = seconds("gen_ai.server.time_to_first_token", "Time to the first token of a stream.",
		0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
	e.between = seconds("gen_ai.server.time_per_output_token", "Mean time of a token after the first.",
		0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
	tokens, failed := m.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"), metric.WithDescription("Tokens of a request."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))
	e.tokens = tokens
	return errors.Join(err, failed)
}

// record makes a span and metrics of a request. No word of what was asked or answered is in them.
func (e *Export) record(c Call) {
	common := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", c.Operation), attribute.String("gen_ai.provider.name", "1bit"),
		attribute.String("gen_ai.request.model", c.Model), attribute.String("gen_ai.response.model", c.Model),
	}
	if c.Status >= 400 {
		common = append(common, attribute.String("error.type", strconv.Itoa(c.Status)))
	}
	ctx := e.parent.Extract(context.Background(), propagation.MapCarrier{"traceparent": c.Traceparent, "tracestate": c.Tracestate})
	ctx, span := e.tracer.Start(ctx, c.Operation+" "+c.Model, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.Begin),
		trace.WithAttributes(append(common[:len(common):len(common)],
			attribute.Bool("gen_ai.request.stream", c.Stream), attribute.Int("http.response.status_code", c.Status),
			attribute.Int("gen_ai.usage.input_tokens", c.Usage.Prompt), attribute.Int("gen_ai.usage.output_tokens", c.Usage.Completion),
			attribute.Int("gen_ai.usage.cache_read.input_tokens", c.Usage.Cached), attribute.Int("gen_ai.usage.reasoning.output_tokens", c.Usage.Reasoning),
			attribute.String("onebit.device", string(c.Device)), attribute.String("onebit.request.id", c.ID),
			attribute.Float64("onebit.load_wait", waited(c, c.Loaded)), attribute.Float64("onebit.queue_wait", waited(c, c.Queued)),
		)...))
	streamed := c.Answered && c.Stream && c.Status < 400
	if streamed {
		span.SetAttributes(attribute.Float64("gen_ai.response.time_to_first_chunk", c.First.Seconds()))
		span.AddEvent("first chunk", trace.WithTimestamp(c.Begin.Add(c.First)))
	}
	if c.Status >= 500 {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(c.Begin.Add(c.Took)))
	with := metric.WithAttributeSet(attribute.NewSet(common...))
	e.duration.Record(ctx, c.Took.Seconds(), with)
	if streamed {
		e.first.Record(ctx, c.First.Seconds(), with)
	}
	if d := c.between(); d > 0 {
		e.between.Record(ctx, d.Seconds(), with)
	}
	for kind, n := range map[string]int{"input": c.Usage.Prompt, "output": c.Usage.Completion} {
		if n > 0 {
			e.tokens.Record(ctx, int64(n), metric.WithAttributeSet(attribute.NewSet(append(common[:len(common):len(common)], attribute.String("gen_ai.token.type", kind))...)))
		}
	}
}

// Failures is how many sendings the collector has not taken.
func (e *Export) Failures() int64 { return e.failures.Load() }

// Close sends what is left, as far as ctx allows, and ends the workers.
func (e *Export) Close(ctx context.Context) error {
	return errors.Join(e.spans.Shutdown(ctx), e.metrics.Shutdown(ctx))
}

// note keeps a failure from the library's own log, and tells ours about the first of many.
func (e *Export) note(err error) {
	if err == nil {
		if e.failing.Swap(false) {
			e.cfg.Log.Info("the collector takes figures again")
		}
		return
	}
	e.failures.Add(1)
	if !e.failing.Swap(true) {
		e.cfg.Log.Warn("the collector does not take figures; they are dropped when they become too many", "why", err)
	}
}

// spanSender sends spans, and fails for nobody but us.
type spanSender struct {
	spans.SpanExporter
	e *Export
}

// ExportSpans sends spans.
func (s spanSender) ExportSpans(ctx context.Context, all []spans.ReadOnlySpan) error {
	s.e.note(s.SpanExporter.ExportSpans(ctx, all))
	return nil
}

// metricSender does so with metrics.
type metricSender struct {
	metrics.Exporter
	e *Export
}

// Export sends metrics.
func (s metricSender) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	s.e.note(s.Exporter.Export(ctx, all))
	return nil
}

// outward sends requests through the box's one way out.
type outward struct{ client *egress.Client }

// RoundTrip sends one request; a redirect is the answer.
func (o outward) RoundTrip(r *http.Request) (*http.Response, error) {
	return o.client.Do(r, egress.Limits{Redirects: -1, Total: sendLimit})
}

// waited is what a call has waited for its model in seconds, where it did so in a certain way.
func waited(c Call, so bool) float64 {
	if !so {
		return 0
	}
	return c.Waited.Seconds()
}
