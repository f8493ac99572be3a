package migration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
	"onebit/store/documents/local"
	"onebit/store/documents/migration"
	"onebit/store/documents/postgres"
)

var ann = documents.Reader{Person: "ann"}

func open(t *testing.T) documents.Keeper {
	t.Helper()
	k, err := local.Open(t.Context(), local.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.Close() })
	return k
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// full is a keeper with a collection that has files of every status.
func full(t *testing.T) (documents.Keeper, documents.Collection, map[documents.Status]string) {
	t.Helper()
	k := open(t)
	ctx := t.Context()
	c, err := k.AddCollection(ctx, ann, documents.Collection{Name: "Garden", Metadata: map[string]string{"a": "b"}, Sharing: documents.Sharing{People: []string{"ben"}}})
	must(t, err)
	ids := map[documents.Status]string{}
	for _, status := range []documents.Status{documents.Completed, documents.Failed, documents.Cancelled, documents.InProgress} {
		f, err := k.AddFile(ctx, ann, documents.File{Name: string(status), Purpose: "assistants"}, strings.NewReader(strings.Repeat(string(status), 300_000)))
		must(t, err)
		ids[status] = f.ID
		_, err = k.Attach(ctx, ann, documents.Attachment{Collection: c.ID, File: f.ID, Batch: string(status), Attributes: map[string]any{"n": 1.5}})
		must(t, err)
		switch status {
		case documents.Failed:
			must(t, k.Fail(ctx, c.ID, f.ID, "locked"))
		case documents.Cancelled:
			must(t, k.Cancel(ctx, ann, c.ID, string(status)))
		case documents.Completed:
			var chunks []chunk.Chunk
			for i := range 700 {
				chunks = append(chunks, chunk.Chunk{Path: []string{"A"}, Text: fmt.Sprintf("rose number %d", i), Page: 1, Start: i, End: i + 3, Tokens: 4})
			}
			must(t, k.Cut(ctx, c.ID, f.ID, 7, chunks))
			bare, err := k.Bare(ctx, c.ID, f.ID, "m", 1000)
			must(t, err)
			var v []documents.Vector
			for i, b := range bare {
				v = append(v, documents.Vector{ID: b.ID, Vector: []float32{1, float32(i) / 1000, 0.25}})
			}
			must(t, k.Embed(ctx, "m", v))
			must(t, k.Complete(ctx, c.ID, f.ID, "m", 3))
		}
	}
	return k, c, ids
}

func TestThereAndBack(t *testing.T) {
	from, c, ids := full(t)
	ctx := t.Context()
	steps := []documents.Keeper{open(t)}
	if dsn := os.Getenv("ONEBIT_POSTGRES"); dsn != "" {
		p, err := postgres.Open(ctx, postgres.Config{DSN: dsn, Schema: fmt.Sprintf("moved_%d", os.Getpid())})
		must(t, err)
		t.Cleanup(func() { p.Close() })
		steps = append(steps, p, open(t))
	} else if os.Getenv("ONEBIT_ALL") != "" {
		t.Fatal(`ONEBIT_POSTGRES is not set: eval "$(bash e2e/postgres.sh start)"`)
	}
	for i, to := range steps {
		for range 2 { // the second time everything is there
			r, err := migration.Run(ctx, from, to, nil)
			must(t, err)
			if r.Files != 4 || r.Collections != 1 || r.Attachments != 4 || r.Passages != 700 || r.Bytes < 1e6 {
				t.Errorf("step %d: %+v", i, r)
			}
		}
		got, err := to.Collection(ctx, documents.Reader{Person: "ben"}, c.ID)
		must(t, err)
		if got.Model != "m" || got.Dims != 3 || !got.Created.Equal(c.Created) || got.Metadata["a"] != "b" {
			t.Errorf("step %d: %+v", i, got)
		}
		for status, id := range ids {
			a, err := to.Attachment(ctx, ann, c.ID, id)
			must(t, err)
			if a.Status != status || a.Attributes["n"] != 1.5 || status == documents.Failed && a.Problem != "locked" {
				t.Errorf("step %d: %s arrived as %+v", i, status, a)
			}
		}
		hits, err := to.Near(ctx, ann, c.ID, "m", []float32{1, 0.7, 0.25}, nil, 1)
		must(t, err)
		p, err := to.Passages(ctx, ann, []int64{hits[0].ID})
		must(t, err)
		want := chunk.Chunk{Path: []string{"A"}, Text: "rose number 699", Page: 1, Start: 699, End: 702, Tokens: 4}
		if d := cmp.Diff(want, p[0].Chunk); d != "" {
			t.Errorf("step %d: (-want +got):\n%s", i, d)
		}
		from = to
	}
}

func TestWhatDiffersIsSaid(t *testing.T) {
	from, c, ids := full(t)
	ctx := t.Context()
	other := open(t)
	_, err := other.AddFile(ctx, documents.System(), documents.File{ID: ids[documents.Completed], Owner: "ann", Name: "x"}, strings.NewReader("other bytes"))
	must(t, err)
	if _, err := migration.Run(ctx, from, other, nil); !errors.Is(err, migration.ErrDiffers) {
		t.Errorf("another file under the same id: %v", err)
	}
	foreign := open(t)
	_, err = foreign.AddCollection(ctx, documents.System(), documents.Collection{ID: c.ID, Owner: "eve", Name: "Garden"})
	must(t, err)
	if _, err := migration.Run(ctx, from, foreign, nil); !errors.Is(err, migration.ErrDiffers) {
		t.Errorf("another's collection under the same id: %v", err)
	}
}

// breaking loses its target after some calls.
type breaking struct {
	documents.Keeper
	left int
}

var errGone = errors.New("the connection is gone")

func (b *breaking) Embed(ctx context.Context, model string, v []documents.Vector) error {
	if b.left--; b.left < 0 {
		return errGone
	}
	return b.Keeper.Embed(ctx, model, v)
}

func TestBrokenOffAndBegunAgain(t *testing.T) {
	from, _, _ := full(t)
	to := open(t)
	if _, err := migration.Run(t.Context(), from, &breaking{to, 1}, nil); !errors.Is(err, errGone) {
		t.Fatalf("%v", err)
	}
	r, err := migration.Run(t.Context(), from, to, nil)
	if err != nil || r.Passages != 700 {
		t.Errorf("%+v, %v", r, err)
	}
}
