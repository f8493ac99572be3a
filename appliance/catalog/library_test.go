package catalog_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/appliance/catalog"
)

func put(t testing.TB, path string, b []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// foreign makes the folders of three other programs below a home.
func foreign(t testing.TB, home string, file []byte) {
	t.Helper()
	ollama := filepath.Join(home, ".ollama", "models")
	put(t, filepath.Join(ollama, "blobs", "sha256-"+sha(file)), file)
	manifest := func(rel, digest string, size int) {
		put(t, filepath.Join(ollama, "manifests", "registry.ollama.ai", filepath.FromSlash(rel)),
			fmt.Appendf(nil, `{"layers":[{"mediaType":"application/vnd.ollama.image.license","digest":"sha256:00","size":1},{"mediaType":"application/vnd.ollama.image.model","digest":%q,"size":%d}]}`, digest, size))
	}
	manifest("library/tiny/latest", "sha256:"+sha(file), len(file))
	manifest("library/gone/7b", "sha256:"+strings.Repeat("0", 64), 7)
	manifest("library/evil/1b", "sha256:../../../../etc/passwd", 7)
	put(t, filepath.Join(ollama, "manifests", "registry.ollama.ai", "library", "torn", "1b"), []byte("{"))

	studio := filepath.Join(home, ".lmstudio", "models", "publisher", "repo-GGUF")
	put(t, filepath.Join(studio, "Studio-Q8_0.gguf"), file)
	put(t, filepath.Join(studio, "mmproj-F16.gguf"), file)
	put(t, filepath.Join(studio, "Half-00001-of-00002.gguf"), file)

	cache := filepath.Join(home, ".cache", "huggingface", "hub", "models--owner--name")
	put(t, filepath.Join(cache, "blobs", sha(file)), file)
	snapshot := filepath.Join(cache, "snapshots", commit)
	if err := os.MkdirAll(snapshot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("..", "..", "blobs", sha(file)), filepath.Join(snapshot, "Cached-Q4_0.gguf")); err != nil {
		t.Fatal(err)
	}
}

func TestPlaces(t *testing.T) {
	home, file := t.TempDir(), model(t, 64, 0, 0)
	foreign(t, home, file)
	drive := t.TempDir()
	for i := range 2 {
		put(t, filepath.Join(drive, "a", fmt.Sprintf("split-%05d-of-00002.gguf", i+1)), model(t, 8, i, 2))
	}
	env := map[string]string{}
	places := catalog.PlacesFromEnv(func(name string) string { return env[name] }, home)
	l := catalog.Library{Roots: []string{t.TempDir()}, Places: append(places, catalog.Place{Kind: catalog.Folder, Dir: drive})}
	models, errs := l.Models()
	if errs != nil {
		t.Error(errs)
	}
	got := ""
	for _, m := range models {
		got += fmt.Sprintf("%s %s %s %d %v\n", m.Kind, m.Name, m.Source, len(m.Files), m.Files[0].SHA256 == sha(file))
		if m.Ours() {
			t.Errorf("%s is ours", m.Name)
		}
		if err := l.Verify(t.Context(), m, nil); err != nil {
			t.Error(err)
		}
		if _, err := l.Remove(m.Name); err == nil || !strings.Contains(err.Error(), "remove it there") {
			t.Errorf("removing %s: %v", m.Name, err)
		}
	}
	want := `ollama tiny:latest library/tiny/latest 1 true
lm-studio Studio-Q8_0 publisher/repo-GGUF 1 false
hub-cache Cached-Q4_0 owner/name@` + commit + ` 1 true
folder split  2 false
`
	if got != want {
		t.Errorf("found\n%swant\n%s", got, want)
	}
	// a blob that is not what its name says
	put(t, filepath.Join(home, ".ollama", "models", "blobs", "sha256-"+sha(file)), model(t, 64, 1, 0))
	m, err := l.Find("tiny:latest")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(t.Context(), m, nil); !errors.Is(err, catalog.ErrDamaged) {
		t.Errorf("a wrong blob: %v", err)
	}
}

// TestPullInPlace: what another program has is not downloaded again, unless it is damaged.
func TestPullInPlace(t *testing.T) {
	home, file := t.TempDir(), model(t, 64, 0, 0)
	foreign(t, home, file)
	h := newHub(t, map[string][]byte{"m.gguf": file})
	p := h.puller()
	p.Library.Places = catalog.PlacesFromEnv(func(string) string { return "" }, home)
	m, err := p.Pull(t.Context(), want(t, "o/r"))
	if err != nil || m.Kind != catalog.Ollama || len(h.requests()) != 0 {
		t.Errorf("%+v, %v, asked for %q", m, err, h.requests())
	}
	for _, path := range []string{filepath.Join(home, ".ollama", "models", "blobs", "sha256-"+sha(file)), filepath.Join(home, ".cache", "huggingface", "hub", "models--owner--name", "blobs", sha(file))} {
		put(t, path, model(t, 64, 1, 0))
	}
	if m, err = p.Pull(t.Context(), want(t, "o/r")); err != nil || m.Kind != catalog.Pulled || len(h.requests()) != 1 {
		t.Errorf("%+v, %v, asked for %q", m, err, h.requests())
	}
}

func TestAddAndRemove(t *testing.T) {
	file := model(t, 64, 0, 0)
	l := catalog.Library{Roots: []string{t.TempDir(), t.TempDir()}}
	path := put(t, filepath.Join(t.TempDir(), "Some-Q8_0.gguf"), file)
	m, err := l.Add(t.Context(), path, "", nil)
	if err != nil || m.Name != "Some-Q8_0" || m.Path() != path || m.Files[0].SHA256 != sha(file) {
		t.Fatalf("%+v, %v", m, err)
	}
	if _, err := l.Add(t.Context(), path, "", nil); err == nil || !strings.Contains(err.Error(), "give another --name") {
		t.Errorf("a second of that name: %v", err)
	}
	for _, bad := range []string{"../x", "a/b", "", strings.Repeat("x", 200), "a\x00b", "."} {
		if bad == "" {
			continue
		}
		if _, err := l.Add(t.Context(), path, bad, nil); err == nil {
			t.Errorf("the name %q was taken", bad)
		}
		if _, err := l.Remove(bad); err == nil {
			t.Errorf("%q was removed", bad)
		}
	}
	if _, err := l.Add(t.Context(), put(t, filepath.Join(t.TempDir(), "bad.gguf"), []byte("GGUF")), "", nil); err == nil {
		t.Error("a file that is no model was taken in")
	}
	if found, err := l.Find("Some-Q8_0"); err != nil || found.Kind != catalog.Added {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := l.Remove("Some-Q8_0"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file itself went: %v", err)
	}
	if _, err := l.Find("Some-Q8_0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after it was removed: %v", err)
	}
	// on a second drive
	h := newHub(t, map[string][]byte{"m.gguf": file})
	p := h.puller()
	p.Library.Roots = []string{l.Roots[1], l.Roots[0]}
	pulled, err := p.Pull(t.Context(), want(t, "o/r"))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := l.Find("m"); err != nil || found.Path() != pulled.Path() {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := l.Remove("m"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(pulled.Path()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestReferences(t *testing.T) {
	for s, want := range map[string]catalog.Reference{
		"owner/name":               {Repo: "owner/name"},
		"owner/name:Q4_K_M":        {Repo: "owner/name", Quant: "Q4_K_M"},
		"owner/name@abc/def":       {Repo: "owner/name", Revision: "abc/def"},
		"owner/name:UD-Q4_K_XL@v1": {Repo: "owner/name", Quant: "UD-Q4_K_XL", Revision: "v1"},
		"https://example.com/a/b?": {URL: "https://example.com/a/b?"},
	} {
		if got, err := catalog.ParseReference(s); err != nil || got != want {
			t.Errorf("%q: %+v, %v", s, got, err)
		}
	}
	for _, bad := range []string{
		"", "name", "a/b/c", "../b", "a/..", "./b", "a/b:", "a/b@", "a/b@../x", "a/b:../x", "a b/c", "a/b\x00", "a/b%2e", "/etc/passwd", "~/x",
		"https://", "https://example.com", "https://example.com/", "://x/y", "a/b@v1:Q4?", "ä/b",
	} {
		if got, err := catalog.ParseReference(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

func TestChoose(t *testing.T) {
	files := func(names ...string) (out []catalog.RepoFile) {
		for _, n := range names {
			out = append(out, catalog.RepoFile{Path: n, Size: 1})
		}
		return out
	}
	many := files("README.md", "imatrix.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-UD-Q4_K_XL-00001-of-00002.gguf", "m-UD-Q4_K_XL-00002-of-00002.gguf", "mmproj-F16.gguf", "mtp-m-Q4_0.gguf")
	for _, c := range []struct {
		name           string
		files          []catalog.RepoFile
		quant, include string
		want           string // names, or a word of the error behind a !
	}{
		{"the usual one", many, "", "", "m-Q4_K_M.gguf"},
		{"named", many, "q8_0", "", "m-Q8_0.gguf"},
		{"all parts", many, "UD-Q4_K_XL", "", "m-UD-Q4_K_XL-00001-of-00002.gguf m-UD-Q4_K_XL-00002-of-00002.gguf"},
		{"not a part of a word", many, "K_M", "", "!none of its models is of K_M; it has: m-Q4_K_M, m-Q8_0, m-UD-Q4_K_XL"},
		{"absent", many, "Q2_K", "", "!it has: m-Q4_K_M"},
		{"a pattern, models first", many, "", "m*.gguf", "m-Q4_K_M.gguf m-Q8_0.gguf m-UD-Q4_K_XL-00001-of-00002.gguf m-UD-Q4_K_XL-00002-of-00002.gguf mmproj-F16.gguf mtp-m-Q4_0.gguf"},
		{"a companion by pattern", many, "", "mmproj*", "mmproj-F16.gguf"},
		{"a bad pattern", many, "", "[", "!no pattern"},
		{"a pattern for nothing", many, "", "x*", "!matches none"},
		{"the only one", files("odd-name.gguf", "README.md"), "", "", "odd-name.gguf"},
		{"which", files("a.gguf", "b.gguf"), "", "", "!which of its models"},
		{"two of one kind", files("a-Q4_K_M.gguf", "b-Q4_K_M.gguf"), "", "", "!several of its models"},
		{"none", files("model.safetensors"), "", "", "!no GGUF file"},
		{"a part is missing", files("m-00001-of-00003.gguf", "m-00003-of-00003.gguf"), "", "", "!2 of 3 parts"},
		{"a part twice", files("m-00001-of-00002.gguf", "m-00003-of-00002.gguf"), "", "", "!m-00002-of-00002.gguf is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := catalog.Choose(c.files, c.quant, c.include)
			var names []string
			for _, f := range got {
				names = append(names, f.Path)
			}
			wrong, fails := strings.CutPrefix(c.want, "!")
			if fails != (err != nil) || (fails && !strings.Contains(err.Error(), wrong)) || (!fails && strings.Join(names, " ") != c.want) {
				t.Errorf("got %v, %v, want %s", names, err, c.want)
			}
		})
	}
}

// FuzzAnswers holds what is read from hubs, other programs and our own folders to what it may be: no path leads
// elsewhere, no hash is none.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"sha":"0123456789abcdef","siblings":[{"rfilename":"a/b.gguf","size":7,"lfs":{"sha256":"` + strings.Repeat("ab", 32) + `","size":7}},{"rfilename":"../x"},{"rfilename":"model.json"}]}`))
	f.Add([]byte(`{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:` + strings.Repeat("ab", 32) + `","size":7}]}`))
	f.Add([]byte(`{"name":"x","files":[{"path":"a.gguf","size":1,"sha256":""}],"added":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"name":"x","files":[{"path":"/a.gguf"},{"path":"b"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		inside := func(p string) {
			if !filepath.IsLocal(filepath.FromSlash(p)) || strings.ContainsAny(p, "\\\x00") {
				t.Errorf("the path %q was taken", p)
			}
		}
		hash := func(s string) {
			if s != "" && (len(s) != 64 || strings.Trim(s, "0123456789abcdef") != "") {
				t.Errorf("the hash %q was taken", s)
			}
		}
		if r, err := catalog.ParseRepo(b); err == nil {
			for _, one := range r.Files {
				inside(one.Path)
				hash(one.SHA256)
			}
			if chosen, err := catalog.Choose(r.Files, "", ""); err == nil && len(chosen) == 0 {
				t.Error("nothing was chosen")
			}
		}
		if files, err := catalog.ParseManifest(b); err == nil {
			for _, one := range files {
				hash(one.SHA256)
			}
		}
		if m, err := catalog.ParseRecord(b); err == nil {
			for _, one := range m.Files {
				if !filepath.IsAbs(one.Path) {
					inside(one.Path)
				}
				hash(one.SHA256)
			}
			if catalog.CheckName(m.Name) != nil {
				t.Errorf("the name %q was taken", m.Name)
			}
		}
		if r, err := catalog.ParseReference(string(b)); err == nil && r.Repo != "" && strings.Contains(r.Repo, "..") {
			t.Errorf("the repository %q was taken", r.Repo)
		}
	})
}
