// Package e2e_test drives the built program from outside, and holds the house's rules about imports.
package e2e_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "onebit"

// floors gives each package its floor inside its top-level folder; a package imports only from lower floors of its own
// folder. A new package must be entered here.
var floors = map[string]int{
	"engine":                 0,
	"engine/gguf":            0,
	"engine/conduit":         0,
	"engine/h1":              0,
	"engine/sandbox":         0,
	"engine/scan":            0,
	"engine/tensor":          0,
	"engine/gguf/synth":      1,
	"engine/wire":            1,
	"engine/wire/responses":  2,
	"engine/wire/prefix":     2,
	"engine/wire/messages":   3,
	"engine/recipe":          1,
	"engine/plan":            1,
	"engine/tokenizer":       1,
	"engine/chat/template":   0,
	"engine/chat":            1,
	"engine/grammar":         1,
	"engine/model":           1,
	"engine/batch":           2,
	"engine/door":            2,
	"engine/runner":          3,
	"engine/backend":         2,
	"engine/conversion":      2,
	"engine/keeper":          3,
	"engine/backendtest":     3,
	"store/archive":          0,
	"store":                  1,
	"store/documents/vector": 0,
	"store/documents/words":  0,

	"store/documents/extract":          0,
	"store/sqlite":                     0,
	"store/documents":                  2,
	"store/documents/keepertest":       3,
	"store/documents/ingest":           3,
	"store/documents/postgres":         3,
	"store/documents/migration":        4,
	"store/documents/ragbench":         5,
	"store/documents/ragbench/corpus":  0,
	"store/documents/ragbench/quality": 5,
	"store/documents/search":           4,
	"store/documents/local":            3,
	"store/documents/chunk":            1,
	"appliance/egress":                 0,
	"appliance/cite":                   0,
	"appliance/queue":                  0,
	"appliance/folder":                 0,
	"appliance/record":                 0,
	"appliance/package/oci":            0,
	"appliance/catalog":                1,
	"appliance/pool":                   1,
	"appliance/remote":                 1,
	"appliance/promptcache":            1,
	"appliance/telemetry":              1,
	"appliance/program":                1,
	"appliance/config":                 0,
	"appliance/edge":                   1,
	"appliance/trust":                  2,
	"appliance/doctor":                 1,
	"appliance/bench":                  1,
	"appliance/route":                  1,
	"appliance/gateway":                2,
	"appliance/auth":                   1,
	"appliance/shelf":                  2,
	"appliance/admin":                  2,
	"appliance":                        3,

	"e2e/rig": 0,

	"extensions/abi":           0,
	"extensions/wasm":          0,
	"extensions/conversation":  0,
	"extensions/module":        1,
	"extensions/wasm/wasmtest": 1,
	"extensions/payload":       1,
	"extensions/meter":         2,
	"extensions/host":          3,
	"extensions/guest":         0,
	"extensions/guest/go":      0,
	"extensions/laya":          0,
	"extensions/laya/built":    0,
	"extensions/laya/train":    1,
	"extensions/laya/guest":    1,
	"extensions/laya/scorer":   2,
	"extensions/policy/guest":  0,
	"extensions/policy":        2,
	"extensions/tck":           4,
	"extensions/worker":        4,
	"extensions":               5,
}

// arrows lists which top-level folder may import which others.
var arrows = map[string][]string{
	"appliance":  {"engine", "extensions", "store", "web", "firmware"},
	"extensions": {"engine"},
	"engine":     {}, "store": {}, "web": {}, "firmware": {}, "e2e": {},
}

// doors lists third-party modules that may enter through one folder only.
var doors = map[string][]string{
	"github.com/tetratelabs/wazero":    {"extensions", "store/documents"},
	"modernc.org/sqlite":               {"store"},
	"filippo.io/age":                   {"store"},
	"github.com/quic-go/quic-go":       {"appliance/edge", "e2e/benchedge"},
	"github.com/caddyserver/certmagic": {"appliance/edge"},
	"github.com/brutella/dnssd":        {"appliance/edge"},
	"github.com/libdns":                {"appliance/edge"},
	"github.com/miekg/dns":             {"appliance/edge", "appliance/egress"},
	"github.com/go-webauthn/webauthn":  {"appliance/auth"},
	"aead.dev/minisign":                {"extensions"},
	"github.com/landlock-lsm":          {"engine/sandbox"},
	"github.com/elastic":               {"engine/sandbox"},
	"github.com/ardanlabs/jinja":       {"engine/chat"},
	"github.com/prometheus":            {"appliance/telemetry"},
	"go.opentelemetry.io":              {"appliance/telemetry"},
	"google.golang.org/protobuf":       {"appliance/telemetry"},
	"github.com/jackc/pgx":             {"store/documents/postgres"},
	"github.com/klippa-app":            {"store/documents/extract"},
	"github.com/xuri":                  {"store/documents/extract"},
	"github.com/yuin":                  {"store/documents/extract"},
}

// source is one parsed Go file.
type source struct {
	dir, file string // relative to the root, with slashes
	pkg       string
	comment   bool // has a package comment
	test      bool
	imports   []string
}

// sources parses every Go file below root.
func sources(t *testing.T, root string) []source {
	t.Helper()
	var all []source
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "bin" || name == "dist") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		f, err := parser.ParseFile(set, p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		all = append(all, read(f, filepath.ToSlash(rel)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(f *ast.File, rel string) source {
	s := source{dir: path.Dir(rel), file: rel, pkg: f.Name.Name, test: strings.HasSuffix(rel, "_test.go")}
	s.comment = f.Doc != nil && !strings.HasPrefix(f.Doc.Text(), "Code generated")
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err == nil {
			s.imports = append(s.imports, p)
		}
	}
	return s
}

func top(dir string) string {
	first, _, _ := strings.Cut(dir, "/")
	return first
}

// generator tells a build-time program, which nothing can import.
func generator(s source) bool { return s.pkg == "main" && s.dir != "appliance" }

// violations returns every broken rule in words.
func violations(all []source) []string {
	var bad []string
	add := func(s source, why string) { bad = append(bad, s.file+": "+why) }
	for _, s := range all {
		if s.dir == "." {
			add(s, "no Go code at the root")
			continue
		}
		if _, ok := arrows[top(s.dir)]; !ok {
			add(s, "top-level folder "+top(s.dir)+" is not part of the house")
		}
		for _, i := range s.imports {
			for door, rooms := range doors {
				if (i == door || strings.HasPrefix(i, door+"/")) && !slices.ContainsFunc(rooms, func(r string) bool { return s.dir == r || strings.HasPrefix(s.dir, r+"/") }) {
					add(s, i+" enters through "+strings.Join(rooms, ", ")+" only")
				}
			}
			if to, ok := strings.CutPrefix(i, module+"/"); ok {
				bad = append(bad, arrow(s, to)...)
			}
		}
	}
	return bad
}

// arrow checks one import of ours.
func arrow(s source, to string) (bad []string) {
	from, dest := top(s.dir), top(to)
	if from != dest {
		if !slices.Contains(arrows[from], dest) {
			bad = append(bad, s.file+": "+from+" must not import "+to)
		}
		return bad
	}
	if s.test || generator(s) {
		return nil // a test may use its own floor: fakes and conformance kits
	}
	a, okA := floors[s.dir]
	b, okB := floors[to]
	switch {
	case !okA:
		bad = append(bad, s.file+": package "+s.dir+" has no floor; enter it in e2e/floors_test.go")
	case !okB:
		bad = append(bad, s.file+": package "+to+" has no floor; enter it in e2e/floors_test.go")
	case b >= a:
		bad = append(bad, s.file+": floor "+strconv.Itoa(a)+" must not import "+to+" on floor "+strconv.Itoa(b))
	}
	return bad
}

// comments returns the packages without exactly one package comment.
func comments(all []source) []string {
	count := map[string]int{}
	for _, s := range all {
		// an external test package speaks for itself only where no other package lives
		if s.test && s.dir != "e2e" {
			continue
		}
		if _, ok := count[s.dir]; !ok {
			count[s.dir] = 0
		}
		if s.comment {
			count[s.dir]++
		}
	}
	var bad []string
	for dir, n := range count {
		if n != 1 {
			bad = append(bad, dir+": has "+strconv.Itoa(n)+" package comments, not one")
		}
	}
	slices.Sort(bad)
	return bad
}

// cycles returns the import cycles among our packages' non-test files.
func cycles(all []source) []string {
	edges := map[string]map[string]bool{}
	for _, s := range all {
		if s.test {
			continue
		}
		for _, i := range s.imports {
			if to, ok := strings.CutPrefix(i, module+"/"); ok {
				if edges[s.dir] == nil {
					edges[s.dir] = map[string]bool{}
				}
				edges[s.dir][to] = true
			}
		}
	}
	var bad []string
	state := map[string]int{} // 1 on the way, 2 done
	var walk func(dir string, trail []string)
	walk = func(dir string, trail []string) {
		state[dir] = 1
		trail = append(trail, dir)
		for to := range edges[dir] {
			switch state[to] {
			case 0:
				walk(to, trail)
			case 1:
				bad = append(bad, "cycle: "+strings.Join(append(trail, to), " -> "))
			}
		}
		state[dir] = 2
	}
	for dir := range edges {
		if state[dir] == 0 {
			walk(dir, nil)
		}
	}
	return bad
}

func TestFloors(t *testing.T) {
	all := sources(t, "..")
	if len(all) < 20 {
		t.Fatalf("only %d files were read: the walk is broken", len(all))
	}
	for _, list := range [][]string{violations(all), comments(all), cycles(all)} {
		for _, v := range list {
			t.Error(v)
		}
	}
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		n := e.Name()
		if e.IsDir() && !strings.HasPrefix(n, ".") && arrows[n] == nil && n != "bin" && n != "dist" {
			t.Errorf("folder %s at the root is not part of the house", n)
		}
	}
}

// TestFloorsCanFail shows the rules at work on made-up files.
func TestFloorsCanFail(t *testing.T) {
	tests := []struct {
		name string
		s    source
		want string
	}{
		{"upward", source{dir: "engine/gguf", file: "engine/gguf/x.go", pkg: "gguf", imports: []string{"onebit/engine/model"}}, "floor 0 must not import"},
		{"same floor", source{dir: "engine/gguf", file: "engine/gguf/x.go", pkg: "gguf", imports: []string{"onebit/engine/tensor"}}, "floor 0 must not import"},
		{"into appliance", source{dir: "engine/model", file: "engine/model/x.go", pkg: "model", imports: []string{"onebit/appliance/config"}}, "engine must not import"},
		{"e2e imports ours", source{dir: "e2e", file: "e2e/x_test.go", pkg: "e2e_test", test: true, imports: []string{"onebit/engine"}}, "e2e must not import"},
		{"second door", source{dir: "engine/model", file: "engine/model/x.go", pkg: "model", imports: []string{"modernc.org/sqlite/vec"}}, "enters through store only"},
		{"unknown package", source{dir: "engine/new", file: "engine/new/x.go", pkg: "new", imports: []string{"onebit/engine"}}, "has no floor"},
		{"unknown folder", source{dir: "docs", file: "docs/x.go", pkg: "docs"}, "not part of the house"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := strings.Join(violations([]source{tt.s}), "\n")
			if !strings.Contains(got, tt.want) {
				t.Fatalf("got %q, want %q in it", got, tt.want)
			}
		})
	}
	loop := []source{
		{dir: "engine/a", file: "engine/a/a.go", imports: []string{"onebit/engine/b"}},
		{dir: "engine/b", file: "engine/b/b.go", imports: []string{"onebit/engine/a"}},
	}
	if len(cycles(loop)) == 0 {
		t.Error("a cycle was not seen")
	}
	if len(comments([]source{{dir: "engine/a", file: "engine/a/a.go"}})) == 0 {
		t.Error("a missing package comment was not seen")
	}
}
