package shelf

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"onebit/store/documents"
	"onebit/store/documents/search"
)

type counts struct {
	InProgress int `json:"in_progress"`
	Completed  int `json:"completed"`
	Failed     int `json:"failed"`
	Cancelled  int `json:"cancelled"`
	Total      int `json:"total"`
}

func countsOf(m map[documents.Status]int) counts {
	c := counts{InProgress: m[documents.InProgress], Completed: m[documents.Completed], Failed: m[documents.Failed], Cancelled: m[documents.Cancelled]}
	c.Total = c.InProgress + c.Completed + c.Failed + c.Cancelled
	return c
}

type expiry struct {
	Anchor string `json:"anchor"`
	Days   int    `json:"days"`
}

type storeObject struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	CreatedAt    int64             `json:"created_at"`
	Name         string            `json:"name"`
	UsageBytes   int64             `json:"usage_bytes"`
	FileCounts   counts            `json:"file_counts"`
	Status       string            `json:"status"`
	ExpiresAfter *expiry           `json:"expires_after,omitempty"`
	ExpiresAt    *int64            `json:"expires_at,omitempty"`
	LastActiveAt int64             `json:"last_active_at"`
	Metadata     map[string]string `json:"metadata"`
	Sharing      documents.Sharing `json:"sharing"` // ours: for whom else it exists
	Model        string            `json:"embedding_model,omitempty"`
}

const day = 24 * time.Hour

// storeOf counts first: what has been completed by then shows in the rest.
func (l *Shelf) storeOf(c *call, id string) (storeObject, error) {
	n, err := l.Keeper.Counts(c.ctx, c.visit.Reader, id, "")
	if err != nil {
		return storeObject{}, err
	}
	used, err := l.Keeper.Bytes(c.ctx, c.visit.Reader, id)
	if err != nil {
		return storeObject{}, err
	}
	s, err := l.Keeper.Collection(c.ctx, c.visit.Reader, id)
	o := storeObject{ID: s.ID, Object: "vector_store", CreatedAt: s.Created.Unix(), Name: s.Name, UsageBytes: used, FileCounts: countsOf(n),
		Status: "completed", LastActiveAt: s.Active.Unix(), Metadata: s.Metadata, Sharing: s.Sharing, Model: s.Model}
	if o.FileCounts.InProgress > 0 {
		o.Status = "in_progress"
	}
	if s.ExpiresAfter > 0 {
		at := s.Active.Add(s.ExpiresAfter).Unix()
		o.ExpiresAfter, o.ExpiresAt = &expiry{"last_active_at", int(s.ExpiresAfter / day)}, &at
	}
	return o, err
}

// chunking is how the API says how files are cut.
type chunking struct {
	Type   string `json:"type"`
	Static *struct {
		Max     int `json:"max_chunk_size_tokens"`
		Overlap int `json:"chunk_overlap_tokens"`
	} `json:"static,omitempty"`
}

// Bounds on chunks that a client asks for, as the API has them, but for the
// lower one: small embedding models want smaller chunks. A chunk is never
// larger than the embedding model takes, whatever is asked.
const (
	leastChunk = 32
	mostChunk  = 4096
)

func (s *chunking) read() (documents.Chunking, error) {
	if s == nil || s.Type == "auto" || s.Type == "" && s.Static == nil {
		return documents.Chunking{}, nil
	}
	if s.Type != "static" || s.Static == nil {
		return documents.Chunking{}, invalid("chunking_strategy", "the chunking strategy is auto, or static with max_chunk_size_tokens and chunk_overlap_tokens")
	}
	c := documents.Chunking{Max: s.Static.Max, Overlap: s.Static.Overlap}
	if c.Max < leastChunk || c.Max > mostChunk || c.Overlap < 0 || c.Overlap > c.Max/2 {
		return c, invalid("chunking_strategy", "max_chunk_size_tokens is %d to %d, chunk_overlap_tokens at most half of it", leastChunk, mostChunk)
	}
	return c, nil
}

func chunkingOf(c documents.Chunking) map[string]any {
	if c.Max == 0 {
		return map[string]any{"type": "other"} // the API's word for one that was not said
	}
	return map[string]any{"type": "static", "static": map[string]int{"max_chunk_size_tokens": c.Max, "chunk_overlap_tokens": c.Overlap}}
}

// storeRequest is what creates and changes a vector store. Members that are not
// there change nothing.
type storeRequest struct {
	Name         *string            `json:"name"`
	FileIDs      []string           `json:"file_ids"`
	ExpiresAfter json.RawMessage    `json:"expires_after"`
	Chunking     *chunking          `json:"chunking_strategy"`
	Metadata     map[string]string  `json:"metadata"`
	Sharing      *documents.Sharing `json:"sharing"`
}

func (q storeRequest) apply(c *documents.Collection) error {
	if q.Name != nil {
		c.Name = *q.Name
	}
	if q.Metadata != nil {
		c.Metadata = q.Metadata
	}
	if q.Sharing != nil {
		c.Sharing = *q.Sharing
	}
	if len(q.ExpiresAfter) > 0 {
		var e *expiry
		if err := json.Unmarshal(q.ExpiresAfter, &e); err != nil || e != nil && (e.Anchor != "last_active_at" || e.Days < 1 || e.Days > 365) {
			return invalid("expires_after", `expires_after is {"anchor": "last_active_at", "days": 1 to 365}, or null`)
		}
		c.ExpiresAfter = 0
		if e != nil {
			c.ExpiresAfter = time.Duration(e.Days) * day
		}
	}
	return nil
}

func (l *Shelf) create(c *call) (any, error) {
	var q storeRequest
	if err := c.read(&q); err != nil {
		return nil, err
	}
	var s documents.Collection
	if err := q.apply(&s); err != nil {
		return nil, err
	}
	var err error
	if s.Chunking, err = q.Chunking.read(); err != nil {
		return nil, err
	}
	if len(c.visit.Collections) > 0 {
		return nil, refusal(403, "collection_not_allowed", "the key is limited to collections that are there already")
	}
	if len(q.FileIDs) > maxBatch {
		return nil, invalid("file_ids", "at most %d files can be added at once", maxBatch)
	}
	for _, id := range q.FileIDs { // before anything is made
		if _, err := l.Keeper.File(c.ctx, c.visit.Reader, id); err != nil {
			return nil, fmt.Errorf("file %q: %w", id, err)
		}
	}
	if s, err = l.Keeper.AddCollection(c.ctx, c.visit.Reader, s); err != nil {
		return nil, err
	}
	for _, id := range q.FileIDs {
		if _, err := l.Keeper.Attach(c.ctx, c.visit.Reader, documents.Attachment{Collection: s.ID, File: id}); err != nil && !duplicate(err) {
			return nil, err
		}
	}
	l.Wake()
	return l.storeOf(c, s.ID)
}

func (l *Shelf) list(c *call) (any, error) {
	p, err := c.page()
	if err != nil {
		return nil, err
	}
	out, more, err := visible(p, func(s documents.Collection) string { return s.ID }, func(p documents.Page) ([]documents.Collection, bool, error) {
		return l.Keeper.Collections(c.ctx, c.visit.Reader, p)
	}, func(s documents.Collection) (storeObject, bool, error) {
		if !c.visit.sees(s.ID) {
			return storeObject{}, false, nil
		}
		o, err := l.storeOf(c, s.ID)
		if errors.Is(err, documents.ErrNotFound) { // it has just gone
			return o, false, nil
		}
		return o, err == nil, err
	})
	if err != nil {
		return nil, err
	}
	return listOf(out, more, func(s storeObject) string { return s.ID }), nil
}

func (l *Shelf) get(c *call) (any, error) {
	return l.storeOf(c, c.r.PathValue("store"))
}

func (l *Shelf) update(c *call) (any, error) {
	var q storeRequest
	if err := c.read(&q); err != nil {
		return nil, err
	}
	s, err := l.Keeper.Collection(c.ctx, c.visit.Reader, c.r.PathValue("store"))
	if err != nil {
		return nil, err
	}
	if err := q.apply(&s); err != nil {
		return nil, err
	}
	if s, err = l.Keeper.UpdateCollection(c.ctx, c.visit.Reader, s); err != nil {
		return nil, err
	}
	return l.storeOf(c, s.ID)
}

func (l *Shelf) remove(c *call) (any, error) {
	id := c.r.PathValue("store")
	return deleted{id, "vector_store.deleted", true}, l.Keeper.DeleteCollection(c.ctx, c.visit.Reader, id)
}

// searchRequest is what a search is asked for.
type searchRequest struct {
	Query   json.RawMessage `json:"query"` // a text, or several
	Most    *int            `json:"max_num_results"`
	Filters json.RawMessage `json:"filters"`
	Ranking *struct {
		Ranker    string  `json:"ranker"`
		Threshold float64 `json:"score_threshold"`
	} `json:"ranking_options"`
	Mode search.Mode `json:"search_mode"` // ours: hybrid, words or vectors
}

type searchResult struct {
	FileID     string         `json:"file_id"`
	Filename   string         `json:"filename"`
	Score      float64        `json:"score"`
	Attributes map[string]any `json:"attributes"`
	Content    []textPart     `json:"content"`
	Citation   citation       `json:"citation"` // ours: where in the file it stands
}

type textPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type citation struct {
	Path  []string `json:"path,omitempty"`
	Page  int      `json:"page,omitempty"`
	Start int      `json:"start"`
	End   int      `json:"end"`
}

// query reads what to look for. Several texts are one question said in several
// ways.
func (q searchRequest) query() (string, []string, error) {
	var one string
	if json.Unmarshal(q.Query, &one) == nil && one != "" {
		return one, []string{one}, nil
	}
	var several []string
	if json.Unmarshal(q.Query, &several) == nil && len(several) > 0 {
		return strings.Join(several, "\n"), several, nil
	}
	return "", nil, invalid("query", "query is a text, or a list of texts")
}

func (l *Shelf) search(c *call) (any, error) {
	var q searchRequest
	if err := c.read(&q); err != nil {
		return nil, err
	}
	text, queries, err := q.query()
	if err != nil {
		return nil, err
	}
	s := search.Query{Collections: []string{c.r.PathValue("store")}, Text: text, K: 10, Mode: q.Mode, Rerank: true}
	if q.Most != nil {
		if s.K = *q.Most; s.K < 1 || s.K > 50 {
			return nil, invalid("max_num_results", "max_num_results is 1 to 50")
		}
	}
	if s.Filter, err = documents.ParseFilter(q.Filters); err != nil {
		return nil, err
	}
	if q.Ranking != nil {
		s.MinScore = q.Ranking.Threshold
		s.Rerank = q.Ranking.Ranker != "none"
	}
	a, err := l.Searcher.Search(c.ctx, c.visit.Reader, s)
	if err != nil {
		return nil, err
	}
	data := make([]searchResult, len(a.Results))
	for i, r := range a.Results {
		data[i] = searchResult{FileID: r.File, Filename: r.Name, Score: r.Score, Attributes: r.Attributes,
			Content: []textPart{{"text", r.Text}}, Citation: citation{r.Path, r.Page, r.Start, r.End}}
	}
	how := string(a.Mode)
	if a.Reranked {
		how += "; reranked"
	}
	c.w.Header().Set("X-1bit-Search", how)
	return map[string]any{"object": "vector_store.search_results.page", "search_query": queries, "data": data, "has_more": false, "next_page": nil}, nil
}
