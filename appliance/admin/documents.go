package admin

import (
	"context"
	"time"

	"onebit/store"
)

// Documents are the collections of all people, as the control plane shows them: what they take, and whose they are.
// Their texts and the names of their files are their owners'.
type Documents interface {
	Collections(ctx context.Context, after string, limit int) ([]Collection, error)
	ShareCollection(ctx context.Context, who store.Actor, id string, s Sharing) (Collection, error)
	DeleteCollection(ctx context.Context, who store.Actor, id string) error
	// Resolve finds the collection that a person may see by its id, or by the name that one alone of those has. When there is
	// none, id is empty, and others are collections that the person may see, as many as a message can name.
	Resolve(ctx context.Context, person, word string) (id string, others []string, err error)
	// Forget deletes the files and collections of a person who has gone.
	Forget(ctx context.Context, person string) error
}

// Sharing says for whom, beside its owner, a collection is.
type Sharing struct {
	Everyone bool     `json:"everyone"`
	People   []string `json:"people" about:"ids"`
}

// Collection is one collection of documents.
type Collection struct {
	ID         string    `json:"id"`
	Name       string    `json:"name"`
	Owner      string    `json:"owner" about:"a person's id"`
	Created    time.Time `json:"created"`
	Active     time.Time `json:"active" about:"last search or change"`
	Bytes      int64     `json:"bytes" about:"of texts and vectors"`
	Model      string    `json:"model" about:"whose vectors are searched; empty before the first file"`
	Completed  int       `json:"completed" about:"files that can be found"`
	InProgress int       `json:"in_progress"`
	Failed     int       `json:"failed"`
	Cancelled  int       `json:"cancelled"`
	Failures   []Failure `json:"failures" about:"the newest of them"`
	Sharing    Sharing   `json:"sharing"`
}

// Failure is a file that could not be read.
type Failure struct {
	File string `json:"file" about:"its id"`
	Why  string `json:"why"`
}

type collectionList struct {
	Collections []Collection `json:"collections"`
}

func (a *Admin) documentRoutes() []route {
	d := a.cfg.Documents
	return []route{
		op("GET", "/documents", admins, "collections of documents, of all people: what they take, whose they are, what failed", func(c *call, in struct {
			After string `json:"-" query:"after" about:"only what comes behind this id"`
			Limit int    `json:"-" query:"limit" about:"100 unless it is given, which is the most"`
		}) (collectionList, error) {
			if in.Limit <= 0 || in.Limit > 100 {
				in.Limit = 100
			}
			all, err := d.Collections(c.ctx(), in.After, in.Limit)
			return collectionList{append([]Collection{}, all...)}, err
		}),
		op("PATCH", "/documents/{id}", admins, "say for whom a collection is, beside its owner", func(c *call, in struct {
			identified
			Sharing
		}) (Collection, error) {
			return d.ShareCollection(c.ctx(), c.actor(), in.ID, in.Sharing)
		}),
		op("DELETE", "/documents/{id}", admins, "delete a collection with all that was made of its files", func(c *call, in identified) (none, error) {
			return none{}, d.DeleteCollection(c.ctx(), c.actor(), in.ID)
		}),
	}
}
