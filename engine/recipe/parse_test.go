package recipe_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/engine"
	"onebit/engine/recipe"
)

var update = flag.Bool("update", false, "write the committed seeds")

// one is a file with one recipe that has these keys besides its id and measurement.
func one(keys string) string {
	return `{"recipes":[{"id":"x","measured":"1 -> 2",` + keys + `}]}`
}

var wrong = []struct{ name, text, want string }{
	{"empty", ``, `not JSON`},
	{"not-json", `{"recipes":[}`, `not JSON`},
	{"a-list", `[]`, `a list is not an object`},
	{"trailing", `{"recipes":[]} {}`, `something follows`},
	{"cut", `{"recipes":[]`, `not JSON`},
	{"not-utf8", "{\"recipes\":[\"\xff\"]}", `not valid UTF-8`},
	{"no-recipes", `{}`, `recipes is missing`},
	{"unknown-top", `{"recipes":[],"version":1}`, `unknown key "version"`},
	{"recipes-object", `{"recipes":{}}`, `an object is not a list`},
	{"recipes-null", `{"recipes":null}`, `null is not a list`},
	{"recipes-twice", `{"recipes":[],"recipes":[]}`, `"recipes" stands there twice`},
	{"not-an-object", `{"recipes":[1]}`, `recipe 1: a number is not an object`},
	{"no-id", `{"recipes":[{"measured":"m","args":["-x"]}]}`, `recipe 1: the id is missing`},
	{"id-number", `{"recipes":[{"id":1,"measured":"m","args":["-x"]}]}`, `recipe 1: id: a number is not a text`},
	{"id-line-break", `{"recipes":[{"id":"a\nb","measured":"m","args":["-x"]}]}`, `cannot be printed`},
	{"duplicate", `{"recipes":[{"id":"x","measured":"m","args":["-x"]},{"id":"x","measured":"m","args":["-y"]}]}`, `recipe "x": there are two`},
	{"no-measurement", `{"recipes":[{"id":"x","args":["-x"]}]}`, `recipe "x": measured is missing`},
	{"empty-measurement", `{"recipes":[{"id":"x","measured":" ","args":["-x"]}]}`, `recipe "x": measured is missing or empty`},
	{"measurement-number", `{"recipes":[{"id":"x","measured":2,"args":["-x"]}]}`, `recipe "x": measured: a number`},
	{"unknown-key", one(`"args":["-x"],"arg":1`), `recipe "x": unknown key "arg"`},
	{"case-counts", one(`"Args":["-x"]`), `recipe "x": unknown key "Args"`},
	{"key-twice", one(`"args":["-x"],"args":["-y"]`), `"args" stands there twice`},
	{"nothing-added", one(`"why":"w"`), `recipe "x": it adds nothing`},
	{"empty-lists", one(`"args":[],"env":{},"warn":""`), `recipe "x": it adds nothing`},
	{"args-text", one(`"args":"-x"`), `recipe "x": args: a text is not a list`},
	{"args-number", one(`"args":["-x",1]`), `recipe "x": args: a number is not a text`},
	{"args-null", one(`"args":["-x",null]`), `recipe "x": args: null is not a text`},
	{"args-no-flag", one(`"args":["x","-y"]`), `recipe "x": args begins with "x"`},
	{"args-negative", one(`"args":["-1"]`), `recipe "x": args begins with "-1"`},
	{"args-dash", one(`"args":["-"]`), `recipe "x": args begins with "-"`},
	{"args-twice", one(`"args":["-ub","1","--ubatch-size","2"]`), `recipe "x": args sets one thing twice: -ub and --ubatch-size`},
	{"args-zero", one(`"args":["-x","a\u0000"]`), `recipe "x": args holds a zero`},
	{"env-list", one(`"env":["A=1"]`), `recipe "x": env: a list is not an object`},
	{"env-number", one(`"env":{"A":1}`), `recipe "x": env: A: a number is not a text`},
	{"env-name", one(`"env":{"A=B":"1"}`), `recipe "x": env: "A=B" is no name`},
	{"env-no-name", one(`"env":{"":"1"}`), `recipe "x": env: "" is no name`},
	{"env-zero", one(`"env":{"A":"\u0000"}`), `recipe "x": env: A: the value holds a zero`},
	{"env-twice", one(`"env":{"A":"1","A":"2"}`), `recipe "x": env: the key "A" stands there twice`},
	{"match-list", one(`"args":["-x"],"match":[]`), `recipe "x": match: a list is not an object`},
	{"match-unknown", one(`"args":["-x"],"match":{"devices":["hrx"]}`), `recipe "x": match: unknown key "devices"`},
	{"match-device", one(`"args":["-x"],"match":{"device":"hrx"}`), `recipe "x": match: device: a text is not a list`},
	{"match-device-unknown", one(`"args":["-x"],"match":{"device":["cuda"]}`), `recipe "x": match: device: "cuda" is not one of`},
	{"match-device-auto", one(`"args":["-x"],"match":{"device":["auto"]}`), `recipe "x": match: device: "auto" is not one of`},
	{"match-empty-list", one(`"args":["-x"],"match":{"architecture":[]}`), `recipe "x": match: architecture: the list is empty`},
	{"match-drafter", one(`"args":["-x"],"match":{"drafter":["eagle"]}`), `recipe "x": match: drafter: "eagle" is not one of [none mtp dflash]`},
	{"match-moe", one(`"args":["-x"],"match":{"moe":1}`), `recipe "x": match: moe: a number is not a boolean`},
	{"match-moe-null", one(`"args":["-x"],"match":{"moe":null}`), `recipe "x": match: moe: null is not a boolean`},
	{"match-parallel", one(`"args":["-x"],"match":{"min_parallel":0}`), `recipe "x": match: min_parallel: it is not a whole number`},
	{"match-parallel-text", one(`"args":["-x"],"match":{"min_parallel":"2"}`), `recipe "x": match: min_parallel: it is not a whole number`},
}

func TestParseRefuses(t *testing.T) {
	for _, c := range wrong {
		t.Run(c.name, func(t *testing.T) {
			if _, err := recipe.Parse([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want one with %q", c.text, err, c.want)
			}
		})
	}
	if _, err := recipe.Parse(make([]byte, 2<<20)); err == nil || !strings.Contains(err.Error(), "over the limit") {
		t.Errorf("a file of 2 MiB: error %v", err)
	}
}

func TestParseReadsAll(t *testing.T) {
	s := parse(t, ` {"recipes": [
		{"id":"a","why":"w","measured":"m","source":"s","match":{"device":["rocm"],"moe":true},"args":["-x","-1","v","--y"],"env":{"B":"2","A":"="}},
		{"id":"b","measured":"m","warn":"careful"}
	]} `)
	got := fmt.Sprintf("%+v", s.All()[0].Args) + fmt.Sprintf("%+v", s.All()[0].Env) + s.All()[0].Why + s.All()[0].Source + s.All()[1].Warn
	if want := "[-x -1 v --y][B=2 A==]wscareful"; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
}

// seeds are the committed inputs of FuzzParse.
func seeds(t testing.TB) map[string]string {
	all := map[string]string{}
	for _, c := range wrong {
		switch c.name {
		case "key-twice", "args-negative", "args-twice", "match-parallel", "trailing":
			all[c.name] = c.text
		}
	}
	all["sound"] = `{"recipes":[{"id":"a","measured":"m","match":{"device":["rocm"],"drafter":["mtp"],"moe":true,"min_parallel":2},"args":["-ub","1","-x","-1"],"env":{"A":"1"}},{"id":"b","measured":"m","warn":"w","args":["--ubatch-size","2"]}]}`
	b, err := os.ReadFile("recipes.json")
	if err != nil {
		t.Fatal(err)
	}
	all["builtin"] = string(b)
	return all
}

func TestSeedsAreCommitted(t *testing.T) {
	for name, text := range seeds(t) {
		path := filepath.Join("testdata", "fuzz", "FuzzParse", name)
		want := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\n", []byte(text))
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(want), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); string(got) != want {
			t.Errorf("%s differs from what the test has (error %v)", path, err)
		}
	}
}

// FuzzParse checks that what is accepted can be applied: once, since what was added then stands on the command line.
func FuzzParse(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := recipe.Parse(b)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a word")
			}
			return
		}
		for _, r := range s.All() {
			if r.ID == "" || r.Measured == "" || len(r.Args)+len(r.Env)+len(r.Warn) == 0 {
				t.Fatalf("accepted %+v", r)
			}
		}
		q := recipe.Query{Device: engine.ROCm, Drafter: recipe.MTP, MoE: true, Parallel: 2}
		first := s.Apply(q, line(), []string{"PATH=x"})
		second := s.Apply(q, append(line(), first.Args...), append(first.Env, "PATH=x"))
		if len(second.Args)+len(second.Env)+len(second.Applied) > 0 {
			t.Fatalf("a second application added %+v after %+v", second, first)
		}
	})
}
