package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"onebit/appliance/route"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/extensions/abi"
	"onebit/extensions/laya"
	"onebit/extensions/laya/scorer"
	"onebit/extensions/payload"
	"onebit/extensions/policy"
)

const routeUsage = `usage: 1bit route --state TEXT [options]

Says what serve --laya would do with a conversation that begins with a text: its class, how sure the classifier is, and the device
that the policy picks, as in the header X-1bit-Route. How long it took goes to standard error.

      --state TEXT         what the user says; - reads standard input
      --classify           the class and the confidence alone
      --laya-model PATH    classify by another model than the built-in one: a folder, a .gguf file or a URL
      --policy FILE        the routing policy (all to hrx, else the first)
      --devices LIST       the devices to choose among, with commas (hrx,vulkan,rocm,zinc,cpu)
      --llama-server PATH  what runs a .gguf file of a decision model
  -h, --help               this text
`

// route is 1bit route.
func (p program) route(ctx context.Context, args []string) int {
	o := newOptions("route", routeUsage, p.stdout, p.stderr)
	var state *string
	o.text("state", &state)
	classify := o.Bool("classify", false, "")
	model := o.String("laya-model", "", "")
	file := o.String("policy", "", "")
	devices := o.String("devices", "hrx,vulkan,rocm,zinc,cpu", "")
	server := o.String("llama-server", "", "")
	if status, done := o.parse(args, 0, 0); done {
		return status
	}
	if state == nil {
		return o.wrong("--state is needed")
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	q := routeQuestion{text: *state, classify: *classify, devices: strings.Split(*devices, ","), rules: json.RawMessage("{}")}
	err := func() (err error) {
		if q.text == "-" {
			b, err := io.ReadAll(io.LimitReader(p.stdin, maxState))
			if err != nil {
				return fmt.Errorf("reading the text: %w", err)
			}
			q.text = string(b)
		}
		if *file != "" {
			if q.rules, err = route.ReadPolicy(*file); err != nil {
				return err
			}
		}
		source, err := route.FindSource(*model, os.Getenv)
		if err != nil {
			return err
		}
		return p.answer(ctx, source, backend.Options{LlamaServer: *server}, q)
	}()
	return o.finish(err)
}

// maxState is the longest text that is read from standard input, in bytes.
const maxState = 64 << 20

// routeQuestion is what 1bit route was asked.
type routeQuestion struct {
	text     string
	classify bool
	devices  []string
	rules    json.RawMessage
}

// answer classifies a text and picks a device.
func (p program) answer(ctx context.Context, source route.Source, o backend.Options, q routeQuestion) error {
	if strings.TrimSpace(q.text) == "" {
		return errors.New("the text is empty")
	}
	for _, d := range q.devices {
		if device := engine.Device(d); !device.Known() || device == engine.Auto {
			return fmt.Errorf("--devices: there is no device %q", d)
		}
	}
	begin := time.Now()
	s, end, err := p.scorerOf(ctx, source, o)
	if err != nil {
		return err
	}
	defer end()
	made := time.Now()
	a, err := s.Score(ctx, q.text)
	if err != nil {
		return err
	}
	scored := time.Now()
	fmt.Fprintf(p.stderr, "1bit route: %s: started in %v, classified in %v\n", source, made.Sub(begin).Round(time.Microsecond), scored.Sub(made).Round(time.Microsecond))
	if q.classify {
		fmt.Fprintf(p.stdout, "%s %.2f\n", a.Class, a.Confidence)
		return nil
	}
	r := &abi.Request{
		V: abi.Version, ID: "route", Turn: 1, API: "chat", Model: "auto", Hour: time.Now().Hour(), Tokens: (len(q.text) + 3) / 4, Bytes: len(q.text),
		Class: a.Class, Confidence: a.Confidence,
	}
	for _, d := range q.devices {
		r.Candidates = append(r.Candidates, abi.Candidate{ID: d, Backend: d, Device: d, Healthy: true})
	}
	dec, err := policy.Decide(q.rules, r)
	if err != nil || dec == nil || len(dec.Candidates) == 0 {
		return errors.Join(errors.New("the policy brings no decision"), err)
	}
	if names := strangers(q.rules, q.devices); names != "" {
		fmt.Fprintf(p.stderr, "1bit route: note: the policy names %s: no device here is called so; in a box it may be a model\n", names)
	}
	fmt.Fprintf(p.stderr, "1bit route: decided in %v: %s\n", time.Since(scored).Round(time.Microsecond), dec.Reason)
	fmt.Fprintf(p.stdout, "%s %.2f %s\n", a.Class, a.Confidence, dec.Candidates[0])
	return nil
}

// scorerOf makes a source answer, and ends what it started.
func (p program) scorerOf(ctx context.Context, source route.Source, o backend.Options) (scorer.Scorer, func(), error) {
	if source.Builtin() {
		m, err := laya.Builtin()
		return inProcess{m}, func() {}, err
	}
	machine, err := backend.ThisMachine()
	if err != nil {
		return nil, nil, err
	}
	machine.Installed = programsIn("")
	c, err := newClassifier(ctx, classifierKit{machine: machine, options: o, source: source}, outputs{stdout: p.stderr, stderr: p.stderr, log: p.log(slog.LevelWarn)})
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx)
	}()
	return c, func() { stop(); <-done }, nil
}

// inProcess is the built-in classifier without a module around it.
type inProcess struct{ model *laya.Model }

// Score implements scorer.Scorer.
func (s inProcess) Score(_ context.Context, text string) (scorer.Answer, error) {
	head, _ := payload.Cut(text)
	a := s.model.Classify([]byte(head), len(text), new(laya.Features))
	return scorer.Answer{Class: a.Class.String(), Confidence: float64(a.Confidence)}, nil
}
