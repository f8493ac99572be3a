package template_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"onebit/engine/chat/template"
)

// hostile templates each try to take all time, memory or stack there is. want is the limit that stops them, "" for
// those that may end in any error.
var hostile = []struct{ name, template, want string }{
	{"huge range", "{% for i in range(10 ** 12) %}x{% endfor %}", "memory"},
	{"huge range unused", "{% set x = range(9223372036854775807) %}", "memory"},
	{"negative range", "{{ range(9223372036854775807, -9223372036854775807, -1)|length }}", "memory"},
	{"nested ranges", "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}{% endfor %}{% endfor %}{% endfor %}", ""},
	{"nested loops over one list", "{% set r = range(300) %}{% for a in r %}{% for b in r %}{% for c in r %}{% for d in r %}{{ d }}{% endfor %}{% endfor %}{% endfor %}{% endfor %}", ""},
	{"output without end", "{% set r = range(100000) %}{% for a in r %}{{ 'x' * 1000 }}{% endfor %}", "memory"},
	{"text without end", "{% for a in range(100000) %}" + strings.Repeat("text ", 1000) + "{% endfor %}", "memory"},
	{"doubling", "{% set ns = namespace(s='ab') %}{% for i in range(80) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "memory"},
	{"doubling by plus", "{% set ns = namespace(s='ab') %}{% for i in range(80) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "memory"},
	{"doubling a list", "{% set ns = namespace(l=[1]) %}{% for i in range(80) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "memory"},
	{"doubling by join", "{% set ns = namespace(s='ab') %}{% for i in range(80) %}{% set ns.s = [ns.s, ns.s]|join(ns.s) %}{% endfor %}", "memory"},
	{"doubling by replace", "{% set ns = namespace(s='ab') %}{% for i in range(80) %}{% set ns.s = ns.s|replace('a', ns.s) %}{% endfor %}", "memory"},
	{"doubling by replace of nothing", "{% set ns = namespace(s='ab') %}{% for i in range(80) %}{% set ns.s = ns.s.replace('', ns.s) %}{% endfor %}", "memory"},
	{"doubling by format", "{% set ns = namespace(s='{0}{0}') %}{% for i in range(80) %}{% set ns.s = ns.s.format(ns.s) %}{% endfor %}", "memory"},
	{"doubling by set block", "{% set ns = namespace(s='ab') %}{% for i in range(80) %}{% set b %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = b %}{% endfor %}", "memory"},
	{"doubling by macro", "{% macro d(s) %}{{ s }}{{ s }}{% endmacro %}{% set ns = namespace(s='ab') %}{% for i in range(80) %}{% set ns.s = d(ns.s) %}{% endfor %}", "memory"},
	{"doubling by escape", "{% set ns = namespace(s='&') %}{% for i in range(80) %}{% set ns.s = ns.s|e %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "memory"},
	{"doubling by tojson", "{% set ns = namespace(s='\"') %}{% for i in range(80) %}{% set ns.s = ns.s|tojson %}{% endfor %}", "memory"},
	{"string times", "{{ 'a' * 10 ** 9 }}", "memory"},
	{"string times int", "{{ 'a' * 1000000000 }}", "memory"},
	{"string times max", "{{ 1000 * ('a' * 1000) * 9223372036854775807 }}", "memory"},
	{"list times", "{{ ([1] * 1000000000)|length }}", "memory"},
	{"empty list times", "{{ ([] * 9223372036854775807)|length }}{{ ('' * 9223372036854775807) }}{{ range(10 ** 9) }}", "memory"},
	{"indent width", "{{ 'a\nb'|indent(10 ** 10) }}", "memory"},
	{"indent many lines", "{{ ('a\n' * 100000)|indent(100000) }}", "memory"},
	{"tojson indent", "{% set ns = namespace(l=[]) %}{% for i in range(150) %}{% set ns.l = [ns.l, 1, 2, 3] %}{% endfor %}{% for i in range(10000) %}{{ ns.l|tojson(indent=10 ** 9) }}{% endfor %}", "memory"},
	{"tojson separators", "{{ range(100000)|tojson(separators=('x' * 100000, 'y')) }}", "memory"},
	{"slice step", "{{ [1, 2][-10 ** 18:10 ** 18:10 ** 17] }}{{ 'ab'[::-10 ** 18] }}{{ [0][:9223372036854775807:9223372036854775807] }}{% for i in range(10 ** 9) %}{% endfor %}", "memory"},
	{"macro recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested macro calls"},
	{"mutual recursion", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", "nested macro calls"},
	{"recursion in defaults", "{% macro f(a=f()) %}{% endmacro %}{{ f() }}", "nested macro calls"},
	{"recursion by caller", "{% macro f() %}{{ caller() }}{% endmacro %}{% set ns = namespace() %}{% macro g() %}{% set ns.c = caller %}{{ ns.c() }}{% endmacro %}{% call g() %}{{ ns.c() }}{% endcall %}", "nested macro calls"},
	{"branching recursion", "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}", ""},
	{"recursion with deep expressions", "{% macro f() %}{{ " + strings.Repeat("(1 + ", 90) + "f()" + strings.Repeat(")", 90) + " }}{% endmacro %}{{ f() }}", "nested macro calls"},
	{"value in itself", "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "nesting of values"},
	{"value in itself as JSON", "{% set l = [] %}{% set x = l.append(l) %}{{ l|tojson }}", "nesting of values"},
	{"value in itself compared", "{% set l = [] %}{% set m = [] %}{% do l.append(m) %}{% do m.append(l) %}{{ l == m }}", "nesting of values"},
	{"value in itself called", "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns() }}", ""},
	{"value in itself joined", "{% set l = [] %}{% do l.append(l) %}{{ l|join(',') }}{{ joiner(l)() }}", "nesting of values"},
	{"value in itself called by block", "{% set ns = namespace() %}{% set ns.a = ns %}{% set c = cycler(ns) %}{% call c.next() %}{% endcall %}", "nesting of values"},
	{"value in itself upper", "{% set l = [] %}{% do l.append(l) %}{{ l|upper }}{{ l|unique }}", "nesting of values"},
	{"value in itself as key", "{% set l = [] %}{% do l.append(l) %}{{ {l: 1} }}", "nesting of values"},
	{"shared values", "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}", "memory"},
	{"shared values as JSON", "{% set ns = namespace(l={}) %}{% for i in range(60) %}{% set ns.l = {'a': ns.l, 'b': ns.l} %}{% endfor %}{{ ns.l|tojson }}", "memory"},
	{"shared values compared", "{% set ns = namespace(l=[1], m=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}", "memory"},
	{"appending while looping", "{% set l = [1] %}{% for x in l %}{% do l.append(x) %}{% endfor %}{% for a in range(100000) %}{% do l.extend(l) %}{% endfor %}", "memory"},
	{"kept lists", "{% set ns = namespace(l=[]) %}{% for a in range(1000) %}{% for b in range(10000) %}{% set ns.l = [ns.l, 1, 2, 3, 4, 5, 6, 7, 8, 9] %}{% endfor %}{% endfor %}", ""},
	{"kept macros", "{% set l = [] %}{% for a in range(100000) %}{% for b in range(1000) %}{% macro m() %}{% endmacro %}{% do l.append(m) %}{% endfor %}{% endfor %}", ""},
	{"many keys", "{% set d = {} %}{% for a in range(100000) %}{% for b in range(1000) %}{% do d.update({a ~ 'x' ~ b: 1}) %}{% endfor %}{% endfor %}", ""},
	{"splitting", "{% set s = 'a,' * 1000000 %}{% for i in range(1000) %}{% set l = s.split(',') %}{% endfor %}", "memory"},
	{"trimming", "{% set s = 'é' * 1000000 %}{% for i in range(1000) %}{{ s.strip(s ~ 'a' ~ s) }}{% endfor %}", "memory"},
	{"sorting", "{{ range(1000000)|sort }}", ""},
	{"searching", "{% set s = 'a' * 4000000 %}{% for i in range(1000000) %}{% if ('a' * 1000 ~ 'b') in s %}{% endif %}{% endfor %}", ""},
	{"indexing a long text", "{% set s = 'é' * 2000000 %}{% for i in range(1000000) %}{% set c = s[i] %}{% endfor %}", "memory"},
	{"raising a long text", "{{ raise_exception('x' * 10 ** 9) }}", "memory"},
	{"a long date", "{{ strftime_now('%B' * 10 ** 9) }}", "memory"},
	{"looping in a filter", "{% set l = range(100000) %}{% for a in l if a in l %}{% for b in l if b in l %}{% endfor %}{% endfor %}", ""},
	{"not a number", "{{ 1 % 0 }}", ""},
	{"least number", "{{ (-9223372036854775807 - 1) // -1 }}{{ (-9223372036854775807 - 1) % -1 }}{{ 'x'[-9223372036854775807 - 1] }}{{ 1 / 0 }}", ""},
}

// TestHostileTemplates expects each to end with an error, the process whole, in about the time it is given.
func TestHostileTemplates(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			compiled, err := template.Compile(c.template)
			if err != nil {
				t.Fatal(err)
			}
			compiled.SetTime(10 * time.Minute)
			if c.want == "" {
				compiled.SetTime(200 * time.Millisecond)
			}
			_, err = render(t.Context(), t, compiled, json.RawMessage(`{}`))
			if err == nil {
				t.Fatal("no error")
			}
			limit, ok := errors.AsType[*template.LimitError](err)
			if c.want != "" && (!ok || limit.What != c.want) {
				t.Errorf("got %v, want the limit of %s", err, c.want)
			}
		})
	}
}

// TestCompileRefuses expects templates that cannot be compiled, or that a parser might choke on, to be named as such.
func TestCompileRefuses(t *testing.T) {
	for _, c := range []struct{ name, template, want string }{
		{"include", "a\n{% include 'x' %}", `line 2: the statement "include" is not supported`},
		{"import", "{% import 'x' as y %}", `line 1: the statement "import" is not supported`},
		{"from", "{% from 'x' import y %}", `line 1: the statement "from" is not supported`},
		{"extends", "{% extends 'x' %}", `line 1: the statement "extends" is not supported`},
		{"unclosed output", "{{ x", "line 1: tag is not closed"},
		{"unclosed comment", "\n\n{# x", "line 3: comment is not closed"},
		{"unclosed raw", "{% raw %}x", "line 1: raw block is not closed"},
		{"unclosed string", "{{ 'x }}", "line 1: string is not closed"},
		{"unclosed if", "{% if x %}", "line 1: block is not closed, expected elif or else or endif"},
		{"unclosed for", "\n{% for x in y %}{% if x %}{% endif %}", "line 2: block is not closed, expected else or endfor"},
		{"stray end", "{% endif %}", `line 1: the statement "endif" is not supported`},
		{"missing operand", "{{ 1 + }}", "line 1: unexpected end of tag"},
		{"two values", "{{ a b }}", `line 1: unexpected "b"`},
		{"bracket mismatch", "{{ (a] }}", `line 1: unexpected "]"`},
		{"strange character", "{{ a ? b }}", "line 1: unexpected character '?'"},
		{"break outside", "{% break %}", "line 1: break outside a loop"},
		{"break in a macro in a loop", "{% for x in y %}{% macro f() %}{% break %}{% endmacro %}{% endfor %}", "line 1: break outside a loop"},
		{"reserved name read", "{{ __filter_upper }}", `line 1: the name "__filter_upper" is reserved`},
		{"reserved name set", "{% set __write = 1 %}", `line 1: the name "__write" is reserved`},
		{"reserved macro", "{% macro __round() %}{% endmacro %}", `line 1: the name "__round" is reserved`},
		{"reserved parameter", "{% macro f(__round) %}{% endmacro %}", `line 1: the name "__round" is reserved`},
		{"reserved loop variable", "{% for __round in x %}{% endfor %}", `line 1: the name "__round" is reserved`},
		{"dunder attribute", "{{ ''.__class__ }}", `line 1: the attribute "__class__" is reserved`},
		{"keyword as name", "{% set in = 1 %}", `line 1: unexpected "in"`},
		{"number too large", "{{ 99999999999999999999 }}", "line 1: the number 99999999999999999999 is too large"},
		{"deep brackets", "{{ " + strings.Repeat("(", 100_000), "line 1: brackets nest deeper than 200"},
		{"deep minus", "{{ " + strings.Repeat("-", 3000) + "1 }}", "line 1: expression nests deeper than 200"},
		{"deep filters", "{{ x" + strings.Repeat("|e", 1000) + " }}", "line 1: expression nests deeper than 200"},
		{"deep attributes", "{{ x" + strings.Repeat(".a", 1000) + " }}", "line 1: expression nests deeper than 200"},
		{"deep conditions", "{{ " + strings.Repeat("1 if x else ", 900) + "2 }}", "line 1: expression nests deeper than 200"},
		{"long chain", "{{ a" + strings.Repeat(" and a", 1000) + " }}", "line 1: expression nests deeper than 200"},
		{"long tag", "{{ a" + strings.Repeat(" + a", 10_000) + " }}", "line 1: tag has more than 4000 tokens"},
		{"deep blocks", strings.Repeat("{% if x %}", 5000), "line 60: blocks nest deeper than 60"},
		{"many tags", strings.Repeat("{{ x }}", 100_000), "line 1: more than 8000 tags"},
		{"large", strings.Repeat("x", 1<<20+1), "1048577 bytes, the limit is 1048576"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := c.template
			if c.name == "deep blocks" {
				source = strings.ReplaceAll(source, "%}{%", "%}\n{%")
			}
			_, err := template.Compile(source)
			syntax, ok := errors.AsType[*template.SyntaxError](err)
			if !ok || !strings.HasSuffix(syntax.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestRenderStopsWithItsContext(t *testing.T) {
	compiled, err := template.Compile("{% set r = range(1000) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := render(ctx, t, compiled, json.RawMessage(`{}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// FuzzTemplate compiles and renders any text as a template: it must end, without a panic, and what the translator
// takes the library must take.
func FuzzTemplate(f *testing.F) {
	for _, c := range hostile {
		f.Add(c.template)
	}
	var golden struct{ Cases []struct{ Template string } }
	readJSON(f, "testdata/constructs.json", &golden)
	for _, c := range golden.Cases {
		f.Add(c.Template)
	}
	vars := json.RawMessage(`{"x":{"a":[1,"é",null],"items":{}},"m":[{"role":"user","content":"hi"}],"s":"text","n":3,"l":[3,1,2]}`)
	f.Fuzz(func(t *testing.T, source string) {
		compiled, err := template.Compile(source)
		if err != nil {
			if _, ok := errors.AsType[*template.SyntaxError](err); !ok {
				translated, _ := template.Translate(source)
				t.Fatalf("the library refuses %q: %v", translated, err)
			}
			return
		}
		compiled.SetTime(20 * time.Millisecond)
		_, err = render(t.Context(), t, compiled, vars)
		if eval, ok := errors.AsType[*template.EvalError](err); ok && strings.Contains(eval.Reason, "runtime error") {
			t.Errorf("panic: %v", eval)
		}
	})
}
