package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"onebit/e2e/rig"
)

// server is what is played against.
type server interface {
	start(ctx context.Context) error
	stop() error
	client() (*http.Client, string) // and the address before /v1
}

// message is one of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// play runs all conversations, in turn. Each has a system prompt.
func play(ctx context.Context, o options, s server, systems []string) (all []turn, err error) {
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if stopped := s.stop(); err == nil {
			err = stopped
		}
	}()
	talks := make([][]message, len(systems))
	for number := range o.turns {
		if o.restart && number == o.turns/2 && number > 0 {
			if err := s.stop(); err != nil {
				return nil, err
			}
			if err := s.start(ctx); err != nil {
				return nil, err
			}
		}
		for i := range talks {
			head := fmt.Sprintf("x-anthropic-billing-header: cc_version=2.1.42; cch=%05x;\n", (number*o.talks+i+1)*40503%0xfffff)
			if o.plain {
				head = ""
			}
			talks[i] = append(talks[i], message{"user", fmt.Sprintf("Result %d of the tool: %s Go on.", number, rig.Prose(12, 100*number+i))})
			t, said, err := ask(ctx, s, append([]message{{"system", head + systems[i]}}, talks[i]...))
			if err != nil {
				return nil, fmt.Errorf("turn %d of conversation %d: %w", number+1, i+1, err)
			}
			talks[i] = append(talks[i], message{"assistant", said})
			t.number, t.talk = number, i
			all = append(all, t)
		}
	}
	return all, nil
}

// ask sends a chat and measures the time to its first token.
func ask(ctx context.Context, s server, messages []message) (t turn, said string, err error) {
	body, err := json.Marshal(map[string]any{
		"model": "small", "messages": messages, "max_tokens": 8, "temperature": 0, "stream": true, "stream_options": map[string]bool{"include_usage": true},
	})
	if err != nil {
		return t, "", err
	}
	client, at := s.client()
	begin := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return t, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		return t, "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1000))
		return t, "", fmt.Errorf("%s: %s", res.Status, text)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "[DONE]" {
			continue
		}
		var e struct {
			Choices []struct{ Delta struct{ Content string } }
			Usage   *struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
			Error json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return t, "", err
		}
		if e.Error != nil {
			return t, "", fmt.Errorf("it says %s", e.Error)
		}
		if len(e.Choices) > 0 && e.Choices[0].Delta.Content != "" {
			if t.first == 0 {
				t.first = time.Since(begin)
			}
			said += e.Choices[0].Delta.Content
		}
		if e.Usage != nil {
			t.prompt, t.cached = e.Usage.Prompt, e.Usage.Details.Cached
		}
	}
	if t.first == 0 {
		t.first = time.Since(begin)
	}
	return t, said, lines.Err()
}

// bar is how long the longest one is, in characters.
const bar = 40

// chart shows the first-token time of each turn, the middle one of the conversations.
func chart(with, without []turn) {
	a, b := middle(with), middle(without)
	longest := max(slices.Max(a), slices.Max(b), time.Millisecond)
	draw := func(d time.Duration) string {
		n := int(int64(d) * bar / int64(longest))
		return strings.Repeat("#", max(n, 1)) + strings.Repeat(" ", bar-max(n, 1))
	}
	fmt.Printf("%5s  %-*s  %s\n", "turn", bar+12, "first token with the index", "without")
	for i := range a {
		fmt.Printf("%5d  %s %9.0f ms  %s %9.0f ms\n", i+1, draw(a[i]), ms(a[i]), draw(b[i]), ms(b[i]))
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// middle is the median of the conversations for each turn.
func middle(all []turn) []time.Duration {
	by := map[int][]time.Duration{}
	for _, t := range all {
		by[t.number] = append(by[t.number], t.first)
	}
	out := make([]time.Duration, len(by))
	for n, times := range by {
		slices.Sort(times)
		out[n] = times[len(times)/2]
	}
	return out
}
