package grammar_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"onebit/engine/grammar"
)

// words is a small vocabulary: all bytes, an end, and some longer tokens, of which two are the same and some cut characters.
var words = func() (list []string) {
	for b := range 256 {
		list = append(list, string([]byte{byte(b)}))
	}
	list = append(list, "", "<end>") // nothing, and the end, at 256 and 257
	list = append(list, `{"`, `":`, `": `, `",`, `"}`, `{"a`, `a"`, "aa", "aaa", "ab", "null", "true", "tru", "12", "-1", "0.", " \"", "\n  ", "ä", "\xc3", "\xa4\"", "🙂", "\xf0\x9f",
		"\x99\x82", `\"`, `\\`, `\u00`, "aa", "]]", "[[", "[]", "{}", "}}", ", ", ",\n", "2024-", "</th", "ink>", "</think>", "<think>", "x</think>{")
	return list
}()

func wordVocabulary() *grammar.Vocabulary {
	return grammar.NewVocabulary(len(words), func(id int32) []byte { return []byte(words[id]) }, func(id int32) bool { return id == 257 })
}

// allowed is what Forbid leaves.
func allowed(t testing.TB, m *grammar.Matcher) []bool {
	t.Helper()
	logits := make([]float32, len(words)+3)
	if err := m.Forbid(logits, -1); err != nil {
		t.Fatal(err)
	}
	list := make([]bool, len(logits))
	for i, v := range logits {
		list[i] = v == 0
	}
	return list
}

var forms = []string{
	`{}`, `{"type":"object"}`, `{"type":"string","maxLength":4}`, `{"type":"string","minLength":2,"maxLength":300}`, `{"type":"integer","minimum":-12,"maximum":1234}`,
	`{"type":"number"}`, `{"enum":["a","aa","aaa","ab",null,true]}`, `{"format":"date-time"}`, `{"pattern":"^(a|ä|🙂){1,3}\"$"}`,
	`{"properties":{"a":{"type":"array","items":{"type":"array"}},"aa":{"type":"string"},"ab":{"enum":[12,-1]}},"required":["aa"],"additionalProperties":{"type":"boolean"}}`,
	`{"$defs":{"t":{"properties":{"a":{"anyOf":[{"$ref":"#/$defs/t"},{"type":"null"}]}},"required":["a"]}},"$ref":"#/$defs/t"}`,
}

func vocabularyForms(t testing.TB) (list []*grammar.Grammar) {
	t.Helper()
	add := func(form *grammar.Expr, err error) {
		if err != nil {
			t.Fatal(err)
		}
		g, err := grammar.Compile(form, wordVocabulary())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, g)
	}
	for _, f := range forms {
		add(grammar.JSON([]byte(f)))
	}
	add(grammar.GBNF("root ::= \"a\" (root \"b\" | root \"aa\") | .* [^a] | \"ä\"+"))
	object, err := grammar.JSON([]byte(`{}`))
	add(grammar.Seq(grammar.Any(grammar.Until("</think>"), grammar.Text("")), grammar.Space(), object), err)
	return list
}

// A mask is what trying each token says, after random texts that the grammar takes.
func TestMaskIsWhatEachTokenSays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i, g := range vocabularyForms(t) {
		for range 30 {
			m, text := g.Matcher(), ""
			for range 40 {
				mask := allowed(t, m)
				var next []int32
				for id := range int32(len(mask)) {
					probe := *m
					ok, err := probe.Take(id)
					if err != nil || ok != mask[id] {
						t.Fatalf("form %d: after %q token %d (%q): Take says %v, the mask %v (%v)", i, text, id, words[min(int(id), len(words)-1)], ok, mask[id], err)
					}
					if ok && id != 257 {
						next = append(next, id)
					}
				}
				if mask[257] != m.Complete() || m.Done() != (len(next) == 0 && mask[257]) {
					t.Fatalf("form %d: after %q complete %v, done %v, end %v", i, text, m.Complete(), m.Done(), mask[257])
				}
				if len(next) == 0 {
					break
				}
				id := next[r.IntN(len(next))]
				if ok, err := m.Take(id); !ok || err != nil {
					t.Fatal(ok, err)
				}
				text += words[id]
			}
		}
	}
}

// generate writes a text of random tokens that a grammar takes. The shorter a token's way to an end, the sooner it ends:
// what closes is likelier.
func generate(t testing.TB, g *grammar.Grammar, r *rand.Rand, most int) (string, bool) {
	t.Helper()
	m := g.Matcher()
	var b strings.Builder
	logits := make([]float32, len(words))
	for n := range most {
		if m.Done() {
			return b.String(), true
		}
		for i := range logits {
			logits[i] = float32(r.NormFloat64())
		}
		for _, c := range "\"]}" {
			logits[c] += float32(n) / 20
		}
		logits[257] += float32(n) / 10
		if err := m.Forbid(logits, float32(math.Inf(-1))); err != nil {
			t.Fatal(err)
		}
		best := int32(0)
		for i, v := range logits {
			if v > logits[best] {
				best = int32(i)
			}
		}
		if ok, err := m.Take(best); !ok || err != nil {
			t.Fatalf("after %q the likeliest allowed token %q is refused: %v", b.String(), words[best], err)
		}
		if best == 257 {
			return b.String(), true
		}
		b.WriteString(words[best])
	}
	return b.String(), false
}

// randomSchema makes a schema and the judge of its values.
type randomSchema struct{ *rand.Rand }

type judge func(v any) bool

func (r randomSchema) make(depth int) (string, judge) {
	kind := r.IntN(9)
	if depth <= 0 {
		kind = r.IntN(6)
	}
	switch kind {
	case 0:
		return `{"type":"boolean"}`, func(v any) bool { _, ok := v.(bool); return ok }
	case 1:
		return `{"type":["null","boolean"]}`, func(v any) bool { _, ok := v.(bool); return ok || v == nil }
	case 2:
		low := r.IntN(4000) - 2000
		high := low + r.IntN(2000)
		return fmt.Sprintf(`{"type":"integer","minimum":%d,"maximum":%d}`, low, high), func(v any) bool {
			f, ok := v.(float64)
			return ok && f == math.Trunc(f) && f >= float64(low) && f <= float64(high)
		}
	case 3:
		low, high := float64(r.IntN(400)-200)/8, float64(r.IntN(400)+16)/4
		high += low
		return fmt.Sprintf(`{"type":"number","exclusiveMinimum":%g,"maximum":%g}`, low, high), func(v any) bool {
			f, ok := v.(float64)
			return ok && f > low && f <= high
		}
	case 4:
		low := r.IntN(4)
		high := low + r.IntN(6)
		return fmt.Sprintf(`{"type":"string","minLength":%d,"maxLength":%d}`, low, high), func(v any) bool {
			s, ok := v.(string)
			n := len([]rune(s))
			return ok && n >= low && n <= high
		}
	case 5:
		return `{"enum":["a","aa",12,null]}`, func(v any) bool { return v == "a" || v == "aa" || v == 12.0 || v == nil }
	case 6:
		return r.array(depth)
	case 7:
		a, ja := r.make(depth - 1)
		b, jb := r.make(depth - 1)
		return fmt.Sprintf(`{"anyOf":[%s,%s]}`, a, b), func(v any) bool { return ja(v) || jb(v) }
	}
	return r.object(depth)
}

func (r randomSchema) array(depth int) (string, judge) {
	item, ok := r.make(depth - 1)
	low := r.IntN(3)
	high := low + r.IntN(3)
	return fmt.Sprintf(`{"type":"array","items":%s,"minItems":%d,"maxItems":%d}`, item, low, high), func(v any) bool {
		list, is := v.([]any)
		for _, x := range list {
			is = is && ok(x)
		}
		return is && len(list) >= low && len(list) <= high
	}
}

func (r randomSchema) object(depth int) (string, judge) {
	var props, required []string
	judges := map[string]judge{}
	for _, name := range []string{"a", "aa", "ab", "ä\\\"", "z"}[:r.IntN(6)] {
		s, ok := r.make(depth - 1)
		key, _ := json.Marshal(name)
		props = append(props, fmt.Sprintf("%s:%s", key, s))
		judges[name] = ok
		if r.IntN(2) == 0 {
			required = append(required, string(key))
		}
	}
	more, other := "false", judge(func(any) bool { return false })
	if r.IntN(3) == 0 {
		more, other = r.make(depth - 1)
	}
	return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s],"additionalProperties":%s}`, strings.Join(props, ","), strings.Join(required, ","), more),
		func(v any) bool {
			m, is := v.(map[string]any)
			for k, x := range m {
				if judges[k] != nil {
					is = is && judges[k](x)
				} else {
					is = is && other(x)
				}
			}
			for _, k := range required {
				var name string
				_ = json.Unmarshal([]byte(k), &name)
				_, there := m[name]
				is = is && there
			}
			return is
		}
}

// Whatever a model's logits are, what it writes under a schema is JSON of that schema.
func TestRandomAnswersHoldToRandomSchemas(t *testing.T) {
	ended := 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		text, ok := randomSchema{r}.make(3)
		form, err := grammar.JSON([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		g, err := grammar.Compile(form, wordVocabulary())
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for range 4 {
			answer, whole := generate(t, g, r, 600)
			if !whole {
				continue
			}
			ended++
			var v any
			if err := json.Unmarshal([]byte(answer), &v); err != nil || !ok(v) {
				t.Fatalf("%s\nlets come %s (%v)", text, answer, err)
			}
		}
	}
	if ended < 1200 {
		t.Errorf("only %d of 1600 answers ended", ended)
	}
}

// What is written under a pattern or a format is of it, by others' word.
func TestRandomAnswersOfFormats(t *testing.T) {
	parsed := func(layout string) func(string) bool {
		return func(s string) bool { _, err := time.Parse(layout, s); return err == nil }
	}
	address := func(v4 bool) func(string) bool {
		return func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() == v4 }
	}
	matches := func(pattern string) func(string) bool { return regexp.MustCompile(pattern).MatchString }
	quoted := func(pattern string) string { b, _ := json.Marshal(pattern); return `{"pattern":` + string(b) + `}` }
	patterns := []string{`^[^a-z]{1,5}$`, `^(\d+|\w{2})(-\S)?$`, `^a.b\.$`, `^("|\\|\t|[\x00-\x1f]){1,3}$`, `^(?:ä|日?本){2,}$`, `^$`, `^[\u00e4-\u00ff\]]+$`}
	checks := map[string]func(string) bool{
		`{"format":"date"}`: parsed(time.DateOnly), `{"format":"date-time"}`: parsed(time.RFC3339Nano), `{"format":"time"}`: parsed("15:04:05.999999999Z07:00"),
		`{"format":"ipv4"}`: address(true), `{"format":"ipv6"}`: address(false),
		`{"format":"email"}`:    func(s string) bool { a, err := mail.ParseAddress(s); return err == nil && a.Address == s },
		`{"format":"uri"}`:      func(s string) bool { u, err := url.Parse(s); return err == nil && u.IsAbs() && u.Host != "" },
		`{"format":"uuid"}`:     matches(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`),
		`{"format":"duration"}`: matches(`^P(\d+[YMWD])?(T\d+[HMS])?$`),
		`{"format":"hostname"}`: matches(`^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]+$`),
	}
	for _, p := range patterns {
		checks[quoted(p)] = matches(strings.ReplaceAll(strings.ReplaceAll(p, `\u00e4`, "ä"), `\u00ff`, "ÿ"))
	}
	for schema, ok := range checks {
		form, err := grammar.JSON([]byte(schema))
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		g, err := grammar.Compile(form, wordVocabulary())
		if err != nil {
			t.Fatalf("%s: %v", schema, err)
		}
		ended := 0
		for seed := range uint64(60) {
			answer, whole := generate(t, g, rand.New(rand.NewPCG(seed, 3)), 700)
			if !whole {
				continue
			}
			ended++
			var text string
			if err := json.Unmarshal([]byte(answer), &text); err != nil || !ok(text) {
				t.Errorf("%s lets come %s (%v)", schema, answer, err)
				break
			}
		}
		if ended < 40 {
			t.Errorf("%s: only %d of 60 ended", schema, ended)
		}
	}
}

// What a stranger sends costs bounded work: it is refused, or followed within bounds.
func TestHostileForms(t *testing.T) {
	gbnf := map[string]string{
		"powers":       "root ::= ((((\"a\"{100}){100}){100}){100}){100}",
		"large counts": "root ::= [ab]{60000} [ab]{60000} [ab]{60000}",
		"all at once":  "root ::= " + many(40_000, func(i int) string { return fmt.Sprintf("%s[a-z]* \"%d\"", "|"[:min(i, 1)], i) }),
		"deep":         "root ::= " + strings.Repeat("(", 1000) + "\"a\"" + strings.Repeat(")", 1000),
		"a long chain": many(30_000, func(i int) string { return fmt.Sprintf("r%d ::= r%d\n", i, i+1) }) + "r30000 ::= \"a\"\nroot ::= r0",
		"ambiguous":    "root ::= x x x x x x x x\nx ::= \"a\" (x \"b\" | x \"a\" | x | \"\") | \"a\" x x | \"\"\n",
		"bars":         "root ::= " + strings.Repeat("|", 300_000),
		"empty groups": "root ::= " + strings.Repeat("()", 300_000),
		"many rules":   "root ::= r0\n" + many(20_000, func(i int) string { return fmt.Sprintf("r%d ::= r%d | r%d | \"a\"\n", i, i+1, i+2) }) + "r20000 ::= \"b\"\nr20001 ::= \"c\"",
		"any of any":   "root ::= (.* .* .* .* .* .*)* (.{0,1000} .{0,1000})*",
	}
	schemas := map[string]string{
		"deep": strings.Repeat(`{"items":`, 5000) + `{}` + strings.Repeat(`}`, 5000),
		"wide": `{"enum":[` + strings.Repeat(`1,`, 100_000) + `1]}`,
		"doubling": `{"$defs":{"a0":{"type":"string"},` + many(60, func(i int) string {
			return fmt.Sprintf(`"a%d":{"allOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i+1, i, i)
		}) + `"z":{}},"$ref":"#/$defs/a60"}`,
		"squared": `{"allOf":[` + many(60, func(i int) string {
			return fmt.Sprintf(`{"properties":{"p%d":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}}},`, i)
		}) + `{}]}`,
		"length":     `{"type":"string","minLength":1000000000}`,
		"lists":      `{"type":"array","minItems":5000,"items":{"type":"array","minItems":5000,"items":{"type":"array","minItems":5000,"items":{"type":"string","minLength":8000}}}}`,
		"a pattern":  `{"pattern":"^(((a{1,10}){1,10}){1,10}b?)*$"}`,
		"long names": strings.Repeat(`{"`+strings.Repeat("n", 9000)+`":`, 60) + `[` + strings.Repeat("1,", 30_000) + `1]` + strings.Repeat("}", 60),
		"a base of many": `{"properties":{` + many(1000, func(i int) string { return fmt.Sprintf(`"p%d":{},`, i) }) + `"q":{}},"anyOf":[` +
			many(9000, func(i int) string { return fmt.Sprintf(`{"properties":{"p%d":{"type":"null"}}},`, i%1000) }) + `{}]}`,
		"a long constant":         `{"const":"` + strings.Repeat("c", 400_000) + `","enum":[` + strings.Repeat("1,", 30_000) + `1]}`,
		"texts that part late":    `{"enum":["` + strings.Repeat("c", 500_000) + `a","` + strings.Repeat("c", 500_000) + `b"]}`,
		"lists beside lists":      `{"allOf":[{"enum":[` + strings.Repeat("1,", 10_000) + `1]},{"enum":[` + strings.Repeat("2,", 10_000) + `1]}]}`,
		"required":                `{"required":[` + many(30_000, func(i int) string { return fmt.Sprintf(`"%d",`, i) }) + `"x"]}`,
		"patterns":                `{"pattern":"^` + strings.Repeat("a?", 20_000) + `$","anyOf":[` + strings.Repeat("{},", 9000) + `{}]}`,
		"types":                   `{"type":[` + strings.Repeat(`"string",`, 9000) + `"null"]}`,
		"alternatives of nothing": `{"$defs":{"a":{"anyOf":[` + strings.Repeat(`{"$ref":"#/$defs/b"},`, 9000) + `{}]},"b":{"anyOf":[` + strings.Repeat(`{"$ref":"#/$defs/c"},`, 9000) + `{}]},"c":{}},"$ref":"#/$defs/a"}`,
		"optional":                `{"properties":{` + many(1900, func(i int) string { return fmt.Sprintf(`"p%d":{},`, i) }) + `"q":{}}}`,
	}
	defer debug.SetMaxStack(debug.SetMaxStack(64 << 20))
	try := func(t *testing.T, form *grammar.Expr, err error) {
		var g *grammar.Grammar
		if err == nil {
			g, err = grammar.Compile(form, wordVocabulary())
		}
		if err == nil {
			m := g.Matcher()
			for _, b := range strings.Repeat("aaaaaaaab\"{[p", 20) {
				logits := make([]float32, len(words))
				if err = m.Forbid(logits, -1); err != nil {
					break
				}
				if _, err = m.Take(b); err != nil {
					break
				}
			}
		}
		t.Log(err)
		_, limit := errors.AsType[*grammar.LimitError](err)
		_, refused := errors.AsType[*grammar.Error](err)
		if err != nil && !limit && !refused {
			t.Errorf("%v", err)
		}
	}
	for name, text := range gbnf {
		t.Run("gbnf "+name, func(t *testing.T) {
			form, err := grammar.GBNF(text)
			try(t, form, err)
		})
	}
	for name, text := range schemas {
		t.Run("schema "+name, func(t *testing.T) {
			form, err := grammar.JSON([]byte(text))
			try(t, form, err)
		})
	}
}

// many is a text for each of n numbers, joined.
func many(n int, f func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(f(i))
	}
	return b.String()
}

// Schemas that grow a lot when they are read share one bound where a request has many of them.
func TestHostileCalls(t *testing.T) {
	schema := `{"$defs":{` + many(10, func(i int) string {
		return fmt.Sprintf(`"a%d":{"properties":{"x":{"type":"object","$ref":"#/$defs/a%d"},"y":{"type":"object","$ref":"#/$defs/a%d"}}},`, i, i+1, i+1)
	}) + `"a10":{}},"properties":{"z":{"type":"object","$ref":"#/$defs/a0"}}}`
	var common grammar.Common
	for i := range 10 {
		_, err := grammar.Call(&common, "name", "f", "arguments", []byte(schema))
		if _, limit := errors.AsType[*grammar.LimitError](err); limit && i > 0 {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Error("no bound")
}

// Schemas of many numbers, and many tools of a few, are not too large.
func TestManyNumbers(t *testing.T) {
	schema := `{"properties":{` + many(150, func(i int) string {
		return fmt.Sprintf(`"a%d":{"type":"integer"},"b%d":{"type":"number"},"c%d":{"type":"integer","minimum":0},"d%d":{"type":"number","minimum":0,"maximum":100},`, i, i, i, i)
	}) + `"z":{}}}`
	var common grammar.Common
	var calls []*grammar.Expr
	for range 3 {
		e, err := grammar.Call(&common, "name", "f", "arguments", []byte(schema))
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, e)
	}
	if _, err := grammar.Compile(grammar.Any(calls...), letters()); err != nil {
		t.Error(err)
	}
}

// A function that says nothing of arguments takes none; one that leaves them open takes any.
func TestCallsWithoutArguments(t *testing.T) {
	for schema, open := range map[string]bool{"": false, "null": false, "{}": true} {
		e, err := grammar.Call(&grammar.Common{}, "name", "f", "arguments", []byte(schema))
		g := compiled(t, e, err)
		if !accepts(t, g, `{"name": "f", "arguments": {}}`) || accepts(t, g, `{"name": "f", "arguments": {"a":1}}`) != open {
			t.Errorf("schema %q", schema)
		}
	}
}
