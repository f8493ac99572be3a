// Package keepertest is the conformance suite of document stores: every
// documents.Keeper passes it.
package keepertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/store/documents"
	"onebit/store/documents/chunk"
)

// Ann, Ben and Zoe are people; Root is whoever runs the box.
var (
	ann  = documents.Reader{Person: "ann"}
	ben  = documents.Reader{Person: "ben"}
	zoe  = documents.Reader{Person: "zoe"}
	root = documents.System()
)

const (
	model = "test/model"
	dims  = 8
)

// Run tests keepers. Each call of open gives an empty one, whose clock shows
// what now says.
func Run(t *testing.T, open func(t *testing.T, now func() time.Time) documents.Keeper) {
	tests := map[string]func(*suite){
		"files": files, "moved": moved, "upload that breaks": brokenUpload, "pages": pages, "collections": collections, "sharing": sharing,
		"attachments": attach, "batches": batches, "found once complete": foundOnceComplete, "words": words, "shares": shares, "vectors": vectors,
		"filters": filters, "all filters": allFilters, "put in again": putInAgain, "model before the first is complete": modelBeforeTheFirst, "model given up": modelGivenUp, "deleting": deleting, "others see nothing": others, "change of model": changeOfModel,
		"expiry": expiry, "limits": limits, "many at once": together,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &suite{T: t, at: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
			s.k = open(t, func() time.Time { return s.at })
			test(s)
			if err := s.k.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

type suite struct {
	*testing.T
	k  documents.Keeper
	at time.Time
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *suite) is(err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Errorf("the error is %v, want %v", err, want)
	}
}

func (s *suite) same(want, got any) {
	s.Helper()
	if d := cmp.Diff(want, got); d != "" {
		s.Errorf("(-want +got):\n%s", d)
	}
}

func (s *suite) file(by documents.Reader, name, content string) documents.File {
	s.Helper()
	f, err := s.k.AddFile(s.Context(), by, documents.File{Name: name, Purpose: "assistants"}, strings.NewReader(content))
	s.ok(err)
	return f
}

func (s *suite) collection(by documents.Reader, name string) documents.Collection {
	s.Helper()
	c, err := s.k.AddCollection(s.Context(), by, documents.Collection{Name: name})
	s.ok(err)
	return c
}

// direction is a vector that looks along one axis, and a little along others.
func direction(axis int) []float32 {
	v := make([]float32, dims)
	for i := range v {
		v[i] = 0.01 * float32(i+1)
	}
	v[axis%dims] = 1
	return v
}

func chunksOf(texts ...string) []chunk.Chunk {
	out := make([]chunk.Chunk, len(texts))
	at := 0
	for i, t := range texts {
		out[i] = chunk.Chunk{Path: []string{"Top", fmt.Sprint("Part ", i)}, Text: t, Page: i + 1, Start: at, End: at + len(t), Tokens: len(t) / 4}
		at += len(t) + 2
	}
	return out
}

// ingest brings a file into a collection with its texts, to the end. The vector
// of text i looks along axis first+i.
func (s *suite) ingest(by documents.Reader, c documents.Collection, attributes map[string]any, first int, texts ...string) documents.File {
	s.Helper()
	f := s.file(by, "f.txt", strings.Join(texts, "\n\n"))
	_, err := s.k.Attach(s.Context(), by, documents.Attachment{Collection: c.ID, File: f.ID, Attributes: attributes})
	s.ok(err)
	s.ok(s.k.Cut(s.Context(), c.ID, f.ID, len(texts), chunksOf(texts...)))
	s.embed(c.ID, f.ID, model, first)
	s.ok(s.k.Complete(s.Context(), c.ID, f.ID, model, dims))
	return f
}

func (s *suite) embed(collection, file, model string, first int) {
	s.Helper()
	for n := first; ; {
		list, err := s.k.Bare(s.Context(), collection, file, model, 2)
		s.ok(err)
		if len(list) == 0 {
			return
		}
		var v []documents.Vector
		for _, b := range list {
			v = append(v, documents.Vector{ID: b.ID, Vector: direction(n)})
			n++
		}
		s.ok(s.k.Embed(s.Context(), model, v))
	}
}

// texts returns the texts of hits, in their order.
func (s *suite) texts(by documents.Reader, hits []documents.Scored, err error) []string {
	s.Helper()
	s.ok(err)
	out := []string{}
	for _, h := range hits {
		p, err := s.k.Passages(s.Context(), by, []int64{h.ID})
		s.ok(err)
		for _, p := range p {
			out = append(out, p.Text)
		}
	}
	return out
}

func (s *suite) words(by documents.Reader, c documents.Collection, query string) []string {
	s.Helper()
	hits, err := s.k.Words(s.Context(), by, c.ID, query, nil, 10)
	return s.texts(by, hits, err)
}

func (s *suite) near(by documents.Reader, c documents.Collection, axis, k int) []string {
	s.Helper()
	hits, err := s.k.Near(s.Context(), by, c.ID, model, direction(axis), nil, k)
	return s.texts(by, hits, err)
}

func files(s *suite) {
	big := strings.Repeat("0123456789abcdef", 200_000) // over a few parts
	f := s.file(ann, "big.txt", big)
	if f.Bytes != int64(len(big)) || len(f.SHA256) != 64 || f.Owner != "ann" || !f.Created.Equal(s.at) || !strings.HasPrefix(f.ID, "file-") {
		s.Errorf("stored as %+v", f)
	}
	got, err := s.k.File(s.Context(), ann, f.ID)
	s.ok(err)
	s.same(f, got)
	var b bytes.Buffer
	s.ok(s.k.Content(s.Context(), ann, f.ID, &b))
	if b.String() != big {
		s.Error("other bytes come back")
	}
	empty := s.file(ann, "empty", "")
	b.Reset()
	s.ok(s.k.Content(s.Context(), ann, empty.ID, &b))
	s.ok(s.k.DeleteFile(s.Context(), ann, f.ID))
	_, err = s.k.File(s.Context(), ann, f.ID)
	s.is(err, documents.ErrNotFound)
	s.is(s.k.DeleteFile(s.Context(), ann, f.ID), documents.ErrNotFound)
	s.is(s.k.Content(s.Context(), ann, f.ID, &b), documents.ErrNotFound)
	for _, name := range []string{"", strings.Repeat("x", 600), "a\xff"} {
		_, err := s.k.AddFile(s.Context(), ann, documents.File{Name: name}, strings.NewReader("x"))
		s.is(err, documents.ErrInvalid)
	}
	_, err = s.k.AddFile(s.Context(), documents.Reader{}, documents.File{Name: "x"}, strings.NewReader("x"))
	s.is(err, documents.ErrNotFound)
	_, err = s.k.AddFile(s.Context(), ann, documents.File{Name: "x", Owner: "ben"}, strings.NewReader("x"))
	s.is(err, documents.ErrNotFound)
}

// moved gives what comes from another keeper the ids that it had there.
func moved(s *suite) {
	at := s.at.Add(-time.Hour)
	f, err := s.k.AddFile(s.Context(), root, documents.File{ID: "file-old", Owner: "ann", Name: "x", Created: at}, strings.NewReader("abc"))
	s.ok(err)
	got, err := s.k.File(s.Context(), ann, "file-old")
	s.ok(err)
	s.same(f, got)
	if !got.Created.Equal(at) || got.Bytes != 3 {
		s.Errorf("%+v", got)
	}
	_, err = s.k.AddFile(s.Context(), root, documents.File{ID: "file-old", Owner: "ann", Name: "x"}, strings.NewReader("other"))
	s.is(err, documents.ErrConflict)
	var b bytes.Buffer
	s.ok(s.k.Content(s.Context(), ann, "file-old", &b)) // the one that was there first
	s.same("abc", b.String())
	c, err := s.k.AddCollection(s.Context(), root, documents.Collection{ID: "vs_old", Owner: "ann", Created: at, Active: at, Metadata: map[string]string{}})
	s.ok(err)
	again, err := s.k.Collection(s.Context(), ann, "vs_old")
	s.ok(err)
	s.same(c, again)
	g, err := s.k.AddFile(s.Context(), ann, documents.File{ID: "file-mine", Name: "x"}, strings.NewReader("abc"))
	s.ok(err)
	if g.ID == "file-mine" {
		s.Error("a person chose an id")
	}
}

func brokenUpload(s *suite) {
	boom := errors.New("boom")
	r := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("abc")))
	_, err := s.k.AddFile(s.Context(), ann, documents.File{Name: "x"}, r)
	if err == nil {
		s.Error("an upload that broke off is taken")
	}
	_, err = s.k.AddFile(s.Context(), ann, documents.File{Name: "x"}, iotest.ErrReader(boom))
	s.is(err, boom)
	list, _, err := s.k.Files(s.Context(), root, "", documents.Page{})
	s.ok(err)
	if len(list) != 0 {
		s.Errorf("left behind: %+v", list)
	}
}

func pages(s *suite) {
	var ids []string
	for i := range 5 {
		s.at = s.at.Add(time.Second)
		ids = append(ids, s.file(ann, fmt.Sprint(i), "x").ID)
	}
	s.file(ben, "other", "x")
	list := func(p documents.Page) (out []string, more bool) {
		l, more, err := s.k.Files(s.Context(), ann, "assistants", p)
		s.ok(err)
		for _, f := range l {
			out = append(out, f.ID)
		}
		return out, more
	}
	got, more := list(documents.Page{Limit: 2})
	s.same([]string{ids[4], ids[3]}, got)
	s.same(true, more)
	got, more = list(documents.Page{Limit: 3, After: ids[3]})
	s.same([]string{ids[2], ids[1], ids[0]}, got)
	s.same(false, more)
	got, _ = list(documents.Page{Limit: 2, Ascending: true, After: ids[0]})
	s.same([]string{ids[1], ids[2]}, got)
	got, _ = list(documents.Page{Before: ids[2]})
	s.same([]string{ids[4], ids[3]}, got)
	l, _, err := s.k.Files(s.Context(), ann, "batch", documents.Page{})
	s.ok(err)
	s.same(0, len(l))
}

func collections(s *suite) {
	c, err := s.k.AddCollection(s.Context(), ann, documents.Collection{Name: "Garden", Metadata: map[string]string{"a": "b"},
		ExpiresAfter: 24 * time.Hour, Chunking: documents.Chunking{Max: 100, Overlap: 10}})
	s.ok(err)
	if c.Owner != "ann" || !strings.HasPrefix(c.ID, "vs_") || !c.Created.Equal(s.at) {
		s.Errorf("made as %+v", c)
	}
	got, err := s.k.Collection(s.Context(), ann, c.ID)
	s.ok(err)
	s.same(c, got)
	s.at = s.at.Add(time.Hour)
	c.Name, c.Metadata, c.ExpiresAfter = "Yard", map[string]string{}, 0
	got, err = s.k.UpdateCollection(s.Context(), ann, c)
	s.ok(err)
	c.Active = s.at
	s.same(c, got)
	list, more, err := s.k.Collections(s.Context(), ann, documents.Page{})
	s.ok(err)
	s.same([]documents.Collection{c}, list)
	s.same(false, more)
	s.ok(s.k.DeleteCollection(s.Context(), ann, c.ID))
	_, err = s.k.Collection(s.Context(), ann, c.ID)
	s.is(err, documents.ErrNotFound)
	s.is(s.k.DeleteCollection(s.Context(), ann, c.ID), documents.ErrNotFound)
	_, err = s.k.UpdateCollection(s.Context(), ann, c)
	s.is(err, documents.ErrNotFound)
}

func sharing(s *suite) {
	c := s.collection(ann, "x")
	s.ingest(ann, c, nil, 0, "roses are red")
	_, err := s.k.Collection(s.Context(), ben, c.ID)
	s.is(err, documents.ErrNotFound)
	c.Sharing.People = []string{"ben"}
	c, err = s.k.UpdateCollection(s.Context(), ann, c)
	s.ok(err)
	s.same([]string{"roses are red"}, s.words(ben, c, "roses"))
	s.same([]string{"roses are red"}, s.near(ben, c, 0, 1))
	_, err = s.k.Words(s.Context(), zoe, c.ID, "roses", nil, 1)
	s.is(err, documents.ErrNotFound)
	// to see is not to change
	_, err = s.k.UpdateCollection(s.Context(), ben, c)
	s.is(err, documents.ErrNotFound)
	s.is(s.k.DeleteCollection(s.Context(), ben, c.ID), documents.ErrNotFound)
	_, err = s.k.Attach(s.Context(), ben, documents.Attachment{Collection: c.ID, File: s.file(ben, "b", "x").ID})
	s.is(err, documents.ErrNotFound)
	c.Sharing = documents.Sharing{Everyone: true}
	c, err = s.k.UpdateCollection(s.Context(), ann, c)
	s.ok(err)
	s.same([]string{"roses are red"}, s.words(zoe, c, "roses"))
	c.Sharing = documents.Sharing{}
	c, err = s.k.UpdateCollection(s.Context(), ann, c)
	s.ok(err)
	_, err = s.k.Near(s.Context(), ben, c.ID, model, direction(0), nil, 1)
	s.is(err, documents.ErrNotFound)
}

func attach(s *suite) {
	c, f := s.collection(ann, "x"), s.file(ann, "f", "text")
	a, err := s.k.Attach(s.Context(), ann, documents.Attachment{Collection: c.ID, File: f.ID, Attributes: map[string]any{"year": 2026, "ok": true, "name": "n"}})
	s.ok(err)
	s.same(documents.Attachment{Collection: c.ID, File: f.ID, Status: documents.InProgress, Created: s.at,
		Attributes: map[string]any{"year": 2026.0, "ok": true, "name": "n"}}, a)
	_, err = s.k.Attach(s.Context(), ann, documents.Attachment{Collection: c.ID, File: f.ID})
	s.is(err, documents.ErrConflict)
	_, err = s.k.Attach(s.Context(), ann, documents.Attachment{Collection: c.ID, File: "file-none"})
	s.is(err, documents.ErrNotFound)
	_, err = s.k.Attach(s.Context(), ann, documents.Attachment{Collection: "vs_none", File: f.ID})
	s.is(err, documents.ErrNotFound)
	list, err := s.k.Unfinished(s.Context(), 10)
	s.ok(err)
	s.same([]documents.Attachment{a}, list)
	s.is(s.k.Complete(s.Context(), c.ID, f.ID, model, dims), documents.ErrConflict) // it has not been cut
	s.ok(s.k.Cut(s.Context(), c.ID, f.ID, 1, chunksOf("a")))
	s.embed(c.ID, f.ID, model, 0)
	s.ok(s.k.Complete(s.Context(), c.ID, f.ID, model, dims))
	s.is(s.k.Cut(s.Context(), c.ID, f.ID, 1, chunksOf("a")), documents.ErrConflict)
	g := s.file(ann, "g", "text")
	_, err = s.k.Attach(s.Context(), ann, documents.Attachment{Collection: c.ID, File: g.ID})
	s.ok(err)
	s.ok(s.k.Cut(s.Context(), c.ID, g.ID, 1, chunksOf("a", "b")))
	s.is(s.k.Complete(s.Context(), c.ID, g.ID, model, dims), documents.ErrConflict)
	s.ok(s.k.Fail(s.Context(), c.ID, g.ID, "it is locked by a password"))
	a, err = s.k.Attachment(s.Context(), ann, c.ID, g.ID)
	s.ok(err)
	if a.Status != documents.Failed || a.Problem == "" || a.Chunks != 0 || a.Bytes != 0 {
		s.Errorf("failed as %+v", a)
	}
	a, err = s.k.SetAttributes(s.Context(), ann, c.ID, g.ID, map[string]any{"x": "y"})
	s.ok(err)
	s.same(map[string]any{"x": "y"}, a.Attributes)
	counts, err := s.k.Counts(s.Context(), ann, c.ID, "")
	s.ok(err)
	s.same(map[documents.Status]int{documents.Completed: 1, documents.Failed: 1}, counts)
	all, _, err := s.k.Attachments(s.Context(), ann, c.ID, "", "", documents.Page{Ascending: true})
	s.ok(err)
	s.same([]string{f.ID, g.ID}, []string{all[0].File, all[1].File})
	all, more, err := s.k.Attachments(s.Context(), ann, c.ID, "", "", documents.Page{Limit: 1})
	s.ok(err)
	s.same(g.ID, all[0].File)
	s.same(true, more)
	all, _, err = s.k.Attachments(s.Context(), ann, c.ID, documents.Failed, "", documents.Page{After: g.ID})
	s.ok(err)
	s.same(0, len(all))
}

func batches(s *suite) {
	c := s.collection(ann, "x")
	for i := range 3 {
		_, err := s.k.Attach(s.Context(), ann, documents.Attachment{Collection: c.ID, File: s.file(ann, fmt.Sprint(i), "x").ID, Batch: "vsfb_1"})
		s.ok(err)
	}
	_, err := s.k.Attach(s.Context(), ann, documents.Attachment{Collection: c.ID, File: s.file(ann, "o", "x").ID, Batch: "vsfb_2"})
	s.ok(err)
	s.ok(s.k.Cancel(s.Context(), ann, c.ID, "vsfb_1"))
	counts, err := s.k.Counts(s.Context(), ann, c.ID, "vsfb_1")
	s.ok(err)
	s.same(map[documents.Status]int{documents.Cancelled: 3}, counts)
	counts, err = s.k.Counts(s.Context(), ann, c.ID, "")
	s.ok(err)
	s.same(map[documents.Status]int{documents.Cancelled: 3, documents.InProgress: 1}, counts)
}

func foundOnceComplete(s *suite) {
	c := s.collection(ann, "x")
	s.ingest(ann, c, nil, 0, "first text")
	s.same([]string{"first text"}, s.near(ann, c, 0, 5)) // the vectors are in memory from now on
	f := s.file(ann, "f", "x")
	_, err := s.k.Attach(s.Context(), ann, documents.Attachment{Collection: c.ID, File: f.ID})
	s.ok(err)
	s.ok(s.k.Cut(s.Context(), c.ID, f.ID, 2, chunksOf("second text", "third text")))
	s.embed(c.ID, f.ID, model, 1)
	s.same([]string{"first text"}, s.near(ann, c, 1, 5))
	s.same([]string{}, s.words(ann, c, "second"))
	s.ok(s.k.Complete(s.Context(), c.ID, f.ID, model, dims))
	s.same([]string{"second text", "third text"}, s.near(ann, c, 1, 5)[:2])
	s.same([]string{"second text"}, s.words(ann, c, "second"))
	a, err := s.k.Attachment(s.Context(), ann, c.ID, f.ID)
	s.ok(err)
	if a.Chunks != 2 || a.Embedded != 2 || a.Bytes < 2*dims*4 || a.Pages != 2 {
		s.Errorf("completed as %+v", a)
	}
	got, err := s.k.Collection(s.Context(), ann, c.ID)
	s.ok(err)
	if got.Model != model || got.Dims != dims || got.Generation < 2 {
		s.Errorf("the collection is %+v", got)
	}
	hits, err := s.k.Near(s.Context(), ann, c.ID, model, direction(2), nil, 1)
	s.ok(err)
	p, err := s.k.Passages(s.Context(), ann, []int64{hits[0].ID})
	s.ok(err)
	want := documents.Passage{ID: hits[0].ID, Collection: c.ID, File: f.ID, Ordinal: 1, Chunk: chunksOf("second text", "third text")[1]}
	s.same([]documents.Passage{want}, p)
	p, err = s.k.PassagesOf(s.Context(), ann, c.ID, f.ID)
	s.ok(err)
	if len(p) != 2 || p[0].Text != "second text" || p[1].Text != "third text" {
		s.Errorf("the file's passages are %+v", p)
	}
	v, err := s.k.Vectors(s.Context(), c.ID, f.ID)
	s.ok(err)
	if len(v) != 2 || v[0].ID != p[0].ID || !slices.Equal(v[1].Vector, direction(2)) {
		s.Errorf("the file's vectors are %v", v)
	}
	if n, err := s.k.Bytes(s.Context(), ann, c.ID); err != nil || n < 3*dims*4 {
		s.Errorf("%d bytes, %v", n, err)
	}
	_, err = s.k.Near(s.Context(), ann, c.ID, "another/model", direction(0), nil, 1)
	s.is(err, documents.ErrConflict)
}

func words(s *suite) {
	c := s.collection(ann, "x")
	s.ingest(ann, c, nil, 0, "Roses grow in sunny gardens", "Die Straße führt über Köln", "猫は魚が好きです", "мама мыла раму", "the cat sat", "quotes \" and AND (NOT) words*")
	for query, want := range map[string]string{
		"rose in a garden": "Roses grow in sunny gardens", "KOLN": "Die Straße führt über Köln", "魚が": "猫は魚が好きです",
		"раму": "мама мыла раму", "cats?": "the cat sat", `"NOT" (AND`: "quotes \" and AND (NOT) words*",
	} {
		if got := s.words(ann, c, query); len(got) == 0 || got[0] != want {
			s.Errorf("%q finds %q", query, got)
		}
	}
	for _, query := range []string{"", "   ", `"`, "*", "()", "zebra", "body : x", "NEAR(", "\x00", "a\xff"} {
		hits, err := s.k.Words(s.Context(), ann, c.ID, query, nil, 3)
		if err != nil {
			s.Errorf("%q: %v, %v", query, hits, err)
		}
	}
	// a term that is everywhere does not keep the rare one from being found first
	many := make([]string, 300)
	for i := range many {
		many[i] = fmt.Sprintf("common words in passage number %d", i)
	}
	many[200] += " and a zebra among them"
	s.ingest(ann, c, nil, 0, many...)
	if got := s.words(ann, c, "common words zebra"); len(got) == 0 || got[0] != many[200] {
		s.Errorf("the rare word finds %q first", got)
	}
	if got := s.words(ann, c, "common words"); len(got) == 0 {
		s.Error("common words alone find nothing")
	}
}

// shares holds how much of a question's weight is found to its bounds: hybrid
// search trusts words by it.
func shares(s *suite) {
	c := s.collection(ann, "x")
	texts := []string{"The boiler reports error E-17 when the pump is dry", "Pumps are checked in spring, and the boiler in autumn",
		"Write to service@example.org or see max_heap in the manual", "A garden of roses and of nothing else"}
	for i := range 60 {
		texts = append(texts, fmt.Sprintf("The report of day %d has nothing to say of the weather", i))
	}
	s.ingest(ann, c, nil, 0, texts...)
	find := func(query string) (string, float64) {
		s.Helper()
		hits, err := s.k.Words(s.Context(), ann, c.ID, query, nil, 50)
		s.ok(err)
		if len(hits) == 0 {
			return "", 0
		}
		for i, h := range hits {
			if h.Share <= 0 || h.Share > 1 {
				s.Errorf("%q: hit %d has the share %v", query, i, h.Share)
			}
		}
		return s.texts(ann, hits[:1], nil)[0], hits[0].Share
	}
	for query, want := range map[string]struct {
		text       int
		least, top float64
	}{
		"E-17":                                  {0, 0.3, 1},
		"error E-17":                            {0, 0.3, 1},
		"roses":                                 {3, 0.3, 1},
		"example.org":                           {2, 0.3, 1},
		"max_heap":                              {2, 0.3, 1},
		"part 3 roses":                          {3, 0.3, 1}, // the heading counts
		"Is it in autumn or spring?":            {1, 0.1, 1},
		"roses unheard unthought unseen unread": {3, 0.02, 0.35}, // most of the question is nowhere
	} {
		text, share := find(query)
		if text != texts[want.text] || share < want.least || share > want.top {
			s.Errorf("%q finds %q with the share %.3f", query, text, share)
		}
	}
	_, whole := find("dry pump")
	_, half := find("dry weathercock")
	if whole <= half {
		s.Errorf("the whole question has the share %v, half of it %v", whole, half)
	}
}

func vectors(s *suite) {
	c := s.collection(ann, "x")
	s.ingest(ann, c, nil, 0, "a", "b", "c")
	s.ingest(ann, c, nil, 3, "d", "e")
	for axis, want := range []string{"a", "b", "c", "d", "e"} {
		s.same([]string{want}, s.near(ann, c, axis, 1))
	}
	hits, err := s.k.Near(s.Context(), ann, c.ID, model, direction(0), nil, 10)
	s.ok(err)
	if len(hits) != 5 || hits[0].Score < 0.999 || hits[1].Score >= hits[0].Score {
		s.Errorf("scores %v", hits)
	}
	empty := s.collection(ann, "empty")
	s.same([]string{}, s.near(ann, empty, 0, 3))
	_, err = s.k.Near(s.Context(), ann, c.ID, model, []float32{1}, nil, 1)
	s.is(err, documents.ErrInvalid)
}

func (s *suite) filter(text string) *documents.Filter {
	f, err := documents.ParseFilter([]byte(text))
	s.ok(err)
	return f
}

func filters(s *suite) {
	year := func(y int) *documents.Filter {
		return s.filter(fmt.Sprintf(`{"type":"eq","key":"year","value":%d}`, y))
	}
	c := s.collection(ann, "x")
	for y := range 4 {
		s.ingest(ann, c, map[string]any{"year": 2020 + y}, 0, fmt.Sprintf("roses of %d", 2020+y), "more roses")
	}
	hits, err := s.k.Words(s.Context(), ann, c.ID, "roses", year(2022), 10)
	if got := s.texts(ann, hits, err); len(got) != 2 || !slices.Contains(got, "roses of 2022") {
		s.Errorf("words find %q", got)
	}
	hits, err = s.k.Near(s.Context(), ann, c.ID, model, direction(0), year(2021), 1)
	s.same([]string{"roses of 2021"}, s.texts(ann, hits, err))
	hits, err = s.k.Near(s.Context(), ann, c.ID, model, direction(0), year(1999), 1)
	s.same([]string{}, s.texts(ann, hits, err))
	// what is changed, added and taken out is seen by the next search
	year2021 := func() []string {
		hits, err := s.k.Words(s.Context(), ann, c.ID, "roses", year(2021), 10)
		return s.texts(ann, hits, err)
	}
	f := s.ingest(ann, c, map[string]any{"year": 2021}, 4, "late roses")
	s.same(3, len(year2021()))
	_, err = s.k.SetAttributes(s.Context(), ann, c.ID, f.ID, map[string]any{"year": 2022})
	s.ok(err)
	s.same(2, len(year2021()))
	hits, err = s.k.Near(s.Context(), ann, c.ID, model, direction(4), year(2022), 1)
	s.same([]string{"late roses"}, s.texts(ann, hits, err))
	s.ok(s.k.Detach(s.Context(), ann, c.ID, f.ID))
	hits, err = s.k.Near(s.Context(), ann, c.ID, model, direction(4), year(2022), 10)
	s.same(2, len(s.texts(ann, hits, err)))
}

// allFilters holds what each kind of filter finds against what Match says, for attributes that are easily taken for others.
func allFilters(s *suite) {
	c := s.collection(ann, "x")
	values := []any{nil, "", "a", "A", "aa", "b", "é", "1", "true", "ﬀ", "\U0001F600", "\uffff", `"`, "%", true, false, 0.0, 1.0, -1.0, 0.1, 1e300, -1e300, 5e-324, 9007199254740993.0, 0.30000000000000004}
	for i, v := range values {
		a := map[string]any{"other": float64(i)}
		if v != nil {
			a["k"] = v
		}
		s.ingest(ann, c, a, i%dims, fmt.Sprintf("roses %d", i))
	}
	all, _, err := s.k.Attachments(s.Context(), ann, c.ID, "", "", documents.Page{Limit: 100})
	s.ok(err)
	try := func(text string) {
		f := s.filter(text)
		want := []string{}
		for _, a := range all {
			if f.Match(a.Attributes) {
				want = append(want, a.File)
			}
		}
		slices.Sort(want)
		for by, find := range map[string]func() ([]documents.Scored, error){
			"words": func() ([]documents.Scored, error) { return s.k.Words(s.Context(), ann, c.ID, "roses", f, 100) },
			"near": func() ([]documents.Scored, error) {
				return s.k.Near(s.Context(), ann, c.ID, model, direction(0), f, 100)
			},
		} {
			hits, err := find()
			s.ok(err)
			var ids []int64
			for _, h := range hits {
				ids = append(ids, h.ID)
			}
			found, err := s.k.Passages(s.Context(), ann, ids)
			s.ok(err)
			got := []string{}
			for _, p := range found {
				got = append(got, p.File)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				s.Errorf("%s, %s: %d files, want %d", text, by, len(got), len(want))
			}
		}
	}
	asked := []string{`""`, `"a"`, `"a\u0000b"`, `"\u0000"`, `"é"`, `"1"`, `"\ud800"`, `true`, `0`, `-0`, `1.0`, `1e0`, `0.1`, `0.10000000000000000555`, `1e300`, `1e-400`, `9007199254740992`, `0.3`}
	for _, kind := range []string{"eq", "ne", "gt", "gte", "lt", "lte"} {
		for _, v := range asked {
			try(fmt.Sprintf(`{"type":%q,"key":"k","value":%s}`, kind, v))
		}
	}
	list := strings.Join(asked, ",")
	for _, text := range []string{
		`{"type":"in","key":"k","value":[` + list + `]}`, `{"type":"nin","key":"k","value":[` + list + `]}`,
		`{"type":"in","key":"k","value":[]}`, `{"type":"nin","key":"k","value":[]}`,
		`{"type":"eq","key":"k\u0000","value":1}`, `{"type":"nin","key":"k\u0000","value":[1]}`, `{"type":"lt","key":"\u0000k","value":1}`,
		`{"type":"eq","key":"missing","value":"a"}`, `{"type":"ne","key":"missing","value":"a"}`, `{"type":"eq","key":"'; drop table x; --","value":"$1"}`,
		`{"type":"or","filters":[{"type":"eq","key":"k","value":"a"},{"type":"and","filters":[{"type":"gt","key":"other","value":3},{"type":"lt","key":"other","value":6}]}]}`,
		`{"type":"and","filters":[{"type":"or","filters":[{"type":"eq","key":"k","value":"a"},{"type":"eq","key":"k","value":true}]},{"type":"nin","key":"other","value":[2]}]}`,
	} {
		try(text)
	}
}

// putInAgain takes a file out and puts it in again while somebody is at work on
// it, who then says that it is complete.
func putInAgain(s *suite) {
	ctx, c := s.Context(), s.collection(ann, "x")
	f := s.file(ann, "f", "x")
	put := func() {
		_, err := s.k.Attach(ctx, ann, documents.Attachment{Collection: c.ID, File: f.ID})
		s.ok(err)
	}
	put()
	s.ok(s.k.Cut(ctx, c.ID, f.ID, 1, chunksOf("roses")))
	s.embed(c.ID, f.ID, model, 0)
	s.ok(s.k.Detach(ctx, ann, c.ID, f.ID))
	put()
	s.is(s.k.Complete(ctx, c.ID, f.ID, model, dims), documents.ErrConflict)
	a, err := s.k.Attachment(ctx, ann, c.ID, f.ID)
	s.ok(err)
	s.same(documents.InProgress, a.Status)
}

// modelBeforeTheFirst changes the model when half of a collection's first file
// has vectors.
func modelBeforeTheFirst(s *suite) {
	ctx, c := s.Context(), s.collection(ann, "x")
	f := s.file(ann, "f", "x")
	_, err := s.k.Attach(ctx, ann, documents.Attachment{Collection: c.ID, File: f.ID})
	s.ok(err)
	s.ok(s.k.Cut(ctx, c.ID, f.ID, 1, chunksOf("roses", "violets")))
	bare, err := s.k.Bare(ctx, c.ID, f.ID, model, 1)
	s.ok(err)
	s.ok(s.k.Embed(ctx, model, []documents.Vector{{ID: bare[0].ID, Vector: direction(0)}}))
	_, err = s.k.Bare(ctx, c.ID, f.ID, "new", 10)
	s.is(err, documents.ErrConflict)
	s.ok(s.k.Change(ctx, c.ID, "new"))
	bare, err = s.k.Bare(ctx, c.ID, f.ID, "new", 10)
	s.ok(err)
	s.same(2, len(bare))
	s.embed(c.ID, f.ID, "new", 1)
	s.ok(s.k.Complete(ctx, c.ID, f.ID, "new", dims))
	s.ok(s.k.Changed(ctx, c.ID, "new", dims))
	hits, err := s.k.Near(ctx, ann, c.ID, "new", direction(1), nil, 1)
	s.same([]string{"roses"}, s.texts(ann, hits, err))
}

// modelGivenUp goes back to the model that is shown after a file came in with
// vectors of the other one alone.
func modelGivenUp(s *suite) {
	ctx, c := s.Context(), s.collection(ann, "x")
	s.ingest(ann, c, nil, 0, "roses")
	s.ok(s.k.Change(ctx, c.ID, "new"))
	f := s.file(ann, "f", "x")
	_, err := s.k.Attach(ctx, ann, documents.Attachment{Collection: c.ID, File: f.ID})
	s.ok(err)
	s.ok(s.k.Cut(ctx, c.ID, f.ID, 1, chunksOf("violets", "tulips")))
	s.embed(c.ID, f.ID, "new", 1)
	s.ok(s.k.Complete(ctx, c.ID, f.ID, "new", dims))
	s.same([]string{"violets"}, s.words(ann, c, "violets"))
	s.ok(s.k.Change(ctx, c.ID, model))
	a, err := s.k.Attachment(ctx, ann, c.ID, f.ID)
	s.ok(err)
	if a.Status != documents.InProgress || a.Chunks != 2 || a.Embedded != 0 || a.Bytes != int64(len("violets")+len("tulips")) {
		s.Errorf("the file without vectors is %+v", a)
	}
	s.embed(c.ID, f.ID, model, 1)
	s.ok(s.k.Complete(ctx, c.ID, f.ID, model, dims))
	s.same([]string{"violets"}, s.words(ann, c, "violets"))
	s.same([]string{"violets"}, s.near(ann, c, 1, 1))
	s.same([]string{"roses"}, s.near(ann, c, 0, 1))
}

func deleting(s *suite) {
	c, d := s.collection(ann, "x"), s.collection(ann, "y")
	f := s.ingest(ann, c, nil, 0, "secret roses", "plain text")
	g := s.ingest(ann, c, nil, 2, "other roses")
	_, err := s.k.Attach(s.Context(), ann, documents.Attachment{Collection: d.ID, File: f.ID})
	s.ok(err)
	s.ok(s.k.Cut(s.Context(), d.ID, f.ID, 1, chunksOf("secret roses")))
	s.embed(d.ID, f.ID, model, 0)
	s.ok(s.k.Complete(s.Context(), d.ID, f.ID, model, dims))
	hits, err := s.k.Words(s.Context(), ann, c.ID, "secret", nil, 1)
	s.ok(err)
	s.same([]string{"secret roses"}, s.near(ann, c, 0, 1))

	s.ok(s.k.Detach(s.Context(), ann, d.ID, f.ID))
	s.same([]string{}, s.words(ann, d, "secret"))
	s.same([]string{}, s.near(ann, d, 0, 3))
	s.is(s.k.Detach(s.Context(), ann, d.ID, f.ID), documents.ErrNotFound)
	s.same([]string{"secret roses"}, s.words(ann, c, "secret"))

	s.ok(s.k.DeleteFile(s.Context(), ann, f.ID))
	s.same([]string{}, s.words(ann, c, "secret"))
	s.same([]string{"other roses"}, s.words(ann, c, "roses"))
	s.same([]string{"other roses"}, s.near(ann, c, 0, 3))
	p, err := s.k.Passages(s.Context(), ann, []int64{hits[0].ID})
	s.ok(err)
	s.same(0, len(p))
	_, err = s.k.Attachment(s.Context(), ann, c.ID, f.ID)
	s.is(err, documents.ErrNotFound)
	// vectors that come late for what is gone are dropped
	s.ok(s.k.Embed(s.Context(), model, []documents.Vector{{ID: hits[0].ID, Vector: direction(0)}}))
	s.same([]string{"other roses"}, s.near(ann, c, 0, 3))

	s.ok(s.k.DeleteCollection(s.Context(), ann, c.ID))
	_, err = s.k.File(s.Context(), ann, g.ID)
	s.ok(err)
	_, err = s.k.Words(s.Context(), ann, c.ID, "roses", nil, 1)
	s.is(err, documents.ErrNotFound)
	_, err = s.k.Near(s.Context(), ann, c.ID, model, direction(0), nil, 1)
	s.is(err, documents.ErrNotFound)
}

// others tries every call that takes a reader with somebody else's ids.
func others(s *suite) {
	c := s.collection(ann, "x")
	f := s.ingest(ann, c, nil, 0, "secret")
	own := s.file(ben, "b", "x")
	mine := s.collection(ben, "y")
	hits, err := s.k.Words(s.Context(), ann, c.ID, "secret", nil, 1)
	s.ok(err)
	ctx := s.Context()
	for _, by := range []documents.Reader{ben, {}} {
		for name, call := range map[string]func() error{
			"File":             func() error { _, err := s.k.File(ctx, by, f.ID); return err },
			"Content":          func() error { return s.k.Content(ctx, by, f.ID, &bytes.Buffer{}) },
			"DeleteFile":       func() error { return s.k.DeleteFile(ctx, by, f.ID) },
			"Collection":       func() error { _, err := s.k.Collection(ctx, by, c.ID); return err },
			"UpdateCollection": func() error { _, err := s.k.UpdateCollection(ctx, by, c); return err },
			"DeleteCollection": func() error { return s.k.DeleteCollection(ctx, by, c.ID) },
			"Attach": func() error {
				_, err := s.k.Attach(ctx, by, documents.Attachment{Collection: c.ID, File: own.ID})
				return err
			},
			"Attach a file": func() error {
				_, err := s.k.Attach(ctx, by, documents.Attachment{Collection: mine.ID, File: f.ID})
				return err
			},
			"Attachment": func() error { _, err := s.k.Attachment(ctx, by, c.ID, f.ID); return err },
			"Attachments": func() error {
				_, _, err := s.k.Attachments(ctx, by, c.ID, "", "", documents.Page{})
				return err
			},
			"Counts":        func() error { _, err := s.k.Counts(ctx, by, c.ID, ""); return err },
			"SetAttributes": func() error { _, err := s.k.SetAttributes(ctx, by, c.ID, f.ID, nil); return err },
			"Detach":        func() error { return s.k.Detach(ctx, by, c.ID, f.ID) },
			"Cancel":        func() error { return s.k.Cancel(ctx, by, c.ID, "") },
			"Bytes":         func() error { _, err := s.k.Bytes(ctx, by, c.ID); return err },
			"PassagesOf":    func() error { _, err := s.k.PassagesOf(ctx, by, c.ID, f.ID); return err },
			"Words":         func() error { _, err := s.k.Words(ctx, by, c.ID, "secret", nil, 1); return err },
			"Near":          func() error { _, err := s.k.Near(ctx, by, c.ID, model, direction(0), nil, 1); return err },
		} {
			if err := call(); !errors.Is(err, documents.ErrNotFound) {
				s.Errorf("%s by %q: %v, want ErrNotFound", name, by.Person, err)
			}
		}
		p, err := s.k.Passages(ctx, by, []int64{hits[0].ID})
		s.ok(err)
		s.same(0, len(p))
		list, _, err := s.k.Files(ctx, by, "", documents.Page{})
		s.ok(err)
		for _, l := range list {
			if l.Owner != by.Person {
				s.Errorf("Files shows %+v to %q", l, by.Person)
			}
		}
		all, _, err := s.k.Collections(ctx, by, documents.Page{})
		s.ok(err)
		for _, l := range all {
			if l.Owner != by.Person {
				s.Errorf("Collections shows %+v to %q", l, by.Person)
			}
		}
	}
	s.same([]string{"secret"}, s.words(ann, c, "secret"))
	s.same([]string{"secret"}, s.words(root, c, "secret"))
}

func changeOfModel(s *suite) {
	c := s.collection(ann, "x")
	f := s.ingest(ann, c, nil, 0, "a", "b")
	ctx := s.Context()
	s.ok(s.k.Change(ctx, c.ID, "new"))
	list, err := s.k.Changing(ctx)
	s.ok(err)
	if len(list) != 1 || list[0].Next != "new" || list[0].Model != model {
		s.Fatalf("changing: %+v", list)
	}
	s.same([]string{"a"}, s.near(ann, c, 0, 1)) // the old index serves until the new one is whole
	s.is(s.k.Changed(ctx, c.ID, "new", 2), documents.ErrConflict)
	bare, err := s.k.Bare(ctx, c.ID, f.ID, "new", 10)
	s.ok(err)
	s.same(2, len(bare))
	s.same("Top > Part 0\na", bare[0].Text)
	s.ok(s.k.Embed(ctx, "new", []documents.Vector{{ID: bare[0].ID, Vector: []float32{0, 1}}, {ID: bare[1].ID, Vector: []float32{1, 0}}}))
	s.same([]string{"a"}, s.near(ann, c, 0, 1))
	s.ok(s.k.Changed(ctx, c.ID, "new", 2))
	hits, err := s.k.Near(ctx, ann, c.ID, "new", []float32{1, 0}, nil, 1)
	s.same([]string{"b"}, s.texts(ann, hits, err))
	got, err := s.k.Collection(ctx, ann, c.ID)
	s.ok(err)
	if got.Model != "new" || got.Next != "" || got.Dims != 2 {
		s.Errorf("the collection is %+v", got)
	}
	// and back, given up half-way
	s.ok(s.k.Change(ctx, c.ID, model))
	s.ok(s.k.Change(ctx, c.ID, "new"))
	list, err = s.k.Changing(ctx)
	s.ok(err)
	s.same(0, len(list))
	s.ok(s.k.Change(ctx, c.ID, model))
	bare, err = s.k.Bare(ctx, c.ID, f.ID, model, 10)
	s.ok(err)
	s.same(2, len(bare))
}

func expiry(s *suite) {
	c, err := s.k.AddCollection(s.Context(), ann, documents.Collection{Name: "x", ExpiresAfter: time.Hour})
	s.ok(err)
	keep := s.collection(ann, "keep")
	f, err := s.k.AddFile(s.Context(), ann, documents.File{Name: "f", Expires: s.at.Add(2 * time.Hour)}, strings.NewReader("x"))
	s.ok(err)
	s.at = s.at.Add(50 * time.Minute)
	s.ok(s.k.Touch(s.Context(), c.ID))
	s.at = s.at.Add(50 * time.Minute)
	n, err := s.k.Expire(s.Context(), s.at)
	s.ok(err)
	s.same(0, n)
	s.at = s.at.Add(time.Hour)
	n, err = s.k.Expire(s.Context(), s.at)
	s.ok(err)
	s.same(2, n)
	_, err = s.k.Collection(s.Context(), ann, c.ID)
	s.is(err, documents.ErrNotFound)
	_, err = s.k.File(s.Context(), ann, f.ID)
	s.is(err, documents.ErrNotFound)
	_, err = s.k.Collection(s.Context(), ann, keep.ID)
	s.ok(err)
}

func limits(s *suite) {
	many := map[string]any{}
	for i := range 17 {
		many[fmt.Sprint(i)] = i
	}
	c, f := s.collection(ann, "x"), s.file(ann, "f", "x")
	for _, a := range []map[string]any{many, {"": 1}, {strings.Repeat("k", 65): 1}, {"a": strings.Repeat("v", 513)}, {"a": []int{1}}, {"a": nil}} {
		_, err := s.k.Attach(s.Context(), ann, documents.Attachment{Collection: c.ID, File: f.ID, Attributes: a})
		s.is(err, documents.ErrInvalid)
	}
	for _, bad := range []documents.Collection{{Name: strings.Repeat("x", 600)}, {ExpiresAfter: -1}, {Metadata: map[string]string{"": "x"}}} {
		_, err := s.k.AddCollection(s.Context(), ann, bad)
		s.is(err, documents.ErrInvalid)
	}
}

// together lets searches, additions and deletions meet; in the end what is found
// is what is there.
func together(s *suite) {
	c := s.collection(ann, "x")
	ctx, stop := context.WithCancel(s.Context())
	done := make(chan error)
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			var hits []documents.Scored
			if hits, err = s.k.Near(context.WithoutCancel(ctx), ann, c.ID, model, direction(0), nil, 5); err == nil && len(hits) > 0 {
				_, err = s.k.Passages(context.WithoutCancel(ctx), ann, []int64{hits[0].ID})
			}
			if err == nil {
				_, err = s.k.Words(context.WithoutCancel(ctx), ann, c.ID, "text", nil, 5)
			}
		}
		done <- err
	}()
	r := rand.New(rand.NewPCG(1, 1))
	var there []documents.File
	for i := range 40 {
		if len(there) > 3 && r.IntN(2) == 0 {
			n := r.IntN(len(there))
			s.ok(s.k.DeleteFile(s.Context(), ann, there[n].ID))
			there = slices.Delete(there, n, n+1)
			continue
		}
		there = append(there, s.ingest(ann, c, nil, i, fmt.Sprintf("text number%d", i), "a text more"))
	}
	stop()
	s.ok(<-done)
	hits, err := s.k.Near(s.Context(), ann, c.ID, model, direction(0), nil, 1000)
	s.ok(err)
	if len(hits) != 2*len(there) {
		s.Errorf("%d vectors are found, want %d", len(hits), 2*len(there))
	}
	hits, err = s.k.Words(s.Context(), ann, c.ID, "text", nil, 1000)
	s.ok(err)
	if len(hits) != 2*len(there) {
		s.Errorf("%d passages are found by words, want %d", len(hits), 2*len(there))
	}
}
