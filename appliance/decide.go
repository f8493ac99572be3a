package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"onebit/appliance/record"
	"onebit/engine"
	"onebit/engine/wire"
)

const decideUsage = `usage: 1bit decide [-m MODEL.gguf | --url URL] [options] QUESTIONS

Answers typed questions about a text with probabilities. The text is what comes on standard input, or a file.

  -m FILE               start this model, on the built-in engine
      --url URL         ask a running server (http://127.0.0.1:8000); the key that it wants is $ONEBIT_KEY
      --model NAME      the model's name in requests (none)
      --file FILE       the text
      --json            print the whole answer as JSON

Questions, as many as wanted, answered in their order:

      --predicate TEXT      how likely TEXT is true: "Is the customer angry?"
      --choice TEXT=A,B,C   which option: "Which team?=billing,shipping,technical"
      --score TEXT=A,B,C    where on a ladder, lowest first: "How urgent?=can wait,today,right now"
      --questions FILE      questions in the JSON of /v1/decisions: a list of {type, instructions, choices or levels}
  -h, --help            this text

A model of half a billion weights is a poor judge: take one of some billions, or a model made for decisions.
`

// decideOptions are the command line of "1bit decide".
type decideOptions struct {
	model, url, name string
	file             string // of the text; empty is standard input
	json             bool
	questions        []any
}

// decideConfig reads the command line.
func decideConfig(args []string) (o decideOptions, err error) {
	for len(args) > 0 {
		name := args[0]
		switch name {
		case "-h", "--help":
			return o, errHelp
		case "--json":
			o.json, args = true, args[1:]
			continue
		}
		to := map[string]*string{"-m": &o.model, "--url": &o.url, "--model": &o.name, "--file": &o.file}[name]
		asks := name == "--predicate" || name == "--choice" || name == "--score" || name == "--questions"
		switch {
		case to == nil && !asks:
			return o, fmt.Errorf("unknown option %s", name)
		case len(args) == 1:
			return o, fmt.Errorf("%s needs a value", name)
		case args[1] == "":
			return o, fmt.Errorf("%s: the value is empty", name)
		case to != nil:
			*to = args[1]
		default:
			if err := o.ask(name, args[1]); err != nil {
				return o, err
			}
		}
		args = args[2:]
	}
	switch {
	case o.model != "" && o.url != "":
		return o, errors.New("-m and --url exclude each other")
	case len(o.questions) == 0:
		return o, errors.New("there is no question: --predicate, --choice, --score or --questions asks one")
	}
	return o, nil
}

// ask adds the questions of one option.
func (o *decideOptions) ask(name, value string) error {
	switch name {
	case "--predicate":
		o.questions = append(o.questions, map[string]any{"type": "predicate", "instructions": value})
		return nil
	case "--questions":
		b, err := os.ReadFile(value)
		if err == nil {
			b, err = record.Text(b)
		}
		if err != nil {
			return fmt.Errorf("--questions: %w", err)
		}
		var list []any
		if err := json.Unmarshal(b, &list); err != nil {
			return fmt.Errorf("--questions: %s is no JSON list of questions such as [{\"type\": \"predicate\", \"instructions\": \"Is it urgent?\"}]", value)
		}
		o.questions = append(o.questions, list...)
		return nil
	}
	at := strings.LastIndexByte(value, '=')
	if at < 1 || !strings.Contains(value[at:], ",") {
		return fmt.Errorf("%s %q: give the question, =, and the options with commas between them", name, value)
	}
	member, inner := "choices", "value"
	if name == "--score" {
		member, inner = "levels", "label"
	}
	var options []any
	for option := range strings.SplitSeq(value[at+1:], ",") {
		options = append(options, map[string]string{inner: strings.TrimSpace(option)})
	}
	o.questions = append(o.questions, map[string]any{"type": strings.TrimPrefix(name, "--"), "instructions": value[:at], member: options})
	return nil
}

// decide is "1bit decide".
func (p program) decide(ctx context.Context, args []string) int {
	o, err := decideConfig(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(p.stdout, decideUsage)
		return 0
	}
	if err == nil {
		err = p.decideWith(ctx, o)
	}
	if err != nil {
		return p.fail("decide", errors.New(reasonOf(err)))
	}
	return 0
}

// decideWith reads the text, asks, and prints the answers.
func (p program) decideWith(ctx context.Context, o decideOptions) error {
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	return stoppable(ctx, interrupts, func(ctx context.Context) error {
		text, err := p.textOf(ctx, o.file)
		if err != nil {
			return err
		}
		body := map[string]any{"input": text, "questions": o.questions}
		if o.name != "" {
			body["model"] = o.name
		}
		raw, err := json.Marshal(body)
		if err != nil {
			return err
		}
		req, err := wire.ParseDecision(raw)
		if err != nil {
			return err
		}
		var answer []byte
		err = modelPlace{file: o.model, url: o.url, command: "decide"}.use(ctx, func(ctx context.Context, b engine.Backend) error {
			if err := b.Ready(ctx); err != nil {
				return err
			}
			_, err := b.Generate(ctx, req, func(c engine.Chunk) error {
				answer = append(answer, c.Raw...)
				return nil
			})
			return err
		})
		if err != nil {
			return err
		}
		if o.json {
			fmt.Fprintf(p.stdout, "%s\n", answer)
			return nil
		}
		return printDecisions(p.stdout, answer)
	})
}

// textOf reads the text that is decided about.
func (p program) textOf(ctx context.Context, file string) (string, error) {
	if file != "" {
		b, err := os.ReadFile(file)
		if err == nil {
			if b, err = record.Text(b); err != nil {
				err = fmt.Errorf("the text %s: %w", file, err)
			}
		}
		return string(b), err
	}
	text, err := readAll(ctx, p.stdin)
	if err != nil {
		return "", fmt.Errorf("reading the text: %w", err)
	}
	if text == "" {
		return "", errors.New("there is no text on standard input; --file names one")
	}
	return text, nil
}

// printDecisions writes one line for each answer: what it is, how sure, and the probabilities.
func printDecisions(w io.Writer, raw []byte) error {
	var said struct {
		Answers []struct {
			Type          string   `json:"type"`
			Name          string   `json:"name"`
			Probability   float64  `json:"probability"`
			Choice        any      `json:"choice"`
			Score         float64  `json:"score"`
			Confidence    *float64 `json:"confidence"`
			Probabilities []struct {
				Value       any     `json:"value"`
				Label       string  `json:"label"`
				Probability float64 `json:"probability"`
			} `json:"probabilities"`
		} `json:"answers"`
	}
	if err := json.Unmarshal(raw, &said); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	for _, a := range said.Answers {
		var line string
		switch a.Type {
		case "predicate":
			line = fmt.Sprintf("%.3f", a.Probability)
		case "choice":
			line = fmt.Sprint(a.Choice)
		case "score":
			line = fmt.Sprintf("%.2f", a.Score)
		default:
			line = a.Type
		}
		if a.Confidence != nil {
			line += fmt.Sprintf("  confidence %.3f ", *a.Confidence)
		}
		for _, p := range a.Probabilities {
			if p.Label == "" {
				p.Label = fmt.Sprint(p.Value)
			}
			line += fmt.Sprintf("  %s %.3f", p.Label, p.Probability)
		}
		if a.Name != "" {
			line = a.Name + ": " + line
		}
		fmt.Fprintln(w, printable(line))
	}
	return nil
}
