package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"onebit/appliance/bench"
)

const benchUsage = `usage: 1bit bench -m MODEL --config "NAME: FLAGS" [--config "NAME: FLAGS" ...] [options]
       1bit bench e2e (-m MODEL [--config "NAME: FLAGS" ...] | --url URL [--key KEY]) [options]

Compares settings of serve. Each round starts a fresh server for every
configuration in turn; the first one is the baseline. The figures are the
server's own: reading a prompt of about 1,800 tokens, and answering three
questions greedily. FLAGS are those of serve, beside -m and --port.

      --config TEXT     a configuration; without a name the flags are its name
      --rounds N        how often each is started (2)
      --prompt-runs N   readings of the prompt in a round (5)
      --decode-runs N   answers to each question in a round (3)
      --tokens N        of an answer (256)
      --json FILE       write all samples to a file
      --verbose         show what the servers print

e2e measures the whole wait from outside: effective tokens a second are N over
the time to the first token plus (N-1) over the decoding speed, for prompts of
exactly so many tokens that no cache knows; the median of three runs.

      --prompt LIST     sizes of the prompts in tokens (512,2048,8192)
      --runs N          runs of each size (3)
`

// benchFlags is what the command line of bench says.
type benchFlags struct {
	model, file, url, key            string
	configs                          []bench.Configuration
	rounds, prompts, decodes, tokens int
	runs                             int
	sizes                            []int
	verbose                          bool
}

// runBench is `1bit bench`.
func runBench(args []string, stdout, stderr io.Writer) int {
	endToEnd := len(args) > 0 && args[0] == "e2e"
	name := "bench"
	if endToEnd {
		name, args = "bench e2e", args[1:]
	}
	o := newOptions(name, benchUsage, stdout, stderr)
	b := benchFlags{}
	b.define(o, endToEnd)
	if status, done := o.parse(args, 0, 0); done {
		return status
	}
	if why := b.check(endToEnd); why != "" {
		return o.wrong("%s", why)
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	release, err := bench.Lock(ctx, func() { o.log("waiting for another benchmark to end") })
	if err != nil {
		return o.finish(err)
	}
	run := b.compare
	if endToEnd {
		run = b.endToEnd
	}
	return o.finish(errors.Join(run(ctx, o), release()))
}

// define declares the options.
func (b *benchFlags) define(o *options, endToEnd bool) {
	o.StringVar(&b.model, "m", "", "")
	o.StringVar(&b.model, "model", "", "")
	o.StringVar(&b.file, "json", "", "")
	o.IntVar(&b.tokens, "tokens", 0, "")
	o.BoolVar(&b.verbose, "verbose", false, "")
	o.Func("config", "", func(text string) error {
		c, err := bench.ParseConfiguration(text)
		b.configs = append(b.configs, c)
		return err
	})
	if !endToEnd {
		o.IntVar(&b.rounds, "rounds", 0, "")
		o.IntVar(&b.prompts, "prompt-runs", 0, "")
		o.IntVar(&b.decodes, "decode-runs", 0, "")
		return
	}
	o.StringVar(&b.url, "url", "", "")
	o.StringVar(&b.key, "key", "", "")
	o.IntVar(&b.runs, "runs", 0, "")
	o.Func("prompt", "", func(text string) error {
		for word := range strings.SplitSeq(text, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil {
				return fmt.Errorf("%q is not a number of tokens", word)
			}
			b.sizes = append(b.sizes, n)
		}
		return nil
	})
}

// check returns what is wrong with the options, "" when nothing is.
func (b *benchFlags) check(endToEnd bool) string {
	switch {
	case endToEnd && b.url != "" && (b.model != "" || len(b.configs) > 0):
		return "--url measures a server that runs: -m and --config do not go with it"
	case endToEnd && b.url != "":
		return ""
	case b.model == "":
		return "-m is needed"
	case !endToEnd && len(b.configs) == 0:
		return "at least one --config is needed; an empty one serves the model as it is"
	}
	if len(b.configs) == 0 {
		b.configs = []bench.Configuration{{Name: "plain"}}
	}
	return ""
}

// server starts configurations with this program.
func (b *benchFlags) server(o *options) (bench.Start, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := bench.Process{Program: self, Args: []string{"serve", "-m", b.model}}
	if b.verbose {
		p.Output = o.errs
	}
	return p.Start, nil
}

// compare runs `1bit bench`.
func (b *benchFlags) compare(ctx context.Context, o *options) error {
	start, err := b.server(o)
	if err != nil {
		return err
	}
	c, err := bench.Compare(ctx, bench.Settings{
		Configurations: b.configs, Rounds: b.rounds, PromptRuns: b.prompts, DecodeRuns: b.decodes, Tokens: b.tokens, Start: start, Say: o.log,
	})
	if err != nil {
		return err
	}
	return errors.Join(c.Print(o.out), b.save(c))
}

// endToEnd runs `1bit bench e2e`.
func (b *benchFlags) endToEnd(ctx context.Context, o *options) error {
	start, err := b.server(o)
	if err != nil {
		return err
	}
	if b.url != "" {
		start = func(context.Context, bench.Configuration) (*bench.Server, error) {
			return &bench.Server{URL: b.url, Stop: func() error { return nil }}, nil
		}
		b.configs = []bench.Configuration{{Name: b.url}}
	}
	var list bench.Waits
	for _, c := range b.configs {
		o.log("%s", c.Name)
		waits, err := b.visit(ctx, start, c, o)
		if err != nil {
			return fmt.Errorf("measuring %q: %w", c.Name, err)
		}
		list = list.Add(c, waits)
	}
	return errors.Join(list.Print(o.out), b.save(list))
}

// visit measures one configuration.
func (b *benchFlags) visit(ctx context.Context, start bench.Start, c bench.Configuration, o *options) (waits []bench.Wait, err error) {
	s, err := start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	return bench.EndToEnd{URL: s.URL, Key: b.key, Prompt: b.sizes, Tokens: b.tokens, Runs: b.runs, Say: o.log}.Measure(ctx)
}

// save writes the samples where --json says.
func (b *benchFlags) save(v any) error {
	if b.file == "" {
		return nil
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(b.file, append(text, '\n'), 0o666)
}
