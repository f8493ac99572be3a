// Package documents has the words of the document store: collections, files,
// the chunks that files become, and what keeps them.
//
// A File is what somebody uploaded. Put into a Collection it is read, cut into
// chunks and embedded; the pair is an Attachment, which is in progress until all
// of its chunks can be found, and then complete. A collection belongs to a
// person, and exists for nobody else unless it is shared.
//
// A Keeper holds all of it: in SQLite (package local) on one machine, in
// PostgreSQL past one. Package ingest fills it, package search asks it.
package documents

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"onebit/store/documents/chunk"
)

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("conflicts with what is there")
	ErrInvalid  = errors.New("not valid")
	ErrFull     = errors.New("the disk is full")
	ErrClosed   = errors.New("the document store is closed")
)

// Reader is who asks. The zero value is nobody: it sees nothing.
type Reader struct {
	Person string
	All    bool // the box itself, or an admin who runs it
}

// System is the box itself.
func System() Reader { return Reader{All: true} }

// Sharing says for whom, besides its owner, a collection exists.
type Sharing struct {
	Everyone bool     `json:"everyone,omitempty"`
	People   []string `json:"people,omitempty"` // ids
}

// Collection is a set of files that are searched together. Its API name is a
// vector store.
type Collection struct {
	ID       string
	Owner    string
	Name     string
	Sharing  Sharing
	Metadata map[string]string // at most 16
	Created  time.Time
	Active   time.Time // last search or change
	// ExpiresAfter is the time without activity after which it is deleted; 0 for
	// never.
	ExpiresAfter time.Duration
	Chunking     Chunking // of files that say nothing else
	Model        string   // whose vectors are searched; "" before the first
	Dims         int
	Next         string // the model that vectors are being made of; "" outside of a change
	Generation   int64  // grows with every change of what can be found
}

// Chunking says how files are cut.
type Chunking struct {
	Max     int `json:"max"`     // tokens; 0 for what suits the embedding model
	Overlap int `json:"overlap"` // tokens
}

// File is what was uploaded.
type File struct {
	ID      string
	Owner   string
	Name    string
	Bytes   int64
	SHA256  string // lower-case hexadecimal
	Purpose string
	Created time.Time
	Expires time.Time // zero for never
}

// Status is how far an attachment has come.
type Status string

// The statuses, as the API names them.
const (
	InProgress Status = "in_progress"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// Attachment is a file in a collection.
type Attachment struct {
	Collection string
	File       string
	Batch      string // of several added together; "" for none
	Status     Status
	Problem    string // why it failed, for the person who uploaded it
	Created    time.Time
	Attributes map[string]any // strings, numbers, booleans; at most 16
	Chunking   Chunking
	Chunks     int   // cut so far
	Embedded   int   // of them, with vectors
	Bytes      int64 // of text and vectors
	Pages      int
}

// Passage is a chunk as it is kept.
type Passage struct {
	ID         int64 // grows; unique in a keeper
	Collection string
	File       string
	Ordinal    int // in its file, from 0
	chunk.Chunk
}

// Text names a passage and says what of it is to be embedded.
type Text struct {
	ID   int64
	Text string
}

// Vector is the embedding of a passage.
type Vector struct {
	ID     int64
	Vector []float32
}

// Scored is a passage's id with how well it fits, larger is better.
type Scored struct {
	ID    int64
	Score float64
	// Share is, of a passage that words found, how much of the question's weight
	// it has: 1 is all of its words, the rarest counting most. 0 where the keeper
	// does not know.
	Share float64
}

// Page bounds a list: at most Limit items after the item After, newest first
// unless Ascending. Before is the end from the other side.
type Page struct {
	After, Before string
	Limit         int
	Ascending     bool
}

// Keeper holds everything of the document store. All methods may be called from
// several goroutines. A reader sees only what exists for it; everything else is
// ErrNotFound. A call that changes something has done so for good when it
// returns nil, and has done nothing when it returns an error.
type Keeper interface {
	Files
	Collections
	Attachments
	Passages
	Close() error
}

// Files keeps what was uploaded.
type Files interface {
	// AddFile stores content until r ends. It sets the id, size, hash and time;
	// for a reader that is All it keeps the id and time that are there, which is
	// how files move from one keeper to another.
	AddFile(ctx context.Context, by Reader, f File, r io.Reader) (File, error)
	File(ctx context.Context, by Reader, id string) (File, error)
	Files(ctx context.Context, by Reader, purpose string, p Page) (list []File, more bool, err error)
	// Content writes a file's bytes, which are held against its hash.
	Content(ctx context.Context, by Reader, id string, w io.Writer) error
	// DeleteFile removes a file with everything made of it, in all collections.
	DeleteFile(ctx context.Context, by Reader, id string) error
}

// Collections keeps the sets.
type Collections interface {
	// AddCollection makes an empty one. For a reader that is All it keeps the id
	// and times that are there.
	AddCollection(ctx context.Context, by Reader, c Collection) (Collection, error)
	Collection(ctx context.Context, by Reader, id string) (Collection, error)
	Collections(ctx context.Context, by Reader, p Page) (list []Collection, more bool, err error)
	// UpdateCollection changes name, sharing, metadata, expiry and chunking. Its
	// owner and admins may.
	UpdateCollection(ctx context.Context, by Reader, c Collection) (Collection, error)
	DeleteCollection(ctx context.Context, by Reader, id string) error
	// Bytes returns what a collection's texts and vectors take.
	Bytes(ctx context.Context, by Reader, id string) (int64, error)
	// Touch notes activity, to the minute.
	Touch(ctx context.Context, id string) error
	// Expire deletes what is past its time and returns how many collections and
	// files that were.
	Expire(ctx context.Context, now time.Time) (int, error)
}

// Attachments keeps which file is in which collection.
type Attachments interface {
	// Attach adds a file to a collection, in progress. The reader must own both,
	// or be All. A file that is there already is ErrConflict.
	Attach(ctx context.Context, by Reader, a Attachment) (Attachment, error)
	Attachment(ctx context.Context, by Reader, collection, file string) (Attachment, error)
	// Attachments lists those of a collection; status and batch may be empty.
	Attachments(ctx context.Context, by Reader, collection string, status Status, batch string, p Page) (list []Attachment, more bool, err error)
	Counts(ctx context.Context, by Reader, collection, batch string) (map[Status]int, error)
	SetAttributes(ctx context.Context, by Reader, collection, file string, attributes map[string]any) (Attachment, error)
	// Detach removes a file from a collection with everything made of it there.
	Detach(ctx context.Context, by Reader, collection, file string) error
	// Cancel ends those of a batch that are in progress.
	Cancel(ctx context.Context, by Reader, collection, batch string) error
	// Unfinished lists attachments in progress, oldest first.
	Unfinished(ctx context.Context, limit int) ([]Attachment, error)
	// Fail ends an attachment; what was made of it is removed.
	Fail(ctx context.Context, collection, file, problem string) error
}

// Passages keeps chunks and vectors.
type Passages interface {
	// Cut stores an attachment's chunks in place of those it had. It must be in
	// progress.
	Cut(ctx context.Context, collection, file string, pages int, chunks []chunk.Chunk) error
	// Bare lists passages without a vector of a model, at most limit.
	Bare(ctx context.Context, collection, file, model string, limit int) ([]Text, error)
	// Vectors returns those of a file in a collection that are searched, by
	// passage, in order.
	Vectors(ctx context.Context, collection, file string) ([]Vector, error)
	// Embed stores vectors. Those whose passages are gone are dropped.
	Embed(ctx context.Context, model string, v []Vector) error
	// Complete makes an attachment's passages findable. There must be some, and all
	// must have vectors of the collection's model, or of the next one; the first
	// vectors of a collection say which that is.
	Complete(ctx context.Context, collection, file, model string, dims int) error
	// Passages returns those that can be found, in the order of ids; missing ones
	// are left out.
	Passages(ctx context.Context, by Reader, ids []int64) ([]Passage, error)
	// PassagesOf returns those of a file in a collection, in order.
	PassagesOf(ctx context.Context, by Reader, collection, file string) ([]Passage, error)
	// Words finds passages of one collection by words (BM25).
	Words(ctx context.Context, by Reader, collection, query string, filter *Filter, k int) ([]Scored, error)
	// Near finds passages by vectors of a model (cosine).
	Near(ctx context.Context, by Reader, collection, model string, v []float32, filter *Filter, k int) ([]Scored, error)

	// Change begins to move a collection to another model: both are kept until
	// Changed, which drops the old one's vectors. Changing lists collections in
	// between. A change that is given up for another, or for the model that is
	// shown, loses its vectors: a file that has no others is in progress again.
	Change(ctx context.Context, collection, model string) error
	Changed(ctx context.Context, collection, model string, dims int) error
	Changing(ctx context.Context) ([]Collection, error)
}

// Attributes checks and copies attributes as the API allows them: at most 16,
// keys up to 64 and strings up to 512 characters, else numbers and booleans.
func Attributes(in map[string]any) (map[string]any, error) {
	if len(in) > 16 {
		return nil, errors.Join(ErrInvalid, errors.New("at most 16 attributes are allowed"))
	}
	out := make(map[string]any, len(in))
	for k, v := range in {
		if k == "" || len(k) > 64 {
			return nil, errors.Join(ErrInvalid, errors.New("an attribute's name has 1 to 64 characters"))
		}
		switch v := v.(type) {
		case string:
			if len([]rune(v)) > 512 {
				return nil, errors.Join(ErrInvalid, errors.New("an attribute's text has at most 512 characters"))
			}
			out[k] = v
		case bool, float64:
			out[k] = v
		case json.Number:
			f, err := v.Float64()
			if err != nil {
				return nil, errors.Join(ErrInvalid, err)
			}
			out[k] = f
		case int:
			out[k] = float64(v)
		default:
			return nil, errors.Join(ErrInvalid, errors.New("an attribute is a text, a number or a boolean"))
		}
	}
	return out, nil
}
