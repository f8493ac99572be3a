package shelf

import (
	"encoding/json"
	"errors"
	"fmt"

	"onebit/store"
	"onebit/store/documents"
)

// maxBatch is how many files can be added at once.
const maxBatch = 2000

type attachedObject struct {
	ID         string         `json:"id"`
	Object     string         `json:"object"`
	UsageBytes int64          `json:"usage_bytes"`
	CreatedAt  int64          `json:"created_at"`
	StoreID    string         `json:"vector_store_id"`
	Status     string         `json:"status"`
	LastError  *lastError     `json:"last_error"`
	Chunking   map[string]any `json:"chunking_strategy"`
	Attributes map[string]any `json:"attributes"`
	Progress   progress       `json:"progress"` // ours: how far it has come
}

type lastError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type progress struct {
	Chunks   int `json:"chunks"`
	Embedded int `json:"embedded"`
	Pages    int `json:"pages,omitempty"`
}

func attachedOf(a documents.Attachment) attachedObject {
	o := attachedObject{ID: a.File, Object: "vector_store.file", UsageBytes: a.Bytes, CreatedAt: a.Created.Unix(), StoreID: a.Collection,
		Status: string(a.Status), Chunking: chunkingOf(a.Chunking), Attributes: a.Attributes, Progress: progress{a.Chunks, a.Embedded, a.Pages}}
	if a.Status == documents.Failed {
		o.LastError = &lastError{"invalid_file", a.Problem}
	}
	return o
}

// duplicate reports whether a file is in a collection already.
func duplicate(err error) bool { return errors.Is(err, documents.ErrConflict) }

type attachRequest struct {
	FileID     string         `json:"file_id"`
	Attributes map[string]any `json:"attributes"`
	Chunking   *chunking      `json:"chunking_strategy"`
}

func (q attachRequest) attachment(store string) (documents.Attachment, error) {
	if q.FileID == "" {
		return documents.Attachment{}, invalid("file_id", "file_id is missing")
	}
	how, err := q.Chunking.read()
	return documents.Attachment{Collection: store, File: q.FileID, Attributes: q.Attributes, Chunking: how}, err
}

// attach adds a file, or, as clients that try again expect, returns the one that
// is there.
func (l *Shelf) attach(c *call) (any, error) {
	var q attachRequest
	if err := c.read(&q); err != nil {
		return nil, err
	}
	a, err := q.attachment(c.r.PathValue("store"))
	if err != nil {
		return nil, err
	}
	got, err := l.Keeper.Attach(c.ctx, c.visit.Reader, a)
	if duplicate(err) {
		got, err = l.again(c, a)
	}
	if err != nil {
		return nil, err
	}
	l.Wake()
	return attachedOf(got), nil
}

// again attaches a file once more that is attached: one that failed is tried
// again, one that is there stays.
func (l *Shelf) again(c *call, a documents.Attachment) (documents.Attachment, error) {
	old, err := l.Keeper.Attachment(c.ctx, c.visit.Reader, a.Collection, a.File)
	if err != nil || old.Status != documents.Failed && old.Status != documents.Cancelled {
		return old, err
	}
	if err := l.Keeper.Detach(c.ctx, c.visit.Reader, a.Collection, a.File); err != nil {
		return documents.Attachment{}, err
	}
	return l.Keeper.Attach(c.ctx, c.visit.Reader, a)
}

func (l *Shelf) listAttached(c *call) (any, error) { return l.attachments(c, "") }

func (l *Shelf) attachments(c *call, batch string) (any, error) {
	p, err := c.page()
	if err != nil {
		return nil, err
	}
	status := documents.Status(c.r.URL.Query().Get("filter"))
	switch status {
	case "", documents.InProgress, documents.Completed, documents.Failed, documents.Cancelled:
	default:
		return nil, invalid("filter", "filter is in_progress, completed, failed or cancelled")
	}
	all, more, err := l.Keeper.Attachments(c.ctx, c.visit.Reader, c.r.PathValue("store"), status, batch, p)
	if err != nil {
		return nil, err
	}
	out := make([]attachedObject, len(all))
	for i, a := range all {
		out[i] = attachedOf(a)
	}
	return listOf(out, more, func(a attachedObject) string { return a.ID }), nil
}

func (l *Shelf) getAttached(c *call) (any, error) {
	a, err := l.Keeper.Attachment(c.ctx, c.visit.Reader, c.r.PathValue("store"), c.r.PathValue("file"))
	return attachedOf(a), err
}

func (l *Shelf) updateAttached(c *call) (any, error) {
	var q struct {
		Attributes map[string]any `json:"attributes"`
	}
	if err := c.read(&q); err != nil {
		return nil, err
	}
	a, err := l.Keeper.SetAttributes(c.ctx, c.visit.Reader, c.r.PathValue("store"), c.r.PathValue("file"), q.Attributes)
	return attachedOf(a), err
}

func (l *Shelf) detach(c *call) (any, error) {
	id := c.r.PathValue("file")
	return deleted{id, "vector_store.file.deleted", true}, l.Keeper.Detach(c.ctx, c.visit.Reader, c.r.PathValue("store"), id)
}

// attachedContent is the text of a file as it was read, in its chunks.
func (l *Shelf) attachedContent(c *call) (any, error) {
	a, err := l.Keeper.Attachment(c.ctx, c.visit.Reader, c.r.PathValue("store"), c.r.PathValue("file"))
	if err != nil {
		return nil, err
	}
	passages, err := l.Keeper.PassagesOf(c.ctx, c.visit.Reader, a.Collection, a.File)
	if err != nil {
		return nil, err
	}
	parts := make([]textPart, len(passages))
	for i, p := range passages {
		parts[i] = textPart{"text", p.Text}
	}
	return map[string]any{"object": "vector_store.file_content.page", "data": parts, "has_more": false, "next_page": nil}, nil
}

type batchObject struct {
	ID         string `json:"id"`
	Object     string `json:"object"`
	CreatedAt  int64  `json:"created_at"`
	StoreID    string `json:"vector_store_id"`
	Status     string `json:"status"`
	FileCounts counts `json:"file_counts"`
}

func (l *Shelf) batchOf(c *call, id string) (batchObject, error) {
	collection := c.r.PathValue("store")
	n, err := l.Keeper.Counts(c.ctx, c.visit.Reader, collection, id)
	if err != nil {
		return batchObject{}, err
	}
	o := batchObject{ID: id, Object: "vector_store.files_batch", StoreID: collection, FileCounts: countsOf(n), Status: "completed"}
	switch {
	case id == "" || o.FileCounts.Total == 0:
		return o, documents.ErrNotFound
	case o.FileCounts.InProgress > 0:
		o.Status = "in_progress"
	case o.FileCounts.Cancelled > 0:
		o.Status = "cancelled"
	case o.FileCounts.Failed == o.FileCounts.Total:
		o.Status = "failed"
	}
	first, _, err := l.Keeper.Attachments(c.ctx, c.visit.Reader, collection, "", id, documents.Page{Limit: 1, Ascending: true})
	if err == nil && len(first) > 0 {
		o.CreatedAt = first[0].Created.Unix()
	}
	return o, err
}

// attachBatch adds several files, all or none of them.
func (l *Shelf) attachBatch(c *call) (any, error) {
	var q struct {
		FileIDs    []string          `json:"file_ids"`
		Files      []json.RawMessage `json:"files"`
		Attributes map[string]any    `json:"attributes"`
		Chunking   *chunking         `json:"chunking_strategy"`
	}
	if err := c.read(&q); err != nil {
		return nil, err
	}
	var all []attachRequest
	for _, id := range q.FileIDs {
		all = append(all, attachRequest{id, q.Attributes, q.Chunking})
	}
	for i, raw := range q.Files {
		var one attachRequest
		if err := json.Unmarshal(raw, &one); err != nil {
			return nil, invalid(fmt.Sprintf("files[%d]", i), "it is no object with a file_id: %v", err)
		}
		all = append(all, one)
	}
	if len(all) == 0 || len(all) > maxBatch {
		return nil, invalid("file_ids", "file_ids, or files, name 1 to %d files", maxBatch)
	}
	id := "vsfb_" + store.NewID()
	var added []documents.Attachment
	for i, one := range all {
		a, err := one.attachment(c.r.PathValue("store"))
		if err == nil {
			a.Batch = id
			_, err = l.Keeper.Attach(c.ctx, c.visit.Reader, a)
		}
		if duplicate(err) {
			if i == len(all)-1 && len(added) == 0 {
				return nil, err
			}
			continue // twice in the list, or there before
		}
		if err != nil {
			for _, a := range added {
				if undo := l.Keeper.Detach(c.ctx, c.visit.Reader, a.Collection, a.File); undo != nil {
					l.Log.Warn("taking back a batch", "file", a.File, "err", undo)
				}
			}
			return nil, err
		}
		added = append(added, a)
	}
	l.Wake()
	return l.batchOf(c, id)
}

func (l *Shelf) getBatch(c *call) (any, error) { return l.batchOf(c, c.r.PathValue("batch")) }

func (l *Shelf) cancelBatch(c *call) (any, error) {
	id := c.r.PathValue("batch")
	if _, err := l.batchOf(c, id); err != nil {
		return nil, err
	}
	if err := l.Keeper.Cancel(c.ctx, c.visit.Reader, c.r.PathValue("store"), id); err != nil {
		return nil, err
	}
	return l.batchOf(c, id)
}

func (l *Shelf) listBatch(c *call) (any, error) {
	id := c.r.PathValue("batch")
	if _, err := l.batchOf(c, id); err != nil {
		return nil, err
	}
	return l.attachments(c, id)
}
