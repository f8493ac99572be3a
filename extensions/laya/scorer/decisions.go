package scorer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Bounds of one question to a decision model.
const (
	askTimeout = 30 * time.Second
	mostAnswer = 64 << 10 // bytes
)

// ErrNoDecisions says that the server's model answers no decisions (HTTP 501).
var ErrNoDecisions = errors.New("the model answers no decisions")

// Decisions asks a decision model that a llama-server serves, such as the real Laya as a GGUF, over POST /v1/systemone.
type Decisions struct {
	Wording int // of the question; see Wordings

	base   string
	client *http.Client
}

// NewDecisions returns a scorer for the server at a base URL, such as http://127.0.0.1:8100. Whoever starts the server gives it the
// whole prompt in one --ubatch-size.
func NewDecisions(base string, client *http.Client) (*Decisions, error) {
	if !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return nil, fmt.Errorf("%q is not the URL of a server", base)
	}
	return &Decisions{base: strings.TrimRight(base, "/"), client: client}, nil
}

// Score implements Scorer.
func (d *Decisions) Score(ctx context.Context, text string) (Answer, error) {
	if a, ok := long(text); ok {
		return a, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := d.ask(ctx, question(text, d.Wording))
	if err != nil {
		return Answer{}, fmt.Errorf("asking the decision model: %w", err)
	}
	return c, nil
}

func (d *Decisions) ask(ctx context.Context, body []byte) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.base+"/v1/systemone", bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := d.client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer+1))
	switch {
	case err != nil:
		return Answer{}, err
	case res.StatusCode == http.StatusNotImplemented:
		return Answer{}, ErrNoDecisions
	case res.StatusCode != http.StatusOK:
		return Answer{}, fmt.Errorf("the server answers %s", res.Status)
	case len(b) > mostAnswer:
		return Answer{}, errors.New("the answer is too long")
	}
	return readAnswers(b)
}

// question is what a decision model is asked, on one line: the order of the criteria is kept, since it weighs.
func question(text string, wording int) []byte {
	var b bytes.Buffer
	state, _ := json.Marshal(text) // a string always can be
	fmt.Fprintf(&b, `{"state":%s,"questions":{"cls":{"type":"choice","instructions":%q,"criteria":{`, state, wordings[wording].instructions)
	for i, c := range wordings[wording].criteria {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%q", c.class, c.definition)
	}
	b.WriteString("}}}}")
	return b.Bytes()
}

// readAnswers reads the answer to question.
func readAnswers(b []byte) (Answer, error) {
	var in struct {
		Answers map[string]*choice `json:"answers"`
		Cls     *choice            `json:"cls"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return Answer{}, fmt.Errorf("the answer is not JSON: %w", err)
	}
	c := in.Answers["cls"]
	if c == nil {
		c = in.Cls
	}
	if c == nil {
		return Answer{}, errors.New("the answer has no choice")
	}
	return c.answer()
}
