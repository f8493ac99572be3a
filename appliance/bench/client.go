package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

const maxReply = 64 << 20 // bytes

// client speaks to one server.
type client struct {
	url, key, model string
	http            *http.Client
}

// dial asks a server for the name of its model.
func dial(ctx context.Context, url, key string) (*client, error) {
	c := &client{url: strings.TrimSuffix(url, "/"), key: key, http: &http.Client{Transport: &http.Transport{Proxy: nil}}}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := c.call(ctx, "GET", "/v1/models", nil, &list); err != nil {
		return nil, err
	}
	if len(list.Data) == 0 {
		return nil, errors.New("the server lists no model")
	}
	c.model = list.Data[0].ID
	return c, nil
}

// send sends a request and returns the reply, whose status is 200.
func (c *client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, in)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	reply, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if reply.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(reply.Body, 400))
		reply.Body.Close()
		return nil, fmt.Errorf("%s %s: status %d: %s", method, path, reply.StatusCode, bytes.TrimSpace(text))
	}
	return reply, nil
}

// call sends a request and decodes the reply.
func (c *client) call(ctx context.Context, method, path string, body, to any) error {
	reply, err := c.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if err := json.NewDecoder(io.LimitReader(reply.Body, maxReply)).Decode(to); err != nil {
		return fmt.Errorf("%s %s: reading the reply: %w", method, path, err)
	}
	return nil
}

// timings are a server's own figures.
type timings struct {
	PromptN            int     `json:"prompt_n"`
	PromptPerSecond    float64 `json:"prompt_per_second"`
	PredictedN         int     `json:"predicted_n"`
	PredictedPerSecond float64 `json:"predicted_per_second"`
}

// chat asks one question, without thinking, sampling or cache, and returns how long it took by the server's account.
func (c *client) chat(ctx context.Context, text string, tokens int) (*timings, error) {
	var reply struct {
		Timings *timings `json:"timings"`
	}
	err := c.call(ctx, "POST", "/v1/chat/completions", map[string]any{
		"model":                c.model,
		"messages":             []any{map[string]string{"role": "user", "content": text}},
		"max_tokens":           tokens,
		"temperature":          0,
		"cache_prompt":         false,
		"chat_template_kwargs": map[string]bool{"enable_thinking": false},
	}, &reply)
	switch t := reply.Timings; {
	case err != nil:
		return nil, err
	case t == nil:
		return nil, errors.New("the server's reply holds no timings: its own figures are what is compared (1bit bench e2e measures from outside)")
	case t.PromptN < 1 || !(t.PromptPerSecond > 0) || t.PredictedN < 1 || tokens > 1 && !(t.PredictedPerSecond > 0):
		return nil, fmt.Errorf("the server's timings make no sense: %+v", *t)
	default:
		return t, nil
	}
}
