package catalog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/appliance/catalog"
	"onebit/appliance/egress"
	"onebit/engine/gguf"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

// sha is a hash in hex.
func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// model makes a GGUF file with about so many KiB of weights. Of a split model it is one part.
func model(t testing.TB, kib int, part, parts int) []byte {
	t.Helper()
	w := gguf.NewWriter()
	set := func(key string, v any) {
		if err := w.Set(key, v); err != nil {
			t.Fatal(err)
		}
	}
	set("general.architecture", "llama")
	if parts > 0 {
		set("split.no", uint16(part))
		set("split.count", uint16(parts))
		set("split.tensors.count", int32(parts))
	}
	data := make([]byte, kib<<10)
	for i := range data {
		data[i] = byte(i*i>>7) ^ byte(part)
	}
	if err := w.Add(fmt.Sprintf("blk.%d.ffn_up.weight", part), gguf.I8, []uint64{uint64(len(data))}, data); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// hub is a stand-in for a hub and for the server that it sends downloads to. Each request of a file takes the next
// fault of the list, while there are some.
type hub struct {
	t      *testing.T
	server *httptest.Server
	cdn    *httptest.Server

	mu      sync.Mutex
	files   map[string][]byte
	hashes  map[string]string // in place of the real ones
	noHash  bool
	etag    map[string]string
	faults  []string
	asked   []string // path and range of each request for a file
	headers []http.Header
	pauses  []time.Duration
	gated   string // the token that opens it
}

func newHub(t *testing.T, files map[string][]byte) *hub {
	t.Helper()
	h := &hub{t: t, files: files, hashes: map[string]string{}, etag: map[string]string{}}
	h.server = httptest.NewServer(http.HandlerFunc(h.serve))
	h.cdn = httptest.NewServer(http.HandlerFunc(h.deliver))
	t.Cleanup(h.server.Close)
	t.Cleanup(h.cdn.Close)
	return h
}

// reset forgets what was asked and takes new faults.
func (h *hub) reset(faults ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults, h.asked, h.pauses = faults, nil, nil
}

// change changes the stand-in.
func (h *hub) change(f func(h *hub)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(h)
}

// requests returns the path and the range of each request for a file so far.
func (h *hub) requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

// host is the address of a server for an allow-list.
func host(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// puller pulls from the stand-in into a fresh folder.
func (h *hub) puller() *catalog.Puller {
	h.t.Helper()
	cfg := egress.Config{Allow: []string{host(h.server), host(h.cdn)}}
	if h.gated != "" {
		cfg.Tokens = map[string]egress.Token{h.server.URL: egress.NewToken(h.gated)}
	}
	client, err := egress.New(cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(client.Close)
	return &catalog.Puller{
		Library: catalog.Library{Roots: []string{h.t.TempDir()}},
		Hub:     catalog.Hub{URL: h.server.URL, Client: client},
		Pip:     []string{"/nonexistent/pip"},
		Pause: func(ctx context.Context, d time.Duration) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.pauses = append(h.pauses, d)
			return ctx.Err()
		},
		Note: func(s string) { h.t.Log(s) },
	}
}

// serve is the hub: it describes repositories and sends downloads elsewhere.
func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gated != "" && r.Header.Get("Authorization") != "Bearer "+h.gated {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/models/o/r/revision/"); ok {
		if rest != "main" && rest != commit && rest != "v1" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		h.describe(w)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/o/r/resolve/")
	revision, name, _ := strings.Cut(rest, "/")
	b, there := h.files[name]
	if !ok || !there || revision == "gone" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if !h.noHash {
		w.Header().Set("X-Linked-Etag", strconv.Quote(h.hash(name)))
		w.Header().Set("X-Linked-Size", strconv.Itoa(len(b)))
	}
	w.Header().Set("X-Repo-Commit", commit)
	http.Redirect(w, r, h.cdn.URL+"/"+name+"?signature=secret", http.StatusFound)
}

func (h *hub) hash(name string) string {
	if s, ok := h.hashes[name]; ok {
		return s
	}
	return sha(h.files[name])
}

func (h *hub) describe(w io.Writer) {
	type lfs struct {
		SHA256 string `json:"sha256"`
		Size   int    `json:"size"`
	}
	type sibling struct {
		Path string `json:"rfilename"`
		Size int    `json:"size"`
		LFS  *lfs   `json:"lfs,omitempty"`
	}
	var all []sibling
	for name, b := range h.files {
		s := sibling{Path: name, Size: len(b)}
		if !h.noHash && strings.HasSuffix(name, ".gguf") {
			s.LFS = &lfs{h.hash(name), len(b)}
		}
		all = append(all, s)
	}
	json.NewEncoder(w).Encode(map[string]any{"id": "o/r", "sha": commit, "siblings": all})
}

// deliver is the server of files.
func (h *hub) deliver(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	name := strings.TrimPrefix(r.URL.Path, "/")
	h.asked = append(h.asked, name+" "+r.Header.Get("Range"))
	h.headers = append(h.headers, r.Header.Clone())
	fault := ""
	if len(h.faults) > 0 && r.Method == http.MethodGet {
		fault, h.faults = h.faults[0], h.faults[1:]
	}
	b, etag := h.files[name], h.etag[name]
	h.mu.Unlock()
	if etag == "" {
		etag = `"` + sha(b)[:16] + `"`
	}
	w.Header().Set("ETag", etag)
	kind, value, _ := strings.Cut(fault, "=")
	if !h.early(w, r, kind, value) {
		h.body(w, r, b, kind, value)
	}
}

// early does the faults that replace an answer.
func (h *hub) early(w http.ResponseWriter, r *http.Request, kind, value string) bool {
	switch kind {
	case "status":
		code, after, _ := strings.Cut(value, ",")
		n, _ := strconv.Atoi(code)
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(n)
	case "html":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, "<!DOCTYPE html><title>Sign in</title>")
	case "page": // the same without saying so
		w.Header().Set("Content-Type", "application/octet-stream")
		io.WriteString(w, "<!DOCTYPE html><title>Sign in</title>")
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		z.Write([]byte("GGUF and so on"))
		z.Close()
	case "loop":
		http.Redirect(w, r, r.URL.Path+"?again", http.StatusFound)
		h.mu.Lock()
		h.faults = append([]string{"loop"}, h.faults...)
		h.mu.Unlock()
	case "inward":
		http.Redirect(w, r, "http://127.0.0.1:1/secret", http.StatusFound)
	case "hangup":
		panic(http.ErrAbortHandler)
	default:
		return false
	}
	return true
}

// body sends a file, or the part that is asked for, as a fault has it.
func (h *hub) body(w http.ResponseWriter, r *http.Request, b []byte, kind, value string) {
	n, _ := strconv.Atoi(value)
	s, ranged := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if mark := r.Header.Get("If-Range"); ranged && kind != "norange" && (mark == "" || mark == w.Header().Get("ETag") || kind == "blind") {
		from, _ := strconv.Atoi(strings.TrimSuffix(s, "-"))
		if from >= len(b) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", len(b)))
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		at := from
		if kind == "lierange" {
			at++
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(b)-1, len(b)))
		b = b[from:]
	} else {
		ranged = false
	}
	switch kind {
	case "chunked", "cutchunked":
		w.(http.Flusher).Flush()
	case "longer":
		b = append(bytes.Clone(b), "and more"...)
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	case "shorter":
		b = b[:len(b)-n]
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	default:
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	}
	if ranged {
		w.WriteHeader(http.StatusPartialContent)
	}
	switch kind {
	case "cut", "cutchunked":
		w.Write(b[:min(n, len(b))])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	case "stall":
		w.Write(b[:min(n, len(b))])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case "drip":
		for i := range b {
			if _, err := w.Write(b[i : i+1]); err != nil || r.Context().Err() != nil {
				return
			}
			w.(http.Flusher).Flush()
			<-time.After(time.Millisecond)
		}
	default:
		w.Write(b)
	}
}
