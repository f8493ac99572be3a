package wire

import (
	"encoding/json"
	"fmt"
	"strings"

	"onebit/engine"
)

var decisionFields = []field{
	{"model", isString},
	{"input", isInput},
	{"questions", isObjects},
	{"stream", isBool},
}

var systemOneFields = []field{
	{"model", isString},
	{"state", isText},
	{"images", isStrings},
	{"questions", isObject},
	{"stream", isBool},
}

func isText(path string, v []byte) error {
	if v[0] != '"' && v[0] != '{' && v[0] != '[' {
		return wrongType(path, "a string, an object or an array")
	}
	return nil
}

func isStrings(path string, v []byte) error { return each(path, v, "an array of strings", isString) }

// ParseDecision does for a request of OpenAI's decisions what ParseChat does for a chat.
func ParseDecision(body []byte) (*engine.Request, error) {
	req, err := parse(engine.Decision, body, decisionFields, "input", "questions")
	if err == nil {
		_, err = ReadDecisions(req)
	}
	return req, err
}

// ParseSystemOne does so for the form of System One.
func ParseSystemOne(body []byte) (*engine.Request, error) {
	req, err := parse(engine.SystemOne, body, systemOneFields, "state", "questions")
	if err == nil {
		_, err = ReadDecisions(req)
	}
	return req, err
}

// ReadDecisions takes apart a request that the parsers of decisions have read. What cannot be answered is an
// *engine.InvalidError that names the field.
func ReadDecisions(req *engine.Request) (*Decisions, error) {
	if req.Stream {
		return nil, wrongValue("stream", "false: decisions are not streamed")
	}
	d := &Decisions{Model: req.Model, SystemOne: req.Kind == engine.SystemOne}
	m := newMembers(req.Raw)
	for m.next() {
		var err error
		switch string(m.key) {
		case "state":
			d.State = textOf(m.value)
		case "images":
			if !isNull(m.value) {
				elements(m.value, func(_ int, v []byte) bool {
					s, _ := text(v)
					d.Images = append(d.Images, s)
					return true
				})
			}
		case "input":
			err = d.readInput(m.value)
		case "questions":
			err = d.readQuestions(m.value)
		}
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}

// textOf is a text, or the JSON of what is none.
func textOf(v []byte) string {
	if s, ok := text(v); ok {
		return s
	}
	return string(v)
}

// missingField says that a field has to be there.
func missingField(path string) error {
	return &engine.InvalidError{Param: path, Code: "missing_required_parameter", Message: fmt.Sprintf("%q is required", path)}
}

// object reads the members of an object into a map. A member that is there twice is refused.
func object(path string, v []byte) (map[string][]byte, error) {
	if err := isObject(path, v); err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	m := newMembers(v)
	for m.next() {
		key := string(m.key)
		if _, twice := all[key]; twice {
			return nil, &engine.InvalidError{Param: path + "." + key, Code: "duplicate_parameter", Message: fmt.Sprintf("%q appears twice", path+"."+key)}
		}
		if !isNull(m.value) {
			all[key] = m.value
		}
	}
	return all, nil
}

// required returns a member that must be a text.
func required(path string, o map[string][]byte, name string) (string, error) {
	v, ok := o[name]
	if !ok {
		return "", missingField(path + "." + name)
	}
	return optional(path, o, name, v)
}

// optional returns a member that is a text when it is there.
func optional(path string, o map[string][]byte, name string, v []byte) (string, error) {
	if v == nil {
		if v = o[name]; v == nil {
			return "", nil
		}
	}
	s, ok := text(v)
	if !ok {
		return "", wrongType(path+"."+name, "a string")
	}
	return s, nil
}

// readInput reads OpenAI's input. One message of a user is its text; of several items each has a line that says whose
// it is.
func (d *Decisions) readInput(v []byte) error {
	if s, ok := text(v); ok {
		d.State = s
		return nil
	}
	var heads, texts []string
	calls := map[string]bool{}
	err := each("input", v, "an array of items", func(path string, item []byte) error {
		o, err := object(path, item)
		if err != nil {
			return err
		}
		head, body, err := d.readItem(path, o, calls)
		heads, texts = append(heads, head), append(texts, body)
		return err
	})
	switch {
	case err != nil:
		return err
	case len(texts) == 0:
		return isEmpty("input")
	case len(texts) == 1 && heads[0] == "user":
		d.State = texts[0]
		return nil
	}
	var b strings.Builder
	for i := range texts {
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(heads[i] + ": " + texts[i])
	}
	d.State = b.String()
	return nil
}

// readItem reads one item of OpenAI's input.
func (d *Decisions) readItem(path string, o map[string][]byte, calls map[string]bool) (head, body string, err error) {
	kind, err := optional(path, o, "type", nil)
	if err != nil {
		return "", "", err
	}
	switch kind {
	case "", "message":
		role, err := required(path, o, "role")
		if err != nil {
			return "", "", err
		}
		switch role {
		case "user", "developer", "system", "assistant":
		default:
			return "", "", wrongValue(path+".role", "one of user, developer, system, assistant")
		}
		if o["content"] == nil {
			return "", "", missingField(path + ".content")
		}
		body, err = d.readParts(path+".content", o["content"])
		return role, body, err
	case "function_call", "custom_tool_call":
		member := map[string]string{"function_call": "arguments", "custom_tool_call": "input"}[kind]
		id, err := required(path, o, "call_id")
		if err != nil {
			return "", "", err
		}
		calls[id] = true
		name, err := required(path, o, "name")
		if err != nil {
			return "", "", err
		}
		body, err = required(path, o, member)
		return "call of " + name, body, err
	case "function_call_output", "custom_tool_call_output":
		id, err := required(path, o, "call_id")
		if err != nil {
			return "", "", err
		}
		if !calls[id] {
			return "", "", wrongValue(path+".call_id", "the id of a call before it")
		}
		if o["output"] == nil {
			return "", "", missingField(path + ".output")
		}
		body, err = d.readParts(path+".output", o["output"])
		return "result", body, err
	}
	return "", "", wrongValue(path+".type", "one of message, function_call, function_call_output, custom_tool_call, custom_tool_call_output")
}

// readParts reads a content: a text, or a list of parts.
func (d *Decisions) readParts(path string, v []byte) (string, error) {
	if s, ok := text(v); ok {
		return s, nil
	}
	var texts []string
	err := each(path, v, "a string or an array of parts", func(at string, part []byte) error {
		o, err := object(at, part)
		if err != nil {
			return err
		}
		kind, err := required(at, o, "type")
		if err != nil {
			return err
		}
		var s string
		switch kind {
		case "input_text", "output_text", "text":
			s, err = required(at, o, "text")
		case "refusal":
			s, err = required(at, o, "refusal")
		case "input_json":
			if o["data"] == nil {
				return missingField(at + ".data")
			}
			s, err = string(o["data"]), isObjectOrArray(at+".data", o["data"])
		case "input_image":
			s, err = required(at, o, "image_url")
			d.Images = append(d.Images, s)
			return err
		default:
			return wrongValue(at+".type", "one of input_text, input_image, input_json, output_text, refusal")
		}
		texts = append(texts, s)
		return err
	})
	return strings.Join(texts, "\n"), err
}

// readQuestions reads the questions of either form.
func (d *Decisions) readQuestions(v []byte) error {
	read := func(path, id string, value []byte) error {
		if len(d.Questions) == MaxQuestions {
			return wrongValue("questions", fmt.Sprintf("at most %d questions", MaxQuestions))
		}
		o, err := object(path, value)
		if err != nil {
			return err
		}
		q := Question{ID: id, Named: d.SystemOne}
		if d.SystemOne {
			err = q.readSystemOne(path, o)
		} else {
			err = d.readOpenAI(path, o, &q)
		}
		d.Questions = append(d.Questions, q)
		return err
	}
	var err error
	if d.SystemOne {
		seen := map[string]bool{}
		m := newMembers(v)
		for err == nil && m.next() {
			id := string(m.key)
			if seen[id] {
				return wrongValue("questions", "an object with each id once")
			}
			seen[id] = true
			err = read("questions."+id, id, m.value)
		}
	} else {
		err = each("questions", v, "an array of objects", func(at string, value []byte) error { return read(at, "", value) })
	}
	if err == nil && len(d.Questions) == 0 {
		return isEmpty("questions")
	}
	return err
}

// readOpenAI reads a question of OpenAI's form.
func (d *Decisions) readOpenAI(path string, o map[string][]byte, q *Question) (err error) {
	kind, err := required(path, o, "type")
	if err != nil {
		return err
	}
	if q.ID, err = optional(path, o, "name", nil); err != nil {
		return err
	}
	q.Named = o["name"] != nil
	if o["instructions"] == nil {
		return missingField(path + ".instructions")
	}
	if q.Instructions, err = d.readParts(path+".instructions", o["instructions"]); err != nil {
		return err
	}
	var list, name string
	switch kind {
	case "predicate":
		q.Ask = Predicate
		return nil
	case "choice":
		q.Ask, list, name = Choice, "choices", "value"
	case "score":
		q.Ask, list, name = Score, "levels", "label"
	default:
		return wrongValue(path+".type", "one of predicate, choice, score")
	}
	if o[list] == nil {
		return missingField(path + "." + list)
	}
	err = each(path+"."+list, o[list], "an array of objects", func(at string, value []byte) error {
		m, err := object(at, value)
		if err != nil {
			return err
		}
		var option Option
		switch v := m[name]; {
		case q.Ask == Choice && (string(v) == "true" || string(v) == "false"):
			option.Text, option.Bool = string(v), true
		default:
			if option.Text, err = required(at, m, name); err != nil {
				return err
			}
		}
		option.Description, err = optional(at, m, "description", nil)
		q.Options = append(q.Options, option)
		return err
	})
	if err != nil {
		return err
	}
	return q.checkOptions(path+"."+list, MaxChoices)
}

// readSystemOne reads a question of the form of System One.
func (q *Question) readSystemOne(path string, o map[string][]byte) error {
	kind, err := required(path, o, "type")
	if err != nil {
		return err
	}
	v := o["instructions"]
	if v == nil {
		return missingField(path + ".instructions")
	}
	if err := isText(path+".instructions", v); err != nil {
		return err
	}
	q.Instructions = textOf(v)
	criteria, at := o["criteria"], path+".criteria"
	switch kind {
	case "noul":
		q.Ask = Predicate
		if criteria == nil {
			return nil
		}
		m, err := object(at, criteria)
		if err != nil || m["true"] == nil && m["false"] == nil {
			return err
		}
		for _, name := range []string{"true", "false"} {
			description := ""
			if m[name] != nil {
				description = textOf(m[name])
			}
			q.Options = append(q.Options, Option{Text: name, Description: description, Bool: true})
		}
		return nil
	case "choice":
		q.Ask = Choice
		if criteria == nil {
			return missingField(at)
		}
		if _, err := object(at, criteria); err != nil {
			return err
		}
		m := newMembers(criteria)
		for m.next() {
			option := Option{Text: string(m.key)}
			if !isNull(m.value) {
				option.Description = textOf(m.value)
			}
			q.Options = append(q.Options, option)
		}
		return q.checkOptions(at, MaxChoices)
	case "score":
		q.Ask = Score
		if criteria == nil {
			return missingField(at)
		}
		if err := each(at, criteria, "an array of levels", func(_ string, v []byte) error {
			q.Options = append(q.Options, Option{Text: textOf(v)})
			return nil
		}); err != nil {
			return err
		}
		return q.checkOptions(at, MaxLevels)
	}
	return wrongValue(path+".type", "one of choice, score, noul")
}

// checkOptions wants some options, each its own.
func (q *Question) checkOptions(path string, most int) error {
	if n := len(q.Options); n < 2 || n > most {
		return wrongValue(path, fmt.Sprintf("2 to %d options, not %d", most, n))
	}
	seen := map[Option]bool{}
	for _, o := range q.Options {
		key := Option{Text: o.Text, Bool: o.Bool}
		switch {
		case strings.TrimSpace(o.Text) == "":
			return wrongValue(path, "options that are not empty")
		case seen[key] && q.Ask == Choice:
			return wrongValue(path, fmt.Sprintf("options that differ; %q is there twice", o.Text))
		}
		seen[key] = true
	}
	return nil
}

// MethodOf returns what an answer of decisions says of how it was made; empty when it says nothing.
func MethodOf(raw []byte) string {
	var said struct {
		Method string `json:"method"`
	}
	_ = json.Unmarshal(raw, &said) // an answer that is none says nothing
	return said.Method
}
