package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"onebit/appliance/cite"
	"onebit/engine"
	"onebit/engine/wire"
	"onebit/extensions/abi"
	prompts "onebit/extensions/conversation"
)

// Passages is what is looked for in the box's documents.
type Passages struct {
	Collections []string // ids, or names
	Query       string
	Most        int             // 0 for the usual number
	Filters     json.RawMessage // over attributes; nil for none
	Threshold   float64         // of the score
	Plain       bool            // without a reranker
	Lenient     bool            // a collection that does not exist for the caller is left out
}

// Found is what there was.
type Found struct {
	Passages    []cite.Passage // the best first
	Collections []string       // ids of those that were searched
	How         string         // hybrid, words or vectors
	Query       string         // what was searched for
}

// Documents are the box's.
type Documents interface {
	// Find returns the passages that fit best, of collections that exist for whoever the context is of. Others are an
	// error that says so.
	Find(ctx context.Context, p Passages) (Found, error)

	// Bound are the collections of which passages are added to the chats of whoever the context is of.
	Bound(ctx context.Context) []string
}

// documentsHeader names collections in a request, and says in an answer what was added.
const documentsHeader = "X-1bit-Documents"

const (
	maxQuestion    = 4096 // bytes of a question that are searched for
	unknownContext = 4096 // tokens, of a model that does not say how many it takes
	usualAnswer    = 1024 // tokens that are left for an answer of no given length
)

// wanted is what a chat asks for of documents; nil for nothing.
func (g *Gateway) wanted(ctx context.Context, h http.Header, body []byte) (*Passages, error) {
	if g.cfg.Documents == nil {
		return nil, nil
	}
	var asked struct {
		Documents json.RawMessage `json:"documents"`
	}
	if wire.Has(body, "documents") {
		_ = json.Unmarshal(body, &asked) // the parser has found it sound
	}
	if v := bytes.TrimSpace(asked.Documents); len(v) > 0 && v[0] == '{' {
		var d struct {
			Collections []string        `json:"collections"`
			Most        int             `json:"top_k"`
			Query       string          `json:"query"`
			Filters     json.RawMessage `json:"filters"`
		}
		if err := json.Unmarshal(v, &d); err != nil {
			return nil, &engine.InvalidError{Param: "documents", Code: "invalid_type", Message: `"documents" is an object with collections, top_k, query and filters`}
		}
		if d.Most < 0 || d.Most > maxPassages {
			return nil, &engine.InvalidError{Param: "documents.top_k", Code: "invalid_value", Message: "top_k is 1 to 50"}
		}
		if len(d.Collections) == 0 {
			return nil, nil // none, also where the key is bound to some
		}
		return &Passages{Collections: d.Collections, Most: d.Most, Query: d.Query, Filters: d.Filters}, nil
	}
	if named := split(h.Get(documentsHeader)); len(named) > 0 {
		return &Passages{Collections: named}, nil
	}
	if bound := g.cfg.Documents.Bound(ctx); len(bound) > 0 {
		return &Passages{Collections: bound, Lenient: true}, nil
	}
	return nil, nil
}

func split(list string) []string {
	var all []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

// maxPassages is how many can be asked for. Modules may ask for more, and get so many.
const maxPassages = 50

// byPolicy is what a module asks for.
func byPolicy(r *abi.RAG) *Passages {
	return &Passages{Collections: []string{r.Collection}, Most: min(r.TopK, maxPassages), Query: r.Query, Lenient: true}
}

// lookUp looks for the passages of a request. A question is the last of the user.
func (g *Gateway) lookUp(ctx context.Context, p *Passages, chat []byte) (*Found, error) {
	if p == nil || g.cfg.Documents == nil {
		return nil, nil
	}
	q := *p
	if q.Query == "" {
		said, err := prompts.Read(chat)
		if err != nil {
			return nil, err
		}
		q.Query = said.LastUser()
	}
	q.Query = strings.TrimSpace(start(q.Query, maxQuestion))
	if q.Query == "" {
		return &Found{Collections: q.Collections, How: "no question"}, nil
	}
	found, err := g.cfg.Documents.Find(ctx, q)
	found.Query = q.Query
	return &found, err
}

// again is what was found, for one more model: each is given what it has room for.
func (f *Found) again() *Found {
	if f == nil {
		return nil
	}
	one := *f
	return &one
}

// start is the beginning of a text, cut between two characters.
func start(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}

// inform puts what was found before the last question of a chat, as far as there is room for it in the model's context,
// and says in the header what it did.
func (g *Gateway) inform(ctx context.Context, w *reply, to *server, req *engine.Request, f *Found) (*engine.Request, error) {
	if f == nil {
		return req, nil
	}
	if err := g.informed(to.Name); err != nil {
		return nil, err
	}
	n := g.fit(ctx, to, req, f.Passages)
	dropped := len(f.Passages) - n
	w.documents = fmt.Sprintf("%s; n=%d", header(strings.Join(f.Collections, ",")), n)
	if dropped > 0 {
		w.documents += fmt.Sprintf("; dropped=%d", dropped)
	}
	w.documents += "; " + f.How
	w.Header().Set(documentsHeader, w.documents)
	f.Passages = f.Passages[:n]
	if n == 0 {
		return req, nil
	}
	raw, err := before(req.Raw, cite.Context(f.Passages))
	if err != nil {
		return nil, err
	}
	w.scan, w.sent = cite.NewScan(f.Passages), raw
	informed := *req
	informed.Raw, informed.Fleeting = raw, true // who deletes a document deletes it from the disk
	return &informed, nil
}

// header is a text as it may stand in a header.
func header(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, start(s, 400))
}

// fit returns how many passages have room beside a request and its answer. Where the model's server counts, its own
// tokens are what counts; the rest is a guess from above.
func (g *Gateway) fit(ctx context.Context, to *server, req *engine.Request, all []cite.Passage) int {
	if len(all) == 0 {
		return 0
	}
	asked, count := wire.GuessTokens(req.Raw)*4/3, cite.Tokens
	if hasExtras(to.Device) {
		if n, err := countChat(ctx, to, to.outgoing(req)); err == nil {
			asked, count = n, counter(ctx, to)
		}
	}
	room := g.room(to.Name, req.Raw) - asked
	if count(cite.Context(all)) <= room {
		return len(all)
	}
	return cite.Fit(all, room, count)
}

// counter counts the tokens of texts at a server, and guesses where that fails.
func counter(ctx context.Context, s *server) func(string) int {
	return func(text string) int {
		var said struct {
			Tokens []json.RawMessage `json:"tokens"`
		}
		if err := ask(ctx, s, "/tokenize", map[string]any{"content": text}, &said); err != nil || said.Tokens == nil {
			return cite.Tokens(text)
		}
		return len(said.Tokens)
	}
}

// room is how many tokens are left in a model's context beside an answer.
func (g *Gateway) room(name string, raw []byte) int {
	most := 0
	for _, l := range g.cfg.Fleet.List() {
		if l.Name == name {
			most = l.Info.Context
		}
	}
	if most <= 0 {
		most = unknownContext
	}
	var limits struct {
		Tokens     int `json:"max_tokens"`
		Completion int `json:"max_completion_tokens"`
	}
	_ = json.Unmarshal(raw, &limits)
	answer := max(limits.Tokens, limits.Completion)
	if answer == 0 {
		answer = min(usualAnswer, most/4)
	}
	return most - min(answer, most/2)
}

// before puts a text before the content of a chat's last message by the user.
func before(raw []byte, text string) ([]byte, error) {
	var chat struct {
		Messages []map[string]json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(raw, &chat); err != nil {
		return nil, err
	}
	last := -1
	for i, m := range chat.Messages {
		if string(m["role"]) == `"user"` {
			last = i
		}
	}
	if last < 0 {
		return nil, errors.New("the chat has no message by the user") // there was a question
	}
	m := chat.Messages[last]
	var said string
	var content any
	if json.Unmarshal(m["content"], &said) == nil {
		content = text + said
	} else {
		var parts []json.RawMessage
		if err := json.Unmarshal(m["content"], &parts); err != nil {
			return nil, err
		}
		content = append([]any{map[string]string{"type": "text", "text": text}}, values(parts)...)
	}
	value, err := encoded(content)
	if err != nil {
		return nil, err
	}
	m["content"] = value
	messages, err := encoded(chat.Messages)
	if err != nil {
		return nil, err
	}
	return wire.AppendMember(nil, raw, "messages", messages), nil
}

func values(parts []json.RawMessage) []any {
	all := make([]any, len(parts))
	for i, p := range parts {
		all[i] = p
	}
	return all
}

// encoded is JSON that leaves < and > as they are.
func encoded(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// annotated is the whole answer to a chat with what it cites.
func annotated(raw []byte, scan *cite.Scan) []byte {
	return rewriteChoice(raw, "message", func(message map[string]json.RawMessage) bool {
		var text string
		_ = json.Unmarshal(message["content"], &text) // null says nothing
		return annotate(message, append(scan.Write(text), scan.End()...))
	})
}

// annotating passes a stream on and puts what it cites into the event that ends the answer.
func annotating(scan *cite.Scan, emit func(engine.Chunk) error) func(engine.Chunk) error {
	var all []cite.Citation
	return func(c engine.Chunk) error {
		d, err := wire.ReadDelta(c.Raw)
		if err != nil {
			return err
		}
		all = append(all, scan.Write(d.Content)...)
		if d.FinishReason == "" {
			return emit(c)
		}
		all = append(all, scan.End()...)
		raw := rewriteChoice(c.Raw, "delta", func(delta map[string]json.RawMessage) bool { return annotate(delta, all) })
		if len(raw) != len(c.Raw) {
			c.Raw, c.ModelAt, c.ModelEnd = raw, 0, 0
		}
		return emit(c)
	}
}

func annotate(to map[string]json.RawMessage, all []cite.Citation) bool {
	if len(all) == 0 {
		return false
	}
	value, err := encoded(all)
	if err != nil {
		return false
	}
	to["annotations"] = value
	return true
}

// rewriteChoice changes a member of the first choice of an answer or an event. What is not of that form stays.
func rewriteChoice(raw []byte, member string, change func(m map[string]json.RawMessage) bool) []byte {
	var answer struct {
		Choices []map[string]json.RawMessage `json:"choices"`
	}
	if json.Unmarshal(raw, &answer) != nil || len(answer.Choices) == 0 {
		return raw
	}
	m := map[string]json.RawMessage{}
	if v := answer.Choices[0][member]; len(v) > 0 && json.Unmarshal(v, &m) != nil || m == nil || !change(m) {
		return raw
	}
	value, err := encoded(m)
	if err != nil {
		return raw
	}
	answer.Choices[0][member] = value
	if value, err = encoded(answer.Choices); err != nil {
		return raw
	}
	return wire.AppendMember(nil, raw, "choices", value)
}
