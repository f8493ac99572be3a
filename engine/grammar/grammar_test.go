package grammar_test

import (
	"errors"
	"strings"
	"testing"

	"onebit/engine/grammar"
)

// letters is a vocabulary of all single bytes and an end.
func letters() *grammar.Vocabulary {
	return grammar.NewVocabulary(257, func(id int32) []byte {
		if id > 255 {
			return nil
		}
		return []byte{byte(id)}
	}, func(id int32) bool { return id == 256 })
}

func compiled(t testing.TB, form *grammar.Expr, err error) *grammar.Grammar {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	g, err := grammar.Compile(form, letters())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// accepts says whether a text is a whole one of the form. The text goes in byte by byte.
func accepts(t testing.TB, g *grammar.Grammar, text string) bool {
	t.Helper()
	m := g.Matcher()
	for i := range len(text) {
		ok, err := m.Take(int32(text[i]))
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return false
		}
	}
	return m.Complete()
}

type conformance struct {
	name, form string
	yes, no    []string
}

func hold(t *testing.T, tests []conformance, read func(string) (*grammar.Expr, error)) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			form, err := read(tt.form)
			g := compiled(t, form, err)
			for _, text := range tt.yes {
				if !accepts(t, g, text) {
					t.Errorf("refuses %s", text)
				}
			}
			for _, text := range tt.no {
				if accepts(t, g, text) {
					t.Errorf("accepts %s", text)
				}
			}
		})
	}
}

func readSchema(text string) (*grammar.Expr, error) { return grammar.JSON([]byte(text)) }

func TestSchemas(t *testing.T) {
	hold(t, []conformance{
		{"anything", `{}`, []string{`1`, `"a"`, `null`, `[1, {"a": []}]`, `{}`, `-0.5e-3`}, []string{``, `01`, `'a'`, `[1,]`, `{a:1}`, `nul`, `1.`, "\"\n\"", `"\ud800"`, "\"\xff\"", `"\q"`}},
		{"true", `true`, []string{`{"a":1}`}, []string{`a`}},
		{"any object", `{"type":"object"}`, []string{`{}`, `{"a": 1, "b": {"c": [true]}}`, "{\n  \"a\": 1\n}"}, []string{`[]`, `1`, `{"a"}`, `{"a":1,}`, `{} `}},
		{"any array", `{"type":"array"}`, []string{`[]`, `[1, "a", []]`}, []string{`{}`, `[,]`}},
		{"types", `{"type":["string","null"]}`, []string{`"a"`, `null`}, []string{`1`, `true`}},
		{"boolean", `{"type":"boolean"}`, []string{`true`, `false`}, []string{`null`, `tru`}},
		{"number", `{"type":"number"}`, []string{`0`, `-1`, `1.5`, `1e5`, `2E-10`}, []string{`.5`, `+1`, `1e`, `00`, `1e999`}},
		{"integer", `{"type":"integer"}`, []string{`0`, `-12`, `123456789012345`}, []string{`1.0`, `-0`, `01`, `1234567890123456`, `1e1`}},
		{"integer within", `{"type":"integer","minimum":-5,"maximum":120}`, []string{`-5`, `-1`, `0`, `7`, `99`, `100`, `120`}, []string{`-6`, `121`, `200`, `1000`, `-0`, `00`}},
		{"integer above", `{"type":"integer","exclusiveMinimum":17}`, []string{`18`, `19`, `20`, `99`, `100`, `123456`}, []string{`17`, `0`, `-18`, `9`}},
		{"integer below", `{"type":"integer","maximum":-3}`, []string{`-3`, `-10`, `-99999`}, []string{`-2`, `0`, `3`}},
		{"integer of 32 bits", `{"type":"integer","format":"int32"}`, []string{`2147483647`, `-2147483648`}, []string{`2147483648`}},
		{"number within", `{"type":"number","minimum":0,"maximum":1}`, []string{`0`, `0.5`, `0.25`, `1`}, []string{`1.5`, `-0.5`, `1.1`, `2`, `5e-1`}},
		{"number above", `{"type":"number","exclusiveMinimum":0}`, []string{`0.5`, `1`, `1.0`, `300`, `0.05`}, []string{`0`, `0.0`, `-1`}},
		{"number below", `{"type":"number","minimum":-2.5,"maximum":-0.5}`, []string{`-1`, `-2`, `-1.5`}, []string{`-2.6`, `-0.1`, `0`, `1.5`}},
		{"string", `{"type":"string"}`, []string{`""`, `"a"`, `"\n\u00e4\\\""`, `"日本 🙂"`}, []string{`a`, `"a`, "\"\x01\"", `"\u12"`, `"\uDC00"`}},
		{"lengths", `{"type":"string","minLength":2,"maxLength":3}`, []string{`"ab"`, `"日本語"`, `"\n\u0041x"`}, []string{`"a"`, `"abcd"`, `"日"`}},
		{"pattern", `{"type":"string","pattern":"^[a-z]{2,3}-\\d+$"}`, []string{`"ab-1"`, `"abc-123"`}, []string{`"a-1"`, `"abcd-1"`, `"ab-"`, `"ab-1x"`}},
		{"pattern with escapes", `{"pattern":"^(\"|\\\\|\\n|\\u00e4)$"}`, []string{`"\""`, `"\\"`, `"\n"`, `"ä"`}, []string{`"""`, `"\"`, `"x"`}},
		{"pattern with spaces", `{"pattern":"^\\S\\s.$"}`, []string{`"a b"`, `"a\tb"`}, []string{"\"a\u00a0b\"", "\"\u00a0 b\"", `"a b\n"`}},
		{"pattern and length", `{"pattern":"^a{3,5}$","maxLength":5}`, []string{`"aaa"`}, []string{`"aaaaaa"`}},
		{"date", `{"type":"string","format":"date"}`, []string{`"2024-02-29"`, `"2025-12-31"`}, []string{`"2025-02-29"`, `"2025-02-30"`, `"2025-13-01"`, `"1900-02-29"`, `"25-1-1"`}},
		{"time", `{"type":"string","format":"time"}`, []string{`"23:59:59Z"`, `"00:00:00.5+02:00"`}, []string{`"24:00:00Z"`, `"12:00"`}},
		{"date and time", `{"type":"string","format":"date-time"}`, []string{`"2024-05-06T07:08:09Z"`}, []string{`"2024-05-06 07:08:09Z"`, `"2024-05-06T07:08:09"`}},
		{"uuid", `{"type":"string","format":"uuid"}`, []string{`"123e4567-e89b-12d3-a456-426614174000"`}, []string{`"123e4567"`}},
		{"mail", `{"type":"string","format":"email"}`, []string{`"a.b@example.org"`}, []string{`"a@b"`, `"@example.org"`}},
		{"uri", `{"type":"string","format":"uri"}`, []string{`"https://example.org/a?b=c#d"`}, []string{`"example.org"`}},
		{"ipv4", `{"type":"string","format":"ipv4"}`, []string{`"192.168.0.1"`}, []string{`"256.1.1.1"`, `"1.1.1"`}},
		{"enum", `{"enum":["red","green",3,null,{"a":[1]}]}`, []string{`"red"`, `3`, `null`, `{"a":[1]}`}, []string{`"re"`, `"blue"`, `4`}},
		{"enum of a type", `{"type":"string","enum":["a",1]}`, []string{`"a"`}, []string{`1`}},
		{"const", `{"const":"a\"b"}`, []string{`"a\"b"`}, []string{`"ab"`}},
		{"properties", `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"null"}},"required":["b"],"additionalProperties":false}`,
			[]string{`{"b":"x"}`, `{"a": 1, "b": "x"}`, `{"b":"x","c":null}`, `{ "a":1,"b":"x","c":null }`}, []string{`{}`, `{"a":1}`, `{"b":"x","a":1}`, `{"b":1}`, `{"b":"x","d":1}`, `{"b":"x",}`, `{"b":"x","b":"y"}`}},
		{"optional properties", `{"properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}}}`,
			[]string{`{}`, `{"a":1}`, `{"b":2}`, `{"c":3}`, `{"a":1,"c":3}`, `{"a":1,"b":2,"c":3}`}, []string{`{,"b":2}`, `{"c":3,"a":1}`, `{"d":1}`, `[]`, `1`}},
		{"other properties", `{"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"string"}}`,
			[]string{`{"ab":1}`, `{"ab":1,"x":"y"}`, `{"a":"y"}`, `{"abc":"y","z":"y"}`, `{"":"y"}`}, []string{`{"ab":"y"}`, `{"x":1}`, `{"\u0061b":"y"}`, `{"x":"y","ab":1}`}},
		{"a map", `{"type":"object","additionalProperties":{"type":"integer"}}`, []string{`{}`, `{"x":1,"y":2}`}, []string{`{"x":"y"}`}},
		{"required without a property", `{"type":"object","required":["a"]}`, []string{`{"a":[]}`}, []string{`{}`}},
		{"a property that may not be", `{"properties":{"a":false,"b":true}}`, []string{`{"b":1}`, `{}`}, []string{`{"a":1}`}},
		{"items", `{"type":"array","items":{"type":"integer"}}`, []string{`[]`, `[1]`, `[1, 2,3]`}, []string{`["a"]`, `[1,]`, `[1`}},
		{"so many items", `{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3}`, []string{`[1,2]`, `[1,2,3]`}, []string{`[]`, `[1]`, `[1,2,3,4]`}},
		{"at least one", `{"type":"array","items":{"type":"integer"},"minItems":1}`, []string{`[1]`, `[1,2,3,4,5]`}, []string{`[]`}},
		{"no items", `{"type":"array","maxItems":0}`, []string{`[]`}, []string{`[1]`}},
		{"places", `{"prefixItems":[{"type":"integer"},{"type":"string"}]}`, []string{`[]`, `[1]`, `[1,"a"]`}, []string{`["a"]`, `[1,"a",2]`}},
		{"places and more", `{"prefixItems":[{"type":"integer"}],"items":{"type":"string"},"minItems":2,"maxItems":3}`, []string{`[1,"a"]`, `[1,"a","b"]`}, []string{`[1]`, `[1,2]`, `[1,"a","b","c"]`}},
		{"places of old", `{"type":"array","items":[{"const":1},{"const":2}],"minItems":2,"additionalItems":false}`, []string{`[1,2]`}, []string{`[1]`, `[1,2,3]`}},
		{"anyOf", `{"anyOf":[{"type":"string"},{"type":"integer"}]}`, []string{`"a"`, `1`}, []string{`null`}},
		{"anyOf beside a base", `{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
			[]string{`{"a":1}`, `{"b":1}`, `{"a":1,"b":1}`}, []string{`{}`}},
		{"oneOf", `{"oneOf":[{"const":1},{"const":2}]}`, []string{`1`, `2`}, []string{`3`}},
		{"allOf", `{"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"string"}},"required":["b"]}]}`,
			[]string{`{"a":1,"b":"x"}`}, []string{`{"a":1}`, `{"b":"x"}`}},
		{"allOf of one property", `{"allOf":[{"properties":{"a":{"minimum":2}}},{"properties":{"a":{"type":"integer","maximum":5}}}]}`, []string{`{"a":2}`, `{"a":5}`}, []string{`{"a":1}`, `{"a":6}`}},
		{"allOf that closes", `{"allOf":[{"properties":{"a":true},"additionalProperties":false},{"properties":{"b":true}}]}`, []string{`{"a":1}`, `{}`}, []string{`{"b":1}`}},
		{"references", `{"$defs":{"n":{"type":"integer"}},"type":"array","items":{"$ref":"#/$defs/n"}}`, []string{`[1,2]`}, []string{`["a"]`}},
		{"a reference with more", `{"$defs":{"n":{"type":"integer","minimum":0}},"$ref":"#/$defs/n","maximum":3,"description":"few"}`, []string{`3`}, []string{`4`, `-1`}},
		{"recursion", `{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["v","next"]}`,
			[]string{`{"v":1,"next":null}`, `{"v":1,"next":{"v":2,"next":null}}`}, []string{`{"v":1}`, `{"v":1,"next":{"v":2}}`}},
		{"recursion in a list", `{"$defs":{"a/b~c":{"type":"array","items":{"$ref":"#/$defs/a~1b~0c"}}},"$ref":"#/$defs/a~1b~0c"}`, []string{`[]`, `[[],[[]]]`}, []string{`[1]`}},
		{"notes", `{"title":"t","description":"d","default":1,"examples":[1],"deprecated":true,"readOnly":true,"$schema":"s","$id":"i","$comment":"c","x-own":{"a":1},"type":"null"}`, []string{`null`}, []string{`1`}},
		{"keys that need escapes, and others", `{"properties":{"a\"b":{},"a\nb":{},"\\":{},"ab":{}},"additionalProperties":true}`, []string{`{"a\"b":1,"a":1,"ac":1}`, `{"a\nb":1,"":1}`},
			[]string{`{"a"x":1}`, `{"a""b":1}`, "{\"a\nx\":1}", `{"\":1}`, `{"ab":1,"ab":1}`}},
		{"enum with long common beginnings", `{"enum":["abc","abcd","abd","abd","",2,21]}`, []string{`"abc"`, `"abcd"`, `"abd"`, `""`, `2`, `21`}, []string{`"ab"`, `"abcx"`, `1`, `"`}},
		{"integer of 8 bits", `{"type":"integer","format":"uint8","maximum":300}`, []string{`0`, `255`}, []string{`256`, `-1`}},
		{"integer of 16 bits", `{"type":"integer","format":"int16","exclusiveMinimum":-40000}`, []string{`-32768`, `32767`}, []string{`32768`, `-32769`}},
		{"integer of 64 bits", `{"type":"integer","format":"uint64"}`, []string{`0`, `123456789012345`}, []string{`-1`}},
		{"an $id at the top and others", `{"$id":"x","$defs":{"a":{"$id":"y","type":"integer"}},"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/a"}],"anyOf":[{"$ref":"#/$defs/a"}]}`, []string{`3`}, []string{`"3"`}},
		{"keys that need escapes", `{"properties":{"a\"\\\n日":{"const":1}},"required":["a\"\\\n日"]}`, []string{`{"a\"\\\n日":1}`}, nil},
	}, readSchema)
}

func TestRefusedSchemas(t *testing.T) {
	tests := []struct{ name, schema, path string }{
		{"no JSON", `{"type":`, "#/type"},
		{"text behind", `{} x`, "#"},
		{"no schema", `1`, "#"},
		{"a member twice", `{"type":"object","type":"array"}`, "#/type"},
		{"false", `false`, "#"},
		{"a strange type", `{"properties":{"a":{"type":"date"}}}`, "#/properties/a/type"},
		{"a type that is none", `{"type":1}`, "#/type"},
		{"not", `{"items":{"not":{}}}`, "#/items/not"},
		{"if", `{"if":{}}`, "#/if"},
		{"patternProperties", `{"patternProperties":{}}`, "#/patternProperties"},
		{"minProperties", `{"minProperties":1}`, "#/minProperties"},
		{"contains", `{"contains":{}}`, "#/contains"},
		{"uniqueItems", `{"uniqueItems":true}`, "#/uniqueItems"},
		{"multipleOf", `{"properties":{"a/b":{"multipleOf":0.5}}}`, "#/properties/a~1b/multipleOf"},
		{"a strange format", `{"format":"zip"}`, "#/format"},
		{"a pattern without anchors", `{"pattern":"a"}`, "#/pattern"},
		{"a pattern with a choice of anchors", `{"pattern":"^a|b$"}`, "#/pattern"},
		{"a pattern that looks ahead", `{"pattern":"^(?=a)a$"}`, "#/pattern"},
		{"a pattern with a border", `{"pattern":"^a\\b$"}`, "#/pattern"},
		{"a pattern that refers back", `{"pattern":"^(a)\\1$"}`, "#/pattern"},
		{"a pattern longer than the text", `{"pattern":"^a+$","maxLength":3}`, "#/pattern"},
		{"lengths that cross", `{"minLength":3,"maxLength":2}`, "#/minLength"},
		{"a length that is none", `{"minLength":1.5}`, "#/minLength"},
		{"items that cross", `{"minItems":3,"maxItems":2}`, "#/minItems"},
		{"bounds that cross", `{"type":"integer","minimum":3,"maximum":2}`, "#"},
		{"bounds of old", `{"minimum":3,"exclusiveMinimum":true}`, "#/exclusiveMinimum"},
		{"narrow bounds", `{"type":"number","minimum":0.2,"maximum":0.8}`, "#"},
		{"enum and a length", `{"enum":["a"],"minLength":1}`, "#/minLength"},
		{"enum of another type", `{"enum":["a"],"type":"integer"}`, "#/enum"},
		{"a constant of no type that is left", `{"type":"number","allOf":[{"type":"null"},{"const":1}]}`, "#/const"},
		{"enum of nothing", `{"enum":[]}`, "#/enum"},
		{"a pattern of half characters", `{"pattern":"^\\ud83d\\ude00$"}`, "#/pattern"},
		{"a class of half characters", `{"pattern":"^[\\uD800-\\uDFFF]$"}`, "#/pattern"},
		{"a keyword of old", `{"items":{"divisibleBy":2}}`, "#/items/divisibleBy"},
		{"a reference below an $id", `{"$defs":{"a":{"$id":"http://x/a","$ref":"#/$defs/b"},"b":true},"$ref":"#/$defs/a"}`, "#/$defs/a/$id"},
		{"a reference elsewhere", `{"$ref":"http://example.org"}`, "#/$ref"},
		{"a reference to nothing", `{"$ref":"#/$defs/a"}`, "#/$ref"},
		{"a reference to itself", `{"$ref":"#"}`, ""},
		{"references in a circle", `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}`, ""},
		{"a circle that is put together", `{"allOf":[{"$ref":"#"},{"type":"object"}]}`, "#"},
		{"no end", `{"properties":{"a":{"$ref":"#"}},"required":["a"]}`, ""},
		{"required and closed", `{"required":["a"],"additionalProperties":false}`, "#/required/0"},
		{"required and false", `{"properties":{"a":false},"required":["a"]}`, "#/properties/a"},
		{"constants that differ", `{"allOf":[{"const":1},{"const":2}]}`, "#/allOf/1/const"},
		{"patterns that differ", `{"allOf":[{"pattern":"^a$"},{"pattern":"^b$"}]}`, "#/allOf/1/pattern"},
		{"places beside items", `{"allOf":[{"prefixItems":[{"type":"integer"}]},{"items":{"minimum":3}}]}`, "#/allOf/1"},
		{"types that differ", `{"allOf":[{"type":"string"},{"type":"object"}]}`, "#/type"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			form, err := grammar.JSON([]byte(tt.schema))
			if err == nil {
				_, err = grammar.Compile(form, letters())
			}
			e, ok := errors.AsType[*grammar.Error](err)
			if !ok || tt.path != "" && e.Path != tt.path {
				t.Errorf("%v", err)
			}
			t.Log(err)
		})
	}
}

func TestGBNF(t *testing.T) {
	hold(t, []conformance{
		{"a text", `root ::= "yes" | "no"`, []string{"yes", "no"}, []string{"", "y", "yesno"}},
		{"repetitions", `root ::= "a"* "b"+ "c"? "d"{2} "e"{1,2} "f"{1,}`, []string{"bddef", "aabbcddeeff"}, []string{"ddef", "bdef", "bddeeef", "bdde"}},
		{"a repeated text", `root ::= "ab"{2}`, []string{"abab"}, []string{"abb"}},
		{"classes", `root ::= [a-c] [^a-c\n] [-x] [\]\\] .`, []string{"ax-]ü", "c🙂x\\\n"}, []string{"dx-]u", "aa-]u", "a\n-]u"}},
		{"escapes", `root ::= "\x41\u00e4\U0001F642\t\"\\\[\]" [a\-z]`, []string{"Aä🙂\t\"\\[]-"}, []string{"Aä🙂\t\"\\[]b"}},
		{"rules", "root ::= greeting \" \" name # all\n# and\n\ngreeting ::= \"hi\" |\n  \"ho\"\nname ::= ( \"a\"\n | \"b\" )", []string{"hi a", "ho b"}, []string{"hi", "ha a"}},
		{"recursion", `root ::= "(" root ")" | "x"`, []string{"x", "((x))"}, []string{"((x)", "()"}},
		{"right recursion", `root ::= "a" root | "b"`, []string{strings.Repeat("a", 5000) + "b"}, []string{"aa"}},
		{"ambiguity", `root ::= "a" (root "b" | root "c") | "a"`, []string{"aab", "aac", strings.Repeat("a", 100) + strings.Repeat("bc", 49) + "b"}, []string{"ab"}},
		{"loops of nothing", `root ::= ("a"* | "b"?)* "c"`, []string{"c", "aabac"}, []string{"ca"}},
		{"an empty choice", "root ::= \"a\" ( \"b\" | ) |\n", []string{"a", "ab", ""}, []string{"b"}},
		{"nothing that ends is left out", "root ::= \"a\" | \"b\" x\nx ::= \"c\" x", []string{"a"}, []string{"b", "bc"}},
		{"the last definition", "root ::= a\na ::= \"x\"\na ::= \"y\"", []string{"y"}, []string{"x"}},
	}, grammar.GBNF)
}

func TestRefusedGBNF(t *testing.T) {
	tests := []struct {
		name, text   string
		line, column int
	}{
		{"nothing", ``, 1, 1},
		{"no root", `a ::= "b"`, 1, 1},
		{"no name", `::= "b"`, 1, 1},
		{"no sign", `root := "b"`, 1, 6},
		{"undefined", "root ::= a\n b", 2, 3},
		{"undefined rule", "root ::= \"ä\" a", 1, 14},
		{"open text", `root ::= "a`, 1, 12},
		{"open class", `root ::= [a`, 1, 12},
		{"open parenthesis", `root ::= ("a"`, 1, 14},
		{"open brace", `root ::= "a"{2`, 1, 15},
		{"no number", `root ::= "a"{,2}`, 1, 14},
		{"numbers that cross", `root ::= "a"{3,2}`, 1, 18},
		{"a repetition of nothing", `root ::= *`, 1, 10},
		{"an unknown escape", `root ::= "\q"`, 1, 11},
		{"half a character", `root ::= "\ud800"`, 1, 17},
		{"no character", `root ::= "\U00110000"`, 1, 21},
		{"a range backwards", `root ::= [b-a]`, 1, 14},
		{"an empty class", `root ::= []`, 1, 11},
		{"a token", `root ::= <think>`, 1, 10},
		{"left recursion", "root ::= a\na ::= \"x\"? a \"y\" | \"z\"", 2, 1},
		{"left recursion of two", "root ::= a\na ::= b \"y\" | \"z\"\nb ::= a", 0, 0},
		{"a line within", "root ::= \"a\"\n| \"b\"", 2, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			form, err := grammar.GBNF(tt.text)
			if err == nil {
				_, err = grammar.Compile(form, letters())
			}
			e, ok := errors.AsType[*grammar.Error](err)
			if !ok || tt.line > 0 && (e.Line != tt.line || e.Column != tt.column) {
				t.Errorf("%v", err)
			}
			t.Log(err)
		})
	}
}
