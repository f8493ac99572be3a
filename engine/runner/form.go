package runner

import (
	"encoding/json"
	"errors"
	"fmt"

	"onebit/engine/chat"
	"onebit/engine/grammar"
)

// form is what an answer must be: a schema's JSON, or a text of a grammar. The zero value is anything.
type form struct {
	expr    *grammar.Expr
	field   string // of the request that asks for it
	text    string // of a grammar, to be shown
	begun   string // what of the answer is there already
	grammar *grammar.Grammar
}

// readForm reads the fields that say what the answer must be, of which there may be one.
func readForm(f *fields) form {
	var found form
	set := func(field string, expr *grammar.Expr, err error) {
		if err != nil {
			f.fail(fromForm(field, err))
		}
		if found.field != "" {
			f.fail(invalid(field, "only one of grammar, json_schema and response_format may be given"))
		}
		found.field, found.expr = field, expr
	}
	if text := f.text("grammar", ""); text != "" {
		expr, err := grammar.GBNF(text)
		set("grammar", expr, err)
		found.text = text
		if f.boolean("grammar_lazy", false) {
			f.fail(unsupported("grammar_lazy", "a grammar that begins at a trigger is not supported"))
		}
	}
	if f.has("json_schema") {
		expr, err := grammar.JSON(f.raw["json_schema"])
		set("json_schema", expr, err)
	}
	if f.has("response_format") {
		format := f.object("response_format")
		field, schema := readFormat(format)
		f.merge("response_format", format)
		switch {
		case format.problem != nil || field == "":
		case schema == nil:
			set(field, grammar.Object(), nil)
		default:
			expr, err := grammar.JSON(schema)
			set(field, expr, err)
		}
	}
	return found
}

// readFormat reads "response_format": the field with the schema and the schema, nil for any object. There is no field where
// the answer may be any text.
func readFormat(format *fields) (field string, schema json.RawMessage) {
	switch kind := format.text("type", "text"); kind {
	case "text":
		return "", nil
	case "json_object":
		if format.has("schema") { // llama-server's
			return "response_format.schema", format.raw["schema"]
		}
		return "response_format", nil
	case "json_schema":
		if format.has("schema") && !format.has("json_schema") {
			return "response_format.schema", format.raw["schema"]
		}
		inner := format.object("json_schema")
		if !inner.has("schema") {
			format.fail(invalid("json_schema.schema", "it is required"))
		}
		return "response_format.json_schema.schema", inner.raw["schema"]
	default:
		format.fail(invalid("type", "expected text, json_object or json_schema, but got %q", kind))
		return "", nil
	}
}

// fromForm says why a form cannot be held to.
func fromForm(field string, err error) *problem {
	if e, ok := errors.AsType[*grammar.Error](err); ok && e.Path != "" {
		return unsupported(field, "%v", err)
	}
	return invalid(field, "%v", err)
}

// compile gets the form ready for answers of a vocabulary.
func (m *form) compile(v *grammar.Vocabulary) *problem {
	if m.expr == nil {
		return nil
	}
	g, err := grammar.Compile(m.expr, v)
	if err != nil {
		return fromForm(m.field, err)
	}
	m.grammar = g
	return nil
}

// begin follows one answer; nil is anything.
func (m *form) begin() (*grammar.Matcher, *problem) {
	if m.grammar == nil {
		return nil, nil
	}
	at := m.grammar.Matcher()
	switch ok, err := at.TakeText(m.begun); {
	case err != nil:
		return nil, fromForm(m.field, err)
	case !ok:
		return nil, invalid("messages", "the message to be continued does not begin what %q asks for", m.field)
	}
	return at, nil
}

// maxCalls bounds the calls of one answer that must call.
const maxCalls = 16

// chatForm completes the form of a chat's answer by calls that must be, or may be instead, and by thoughts before it.
func (s *service) chatForm(c *conversation, tools json.RawMessage, want choice) *problem {
	m := &c.set.form
	how, known := s.parts.Template.CallForm()
	switch {
	case want.must && m.field == "grammar":
		return invalid("grammar", "a grammar beside a call that is required is not supported")
	case want.must && !known:
		return unsupported("tool_choice", "the form of tool calls in this model's chat template is not known, so that none can be required; use auto")
	case want.must, m.expr != nil && m.field != "grammar" && known && len(c.tools) > 0:
		calls, p := callsForm(how, tools, want.one)
		if p != nil {
			return p
		}
		if want.must {
			m.expr, m.field = calls, "tool_choice"
		} else {
			m.expr = grammar.Any(m.expr, calls)
		}
	case m.expr == nil:
		return nil
	}
	if m.begun == "" {
		m.expr = thoughtful(m.expr, s.parts.Template.Thoughts(joined(c.parts)), c.reasoning)
	}
	return m.compile(s.chatWords())
}

// thoughtful puts thoughts before an answer: those that have begun, or such as the model may begin.
func thoughtful(e *grammar.Expr, t chat.Thoughts, split bool) *grammar.Expr {
	switch {
	case t.Begun:
		return grammar.Seq(grammar.Until(t.Close), grammar.Space(), e)
	case t.Over || t.Close == "" || !split:
		return e
	}
	// white space in front binds the model to no thoughts, and is dropped with them
	e = grammar.Shared(e)
	return grammar.Seq(grammar.Space(), grammar.Any(e, grammar.Seq(grammar.Text(t.Open), grammar.Until(t.Close), grammar.Space(), e)))
}

// callsForm is calls of the tools in the form of a template.
func callsForm(how chat.CallForm, tools json.RawMessage, single bool) (*grammar.Expr, *problem) {
	var list []json.RawMessage
	_ = json.Unmarshal(tools, &list) // it was read before
	var calls []*grammar.Expr
	var common grammar.Common
	for i, raw := range list {
		var t struct {
			Function struct {
				Name       string          `json:"name"`
				Parameters json.RawMessage `json:"parameters"`
			} `json:"function"`
		}
		if json.Unmarshal(raw, &t) != nil || t.Function.Name == "" {
			continue
		}
		call, err := grammar.Call(&common, how.NameKey, t.Function.Name, how.ArgumentsKey, t.Function.Parameters)
		if err != nil {
			return nil, fromForm(fmt.Sprintf("tools[%d].function.parameters", i), err)
		}
		if how.NameKey == "" {
			call = grammar.Seq(grammar.Text(t.Function.Name+how.NameEnd), call)
		}
		calls = append(calls, call)
	}
	if len(calls) == 0 {
		return nil, invalid("tool_choice", "a call is required and no tool is a function")
	}
	one := grammar.Shared(grammar.Any(calls...))
	open, end, another := grammar.Text(how.Open), grammar.Text(how.Close), grammar.Text(how.Another)
	most := maxCalls - 1
	if how.Single || single {
		most = 0
	}
	if how.Lists {
		return grammar.Seq(open, one, grammar.Repeat(grammar.Seq(another, one), 0, most), end), nil
	}
	if most == 0 {
		return grammar.Seq(open, one, end), nil
	}
	// what stands between two calls does not bind the model to a second one: it may be a line end before the end
	return grammar.Seq(open, one, end, grammar.Repeat(grammar.Seq(another, open, one, end), 0, most), grammar.Optional(another)), nil
}
