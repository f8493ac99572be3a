package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"onebit/appliance/auth"
	"onebit/appliance/cite"
	"onebit/appliance/gateway"
	"onebit/engine/wire"
	"onebit/store"
	"onebit/store/documents"
	"onebit/store/documents/ingest"
	"onebit/store/documents/search"
)

// reading finds passages for the data plane, on behalf of whoever asks.
type reading struct{ b *box }

// maxNames bounds through how many collections a name is looked for.
const maxNames = 1000

// Find looks for passages. A collection is given by its id, or by the name that one alone has.
func (l reading) Find(ctx context.Context, q gateway.Passages) (gateway.Found, error) {
	p := auth.From(ctx)
	by := readerOf(p)
	var f gateway.Found
	if len(q.Collections) > search.MostCollections { // each may be a name that is looked for
		return f, &wire.Error{Status: http.StatusBadRequest, Type: wire.TypeInvalid, Code: "invalid_value", NoRetry: true,
			Message: fmt.Sprintf("at most %d collections are searched at once", search.MostCollections)}
	}
	for _, word := range q.Collections {
		id, err := l.collection(ctx, p, by, word)
		if errors.Is(err, documents.ErrNotFound) {
			if q.Lenient {
				continue
			}
			return f, &wire.Error{Status: http.StatusNotFound, Type: wire.TypeInvalid, Code: "vector_store_not_found", NoRetry: true,
				Message: fmt.Sprintf("there is no vector store %q", word[:min(len(word), 100)])}
		}
		if err != nil {
			return f, err
		}
		if !slices.Contains(f.Collections, id) {
			f.Collections = append(f.Collections, id)
		}
	}
	if len(f.Collections) == 0 {
		f.How = "no such collection"
		return f, nil
	}
	filter, err := documents.ParseFilter(q.Filters)
	if err == nil {
		var a search.Answer
		a, err = l.b.shelves.searcher.Search(ctx, by, search.Query{
			Collections: f.Collections, Text: q.Query, K: q.Most, Filter: filter, Rerank: !q.Plain, MinScore: q.Threshold,
		})
		f.Passages, f.How = passagesOf(a), string(a.Mode)
		if a.Reranked {
			f.How += ", reranked"
		}
	}
	switch {
	case errors.Is(err, documents.ErrInvalid):
		return f, &wire.Error{Status: http.StatusBadRequest, Type: wire.TypeInvalid, Code: "invalid_value", Param: "filters",
			Message: strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", ": "), "not valid: "), NoRetry: true}
	case errors.Is(err, ingest.ErrUnavailable), errors.Is(err, documents.ErrNotFound): // gone meanwhile
		return f, &wire.Error{Status: http.StatusServiceUnavailable, Type: wire.TypeUnavailable, Code: "documents_unavailable", Message: "the documents cannot be searched at the moment"}
	}
	return f, err
}

func passagesOf(a search.Answer) []cite.Passage {
	all := make([]cite.Passage, len(a.Results))
	for i, r := range a.Results {
		all[i] = cite.Passage{Collection: r.Collection, File: r.File, Name: r.Name, Path: r.Path, Page: r.Page, Text: r.Text, Score: r.Score, Attributes: r.Attributes}
	}
	return all
}

// collection finds the id of a collection that exists for whoever asks.
func (l reading) collection(ctx context.Context, p *auth.Principal, by documents.Reader, word string) (string, error) {
	return findCollection(ctx, l.b.shelves.keeper, seen{by, p.MaySee}, word)
}

// seen is which collections exist for somebody.
type seen struct {
	by  documents.Reader
	may func(id string) bool
}

// findCollection finds the id of a collection by that, or by the name that one alone has.
func findCollection(ctx context.Context, keeper documents.Keeper, who seen, word string) (string, error) {
	c, err := keeper.Collection(ctx, who.by, word)
	if err == nil && who.may(c.ID) {
		return c.ID, nil
	}
	if err != nil && !errors.Is(err, documents.ErrNotFound) {
		return "", err
	}
	found, page := "", documents.Page{Limit: 100}
	for range maxNames / page.Limit {
		all, more, err := keeper.Collections(ctx, who.by, page)
		if err != nil {
			return "", err
		}
		for _, c := range all {
			if strings.EqualFold(c.Name, word) && who.may(c.ID) {
				if found != "" {
					return "", documents.ErrNotFound // which of them?
				}
				found = c.ID
			}
			page.After = c.ID
		}
		if !more || len(all) == 0 {
			break
		}
	}
	if found == "" {
		return "", documents.ErrNotFound
	}
	return found, nil
}

// Bound are the collections of a key that adds them to chats.
func (l reading) Bound(ctx context.Context) []string {
	if p := auth.From(ctx); p.Key != nil && p.Key.Bind {
		return p.Key.Collections
	}
	return nil
}

// archive keeps responses for the data plane, each for whoever made it.
type archive struct{ b *box }

// Keeps reports whether the box may keep a word of whoever asks: not where it is to note nothing of them at all.
func (a archive) Keeps(ctx context.Context) bool {
	return a.b.privacy(auth.From(ctx)) != store.PrivacyNone
}

func (a archive) Keep(ctx context.Context, id string, body []byte) error {
	return a.b.store.PutResponse(ctx, auth.From(ctx).Actor, id, body)
}

func (a archive) Kept(ctx context.Context, id string) ([]byte, error) {
	body, err := a.b.store.Response(ctx, auth.From(ctx).Actor, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return body, err
}

func (a archive) Forget(ctx context.Context, id string) error {
	return a.b.store.DeleteResponse(ctx, auth.From(ctx).Actor, id)
}
