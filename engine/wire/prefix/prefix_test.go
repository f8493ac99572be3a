package prefix_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine"
	"onebit/engine/chat"
	"onebit/engine/gguf"
	"onebit/engine/wire"
	"onebit/engine/wire/prefix"
)

func of(t testing.TB, kind engine.Kind, body string) prefix.Chain {
	t.Helper()
	c, err := prefix.Of("anna", "m", &engine.Request{Kind: kind, Raw: []byte(body)})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	first, ok := prefix.Parse(&engine.Request{Kind: kind, Raw: []byte(body)}).First("anna", "m")
	if ok != (len(c.Blocks) > 0) || ok && first != c.Blocks[0].Hash {
		t.Errorf("%.200s: the first block is not that of the chain", body)
	}
	return c
}

// shared is how many blocks two chains begin with in common.
func shared(a, b prefix.Chain) int {
	n := 0
	for n < len(a.Blocks) && n < len(b.Blocks) && a.Blocks[n].Hash == b.Blocks[n].Hash {
		n++
	}
	return n
}

const talk = `{"role":"system","content":"Be kind."},{"role":"user","content":"Hello"}`

// TestExtends: a later turn has the blocks of the earlier ones, however it is written.
func TestExtends(t *testing.T) {
	first := of(t, engine.Chat, `{"messages":[`+talk+`]}`)
	if len(first.Blocks) != 2 || first.Blocks[0].Bytes >= first.Blocks[1].Bytes {
		t.Fatalf("%+v", first)
	}
	for name, c := range map[string]struct {
		body         string
		blocks, want int // how many, and how many of the first turn's
	}{
		"the next turn":     {`{"messages":[` + talk + `,{"role":"assistant","content":"Hi"},{"role":"user","content":"And?"}]}`, 4, 2},
		"sampling":          {`{"temperature":1,"seed":7,"stream":true,"max_tokens":5,"user":"x","messages":[` + talk + `]}`, 2, 2},
		"a mark":            {`{"messages":[{"role":"system","content":[{"type":"text","text":"Be kind.","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":"Hello"}]}`, 2, 2},
		"one part":          {`{"messages":[{"role":"system","content":[{"text":"Be kind.","type":"text"}]},{"role":"user","content":["Hello"]}]}`, 2, 2},
		"space":             {"{ \"messages\" : [ {\"role\": \"system\", \"content\": \"Be kind.\"},\n{\"role\":\"user\",\"content\":\"Hello\"}]}", 2, 2},
		"nulls":             {`{"tools":null,"messages":[{"role":"system","name":null,"content":"Be kind."},{"role":"user","content":"Hello","tool_calls":null}]}`, 2, 2},
		"another role":      {`{"messages":[{"role":"system","content":"Be kind."},{"role":"assistant","content":"Hello"}]}`, 2, 1},
		"a longer message":  {`{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hello there"}]}`, 2, 1},
		"two parts":         {`{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":[{"type":"text","text":"Hel"},{"type":"text","text":"lo"}]}]}`, 3, 1},
		"a quote":           {`{"messages":[{"role":"system","content":"Be kind.\"},{\"role\":\"user\",\"content\":\"Hello"}]}`, 1, 0},
		"a call":            {`{"messages":[` + talk + `,{"role":"assistant","content":null,"tool_calls":[{"id":"x"}]},{"role":"tool","tool_call_id":"x","content":"1"}]}`, 4, 2},
		"a strange message": {`{"messages":[` + talk + `,7]}`, 3, 2},
	} {
		got := of(t, engine.Chat, c.body)
		if len(got.Blocks) != c.blocks || shared(first, got) != c.want {
			t.Errorf("%s: %d blocks, of which %d are the first turn's", name, len(got.Blocks), shared(first, got))
		}
	}
}

// TestApart: what changes a prompt from its beginning, or whose it is, changes every hash.
func TestApart(t *testing.T) {
	seen := map[[16]byte]string{}
	add := func(name string, c prefix.Chain) {
		for _, b := range c.Blocks {
			if other, ok := seen[b.Hash]; ok {
				t.Errorf("%s and %s share a block", name, other)
			}
			seen[b.Hash] = name
		}
	}
	for name, extra := range map[string]string{
		"nothing": `"n":1`, "tools": `"tools":[{"type":"function","function":{"name":"f"}}]`, "other tools": `"tools":[{"type":"function","function":{"name":"g"}}]`,
		"kwargs": `"chat_template_kwargs":{"enable_thinking":false}`, "effort": `"reasoning_effort":"low"`, "a form": `"response_format":{"type":"json_object"}`,
		"a key": `"prompt_cache_key":"k"`, "another key": `"prompt_cache_key":"k2"`, "a choice": `"tool_choice":"none"`, "something": `"strange":1`,
	} {
		add(name, of(t, engine.Chat, `{`+extra+`,"messages":[`+talk+`]}`))
	}
	add("a system prompt", of(t, engine.Chat, `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}]}`))
	for _, who := range [][2]string{{"bert", "m"}, {"anna", "m2"}, {"annam", ""}, {"", "annam"}, {"", ""}} {
		c, err := prefix.Of(who[0], who[1], &engine.Request{Kind: engine.Chat, Raw: []byte(`{"messages":[` + talk + `]}`)})
		if err != nil {
			t.Fatal(err)
		}
		add(fmt.Sprint(who), c)
	}
	add("a response", of(t, engine.Response, `{"input":[`+talk+`]}`))
}

// TestKinds: how the prompts of each kind are cut.
func TestKinds(t *testing.T) {
	long := strings.Repeat("x", 3*prefix.Piece)
	for name, c := range map[string]struct {
		kind   engine.Kind
		body   string
		blocks int
	}{
		"a completion":       {engine.Completion, `{"prompt":"` + long + `y"}`, 4},
		"one in a list":      {engine.Completion, `{"prompt":["` + long + `"]}`, 3},
		"tokens":             {engine.Completion, `{"prompt":[1,2,3]}`, 1},
		"tokens and text":    {engine.Completion, `{"prompt":["a",2]}`, 1},
		"tokens in a list":   {engine.Completion, `{"prompt":[[1,2]]}`, 1},
		"several":            {engine.Completion, `{"prompt":["a","b"]}`, 0},
		"a long message":     {engine.Chat, `{"messages":[{"role":"user","content":"` + long + `y"},{"role":"assistant","content":"` + long + `"}]}`, 7},
		"a response":         {engine.Response, `{"instructions":"x","input":"a"}`, 1},
		"items":              {engine.Response, `{"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:x"}]},{"type":"function_call_output","output":[{"type":"input_text","text":"b"}]}]}`, 3},
		"decisions":          {engine.Decision, `{"input":"` + long + `y","questions":[{"type":"predicate"}]}`, 4},
		"System One":         {engine.SystemOne, `{"state":"` + long + `","questions":{}}`, 3},
		"System One, object": {engine.SystemOne, `{"state":{"a":"` + long + `"},"questions":{}}`, 4},
		"System One, list":   {engine.SystemOne, `{"state":[1,2],"questions":{}}`, 1},
		"an embedding":       {engine.Embedding, `{"input":"a"}`, 0},
		"nothing":            {engine.Chat, `{}`, 0},
		"null":               {engine.Chat, `{"messages":null}`, 0},
	} {
		if got := of(t, c.kind, c.body); len(got.Blocks) != c.blocks {
			t.Errorf("%s: %d blocks, want %d", name, len(got.Blocks), c.blocks)
		}
	}
	a, b := of(t, engine.Decision, `{"input":"a","questions":[1]}`), of(t, engine.Decision, `{"input":"a","questions":[2]}`)
	if shared(a, b) != 1 {
		t.Error("other questions about a text are another prompt")
	}
	a, b = of(t, engine.Completion, `{"prompt":"`+long+`yes"}`), of(t, engine.Completion, `{"prompt":"`+long+`no"}`)
	if shared(a, b) != 3 {
		t.Errorf("texts that part behind three pieces share %d", shared(a, b))
	}
	image := of(t, engine.Chat, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,`+strings.Repeat("A", 1<<20)+`"}}]}]}`)
	if n := image.Blocks[0].Bytes; n < 1000 || n > 10000 {
		t.Errorf("an image counts for %d bytes", n)
	}
}

// marks shows which blocks are marked, and for how long.
func marks(c prefix.Chain) string {
	var all []string
	for i, b := range c.Blocks {
		if b.Mark {
			all = append(all, fmt.Sprint(i, " ", b.TTL))
		} else if b.TTL != 0 {
			all = append(all, "a time without a mark")
		}
	}
	return strings.Join(all, ", ")
}

func TestMarks(t *testing.T) {
	system := func(mark string) string {
		return `"messages":[{"role":"system","content":[{"type":"text","text":"a",` + mark + `},{"type":"text","text":"b"}]},{"role":"user","content":"c"}]`
	}
	many := `{"role":"user","content":"x","cache_control":{"type":"ephemeral"}}`
	for name, c := range map[string]struct {
		body string
		want string // or the beginning of an error
	}{
		"none":            {`{"messages":[` + talk + `]}`, ""},
		"ephemeral":       {`{` + system(`"cache_control":{"type":"ephemeral"}`) + `}`, "0 5m0s"},
		"an hour":         {`{` + system(`"cache_control":{"type":"ephemeral","ttl":"1h"}`) + `}`, "0 1h0m0s"},
		"five minutes":    {`{` + system(`"cache_control":{"type":"ephemeral","ttl":"5m"}`) + `}`, "0 5m0s"},
		"null":            {`{` + system(`"cache_control":null`) + `}`, ""},
		"a breakpoint":    {`{` + system(`"prompt_cache_breakpoint":{"mode":"explicit"}`) + `}`, "0 30m0s"},
		"its own time":    {`{` + system(`"prompt_cache_breakpoint":{"mode":"explicit","ttl":"12h"}`) + `}`, "0 12h0m0s"},
		"the request's":   {`{` + system(`"prompt_cache_breakpoint":{"mode":"explicit"}`) + `,"prompt_cache_options":{"ttl":"45s"}}`, "0 45s"},
		"of a message":    {`{"messages":[{"role":"user","content":"c","cache_control":{"type":"ephemeral"}}]}`, "0 5m0s"},
		"of a last part":  {`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}]}]}`, "1 5m0s"},
		"of a tool":       {`{"tools":[{"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral","ttl":"1h"}}],"messages":[` + talk + `]}`, "0 1h0m0s"},
		"too many":        {`{"messages":[` + strings.Repeat(many+",", 5) + many + `]}`, "3 5m0s, 4 5m0s, 5 5m0s"},
		"too many, alone": {`{"prompt_cache_options":{"mode":"explicit"},"messages":[` + strings.Repeat(many+",", 5) + many + `]}`, "2 5m0s, 3 5m0s, 4 5m0s, 5 5m0s"},

		"not ephemeral":    {`{` + system(`"cache_control":{"type":"forever"}`) + `}`, "cache_control is"},
		"no object":        {`{` + system(`"cache_control":true`) + `}`, "cache_control is"},
		"a strange type":   {`{` + system(`"cache_control":{"type":7}`) + `}`, "cache_control is"},
		"a strange time":   {`{` + system(`"cache_control":{"type":"ephemeral","ttl":"30m"}`) + `}`, "a cache_control's ttl"},
		"a time as number": {`{` + system(`"cache_control":{"type":"ephemeral","ttl":300}`) + `}`, "cache_control is"},
		"not explicit":     {`{` + system(`"prompt_cache_breakpoint":{"mode":"implicit"}`) + `}`, "prompt_cache_breakpoint is"},
		"too long":         {`{` + system(`"prompt_cache_breakpoint":{"mode":"explicit","ttl":"25h"}`) + `}`, "a ttl is"},
		"a strange mode":   {`{"prompt_cache_options":{"mode":"x"},"messages":[` + talk + `]}`, "the mode is"},
		"no time":          {`{"prompt_cache_options":{"ttl":"0s"},"messages":[` + talk + `]}`, "a ttl is"},
		"options as text":  {`{"prompt_cache_options":"x","messages":[` + talk + `]}`, "prompt_cache_options is"},
		"a long key":       {`{"prompt_cache_key":"` + strings.Repeat("k", 65) + `","messages":[` + talk + `]}`, "prompt_cache_key is"},
		"a key as number":  {`{"prompt_cache_key":7,"messages":[` + talk + `]}`, "prompt_cache_key is"},
		"a tool's":         {`{"tools":[{"cache_control":7}],"messages":[` + talk + `]}`, "cache_control is"},
		"before a good":    {`{"messages":[{"role":"user","cache_control":7,"content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]}]}`, "cache_control is"},
	} {
		c2, err := prefix.Of("", "", &engine.Request{Kind: engine.Chat, Raw: []byte(c.body)})
		if err != nil {
			if _, ok := errors.AsType[*engine.InvalidError](err); !ok || !strings.HasPrefix(err.Error(), c.want) || c.want == "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if got := marks(c2); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	c := of(t, engine.Chat, `{"prompt_cache_key":"k","prompt_cache_options":{"mode":"explicit","ttl":"30m"},"messages":[`+talk+`]}`)
	if c.Key != "k" || !c.Explicit || c.TTL != 30*time.Minute {
		t.Errorf("%+v", c)
	}
	if c = of(t, engine.Chat, `{"prompt_cache_retention":"24h","messages":[`+talk+`]}`); c.TTL != 24*time.Hour {
		t.Errorf("%+v", c)
	}
}

// templates are those that prompts are rendered with here: of a real model, and of the kinds that there are.
func templates(t *testing.T) map[string]*chat.Template {
	t.Helper()
	sources := map[string]string{
		"tools first": "{% if tools %}<|im_start|>tools\n{% for x in tools %}{{ x|tojson }}\n{% endfor %}<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}<call>{{ c.function|tojson }}</call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
		"parts":       "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %};{% endfor %}",
		"no system":   "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}",
	}
	paths := []string{os.Getenv("ONEBIT_TEST_MODELS")}
	if dir, err := os.UserCacheDir(); err == nil {
		paths = append(paths, filepath.Join(dir, "1bit", "models"))
	}
	for _, dir := range paths {
		if found, _ := filepath.Glob(filepath.Join(dir, "b179c9523d0e", "*.gguf")); len(found) > 0 && dir != "" {
			f, err := gguf.Open(found[0])
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			sources["smollm2"], _ = f.String("tokenizer.chat_template")
			break
		}
	}
	if sources["smollm2"] == "" {
		t.Fatal("SmolLM2 is not there: get it with `make test` or `bin/1bit model pull smollm2`")
	}
	all := map[string]*chat.Template{}
	for name, source := range sources {
		made, err := chat.New(source, "", "")
		if err != nil {
			t.Fatal(name, err)
		}
		all[name] = made
	}
	return all
}

// someMessage is a message made up from a seed, in one of the forms that clients write.
func someMessage(r *rand.Rand, i int) string {
	role := []string{"user", "assistant"}[i%2]
	if i == 0 {
		role = "system"
	}
	words := []string{"yes", "no", `a \"quote\"`, `\n`, "ä", `{\"a\":1}`, "code", " "}
	text := func() string {
		var b strings.Builder
		for range 1 + r.IntN(5) {
			b.WriteString(words[r.IntN(len(words))])
		}
		if r.IntN(4) == 0 {
			b.WriteString(strings.Repeat("long ", r.IntN(3000)))
		}
		return b.String()
	}
	mark := ""
	if r.IntN(3) == 0 {
		mark = `,"cache_control":{"type":"ephemeral"}`
	}
	switch r.IntN(4) {
	case 0:
		return fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":"%s"%s}]}`, role, text(), mark)
	case 1:
		return fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":"%s"},{"type":"text","text":"%s"%s}]}`, role, text(), text(), mark)
	case 2:
		return fmt.Sprintf(`{"content":"%s","role":%q%s}`, text(), role, mark)
	}
	return fmt.Sprintf(`{"role":%q,"content":"%s"}`, role, text())
}

// TestRendered: requests with equal blocks have prompts that begin alike, as far as the blocks go.
func TestRendered(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	all := templates(t)
	render := func(template *chat.Template, messages []string, more bool) string {
		in := chat.Input{Messages: json.RawMessage("[" + strings.Join(messages, ",") + "]"), AddGenerationPrompt: more,
			Tools: json.RawMessage(`[{"type":"function","function":{"name":"f"}}]`)}
		text, err := template.Render(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	chain := func(messages []string) prefix.Chain {
		return of(t, engine.Chat, `{"tools":[{"type":"function","function":{"name":"f"}}],"messages":[`+strings.Join(messages, ",")+`]}`)
	}
	proven := 0
	for range 60 {
		var a []string
		for i := range 3 + r.IntN(5) {
			a = append(a, someMessage(r, i))
		}
		at := 1 + r.IntN(len(a))
		b := append([]string{}, a[:at]...)
		for i := range 1 + r.IntN(3) {
			b = append(b, someMessage(r, at+i))
		}
		k, whole := shared(chain(a), chain(b)), 0
		for whole < min(len(a), len(b)) && len(chain(a[:whole+1]).Blocks) <= k {
			whole++
		}
		if whole < at {
			t.Fatalf("of %d equal messages %d are shared", at, whole)
		}
		pieces := k
		if whole > 0 {
			pieces -= len(chain(a[:whole]).Blocks)
		}
		for name, template := range all {
			if name == "no system" && whole < 2 {
				continue // the first message alone is rendered in another way
			}
			x, y := render(template, a, true), render(template, b, true)
			same := 0
			for same < len(x) && same < len(y) && x[same] == y[same] {
				same++
			}
			if before := render(template, a[:whole], false); same < len(before) || pieces > 0 && same < len(before)+pieces*prefix.Piece/4 {
				t.Fatalf("%s: %d blocks, %d messages and %d pieces are shared, but of the prompts %d bytes of %d and %d", name, k, whole, pieces, same, len(x), len(y))
			}
			proven++
		}
	}
	if proven < 200 {
		t.Errorf("only %d pairs", proven)
	}
}

func TestSteady(t *testing.T) {
	const line = `x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;`
	for name, c := range map[string]struct {
		kind engine.Kind
		body string
		want string // "" for no change
	}{
		"a line":       {engine.Chat, `{"messages":[{"role":"system","content":"` + line + `\nYou are kind."},{"role":"user","content":"x"}]}`, `{"messages":[{"role":"system","content":"You are kind."},{"role":"user","content":"x"}]}`},
		"empty lines":  {engine.Chat, `{"messages":[{"role":"system","content":"` + line + `\n\n\n  You"}]}`, `{"messages":[{"role":"system","content":"  You"}]}`},
		"a part":       {engine.Chat, `{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"` + line + `"},{"type":"text","text":"You"}]}, {"role":"user","content":"x"}],"n":1}`, `{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"You"}]},{"role":"user","content":"x"}],"n":1}`},
		"a text part":  {engine.Chat, `{"messages":[{"role":"developer","content":["` + line + `","You"]}]}`, `{"messages":[{"role":"developer","content":["You"]}]}`},
		"a message":    {engine.Chat, `{"messages":[{"role":"system","content":"` + line + `"},{"role":"user","content":"x"}]}`, `{"messages":[{"role":"user","content":"x"}]}`},
		"instructions": {engine.Response, `{"instructions":"` + line + `\nYou","input":"x"}`, `{"instructions":"You","input":"x"}`},
		"an item":      {engine.Response, `{"input":[{"role":"system","content":"` + line + `\r\nYou"}]}`, `{"input":[{"role":"system","content":"You"}]}`},
		"an escape":    {engine.Chat, `{"messages":[{"role":"system","content":"x-anthropic-billing-header: a\\nb\nYou"}]}`, `{"messages":[{"role":"system","content":"You"}]}`},

		"of a user":         {engine.Chat, `{"messages":[{"role":"user", "content":"` + line + `\nx"}]}`, ""},
		"of a tool":         {engine.Chat, `{"messages":[{"role":"tool", "content":"` + line + `\nx"},{"role":"system","content":"y"}]}`, ""},
		"further down":      {engine.Chat, `{"messages":[{"role":"system", "content":"Files:\n` + line + `\nx"}]}`, ""},
		"inside of a line":  {engine.Chat, `{"messages":[{"role":"system", "content":"The x-anthropic-billing-header: is secret"}]}`, ""},
		"nothing else":      {engine.Chat, `{"messages":[{"role":"system", "content":"` + line + `"}]}`, ""},
		"none":              {engine.Chat, `{"messages":[{"role":"system", "content":"You"}]}`, ""},
		"a completion":      {engine.Completion, `{"prompt":"` + line + `\nx"}`, ""},
		"a strange content": {engine.Chat, `{"messages":[{"role":"system", "content":7,"x":"` + line + `"}, 7]}`, ""},
	} {
		req := &engine.Request{Kind: c.kind, Raw: []byte(c.body), Model: "m"}
		got, n := prefix.Steady(req)
		switch {
		case c.want == "" && (got != req || n != 0):
			t.Errorf("%s: %d bytes are gone: %s", name, n, got.Raw)
		case c.want == "":
		case string(got.Raw) != c.want || n != len(c.body)-len(c.want) || got.Model != "m" || string(req.Raw) != c.body:
			t.Errorf("%s: %d bytes are gone: %s", name, n, got.Raw)
		}
	}
	if got := prefix.SteadyText(line + "\n" + line + "\n\nYou\n" + line); got != "You\n"+line {
		t.Errorf("%q", got)
	}
}

func TestUnmarked(t *testing.T) {
	const mark = `"cache_control":{"type":"ephemeral"}`
	body := `{` + mark + `,"tools":[{"type":"function",` + mark + `}],"messages":[{"role":"user","content":[{` + mark + `,"type":"text","text":"a","prompt_cache_breakpoint":{"mode":"explicit"}}],` + mark + `},{"role":"user","content":"say cache_control"}]}`
	want := `{"tools":[{"type":"function"}],"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"user","content":"say cache_control"}]}`
	req := &engine.Request{Kind: engine.Chat, Raw: []byte(body)}
	bare := prefix.Unmarked(req)
	if diff := cmp.Diff(want, string(bare.Raw)); diff != "" {
		t.Error(diff)
	}
	if string(req.Raw) != body || prefix.Unmarked(bare) != bare {
		t.Error("a request was changed that must not be")
	}
	if shared(of(t, engine.Chat, body), of(t, engine.Chat, want)) != 2 {
		t.Error("marks are part of a hash")
	}
}

// FuzzOf: whatever body passes for a request, there is an answer, it is the same again, marks do not count, and one more
// message leaves the blocks that were there.
func FuzzOf(f *testing.F) {
	f.Add([]byte(`{"messages":[` + talk + `],"tools":[{"cache_control":{"type":"ephemeral"}}]}`))
	f.Add([]byte(`{"prompt":["a",2],"prompt_cache_key":"k"}`))
	f.Add([]byte(`{"input":[{"role":"user","content":[{"type":"input_text","text":"a","prompt_cache_breakpoint":{"mode":"explicit"}}]}],"prompt_cache_options":{"mode":"explicit","ttl":"30m"}}`))
	f.Add([]byte(`{"state":{"a":[]},"questions":{"q":{"type":"noul","instructions":"x"}}}`))
	f.Add([]byte(`{"messages":[{"role":"system","content":"x-anthropic-billing-header: a\nYou"},{"role":"user","content":[{"cache_control":null},"x"]}]}`))
	parsers := []func([]byte) (*engine.Request, error){wire.ParseChat, wire.ParseCompletion, wire.ParseResponse, wire.ParseDecision, wire.ParseSystemOne}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, parse := range parsers {
			req, err := parse(body)
			if err != nil {
				continue
			}
			c, err := prefix.Of("s", "m", req)
			if err != nil {
				if _, ok := errors.AsType[*engine.InvalidError](err); !ok || c.Blocks != nil {
					t.Fatalf("%T: %v", err, err)
				}
				continue
			}
			again, _ := prefix.Of("s", "m", req)
			bare := prefix.Unmarked(req)
			unmarked, err := prefix.Of("s", "m", bare)
			if err != nil || shared(c, again) != len(c.Blocks) || shared(c, unmarked) != len(c.Blocks) || !json.Valid(bare.Raw) {
				t.Fatalf("%v: %d blocks, again %d, unmarked %d: %s", err, len(c.Blocks), shared(c, again), shared(c, unmarked), bare.Raw)
			}
			for i, b := range c.Blocks {
				if i > 0 && b.Bytes <= c.Blocks[i-1].Bytes || b.Mark == (b.TTL == 0) {
					t.Fatalf("%+v", c.Blocks)
				}
			}
			steady, n := prefix.Steady(req)
			if !json.Valid(steady.Raw) || (n == 0) != (steady == req) || n < 0 {
				t.Fatalf("%d: %s", n, steady.Raw)
			}
			if req.Kind == engine.Chat {
				longer := append([]byte{}, body[:strings.LastIndexByte(string(body), '}')]...)
				more := wire.AppendMember(nil, append(longer, '}'), "messages", append(messagesOf(body), `,{"role":"user","content":"more"}]`...))
				next, err := prefix.Of("s", "m", &engine.Request{Kind: engine.Chat, Raw: more})
				if err != nil || shared(c, next) != len(c.Blocks) || len(next.Blocks) != len(c.Blocks)+1 {
					t.Fatalf("%v: %d of %d blocks are left in %s", err, shared(c, next), len(c.Blocks), more)
				}
			}
		}
	})
}

// messagesOf is the list of messages without its closing bracket.
func messagesOf(body []byte) (list []byte) {
	wire.Walk(body, func(m wire.Member) bool {
		if string(m.Key) == "messages" {
			list = append([]byte{}, body[m.Start:m.End-1]...)
		}
		return true
	})
	return list
}

func BenchmarkOf(b *testing.B) {
	var messages []string
	for i := range 40 {
		messages = append(messages, fmt.Sprintf(`{"role":"user","content":"%d %s"}`, i, strings.Repeat("some text ", 25)))
	}
	agent := `{"tools":[{"type":"function","function":{"name":"f","description":"` + strings.Repeat("x", 2000) + `"}}],"messages":[` + strings.Join(messages, ",") + `]}`
	for name, body := range map[string]string{"agent 13KB": agent, "one text 10KB": `{"messages":[{"role":"user","content":"` + strings.Repeat("some text ", 1000) + `"}]}`} {
		req := &engine.Request{Kind: engine.Chat, Raw: []byte(body)}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := prefix.Of("s", "m", req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
