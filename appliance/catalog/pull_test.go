package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/appliance/catalog"
)

// want is a reference that parses.
func want(t testing.TB, s string) catalog.Want {
	t.Helper()
	r, err := catalog.ParseReference(s)
	if err != nil {
		t.Fatal(err)
	}
	return catalog.Want{Reference: r}
}

// leftovers lists what is in the folders of a library that is no model's, record or lock.
func leftovers(t testing.TB, l catalog.Library) (out []string) {
	t.Helper()
	for _, root := range l.Roots {
		filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && (strings.HasSuffix(path, ".partial") || strings.HasSuffix(path, ".state") || strings.Contains(path, ".write-")) {
				out = append(out, filepath.Base(path))
			}
			return nil
		})
	}
	return out
}

// TestFaults pulls a file of 2 MiB from a hub that breaks in each of these ways.
func TestFaults(t *testing.T) {
	file := model(t, 2048, 0, 0)
	const weak = `W/"weak"`
	for _, c := range []struct {
		name   string
		faults []string
		set    func(h *hub)
		fails  string // a word of the error; "" when it succeeds in the end
		ranges string // of all requests, in order
		pauses []time.Duration
		keeps  bool // the partial file stays for the next run
	}{
		{name: "none", ranges: "-"},
		{name: "cut once", faults: []string{"cut=700000"}, ranges: "- 700000-", pauses: []time.Duration{time.Second}},
		{name: "cut again and again, further each time", faults: []string{"cut=300000", "cut=300000", "cut=300000", "cut=300000", "cut=300000", "cut=300000"},
			ranges: "- 300000- 600000- 900000- 1200000- 1500000- 1800000-"},
		{name: "cut at once, always", faults: slices.Repeat([]string{"hangup"}, 9), fails: "run again to resume", ranges: "- - - - - -",
			pauses: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second}},
		{name: "cut without a length", faults: []string{"cutchunked=700000"}, ranges: "- 700000-"},
		{name: "no length", faults: []string{"chunked"}, ranges: "-"},
		{name: "stall", faults: []string{"stall=700000"}, ranges: "- ~"},
		{name: "slow drip", faults: []string{"drip"}, ranges: "- ~"},
		{name: "longer than it should be", faults: []string{"longer"}, fails: "bytes, not", ranges: "-"},
		{name: "shorter than it should be", faults: []string{"shorter=5"}, fails: "bytes, not", ranges: "-"},
		{name: "429 with Retry-After", faults: []string{"status=429,7"}, ranges: "- -", pauses: []time.Duration{7 * time.Second}},
		{name: "429 for a day", faults: []string{"status=429,86400"}, fails: "asked again in 24h", ranges: "-"},
		{name: "5xx twice", faults: []string{"status=500", "status=503"}, ranges: "- - -", pauses: []time.Duration{time.Second, 2 * time.Second}},
		{name: "5xx always", faults: slices.Repeat([]string{"status=502"}, 9), fails: "502", ranges: "- - - - - -"},
		{name: "forbidden", faults: []string{"status=403"}, fails: "--token-file", ranges: "-"},
		{name: "ranges ignored", faults: []string{"cut=700000", "norange"}, ranges: "- 700000-"},
		{name: "another range than asked", faults: []string{"cut=700000", "lierange"}, fails: "it sent", ranges: "- 700000-", keeps: true},
		{name: "redirect loop", faults: []string{"loop"}, fails: "redirects", ranges: "~"},
		{name: "redirect inward", faults: []string{"inward"}, fails: "refused", ranges: "-"},
		{name: "a page in place of the file", faults: []string{"html"}, fails: "a page for people", ranges: "-"},
		{name: "a page that does not say so", faults: []string{"page"}, fails: "bytes, not", ranges: "-"},
		{name: "packed", faults: []string{"gzip"}, fails: "packed as", ranges: "-"},
		{name: "wrong hash", set: func(h *hub) { h.hashes["m.gguf"] = strings.Repeat("ab", 32) }, fails: "it was removed", ranges: "-"},
		{name: "weak mark", faults: []string{"cut=700000"}, set: func(h *hub) { h.etag["m.gguf"] = weak }, ranges: "- 700000-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t, map[string][]byte{"m.gguf": file})
			h.reset(c.faults...)
			if c.set != nil {
				h.change(c.set)
			}
			p := h.puller()
			if c.name == "stall" || c.name == "slow drip" {
				p.Window = 100 * time.Millisecond
			}
			m, err := p.Pull(t.Context(), want(t, "o/r"))
			if (err == nil) != (c.fails == "") || (err != nil && !strings.Contains(err.Error(), c.fails)) {
				t.Fatalf("error %v, want %q", err, c.fails)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error shows a signed URL: %v", err)
			}
			got := ""
			for _, a := range h.requests() {
				r, ok := strings.CutPrefix(strings.TrimPrefix(a, "m.gguf "), "bytes=")
				if !ok {
					r = "-"
				}
				got += r + " "
			}
			if !strings.Contains(c.ranges, "~") && got != c.ranges+" " {
				t.Errorf("asked for %q, want %q", got, c.ranges)
			}
			if c.pauses != nil && !slices.Equal(h.pauses, c.pauses) {
				t.Errorf("paused %v, want %v", h.pauses, c.pauses)
			}
			models, errs := p.Library.Models()
			if err != nil {
				if len(models) > 0 || (len(leftovers(t, p.Library)) > 0) != c.keeps {
					t.Errorf("there are %v and %v", models, leftovers(t, p.Library))
				}
				return
			}
			if b, err := os.ReadFile(m.Path()); err != nil || !bytes.Equal(b, file) {
				t.Errorf("the file differs: %v", err)
			}
			if len(models) != 1 || errs != nil || models[0].Name != "m" || models[0].Source != "o/r@"+commit || models[0].Files[0].SHA256 != sha(file) {
				t.Errorf("models %+v, errors %v", models, errs)
			}
			if left := leftovers(t, p.Library); left != nil {
				t.Errorf("left over: %v", left)
			}
			if err := p.Library.Verify(t.Context(), m, nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestResume breaks a pull off and begins it again, while the hub changes or does not.
func TestResume(t *testing.T) {
	first, second := model(t, 2048, 0, 0), model(t, 2048, 1, 0)
	begin := func(t *testing.T, h *hub, p *catalog.Puller, s string) {
		t.Helper()
		h.reset(slices.Concat([]string{"cut=700000"}, slices.Repeat([]string{"hangup"}, 9))...)
		if _, err := p.Pull(t.Context(), want(t, s)); err == nil {
			t.Fatal("a broken pull came to its end")
		}
		h.reset()
	}
	for _, source := range []string{"o/r", "URL"} {
		for _, c := range []struct {
			name   string
			change func(h *hub)
			faults []string
			ranges string
			file   []byte
		}{
			{"the same", func(*hub) {}, nil, "700000-", first},
			{"another file", func(h *hub) { h.files["m.gguf"] = second }, nil, "~", second},
			{"another file, and the mark is not looked at", func(h *hub) { h.files["m.gguf"] = second }, []string{"blind"}, "~", second},
			{"another file under the same mark", func(h *hub) { h.files["m.gguf"] = second; h.etag["m.gguf"] = `"same"` }, nil, "~", second},
			{"a shorter file", func(h *hub) { h.files["m.gguf"] = second[:len(second)/4]; h.files["m.gguf"] = model(t, 100, 1, 0) }, nil, "~", model(t, 100, 1, 0)},
		} {
			t.Run(source+" "+c.name, func(t *testing.T) {
				h := newHub(t, map[string][]byte{"m.gguf": first})
				if c.name == "another file under the same mark" {
					h.etag["m.gguf"] = `"same"`
				}
				p := h.puller()
				s := source
				if source == "URL" {
					s = h.server.URL + "/o/r/resolve/main/m.gguf?signature=secret"
				}
				begin(t, h, p, s)
				h.change(c.change)
				h.reset(c.faults...)
				m, err := p.Pull(t.Context(), want(t, s))
				if err != nil {
					t.Fatal(err)
				}
				if b, err := os.ReadFile(m.Path()); err != nil || !bytes.Equal(b, c.file) {
					t.Errorf("the file differs: %v", err)
				}
				if c.ranges != "~" && (len(h.requests()) != 1 || h.requests()[0] != "m.gguf bytes="+c.ranges) {
					t.Errorf("asked for %q", h.requests())
				}
				if strings.Contains(m.Source, "secret") {
					t.Errorf("the record shows a signed URL: %s", m.Source)
				}
			})
		}
	}
}

// TestStateIsLost resumes where the state file is gone, damaged, or speaks of bytes that are not there.
func TestStateIsLost(t *testing.T) {
	file := model(t, 2048, 0, 0)
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, partial string)
		asked string
	}{
		{"gone", func(t *testing.T, partial string) { os.Remove(partial + ".state") }, "m.gguf bytes=700000-"},
		{"damaged", func(t *testing.T, partial string) { os.WriteFile(partial+".state", []byte("{"), 0o600) }, "m.gguf bytes=700000-"},
		{"another program's", func(t *testing.T, partial string) {
			os.WriteFile(partial+".state", []byte(`{"url":"x","offset":700000,"hash":"AAAA"}`), 0o600)
		}, "m.gguf bytes=700000-"},
		{"ahead of the file", func(t *testing.T, partial string) { os.Truncate(partial, 600_000) }, "m.gguf "},
		{"the file has been spoilt", func(t *testing.T, partial string) {
			f, err := os.OpenFile(partial, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			f.WriteAt([]byte("spoilt"), 1000)
			f.Close()
			os.Remove(partial + ".state")
		}, "m.gguf bytes=700000-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t, map[string][]byte{"m.gguf": file})
			p := h.puller()
			h.reset(slices.Concat([]string{"cut=700000"}, slices.Repeat([]string{"hangup"}, 9))...)
			if _, err := p.Pull(t.Context(), want(t, "o/r")); err == nil {
				t.Fatal("a broken pull came to its end")
			}
			h.reset()
			c.spoil(t, filepath.Join(p.Library.Roots[0], sha(file)[:12], "m.gguf.partial"))
			m, err := p.Pull(t.Context(), want(t, "o/r"))
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := os.ReadFile(m.Path()); !bytes.Equal(b, file) || h.requests()[0] != c.asked {
				t.Errorf("asked for %q; the file is right: %v", h.requests(), bytes.Equal(b, file))
			}
		})
	}
}

func TestCancelKeepsThePartialFile(t *testing.T) {
	h := newHub(t, map[string][]byte{"m.gguf": model(t, 2048, 0, 0)})
	h.reset("stall=700000")
	p := h.puller()
	ctx, cancel := context.WithCancelCause(t.Context())
	p.Progress = func(_ string, done, _ int64) {
		if done == 700000 {
			cancel(errors.New("enough"))
		}
	}
	if _, err := p.Pull(ctx, want(t, "o/r")); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Fatalf("error %v", err)
	}
	if left := leftovers(t, p.Library); !slices.Equal(left, []string{"m.gguf.partial", "m.gguf.partial.state"}) {
		t.Errorf("left over: %v", left)
	}
	p.Progress = nil
	if _, err := p.Pull(t.Context(), want(t, "o/r")); err != nil || h.requests()[len(h.requests())-1] != "m.gguf bytes=700000-" {
		t.Errorf("error %v, asked for %q", err, h.requests())
	}
}

func TestToken(t *testing.T) {
	h := newHub(t, map[string][]byte{"m.gguf": model(t, 16, 0, 0)})
	h.gated = "hf_canary"
	p := h.puller()
	if _, err := p.Pull(t.Context(), want(t, "o/r@v1")); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	headers := h.headers
	h.mu.Unlock()
	for _, head := range headers {
		if a := head.Get("Authorization"); a != "" {
			t.Errorf("another host got %q", a)
		}
	}
	h.change(func(h *hub) { h.gated = "another" })
	if _, err := p.Pull(t.Context(), want(t, "o/r@"+commit)); err == nil || !strings.Contains(err.Error(), "HF_TOKEN") || strings.Contains(err.Error(), "canary") {
		t.Errorf("error %v", err)
	}
}

func TestNoRoom(t *testing.T) {
	h := newHub(t, map[string][]byte{"m.gguf": model(t, 2048, 0, 0)})
	p := h.puller()
	p.Space = func(string) (uint64, error) { return 1e6, nil }
	_, err := p.Pull(t.Context(), want(t, "o/r"))
	space, ok := errors.AsType[*catalog.SpaceError](err)
	if !ok || space.Free != 1e6 || space.Need < 2<<20 || len(h.requests()) != 0 {
		t.Errorf("error %v, asked for %q", err, h.requests())
	}
	p.Space = func(string) (uint64, error) { return 1e12, nil }
	if _, err := p.Pull(t.Context(), want(t, "o/r")); err != nil {
		t.Error(err)
	}
}

func TestShards(t *testing.T) {
	parts := map[string][]byte{"README.md": []byte("read me"), "mmproj-F16.gguf": model(t, 8, 0, 0)}
	for i, name := range []string{"UD-Q4_K_XL/big-UD-Q4_K_XL-00001-of-00003.gguf", "UD-Q4_K_XL/big-UD-Q4_K_XL-00002-of-00003.gguf", "UD-Q4_K_XL/big-UD-Q4_K_XL-00003-of-00003.gguf"} {
		parts[name] = model(t, 300, i, 3)
	}
	for _, c := range []struct{ name, ref, include, file string }{
		{"by quantisation", "o/r:UD-Q4_K_XL", "", "big-UD-Q4_K_XL-00001-of-00003.gguf"},
		{"by default", "o/r", "", "big-UD-Q4_K_XL-00001-of-00003.gguf"},
		{"by pattern", "o/r", "UD-Q4_K_XL/*", "UD-Q4_K_XL/big-UD-Q4_K_XL-00001-of-00003.gguf"},
		{"by URL of a part", "URL", "", "big-UD-Q4_K_XL-00001-of-00003.gguf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t, parts)
			h.reset("", "cut=100000")
			p := h.puller()
			if c.ref == "URL" {
				c.ref = h.server.URL + "/o/r/resolve/main/UD-Q4_K_XL/big-UD-Q4_K_XL-00002-of-00003.gguf"
			}
			w := want(t, c.ref)
			w.Include = c.include
			m, err := p.Pull(t.Context(), w)
			if err != nil {
				t.Fatal(err)
			}
			if m.Name != "big-UD-Q4_K_XL" || len(m.Files) != 3 || m.Files[0].Path != c.file {
				t.Errorf("%+v", m)
			}
			if err := p.Library.Verify(t.Context(), m, nil); err != nil {
				t.Error(err)
			}
			asked := len(h.requests())
			if again, err := p.Pull(t.Context(), w); err != nil || again.Path() != m.Path() || len(h.requests()) != asked {
				t.Errorf("a second pull: %v, asked for %q", err, h.requests()[asked:])
			}
		})
	}
	t.Run("shards that do not belong together", func(t *testing.T) {
		wrong := map[string][]byte{"a-00001-of-00002.gguf": model(t, 8, 0, 2), "a-00002-of-00002.gguf": model(t, 8, 0, 2)}
		p := newHub(t, wrong).puller()
		if _, err := p.Pull(t.Context(), want(t, "o/r")); !errors.Is(err, catalog.ErrDamaged) {
			t.Errorf("error %v", err)
		}
		if models, _ := p.Library.Models(); len(models) != 0 {
			t.Errorf("there are %+v", models)
		}
	})
}

// TestHeaderIsChecked: bytes that have the right hash, and are no model all the same.
func TestHeaderIsChecked(t *testing.T) {
	bad := append([]byte("GGUF\x03\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"), make([]byte, 1000)...)
	p := newHub(t, map[string][]byte{"m.gguf": bad}).puller()
	if _, err := p.Pull(t.Context(), want(t, "o/r")); !errors.Is(err, catalog.ErrDamaged) {
		t.Errorf("error %v", err)
	}
	if models, _ := p.Library.Models(); len(models) != 0 || leftovers(t, p.Library) != nil {
		t.Errorf("there are %+v, %v", models, leftovers(t, p.Library))
	}
	other := newHub(t, map[string][]byte{"m.gguf": []byte("this is not a model")})
	if _, err := other.puller().Pull(t.Context(), want(t, "o/r")); err == nil || !strings.Contains(err.Error(), "no GGUF file: it begins with") {
		t.Errorf("error %v", err)
	}
}

func TestURL(t *testing.T) {
	file := model(t, 300, 0, 0)
	h := newHub(t, map[string][]byte{"m.gguf": file})
	h.noHash = true
	p := h.puller()
	w := want(t, h.cdn.URL+"/m.gguf?signature=secret")
	w.Name = "mine"
	w.SHA256 = strings.Repeat("00", 32)
	if _, err := p.Pull(t.Context(), w); !errors.Is(err, catalog.ErrDamaged) {
		t.Errorf("a wrong hash: %v", err)
	}
	w.SHA256 = ""
	m, err := p.Pull(t.Context(), w)
	if err != nil || m.Name != "mine" || m.Files[0].SHA256 != sha(file) || m.Source != h.cdn.URL+"/m.gguf" {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{"http://169.254.169.254/latest/m.gguf", "http://127.0.0.1:1/m.gguf", "https://10.1.2.3/m.gguf", "ftp://example.com/m.gguf"} {
		if _, err := p.Pull(t.Context(), want(t, bad)); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestBusy(t *testing.T) {
	h := newHub(t, map[string][]byte{"m.gguf": model(t, 2048, 0, 0)})
	h.reset("stall=700000")
	p := h.puller()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var second error
	p.Progress = func(_ string, done, _ int64) {
		if done == 700000 {
			other := *p
			other.Progress = nil
			_, second = other.Pull(t.Context(), want(t, "o/r"))
			cancel()
		}
	}
	p.Pull(ctx, want(t, "o/r"))
	if second == nil || !strings.Contains(second.Error(), "another pull is at work") {
		t.Errorf("a second pull beside the first: %v", second)
	}
}
