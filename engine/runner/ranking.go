package runner

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"onebit/engine/model"
	"onebit/engine/wire"
)

// ranking is a request to rank texts.
type ranking struct {
	head   model.Text // the question, where pairs are texts alone
	pairs  []model.Text
	texts  []string
	bare   bool // the form with "texts": a list, and "score" for a name
	echoes bool // the texts go back with their scores
	top    int
	late   bool // by the vectors of all tokens, on a model that ranks nothing itself
	tokens int  // of a text that are read then; the rest does not count
}

// rankView is the place of one text. One of the two names has the score, which is the model's own: not squeezed between
// 0 and 1.
type rankView struct {
	Index    int        `json:"index"`
	Score    *float32   `json:"score,omitempty"`
	Relevant *float32   `json:"relevance_score,omitempty"`
	Text     *string    `json:"text,omitempty"`
	Document *documentV `json:"document,omitempty"`
}

type documentV struct {
	Text string `json:"text"`
}

// rerank answers /v1/rerank in its two forms.
func (s *service) rerank(w http.ResponseWriter, r *http.Request) *problem {
	k, p := s.readRanking(r)
	if p != nil {
		return p
	}
	if k.late {
		p = s.late(r.Context(), k)
	} else {
		p = s.encode(r.Context(), k.pairs)
	}
	if p != nil || r.Context().Err() != nil {
		return p
	}
	list := make([]rankView, len(k.pairs))
	for i := range k.pairs {
		list[i] = k.view(i)
	}
	score := func(v rankView) float32 {
		if v.Score != nil {
			return *v.Score
		}
		return *v.Relevant
	}
	slices.SortStableFunc(list, func(a, b rankView) int {
		switch x, y := score(a), score(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	list = list[:min(k.top, len(list))]
	if k.bare {
		writeJSON(w, http.StatusOK, list)
		return nil
	}
	writeJSON(w, http.StatusOK, struct {
		Model   string     `json:"model"`
		Object  string     `json:"object"`
		Usage   countsView `json:"usage"`
		Results []rankView `json:"results"`
	}{s.cfg.Alias, "list", countTexts(k.pairs), list})
	return nil
}

func (k *ranking) view(i int) rankView {
	v := rankView{Index: i}
	if k.bare {
		v.Score = &k.pairs[i].Out[0]
	} else {
		v.Relevant = &k.pairs[i].Out[0]
	}
	switch {
	case k.echoes && k.bare:
		v.Text = &k.texts[i]
	case k.echoes:
		v.Document = &documentV{k.texts[i]}
	}
	return v
}

// readRanking reads a request to rank texts.
func (s *service) readRanking(r *http.Request) (*ranking, *problem) {
	body, p := readBody(r)
	if p != nil {
		return nil, p
	}
	if _, err := wire.ParseRerank(body); err != nil {
		return nil, fromWire(err)
	}
	f, p := parseFields(body)
	if p != nil {
		return nil, p
	}
	k := &ranking{bare: f.has("texts")}
	name, echo := "documents", "return_documents"
	if k.bare {
		name, echo = "texts", "return_text"
	}
	k.late = s.parts.Pooling != model.PoolRank
	if f.boolean("late", false) != k.late && k.late {
		f.fail(s.unable("it ranks no texts"))
	}
	k.tokens = int(f.integer("late_tokens", int64(s.parts.Context), 1, int64(s.parts.Context)))
	query := f.text("query", "")
	k.echoes = f.boolean(echo, false)
	items := f.list(name)
	k.top = int(f.integer("top_n", int64(len(items)), 0, maxTexts))
	if len(items) > maxTexts {
		f.fail(invalid(name, "%d texts are more than %d in one request", len(items), maxTexts))
	}
	if f.problem != nil {
		return nil, f.problem
	}
	head := s.vocab.Encode(query, true, false)
	if k.late {
		k.head = model.Text{Tokens: cutText(head, s.parts.Context), Each: true}
	}
	for i, item := range items {
		text, p := documentOf(item, fmt.Sprintf("%s[%d]", name, i))
		if p != nil {
			return nil, p
		}
		if k.late {
			k.pairs = append(k.pairs, model.Text{Tokens: cutText(s.vocab.Encode(text, true, false), k.tokens), Each: true})
			k.texts = append(k.texts, text)
			continue
		}
		pair := s.pair(head, text)
		if p := s.fits(pair.Tokens, fmt.Sprintf("%s[%d]", name, i)); p != nil {
			return nil, p
		}
		k.pairs, k.texts = append(k.pairs, pair), append(k.texts, text)
	}
	return k, nil
}

// documentOf returns a text to rank, which may be the member text of an object.
func documentOf(raw json.RawMessage, name string) (string, *problem) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var o struct {
		Text *string `json:"text"`
	}
	if json.Unmarshal(raw, &o) != nil || o.Text == nil {
		return "", invalid(name, "expected a text, or an object with a member text")
	}
	return *o.Text, nil
}

// pair puts a query, with its special tokens, and a text together as the model was trained on them: the text follows
// as the second part and has the token that ends a part behind it.
func (s *service) pair(head []int32, text string) model.Text {
	body := s.vocab.Encode(text, true, false)
	if len(body) > 0 && len(head) > 0 && body[0] == head[0] {
		body = body[1:] // what begins a text begins a pair once
	}
	return model.Text{Tokens: slices.Concat(head, body), Second: len(head)}
}
