package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"

	"onebit/engine/chat/template"
)

// variables are what the template sees of a request.
func (t *Template) variables(in Input, g *guards) (map[string]jinja.Value, error) {
	vars := map[string]jinja.Value{
		"bos_token":       jinja.NewString(t.bos),
		"eos_token":       jinja.NewString(t.eos),
		"enable_thinking": jinja.NewBool(true),
		"date_string":     jinja.NewString(in.Now.Format("02 Jan 2006")),
		"datetime":        jinja.NewString(in.Now.Format("Jan 02 2006")),
	}
	if present(in.Kwargs) {
		kwargs, err := template.Decode(in.Kwargs, g.mark)
		if err != nil || !kwargs.IsDict() {
			return nil, &InputError{"chat_template_kwargs", "must be a JSON object" + because(err)}
		}
		for k, v := range kwargs.AsDict().Data {
			if k == "enable_thinking" && !v.IsBool() {
				return nil, &InputError{"chat_template_kwargs.enable_thinking", "must be true or false"}
			}
			if !strings.HasPrefix(k, "__") {
				vars[k] = v
			}
		}
	}
	vars["add_generation_prompt"] = jinja.NewBool(in.AddGenerationPrompt)
	delete(vars, "tools")
	if present(in.Tools) {
		tools, err := template.Decode(in.Tools, g.mark)
		if err != nil || !tools.IsList() {
			return nil, &InputError{"tools", "must be a JSON array" + because(err)}
		}
		if tools.AsList().Len() > 0 {
			vars["tools"] = tools
		}
	}
	messages, err := t.messages(in.Messages, g)
	vars["messages"] = messages
	return vars, err
}

func present(raw json.RawMessage) bool {
	s := strings.TrimSpace(string(raw))
	return s != "" && s != "null"
}

func because(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// messages decodes the conversation and puts it into the form that the template can take.
func (t *Template) messages(raw json.RawMessage, g *guards) (jinja.Value, error) {
	v, err := template.Decode(raw, g.mark)
	if err != nil || !v.IsList() {
		return jinja.Undefined(), &InputError{"messages", "must be a JSON array" + because(err)}
	}
	list := v.AsList()
	if list.Len() == 0 {
		return jinja.Undefined(), &InputError{"messages", "must not be empty"}
	}
	for i := range list.Items {
		if err := t.message(&list.Items[i], fmt.Sprintf("messages[%d]", i)); err != nil {
			return jinja.Undefined(), err
		}
	}
	if !t.traits.system {
		mergeSystem(list)
	}
	return v, nil
}

// message puts one message into form: absent and null content becomes "", other nulls go, content parts become what
// the template reads, tool calls likewise.
func (t *Template) message(v *jinja.Value, field string) error {
	if !v.IsDict() {
		return &InputError{field, "must be an object"}
	}
	role, ok := v.AsDict().Get("role")
	if !ok || !role.IsString() {
		return &InputError{field + ".role", "must be a string"}
	}
	out := jinja.NewDict()
	m := out.AsDict()
	m.Set("role", role)
	m.Set("content", jinja.NewString(""))
	for _, k := range v.AsDict().Keys {
		if x := v.AsDict().Data[k]; !x.IsNone() {
			m.Set(k, x)
		}
	}
	if role.AsString() == "developer" && !t.traits.developer {
		m.Set("role", jinja.NewString("system"))
	}
	if r, ok := m.Get("reasoning"); ok && r.IsString() && !m.Has("reasoning_content") {
		m.Set("reasoning_content", r)
	}
	content, err := t.content(m.Data["content"], field+".content")
	if err != nil {
		return err
	}
	m.Set("content", content)
	if calls, ok := m.Get("tool_calls"); ok {
		if !calls.IsList() {
			return &InputError{field + ".tool_calls", "must be an array"}
		}
		if calls.AsList().Len() == 0 {
			drop(m, "tool_calls")
		}
		for i := range calls.AsList().Items {
			if err := t.toolCall(&calls.AsList().Items[i], fmt.Sprintf("%s.tool_calls[%d]", field, i)); err != nil {
				return err
			}
		}
	}
	*v = out
	return nil
}

func drop(d *jinja.Dict, key string) {
	delete(d.Data, key)
	d.Keys = slices.DeleteFunc(d.Keys, func(k string) bool { return k == key })
}

// content is a message's content as the template reads it: a string or a list of text parts.
func (t *Template) content(v jinja.Value, field string) (jinja.Value, error) {
	switch {
	case v.IsString() && t.traits.text || v.IsString() && v.AsString() == "":
		return v, nil
	case v.IsString():
		part := jinja.NewDict()
		part.AsDict().Set("type", jinja.NewString("text"))
		part.AsDict().Set("text", v)
		return jinja.NewList([]jinja.Value{part}), nil
	case !v.IsList():
		return jinja.Undefined(), &InputError{field, "must be a string or an array of parts"}
	}
	var texts []string
	for i, part := range v.AsList().Items {
		at := fmt.Sprintf("%s[%d]", field, i)
		if !part.IsDict() {
			return jinja.Undefined(), &InputError{at, "must be an object"}
		}
		kind, text := part.AsDict().Data["type"], part.AsDict().Data["text"]
		if !kind.IsString() || kind.AsString() != "text" {
			return jinja.Undefined(), &InputError{at + ".type", "only text parts are supported"}
		}
		if !text.IsString() {
			return jinja.Undefined(), &InputError{at + ".text", "must be a string"}
		}
		texts = append(texts, text.AsString())
	}
	if t.traits.parts {
		return v, nil
	}
	return jinja.NewString(strings.Join(texts, "\n")), nil
}

// toolCall puts one call of the assistant's into form: the function's name before its arguments, and those as an
// object or as JSON text, whichever the template takes.
func (t *Template) toolCall(v *jinja.Value, field string) error {
	if !v.IsDict() {
		return &InputError{field, "must be an object"}
	}
	function, ok := v.AsDict().Get("function")
	if !ok || !function.IsDict() {
		return &InputError{field + ".function", "must be an object"}
	}
	name, ok := function.AsDict().Get("name")
	if !ok || !name.IsString() {
		return &InputError{field + ".function.name", "must be a string"}
	}
	out := jinja.NewDict()
	f := out.AsDict()
	f.Set("name", name)
	f.Set("arguments", jinja.NewDict())
	for _, k := range function.AsDict().Keys {
		f.Set(k, function.AsDict().Data[k])
	}
	f.Set("arguments", t.arguments(f.Data["arguments"]))
	v.AsDict().Set("function", out)
	return nil
}

// arguments turns the arguments of a call into an object or into JSON text. Text that is no JSON, as models write it
// now and then, stays text.
func (t *Template) arguments(v jinja.Value) jinja.Value {
	switch {
	case v.IsNone():
		return t.arguments(jinja.NewDict())
	case v.IsString() && t.traits.objects:
		if o, err := template.Decode([]byte(v.AsString()), nil); err == nil && o.IsDict() {
			return o
		}
	case !v.IsString() && !t.traits.objects:
		return jinja.NewString(template.JSON(v))
	}
	return v
}

// mergeSystem moves the text of a leading system message to the front of the next one.
func mergeSystem(list *jinja.List) {
	first := list.Items[0].AsDict()
	if first.Data["role"].AsString() != "system" || list.Len() == 1 {
		return
	}
	second, text := list.Items[1].AsDict(), first.Data["content"]
	list.Items = list.Items[1:]
	content := second.Data["content"]
	switch {
	case text.IsList() && content.IsList():
		second.Set("content", jinja.NewList(slices.Concat(text.AsList().Items, content.AsList().Items)))
	case text.IsString() && content.IsString() && content.AsString() != "":
		second.Set("content", jinja.NewString(text.AsString()+"\n"+content.AsString()))
	case text.IsString() && content.IsString():
		second.Set("content", text)
	}
}
