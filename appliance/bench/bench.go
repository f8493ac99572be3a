// Package bench measures how fast a served model answers: settings against each other on fresh servers, and the whole
// wait of a user from end to end.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Configuration is one way to serve a model.
type Configuration struct {
	Name  string   `json:"name"`
	Flags []string `json:"flags"` // of serve, beside the model and the port
}

// ParseConfiguration reads "name: flags". Flags are split at spaces; quotation marks of either kind keep a text with
// spaces together. A text that begins with a flag is its own name, and an empty one is called plain.
func ParseConfiguration(text string) (Configuration, error) {
	name, flags := "", strings.TrimSpace(text)
	if !strings.HasPrefix(flags, "-") && flags != "" {
		var ok bool
		if name, flags, ok = strings.Cut(flags, ":"); !ok {
			return Configuration{}, fmt.Errorf("configuration %q is not \"name: flags\"", text)
		}
		name = strings.TrimSpace(name)
	}
	list, err := split(flags)
	if err != nil {
		return Configuration{}, fmt.Errorf("configuration %q: %w", text, err)
	}
	if name == "" {
		if name = strings.Join(list, " "); name == "" {
			name = "plain"
		}
	}
	for _, f := range list {
		if f == "--port" || strings.HasPrefix(f, "--port=") || f == "--host" || strings.HasPrefix(f, "--host=") {
			return Configuration{}, fmt.Errorf("configuration %q: the benchmark chooses address and port", name)
		}
	}
	return Configuration{Name: name, Flags: list}, nil
}

// split cuts a line into words as a shell does, but knows quotation marks only.
func split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	open, quote := false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, open = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if open {
				words = append(words, word.String())
				word.Reset()
			}
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if open {
		words = append(words, word.String())
	}
	return words, nil
}

// Server is a running server.
type Server struct {
	URL  string // without a final slash
	Stop func() error
}

// Start starts a server and returns when it is ready.
type Start func(ctx context.Context, c Configuration) (*Server, error)

// Settings say how settings are compared.
type Settings struct {
	Configurations []Configuration // the first is the baseline
	Rounds         int             // each starts every configuration once, in turn
	PromptRuns     int             // readings of the long prompt in a round
	DecodeRuns     int             // answers to each question in a round
	Tokens         int             // of an answer
	Start          Start
	Say            func(format string, args ...any)
}

// check fills in what is left open and refuses what makes no sense.
func (s *Settings) check() error {
	for _, d := range []struct {
		value *int
		plain int
		name  string
	}{{&s.Rounds, 2, "rounds"}, {&s.PromptRuns, 5, "prompt runs"}, {&s.DecodeRuns, 3, "decode runs"}, {&s.Tokens, 256, "tokens"}} {
		if *d.value == 0 {
			*d.value = d.plain
		}
		if *d.value < 1 || *d.value > 1<<16 {
			return fmt.Errorf("%d %s", *d.value, d.name)
		}
	}
	if len(s.Configurations) == 0 {
		return errors.New("there is no configuration to measure")
	}
	for i, c := range s.Configurations {
		if slices.ContainsFunc(s.Configurations[:i], func(o Configuration) bool { return o.Name == c.Name }) {
			return fmt.Errorf("two configurations are called %q", c.Name)
		}
	}
	if s.Say == nil {
		s.Say = func(string, ...any) {}
	}
	return nil
}

// Compare measures all configurations, round by round in turn, so that what disturbs the machine for a while disturbs
// all of them. All figures are the server's own.
func Compare(ctx context.Context, s Settings) (*Comparison, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	samples := make([]map[string][]float64, len(s.Configurations))
	for i := range samples {
		samples[i] = map[string][]float64{}
	}
	for round := range s.Rounds {
		for i, c := range s.Configurations {
			s.Say("round %d of %d: %s", round+1, s.Rounds, c.Name)
			if err := s.visit(ctx, c, samples[i]); err != nil {
				return nil, fmt.Errorf("measuring %q: %w", c.Name, err)
			}
		}
	}
	return compare(s.Configurations, samples), nil
}

// visit starts one server, takes its figures and stops it.
func (s *Settings) visit(ctx context.Context, c Configuration, to map[string][]float64) (err error) {
	server, err := s.Start(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	client, err := dial(ctx, server.URL, "")
	if err != nil {
		return err
	}
	if _, err := client.chat(ctx, questions[0].text, 4); err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	for range s.PromptRuns {
		t, err := client.chat(ctx, prose[:promptBytes]+"\n\nWhat is this text about? One sentence.", 1)
		if err != nil {
			return err
		}
		if t.PromptN < promptBytes/16 {
			return fmt.Errorf("the server read %d tokens of the long prompt only: its cache is on", t.PromptN)
		}
		to[promptFigure] = append(to[promptFigure], t.PromptPerSecond)
	}
	for _, q := range questions {
		for range s.DecodeRuns {
			t, err := client.chat(ctx, q.text, s.Tokens)
			if err != nil {
				return err
			}
			to[q.figure] = append(to[q.figure], t.PredictedPerSecond)
		}
	}
	return nil
}
