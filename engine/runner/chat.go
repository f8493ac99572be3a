package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"onebit/engine/chat"
	"onebit/engine/wire"
)

// conversation is a chat request, read and rendered.
type conversation struct {
	set       settings
	parts     []chat.Part // the rendered prompt
	ids       []int32
	tools     []string // whose calls are to be found in the answer
	reasoning bool     // thinking is to be split off
}

// chat answers /v1/chat/completions.
func (s *service) chat(w http.ResponseWriter, r *http.Request) *problem {
	body, p := readBody(r)
	if p != nil {
		return p
	}
	c, p := s.readChat(r.Context(), body)
	if p != nil {
		return p
	}
	j, p := s.newJob(c.set, [][]int32{c.ids})
	if p != nil {
		return p
	}
	return j.answer(w, r, newChatResponder(j, c))
}

// countChat answers how many tokens a chat's prompt has.
func (s *service) countChat(w http.ResponseWriter, r *http.Request) *problem {
	body, p := readBody(r)
	if p != nil {
		return p
	}
	c, p := s.readChat(r.Context(), body)
	if p != nil {
		return p
	}
	writeJSON(w, http.StatusOK, struct {
		Object string `json:"object"`
		Tokens int    `json:"input_tokens"`
	}{"response.input_tokens", len(c.ids)})
	return nil
}

// readChat reads a chat request and renders its prompt.
func (s *service) readChat(ctx context.Context, body []byte) (*conversation, *problem) {
	if s.parts.Template == nil {
		return nil, badBody("this model cannot chat, only complete text: %s", s.parts.NoTemplate)
	}
	if _, err := wire.ParseChat(body); err != nil {
		return nil, fromWire(err)
	}
	f, p := parseFields(body)
	if p != nil {
		return nil, p
	}
	c := &conversation{set: readSettings(f, s.vocab)}
	readChatProbs(f, &c.set)
	c.reasoning = c.set.reasoning != "none"
	c.set.Shown = s.markers
	tools, choice := readTools(f)
	choice.one = choice.one || !f.boolean("parallel_tool_calls", true)
	in := chat.Input{
		Messages: f.raw["messages"], Tools: tools, Kwargs: readKwargs(f),
		AddGenerationPrompt: f.boolean("add_generation_prompt", true), Protect: s.vocab.controlsIn(body),
	}
	if f.boolean("parse_tool_calls", true) {
		c.tools = toolNames(in.Tools)
	}
	messages := checkMessages(f)
	prefill := readPrefill(f, messages)
	if f.problem != nil {
		return nil, f.problem
	}
	if prefill {
		in.Messages, in.AddGenerationPrompt = markEnd(messages), false
	}
	parts, err := s.parts.Template.Parts(ctx, in)
	if err != nil {
		return nil, fromTemplate(err)
	}
	if prefill {
		var found bool
		if parts, found = cutAtEnd(parts); !found {
			return nil, invalid("messages", "the model's chat template cannot continue an assistant message")
		}
	}
	c.parts = parts
	c.ids = s.encodePrompt(parts)
	if prefill {
		c.set.form.begun = plainText(messages[len(messages)-1]["content"])
	}
	if p := s.chatForm(c, in.Tools, choice); p != nil {
		return nil, p
	}
	return c, nil
}

// fromTemplate turns what the chat template says into a problem. All of it is
// deterministic, so none of it asks for another try.
func fromTemplate(err error) *problem {
	if e, ok := errors.AsType[*chat.InputError](err); ok {
		return invalid(e.Field, "%s", e.Reason)
	}
	return invalid("messages", "%v", err)
}

// encodePrompt turns the rendered prompt into tokens. A template that writes the
// first token itself does not get a second one.
func (s *service) encodePrompt(parts []chat.Part) []int32 {
	if i := s.parts.Info; i.AddsBOS && i.BOS != "" && len(parts) > 0 && !parts[0].Plain {
		parts = slices.Clone(parts)
		parts[0].Text = strings.TrimPrefix(parts[0].Text, i.BOS)
	}
	return s.vocab.encodeParts(parts)
}

// readChatProbs reads OpenAI's fields for log-probabilities.
func readChatProbs(f *fields, set *settings) {
	set.Logprobs = f.boolean("logprobs", false)
	if f.has("top_logprobs") && !set.Logprobs {
		f.fail(invalid("top_logprobs", `it needs "logprobs" to be true`))
	}
	set.TopLogprobs = int(f.integer("top_logprobs", 0, 0, maxChatTop))
	if n := f.integer("n_probs", 0, 0, maxLogprobs); n > 0 {
		set.Logprobs, set.TopLogprobs = true, int(n)
	}
}

// readKwargs returns the template's further variables: chat_template_kwargs with
// what reasoning_effort says.
func readKwargs(f *fields) json.RawMessage {
	kwargs := f.object("chat_template_kwargs").raw
	effort := f.text("reasoning_effort", "")
	if thinking, ok := kwargs["enable_thinking"]; ok && jsonKind(thinking) != "boolean" {
		f.fail(invalid("chat_template_kwargs.enable_thinking", "expected a boolean, but got %s", article(jsonKind(thinking))))
	}
	if effort == "" {
		if len(kwargs) == 0 {
			return nil
		}
		return f.raw["chat_template_kwargs"] // as it came, with its order of keys
	}
	with := map[string]json.RawMessage{}
	for k, v := range kwargs {
		with[k] = v
	}
	if effort == "none" {
		with["enable_thinking"] = json.RawMessage("false")
	} else {
		with["reasoning_effort"] = encode(effort)
	}
	return encode(with)
}

// choice is what a request says of calls.
type choice struct {
	must bool // there must be one
	one  bool // there may be no second one
}

// readTools returns the tools that the model is told about, and what is said of their calls. A choice of one function
// leaves only that.
func readTools(f *fields) (all json.RawMessage, c choice) {
	tools := f.list("tools")
	checkTools(f, tools)
	word, named := readChoice(f)
	switch word {
	case "none":
		return nil, c
	case "auto", "required", "any":
	default:
		f.fail(invalid("tool_choice", "expected none, auto, required or a function, but got %q", word))
	}
	if named != "" {
		tools = slices.DeleteFunc(tools, func(t json.RawMessage) bool { return toolName(t) != named })
		if len(tools) == 0 {
			f.fail(invalid("tool_choice", "there is no tool %q", named))
		}
	}
	c = choice{must: word != "auto", one: named != ""}
	switch {
	case len(tools) == 0 && c.must:
		f.fail(invalid("tool_choice", "a call is required and there are no tools"))
		return nil, choice{}
	case len(tools) == 0:
		return nil, choice{}
	case named == "":
		return f.raw["tools"], c
	}
	return slices.Concat([]byte("["), bytes.Join(asBytes(tools), []byte(",")), []byte("]")), c
}

// readChoice reads "tool_choice": a word, or a function by its name, which is then required.
func readChoice(f *fields) (word, named string) {
	if !f.has("tool_choice") || jsonKind(f.raw["tool_choice"]) == "string" {
		return f.text("tool_choice", "auto"), ""
	}
	o := f.object("tool_choice")
	function := o.object("function")
	if named = function.text("name", ""); named == "" {
		f.fail(invalid("tool_choice", "expected a word or a function with its name"))
	}
	return "required", named
}

// checkTools wants a name for every function. Tools of other types are left to the model.
func checkTools(f *fields, tools []json.RawMessage) {
	for i, tool := range tools {
		t := &fields{}
		if json.Unmarshal(tool, &t.raw) != nil || t.text("type", "function") != "function" {
			continue
		}
		function := t.object("function")
		if name := function.text("name", ""); name == "" && function.problem == nil {
			function.fail(invalid("name", "it is required"))
		}
		t.merge("function", function)
		f.merge(fmt.Sprintf("tools[%d]", i), t)
	}
}

func toolName(tool json.RawMessage) string {
	var t struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(tool, &t) != nil {
		return ""
	}
	return t.Function.Name
}

// toolNames returns the names in an array of tools.
func toolNames(tools json.RawMessage) []string {
	var list []json.RawMessage
	if tools == nil || json.Unmarshal(tools, &list) != nil {
		return nil
	}
	var names []string
	for _, t := range list {
		if name := toolName(t); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func asBytes(list []json.RawMessage) [][]byte {
	out := make([][]byte, len(list))
	for i, raw := range list {
		out[i] = raw
	}
	return out
}

// readPrefill reports whether the answer continues the last message, which is
// the assistant's.
func readPrefill(f *fields, messages []map[string]json.RawMessage) bool {
	if len(messages) == 0 || role(messages[len(messages)-1]) != "assistant" {
		return false
	}
	if f.has("continue_final_message") && jsonKind(f.raw["continue_final_message"]) == "boolean" && !f.boolean("continue_final_message", true) {
		return false
	}
	if calls, ok := messages[len(messages)-1]["tool_calls"]; ok && jsonKind(calls) != "null" {
		f.fail(invalid(fmt.Sprintf("messages[%d]", len(messages)-1), "an assistant message with tool calls cannot be continued"))
	}
	return true
}
