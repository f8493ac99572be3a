package chat

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"

	"onebit/engine/chat/template"
)

// traits are what a template can take, learnt by trying it.
type traits struct {
	text      bool // content as a string
	parts     bool // content as a list of parts
	system    bool // a system message
	developer bool // a developer message
	objects   bool // the arguments of a tool call as an object rather than JSON text
	reasoning tags // around the model's thoughts; empty when the template knows none
	calls     callFormat
}

// probes of what a template takes. The words in capitals are looked for in what it renders.
const (
	probeText   = `[{"role": "user", "content": "PROBE"}]`
	probeParts  = `[{"role": "user", "content": [{"type": "text", "text": "PROBE"}]}]`
	probeSystem = `[{"role": "system", "content": "PROBE"}, {"role": "user", "content": "hello"}]`
	probeCall   = `[{"role": "user", "content": "hello"},
		{"role": "assistant", "content": "", "tool_calls": [
			{"id": "call00001", "type": "function", "function": {"name": "act", "arguments": ARGUMENTS}}]},
		{"role": "tool", "name": "act", "tool_call_id": "call00001", "content": "done"},
		{"role": "assistant", "content": "it is done"}, {"role": "user", "content": "thanks"}]`
	probeTools = `[{"type": "function", "function": {"name": "act", "description": "acts", "parameters": {
		"type": "object", "properties": {"what": {"type": "string", "description": "what"}}, "required": ["what"]}}}]`
)

// probe renders the small conversations above. What a template answers to one of them with an error, it cannot take.
func (t *Template) probe() (traits, error) {
	p := prober{t: t, end: time.Now().Add(template.MaxTime)}
	text, typed := p.render(probeText, ""), p.render(probeParts, "")
	found := traits{
		text:      strings.Contains(text, "PROBE"),
		parts:     strings.Contains(typed, "PROBE") && !strings.Contains(typed, "'text'") && !strings.Contains(typed, `"text"`),
		developer: strings.Contains(t.source, "developer"),
	}
	found.text = found.text || !found.parts
	asParts := func(s string) string {
		if found.text {
			return s
		}
		for _, word := range []string{"PROBE", "hello", "done", "it is done", "thanks"} {
			s = strings.ReplaceAll(s, `"content": "`+word+`"`, `"content": [{"type": "text", "text": "`+word+`"}]`)
		}
		return s
	}
	found.system = strings.Contains(p.render(asParts(probeSystem), ""), "PROBE")
	object := p.render(asParts(strings.Replace(probeCall, "ARGUMENTS", `{"what": "PROBE"}`, 1)), probeTools)
	inText := p.render(asParts(strings.Replace(probeCall, "ARGUMENTS", `"{\"what\": \"PROBE\"}"`, 1)), probeTools)
	found.objects = strings.Contains(object, "PROBE") && !strings.Contains(object, "'PROBE'") || !strings.Contains(inText, "PROBE")
	found.reasoning = declaredTags(t.source)
	found.calls = declaredCalls(t.source)
	return found, p.err
}

// prober renders probes, all in the time of one rendering. err is the limit that one went over.
type prober struct {
	t   *Template
	end time.Time
	err error
}

func (p *prober) render(messages, tools string) string {
	if p.err != nil {
		return ""
	}
	vars := map[string]jinja.Value{
		"bos_token": jinja.NewString(p.t.bos), "eos_token": jinja.NewString(p.t.eos),
		"add_generation_prompt": jinja.NewBool(true), "enable_thinking": jinja.NewBool(true),
	}
	vars["messages"], _ = template.Decode([]byte(messages), nil)
	if tools != "" {
		vars["tools"], _ = template.Decode([]byte(tools), nil)
	}
	ctx, cancel := context.WithDeadline(context.Background(), p.end)
	defer cancel()
	text, err := p.t.compiled.Render(ctx, vars, len(messages), time.Now())
	limit, over := errors.AsType[*LimitError](err)
	switch {
	case over:
		p.err = limit
	case ctx.Err() != nil:
		p.err = &LimitError{What: "time", Limit: template.MaxTime.String()}
	case err != nil:
		return ""
	}
	return text
}

// tags enclose the model's thoughts.
type tags struct{ open, close string }

// knownTags are those of the models met so far.
var knownTags = []tags{
	{"<think>", "</think>"},
	{"[THINK]", "[/THINK]"},
	{"<seed:think>", "</seed:think>"},
	{"<|START_THINKING|>", "<|END_THINKING|>"},
}

func declaredTags(source string) tags {
	i := slices.IndexFunc(knownTags, func(x tags) bool { return strings.Contains(source, x.close) })
	if i < 0 {
		return tags{}
	}
	return knownTags[i]
}
