package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"text/tabwriter"
	"time"
)

// EndToEnd says how the whole wait of a user is measured, by the clock of this side.
type EndToEnd struct {
	URL    string // of a running server
	Key    string // API key, may be empty
	Prompt []int  // sizes of prompts in tokens
	Tokens int    // of an answer
	Runs   int    // of each size; the middle one counts
	Now    func() time.Time
	Say    func(format string, args ...any)
}

// Wait is what a user waits for at one prompt size; the middle ones of all runs.
type Wait struct {
	Prompt    int       `json:"prompt"`    // tokens
	Tokens    int       `json:"tokens"`    // of the answer
	TTFT      float64   `json:"ttft"`      // seconds until the first token
	Decode    float64   `json:"decode"`    // tokens a second after the first
	Effective float64   `json:"effective"` // tokens a second over the whole wait
	Samples   []float64 `json:"samples"`   // of Effective
}

// Effective returns the tokens a second over the whole wait for n tokens: n / (ttft + (n-1)/decode).
func Effective(n int, ttft time.Duration, decode float64) float64 {
	return float64(n) / (ttft.Seconds() + float64(n-1)/decode)
}

// Measure measures each prompt size after one run to warm up. It fails when a prompt cannot be made of exactly as many
// tokens as asked for, or when an answer has another number.
func (e EndToEnd) Measure(ctx context.Context) ([]Wait, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	c, err := dial(ctx, e.URL, e.Key)
	if err != nil {
		return nil, err
	}
	if e.Say != nil {
		e.Say("warming up")
	}
	if _, _, err := e.once(ctx, c, e.Prompt[0]); err != nil {
		return nil, fmt.Errorf("warming up: %w", err)
	}
	var list []Wait
	for _, size := range e.Prompt {
		if e.Say != nil {
			e.Say("a prompt of %d tokens, %d runs", size, e.Runs)
		}
		w := Wait{Prompt: size, Tokens: e.Tokens}
		var first, decode []float64
		for range e.Runs {
			ttft, d, err := e.once(ctx, c, size)
			if err != nil {
				return nil, fmt.Errorf("a prompt of %d tokens: %w", size, err)
			}
			first, decode = append(first, ttft.Seconds()), append(decode, d)
			w.Samples = append(w.Samples, Effective(e.Tokens, ttft, d))
		}
		w.TTFT, w.Decode, w.Effective = Median(first), Median(decode), Median(w.Samples)
		list = append(list, w)
	}
	return list, nil
}

func (e *EndToEnd) check() error {
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.Runs == 0 {
		e.Runs = 3
	}
	if e.Tokens == 0 {
		e.Tokens = 256
	}
	if len(e.Prompt) == 0 {
		e.Prompt = []int{512, 2048, 8192}
	}
	if e.Runs < 1 || e.Tokens < 2 {
		return fmt.Errorf("%d runs of %d tokens: at least one of two is needed", e.Runs, e.Tokens)
	}
	for _, n := range e.Prompt {
		if n < 32 || n > 1<<22 {
			return fmt.Errorf("a prompt of %d tokens is not one of 32 to %d", n, 1<<22)
		}
	}
	return nil
}

// exact returns a text of exactly n tokens. Its first line is random, so that no cache knows it.
func exact(ctx context.Context, c *client, n int) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "Note %016x.\n", rand.Uint64())
	for text.Len() < 8*n {
		text.WriteString(prose)
	}
	ids, err := c.tokenize(ctx, text.String())
	if err != nil {
		return "", err
	}
	cut, got := n, 0
	for range 16 {
		if cut < 1 || cut > len(ids) {
			break
		}
		s, err := c.detokenize(ctx, ids[:cut])
		if err != nil {
			return "", err
		}
		again, err := c.tokenize(ctx, s)
		if err != nil {
			return "", err
		}
		if got = len(again); got == n {
			return s, nil
		}
		cut += n - got // tokens at the cut may join others when the text is read again
	}
	return "", fmt.Errorf("no text of exactly %d tokens was found, one of %d was", n, got)
}

func (c *client) tokenize(ctx context.Context, text string) ([]json.Number, error) {
	var reply struct {
		Tokens []json.Number `json:"tokens"`
	}
	err := c.call(ctx, "POST", "/tokenize", map[string]any{"content": text}, &reply)
	if err == nil && len(reply.Tokens) == 0 {
		err = errors.New("/tokenize returned no tokens")
	}
	return reply.Tokens, err
}

func (c *client) detokenize(ctx context.Context, ids []json.Number) (string, error) {
	var reply struct {
		Content string `json:"content"`
	}
	err := c.call(ctx, "POST", "/detokenize", map[string]any{"tokens": ids}, &reply)
	return reply.Content, err
}

// once runs one prompt of size tokens and returns the time to the first token and the tokens a second after it.
func (e *EndToEnd) once(ctx context.Context, c *client, size int) (time.Duration, float64, error) {
	prompt, err := exact(ctx, c, size)
	if err != nil {
		return 0, 0, err
	}
	begun := e.Now()
	reply, err := c.send(ctx, "POST", "/v1/completions", map[string]any{
		"model": c.model, "prompt": prompt, "max_tokens": e.Tokens, "temperature": 0, "ignore_eos": true,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return 0, 0, err
	}
	defer reply.Body.Close()
	s := stream{now: e.Now}
	if err := s.read(reply.Body); err != nil {
		return 0, 0, err
	}
	switch {
	case s.tokens != e.Tokens:
		return 0, 0, fmt.Errorf("an answer of %d tokens instead of %d", s.tokens, e.Tokens)
	case !s.last.After(s.first) || !s.first.After(begun):
		return 0, 0, errors.New("the answer came all at once: it was not streamed")
	}
	return s.first.Sub(begun), float64(s.tokens-1) / s.last.Sub(s.first).Seconds(), nil
}

// stream reads the events of one answer.
type stream struct {
	now         func() time.Time
	first, last time.Time // of the first and the last event with text
	tokens      int       // by the server's account
}

func (s *stream) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), maxReply)
	ended := false
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if data = strings.TrimSpace(data); !ok || data == "" {
			continue
		}
		if data == "[DONE]" {
			ended = true
			continue
		}
		if err := s.event([]byte(data)); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		return fmt.Errorf("reading the answer: %w", err)
	case !ended:
		return errors.New("the answer broke off")
	case s.first.IsZero():
		return errors.New("the answer holds no text")
	case s.tokens == 0:
		return errors.New("the answer does not say how many tokens it has (usage)")
	}
	return nil
}

func (s *stream) event(data []byte) error {
	var e struct {
		Choices []struct {
			Text string `json:"text"`
		} `json:"choices"`
		Usage *struct {
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("reading an event: %w", err)
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return fmt.Errorf("the server reports %s", e.Error)
	}
	if len(e.Choices) > 0 && e.Choices[0].Text != "" {
		if s.last = s.now(); s.first.IsZero() {
			s.first = s.last
		}
	}
	if e.Usage != nil {
		s.tokens = e.Usage.Completion
	}
	return nil
}

// Waits are what several configurations reached, in their order.
type Waits []ConfigurationWaits

// ConfigurationWaits are what one configuration reached, by prompt size.
type ConfigurationWaits struct {
	Configuration
	Waits []Wait `json:"waits"`
}

// Add returns the list with one more configuration.
func (list Waits) Add(c Configuration, waits []Wait) Waits {
	return append(list, ConfigurationWaits{c, waits})
}

// Print writes the waits as a table.
func (list Waits) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tprompt\tanswer\tfirst token\tdecode\teffective\t")
	for _, c := range list {
		for _, x := range c.Waits {
			fmt.Fprintf(t, "%s\t%d\t%d\t%.3f s\t%.1f tok/s\t%.1f tok/s\t\n", c.Name, x.Prompt, x.Tokens, x.TTFT, x.Decode, x.Effective)
		}
	}
	return t.Flush()
}
