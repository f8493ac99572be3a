package shelf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/shelf"
	"onebit/engine/wire"
	"onebit/store/documents"
	"onebit/store/documents/extract"
	"onebit/store/documents/ingest"
	"onebit/store/documents/local"
	"onebit/store/documents/search"
)

// letters embeds a text by its letters.
type letters struct{}

func (letters) Model() string                                  { return "letters" }
func (letters) MaxTokens() int                                 { return 64 }
func (letters) Count(_ context.Context, t string) (int, error) { return len(strings.Fields(t)), nil }
func (letters) Embed(_ context.Context, texts []string) ([][]float32, error) {
	var out [][]float32
	for _, t := range texts {
		v := make([]float32, 26)
		v[0] = 0.01
		for _, r := range strings.ToLower(t) {
			if r >= 'a' && r <= 'z' {
				v[r-'a']++
			}
		}
		out = append(out, v)
	}
	return out, nil
}

type world struct {
	*testing.T
	server *httptest.Server
	ended  chan int
	temp   string
	space  atomic.Uint64                // bytes
	cut    chan context.CancelCauseFunc // how to end a visit of eve
}

func newWorld(t *testing.T) *world {
	t.Helper()
	k, err := local.Open(t.Context(), local.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	embedder := func(context.Context) (ingest.Embedder, error) { return letters{}, nil }
	queue, err := ingest.New(ingest.Config{Keeper: k, Embedder: embedder, Temp: t.TempDir(), Log: log, Retry: time.Millisecond,
		Extract: func(ctx context.Context, f *os.File, name string) (*extract.Document, error) {
			if _, err := f.Seek(0, 0); err != nil {
				return nil, err
			}
			b, err := io.ReadAll(f)
			if err != nil {
				return nil, err
			}
			return extract.Read(ctx, b, name, extract.Default())
		}})
	if err != nil {
		t.Fatal(err)
	}
	searcher, err := search.New(search.Config{Keeper: k, Embedder: embedder})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, ended: make(chan int, 1000), temp: t.TempDir(), cut: make(chan context.CancelCauseFunc, 10)}
	w.space.Store(1 << 40)
	l, err := shelf.New(shelf.Config{Keeper: k, Searcher: searcher, Wake: queue.Wake, Temp: w.temp, Log: log,
		Space: func() (uint64, error) { return w.space.Load(), nil },
		Enter: func(r *http.Request, endpoint string) (context.Context, shelf.Visit, error) {
			person, limit, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			if person == "" {
				return nil, shelf.Visit{}, &wire.Error{Status: 401, Type: wire.TypeInvalid, Message: "who are you?"}
			}
			v := shelf.Visit{Reader: documents.Reader{Person: person}, End: func(status int) { w.ended <- status }}
			if limit != "" {
				v.Collections = []string{limit}
			}
			ctx := r.Context()
			if person == "eve" {
				c, cancel := context.WithCancelCause(ctx)
				w.cut <- cancel
				ctx = c
			}
			return ctx, v, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	w.server = httptest.NewServer(l)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- queue.Run(ctx) }()
	t.Cleanup(func() {
		w.server.Close()
		stop()
		<-done
		k.Close()
	})
	return w
}

type object = map[string]any

func (w *world) do(as, method, path string, body any) (int, object) {
	w.Helper()
	var r io.Reader
	kind := "application/json"
	switch b := body.(type) {
	case nil:
	case form:
		r, kind = b.encode(w.T)
	case string:
		r = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			w.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	q, err := http.NewRequestWithContext(w.Context(), method, w.server.URL+path, r)
	if err != nil {
		w.Fatal(err)
	}
	q.Header.Set("Authorization", as)
	q.Header.Set("Content-Type", kind)
	a, err := w.server.Client().Do(q)
	if err != nil {
		w.Fatal(err)
	}
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	if err != nil {
		w.Fatal(err)
	}
	o := object{}
	if err := json.Unmarshal(raw, &o); err != nil {
		o["raw"] = string(raw)
	}
	return a.StatusCode, o
}

func (w *world) ok(as, method, path string, body any) object {
	w.Helper()
	status, o := w.do(as, method, path, body)
	if status != 200 {
		w.Fatalf("%s %s: %d %v", method, path, status, o)
	}
	return o
}

// form is fields and files of a multipart body, as name, file name (or "") and
// content in turn.
type form []string

func (f form) encode(t *testing.T) (io.Reader, string) {
	var b bytes.Buffer
	m := multipart.NewWriter(&b)
	for i := 0; i < len(f); i += 3 {
		if f[i+1] == "" {
			if err := m.WriteField(f[i], f[i+2]); err != nil {
				t.Fatal(err)
			}
			continue
		}
		p, err := m.CreateFormFile(f[i], f[i+1])
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(p, f[i+2])
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	return &b, m.FormDataContentType()
}

func (w *world) upload(as, name, content string) string {
	w.Helper()
	return w.ok(as, "POST", "/v1/files", form{"purpose", "", "assistants", "file", name, content})["id"].(string)
}

// settled waits until nothing of a vector store is in progress.
func (w *world) settled(as, store string) object {
	w.Helper()
	for range 100_000 {
		o := w.ok(as, "GET", "/v1/vector_stores/"+store, nil)
		if o["status"] == "completed" {
			return o
		}
	}
	w.Fatal("it does not come to an end")
	return nil
}

func TestUploadSearchDelete(t *testing.T) {
	w := newWorld(t)
	f := w.upload("ann", "garden.md", "# Roses\n\nThey bloom in June.\n\n# Oaks\n\nThey grow slowly.\n")
	s := w.ok("ann", "POST", "/v1/vector_stores", object{"name": "Garden", "file_ids": []string{f}, "metadata": object{"a": "b"}})["id"].(string)
	o := w.settled("ann", s)
	if d := cmp.Diff(object{"in_progress": 0.0, "completed": 1.0, "failed": 0.0, "cancelled": 0.0, "total": 1.0}, o["file_counts"]); d != "" {
		t.Error(d)
	}
	if o["usage_bytes"].(float64) < 200 || o["embedding_model"] != "letters" || o["metadata"].(object)["a"] != "b" {
		t.Errorf("%v", o)
	}
	page := w.ok("ann", "POST", "/v1/vector_stores/"+s+"/search", object{"query": "when do roses bloom", "max_num_results": 1})
	hit := page["data"].([]any)[0].(object)
	if hit["file_id"] != f || hit["filename"] != "garden.md" || hit["content"].([]any)[0].(object)["text"] != "They bloom in June." {
		t.Errorf("%v", hit)
	}
	if c := hit["citation"].(object); c["path"].([]any)[1] != "Roses" || c["start"].(float64) != 7 {
		t.Errorf("the citation is %v", c)
	}
	content := w.ok("ann", "GET", "/v1/vector_stores/"+s+"/files/"+f+"/content", nil)
	if len(content["data"].([]any)) != 2 {
		t.Errorf("%v", content)
	}
	if _, raw := w.do("ann", "GET", "/v1/files/"+f+"/content", nil); !strings.HasPrefix(raw["raw"].(string), "# Roses") {
		t.Errorf("%v", raw)
	}
	w.ok("ann", "DELETE", "/v1/files/"+f, nil)
	page = w.ok("ann", "POST", "/v1/vector_stores/"+s+"/search", object{"query": "roses"})
	if len(page["data"].([]any)) != 0 {
		t.Errorf("a deleted file is found: %v", page)
	}
	if d := w.ok("ann", "DELETE", "/v1/vector_stores/"+s, nil); d["deleted"] != true || d["object"] != "vector_store.deleted" {
		t.Errorf("%v", d)
	}
}

func TestUploads(t *testing.T) {
	w := newWorld(t)
	o := w.ok("ann", "POST", "/v1/files", form{"file", `C:\docs\..\a.txt`, "text", "purpose", "", "user_data", "expires_after[anchor]", "", "created_at", "expires_after[seconds]", "", "3600"})
	if o["filename"] != "a.txt" || o["purpose"] != "user_data" || o["bytes"].(float64) != 4 || o["object"] != "file" || o["status"] != "processed" || o["expires_at"] == nil {
		t.Errorf("%v", o)
	}
	for _, bad := range []form{
		{"purpose", "", "assistants"}, {"file", "a", "x"}, {"purpose", "", "evil", "file", "a", "x"}, {"purpose", "", "assistants", "file", "..", "x"},
		{"purpose", "", "assistants", "file", "a", "x", "file", "b", "y"}, {"purpose", "", "assistants", "expires_after[seconds]", "", "9", "file", "a", "x"},
		{"purpose", "", "assistants", "file", "a", "x", "expires_after[anchor]", "", "never"},
	} {
		if status, o := w.do("ann", "POST", "/v1/files", bad); status != 400 || o["error"].(object)["message"] == "" {
			t.Errorf("%q: %d %v", bad, status, o)
		}
	}
	if status, _ := w.do("ann", "POST", "/v1/files", object{}); status != 415 {
		t.Errorf("JSON in place of a form: %d", status)
	}
	all := w.ok("ann", "GET", "/v1/files?limit=100", nil)["data"].([]any)
	if len(all) != 1 {
		t.Errorf("%d files are there; uploads that failed left some", len(all))
	}
}

// TestRevokedUpload has the access of somebody end while their file is on its way, which then comes no further.
func TestRevokedUpload(t *testing.T) {
	for name, head := range map[string]form{"purpose first": {"purpose", "", "assistants", "file", "a.txt", "begin"}, "file first": {"file", "a.txt", "begin"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			whole, kind := head.encode(t)
			text, err := io.ReadAll(whole)
			if err != nil {
				t.Fatal(err)
			}
			out, in := io.Pipe()
			go in.Write(text[:bytes.Index(text, []byte("begin"))+5]) // the rest never comes
			defer in.Close()
			q, err := http.NewRequestWithContext(t.Context(), "POST", w.server.URL+"/v1/files", out)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "eve")
			q.Header.Set("Content-Type", kind)
			go func() {
				cancel := <-w.cut
				cancel(refused{&wire.Error{Status: 401, Type: "authentication_error", Code: "revoked_api_key", Message: "the key has been revoked"}})
			}()
			a, err := w.server.Client().Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			if raw, err := io.ReadAll(a.Body); err != nil || a.StatusCode != 401 || !bytes.Contains(raw, []byte("revoked_api_key")) {
				t.Errorf("%d %s %v", a.StatusCode, raw, err)
			}
			if status := <-w.ended; status != 401 {
				t.Errorf("ended with %d", status)
			}
			if left, err := os.ReadDir(w.temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v %v", left, err)
			}
		})
	}
}

// TestUploadsLeaveRoom uploads to a disk that is nearly full, and reads what is there.
func TestUploadsLeaveRoom(t *testing.T) {
	w := newWorld(t)
	f := w.upload("ann", "a.txt", "roses")
	w.space.Store(255 << 20)
	for _, body := range []form{{"purpose", "", "assistants", "file", "b.txt", "x"}, {"file", "b.txt", "x", "purpose", "", "assistants"}} {
		if status, o := w.do("ann", "POST", "/v1/files", body); status != 507 || o["error"].(object)["code"] != "disk_full" {
			t.Errorf("%d %v", status, o)
		}
	}
	if o := w.ok("ann", "GET", "/v1/files", nil); len(o["data"].([]any)) != 1 {
		t.Errorf("%v", o)
	}
	w.ok("ann", "DELETE", "/v1/files/"+f, nil)
	w.space.Store(256 << 20)
	w.upload("ann", "b.txt", "x")
}

// TestFullDisk tells a disk that takes no more from a form that is broken.
func TestFullDisk(t *testing.T) {
	for _, c := range []struct {
		err  error
		full bool
	}{
		{&fs.PathError{Op: "write", Path: "/state/upload-1", Err: syscall.ENOSPC}, true},
		{&fs.PathError{Op: "open", Path: "/state/upload-1", Err: syscall.EDQUOT}, true},
		{&fs.PathError{Op: "write", Path: "/state/upload-1", Err: syscall.EIO}, false},
		{errors.New("multipart: boundary"), false},
	} {
		if got := errors.Is(shelf.DiskError(c.err), documents.ErrFull); got != c.full {
			t.Errorf("%v: full %v", c.err, got)
		}
	}
	var e *wire.Error
	if err := shelf.DiskError(&fs.PathError{Op: "write", Path: "/state/upload-1", Err: syscall.EIO}); errors.As(err, &e) {
		t.Errorf("a disk that fails is told to the client as %v", e)
	}
}

type refused struct{ e *wire.Error }

func (r refused) Error() string     { return r.e.Message }
func (r refused) Wire() *wire.Error { return r.e }

func TestAttachments(t *testing.T) {
	w := newWorld(t)
	s := w.ok("ann", "POST", "/v1/vector_stores", object{})["id"].(string)
	good, bad := w.upload("ann", "a.txt", "some text"), w.upload("ann", "b.pdf", "\x00\x01\x02")
	a := w.ok("ann", "POST", "/v1/vector_stores/"+s+"/files", object{"file_id": good, "attributes": object{"year": 2026, "kind": "note"},
		"chunking_strategy": object{"type": "static", "static": object{"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 10}}})
	if a["status"] != "in_progress" || a["object"] != "vector_store.file" || a["attributes"].(object)["year"] != 2026.0 {
		t.Errorf("%v", a)
	}
	w.ok("ann", "POST", "/v1/vector_stores/"+s+"/files", object{"file_id": bad})
	w.settled("ann", s)
	b := w.ok("ann", "GET", "/v1/vector_stores/"+s+"/files/"+bad, nil)
	if b["status"] != "failed" || b["last_error"].(object)["message"] == "" {
		t.Errorf("%v", b)
	}
	if again := w.ok("ann", "POST", "/v1/vector_stores/"+s+"/files", object{"file_id": good}); again["status"] != "completed" {
		t.Errorf("attached twice: %v", again)
	}
	if again := w.ok("ann", "POST", "/v1/vector_stores/"+s+"/files", object{"file_id": bad}); again["status"] != "in_progress" && again["status"] != "failed" {
		t.Errorf("a failed one again: %v", again)
	}
	w.settled("ann", s)
	l := w.ok("ann", "GET", "/v1/vector_stores/"+s+"/files?filter=failed", nil)
	if len(l["data"].([]any)) != 1 || l["first_id"] != bad {
		t.Errorf("%v", l)
	}
	if o := w.ok("ann", "POST", "/v1/vector_stores/"+s+"/files/"+good, object{"attributes": object{"x": true}}); o["attributes"].(object)["x"] != true {
		t.Errorf("%v", o)
	}
	w.ok("ann", "DELETE", "/v1/vector_stores/"+s+"/files/"+good, nil)
	w.ok("ann", "GET", "/v1/files/"+good, nil)
}

func TestBatches(t *testing.T) {
	w := newWorld(t)
	s := w.ok("ann", "POST", "/v1/vector_stores", object{})["id"].(string)
	var ids []string
	for i := range 5 {
		ids = append(ids, w.upload("ann", fmt.Sprint(i, ".txt"), fmt.Sprint("text ", i)))
	}
	if status, _ := w.do("ann", "POST", "/v1/vector_stores/"+s+"/file_batches", object{"file_ids": []string{ids[0], "file-none"}}); status != 404 {
		t.Errorf("a batch with a file that is not there: %d", status)
	}
	if o := w.ok("ann", "GET", "/v1/vector_stores/"+s, nil); o["file_counts"].(object)["total"] != 0.0 {
		t.Errorf("half of a batch stayed: %v", o)
	}
	b := w.ok("ann", "POST", "/v1/vector_stores/"+s+"/file_batches", object{"file_ids": ids[:3]})
	if b["object"] != "vector_store.files_batch" || b["file_counts"].(object)["total"] != 3.0 {
		t.Errorf("%v", b)
	}
	c := w.ok("ann", "POST", "/v1/vector_stores/"+s+"/file_batches", object{"files": []object{{"file_id": ids[3], "attributes": object{"n": 3}}, {"file_id": ids[4]}}})
	w.settled("ann", s)
	if o := w.ok("ann", "GET", "/v1/vector_stores/"+s+"/file_batches/"+c["id"].(string), nil); o["status"] != "completed" || o["file_counts"].(object)["completed"] != 2.0 {
		t.Errorf("%v", o)
	}
	if l := w.ok("ann", "GET", "/v1/vector_stores/"+s+"/file_batches/"+c["id"].(string)+"/files?order=asc", nil); l["data"].([]any)[0].(object)["attributes"].(object)["n"] != 3.0 {
		t.Errorf("%v", l)
	}
	w.ok("ann", "POST", "/v1/vector_stores/"+s+"/file_batches/"+b["id"].(string)+"/cancel", nil)
	if status, _ := w.do("ann", "GET", "/v1/vector_stores/"+s+"/file_batches/vsfb_none", nil); status != 404 {
		t.Errorf("no such batch: %d", status)
	}
}

// TestNobodyElse walks every route with another person's ids, with a key that
// is limited to something else, and without any key.
func TestNobodyElse(t *testing.T) {
	w := newWorld(t)
	f := w.upload("ann", "a.txt", "secret words")
	s := w.ok("ann", "POST", "/v1/vector_stores", object{"file_ids": []string{f}})["id"].(string)
	b := w.ok("ann", "POST", "/v1/vector_stores/"+s+"/file_batches", object{"file_ids": []string{w.upload("ann", "b.txt", "x")}})["id"].(string)
	w.settled("ann", s)
	l, err := shelf.New(shelf.Config{Keeper: nopKeeper{}, Searcher: &search.Searcher{}, Wake: func() {}, Log: slog.New(slog.DiscardHandler),
		Enter: func(*http.Request, string) (context.Context, shelf.Visit, error) { return nil, shelf.Visit{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	routes := l.Routes()
	if len(routes) < 20 {
		t.Fatalf("only %d routes", len(routes))
	}
	for _, route := range routes {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{file}", f, "{store}", s, "{batch}", b).Replace(path)
		var body any
		switch {
		case strings.TrimPrefix(path, "/v1") == "/files" && method == "POST":
			body = form{"purpose", "", "assistants", "file", "x", "y"}
		case strings.HasSuffix(path, "/search"):
			body = object{"query": "secret"}
		case strings.HasSuffix(path, "/files") && method == "POST":
			body = object{"file_id": f}
		case strings.HasSuffix(path, "/file_batches"):
			body = object{"file_ids": []string{f}}
		}
		if status, o := w.do("", method, path, body); status != 401 {
			t.Errorf("%s by nobody: %d %v", route, status, o)
		}
		bare := strings.TrimPrefix(path, "/v1")
		general := bare == "/files" || bare == "/vector_stores"
		for _, as := range []string{"ben", "ann vs_other"} {
			status, o := w.do(as, method, path, body)
			raw := fmt.Sprint(o)
			switch {
			case general && method == "GET":
				if strings.Contains(raw, f) || strings.Contains(raw, s) {
					t.Errorf("%s shows %s to %s", route, raw, as)
				}
			case general:
			case status != 404 || strings.Contains(raw, "secret"):
				t.Errorf("%s by %s: %d %v", route, as, status, o)
			}
		}
	}
	w.ok("ann", "GET", "/v1/files/"+f, nil)
	w.ok("ann "+s, "GET", "/v1/files/"+f, nil) // the key is for this collection, and the file is in it
	if o := w.settled("ann", s); o["file_counts"].(object)["total"] != 2.0 {
		t.Errorf("somebody changed it: %v", o)
	}
}

type nopKeeper struct{ documents.Keeper }

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	s := w.ok("ann", "POST", "/v1/vector_stores", object{})["id"].(string)
	for _, test := range []struct {
		method, path string
		body         any
		want         int
	}{
		{"GET", "/v1/vector_stores?limit=0", nil, 400}, {"GET", "/v1/files?order=up", nil, 400}, {"PUT", "/v1/files", nil, 405},
		{"GET", "/v1/files/x/y/z", nil, 404}, {"POST", "/v1/vector_stores", `{"name": 3}`, 400}, {"POST", "/v1/vector_stores", `[`, 400},
		{"POST", "/v1/vector_stores", object{"expires_after": object{"anchor": "now", "days": 1}}, 400},
		{"POST", "/v1/vector_stores", object{"chunking_strategy": object{"type": "static", "static": object{"max_chunk_size_tokens": 3}}}, 400},
		{"POST", "/v1/vector_stores", object{"file_ids": []string{"file-none"}}, 404},
		{"POST", "/v1/vector_stores/" + s + "/search", object{"query": 3}, 400}, {"POST", "/v1/vector_stores/" + s + "/search", object{"query": ""}, 400},
		{"POST", "/v1/vector_stores/" + s + "/search", object{"query": "x", "max_num_results": 51}, 400},
		{"POST", "/v1/vector_stores/" + s + "/search", object{"query": "x", "filters": object{"type": "like"}}, 400},
		{"POST", "/v1/vector_stores/" + s + "/files", object{}, 400}, {"POST", "/v1/vector_stores/" + s + "/file_batches", object{}, 400},
		{"GET", "/v1/vector_stores/" + s + "/files?filter=odd", nil, 400},
		{"POST", "/v1/vector_stores", strings.Repeat(" ", 2<<20), 413},
	} {
		status, o := w.do("ann", test.method, test.path, test.body)
		e, _ := o["error"].(object)
		if status != test.want || e["message"] == nil || e["message"] == "" {
			t.Errorf("%s %s: %d %v, want %d", test.method, test.path, status, o, test.want)
		}
	}
	page := w.ok("ann", "POST", "/v1/vector_stores/"+s+"/search", object{"query": []string{"one", "two"}})
	if len(page["search_query"].([]any)) != 2 {
		t.Errorf("%v", page)
	}
}

func TestAnswersAndEnds(t *testing.T) {
	for path, want := range map[string]bool{"/v1/files": true, "/files/x": true, "/v1/vector_stores/a/b": true, "/v1/filesystem": false, "/v1/models": false, "/": false} {
		if shelf.Answers(path) != want {
			t.Errorf("Answers(%q) is %v", path, !want)
		}
	}
	w := newWorld(t)
	w.ok("ann", "GET", "/v1/files", nil)
	w.do("ann", "GET", "/files/none", nil)
	if a, b := <-w.ended, <-w.ended; a != 200 || b != 404 {
		t.Errorf("ended with %d and %d", a, b)
	}
}

// TestBrokenDownloadEnds hangs up in the middle of a file: the visit has an end all the same, or it would count as under
// way for ever.
func TestBrokenDownloadEnds(t *testing.T) {
	w := newWorld(t)
	f := w.upload("ann", "a.txt", strings.Repeat("x", 16<<20))
	<-w.ended
	ctx, hangUp := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", w.server.URL+"/v1/files/"+f+"/content", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "ann")
	answer, err := w.server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(answer.Body, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	hangUp()
	answer.Body.Close()
	select {
	case <-w.ended:
	case <-time.After(20 * time.Second):
		t.Error("the visit has no end")
	}
}

// TestLimitedLists lists what a limited key sees behind more than a page of what it does not.
func TestLimitedLists(t *testing.T) {
	w := newWorld(t)
	f := w.upload("ann", "a.txt", "words")
	s := w.ok("ann", "POST", "/v1/vector_stores", object{"file_ids": []string{f}})["id"].(string)
	for range 5 {
		w.upload("ann", "b.txt", "others")
		w.ok("ann", "POST", "/v1/vector_stores", object{})
	}
	for path, want := range map[string]string{"/v1/files": f, "/v1/vector_stores": s} {
		o := w.ok("ann "+s, "GET", path+"?limit=2", nil)
		if list := o["data"].([]any); len(list) != 1 || list[0].(object)["id"] != want || o["has_more"] != false {
			t.Errorf("%s: %v", path, o)
		}
		o = w.ok("ann", "GET", path+"?limit=2", nil)
		if list := o["data"].([]any); len(list) != 2 || o["has_more"] != true {
			t.Errorf("%s: %v", path, o)
		}
		seen := map[any]bool{}
		after := ""
		for more := true; more; {
			o := w.ok("ann", "GET", path+"?limit=2&after="+after, nil)
			for _, x := range o["data"].([]any) {
				seen[x.(object)["id"]] = true
			}
			if more = o["has_more"] == true; more {
				after = o["last_id"].(string)
			}
		}
		if len(seen) != 6 {
			t.Errorf("%s: %d are listed", path, len(seen))
		}
	}
}

func TestUnknownMode(t *testing.T) {
	w := newWorld(t)
	s := w.ok("ann", "POST", "/v1/vector_stores", object{})["id"].(string)
	if status, o := w.do("ann", "POST", "/v1/vector_stores/"+s+"/search", object{"query": "x", "search_mode": "guesses"}); status != 400 {
		t.Errorf("%d %v", status, o)
	}
}
