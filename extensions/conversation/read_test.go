package conversation_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions/conversation"
)

// plain is Read in few words, by encoding/json.
func plain(raw []byte) (conversation.Prompt, error) {
	var b map[string]json.RawMessage
	if err := json.Unmarshal(raw, &b); err != nil {
		return conversation.Prompt{}, err
	}
	if b == nil {
		return conversation.Prompt{}, fmt.Errorf("null")
	}
	var p conversation.Prompt
	p.IDs = conversation.IDs{Conversation: named(b["conversation"]), Session: named(b["session_id"]), Previous: named(b["previous_response_id"])}
	var list []json.RawMessage
	p.Tools = json.Unmarshal(b["tools"], &list) == nil && len(list) > 0
	p.JSON = format(b["response_format"]) || format(members(b["text"])["format"])
	add := func(role string, raw json.RawMessage) {
		text, images, ok := said(raw)
		if p.Images = p.Images || images; ok {
			p.Turns = append(p.Turns, conversation.Turn{Role: role, Text: text})
		}
	}
	add("system", b["system"])
	add("system", b["instructions"])
	all, _ := messages(b["messages"], false)
	for _, m := range all {
		add(m.role, m.content)
	}
	if len(all) > 0 {
		return p, nil
	}
	if all, ok := messages(b["input"], true); ok {
		for _, m := range all {
			add(m.role, m.content)
		}
		return p, nil
	}
	var text string
	if b["input"] != nil && json.Unmarshal(b["input"], &text) == nil && string(b["input"]) != "null" {
		add("user", b["input"])
		return p, nil
	}
	before := len(p.Turns)
	if add("user", b["prompt"]); len(p.Turns) > before {
		return p, nil
	}
	p.Images = p.Images || json.Unmarshal(b["images"], &list) == nil && len(list) > 0
	if text, ok := value(b["state"]); ok {
		p.Turns = append(p.Turns, conversation.Turn{Role: "user", Text: text})
	}
	return p, nil
}

// value is a text, or the JSON of an object or a list.
func value(raw json.RawMessage) (text string, ok bool) {
	if len(raw) > 0 && (raw[0] == '{' || raw[0] == '[') {
		return string(raw), true
	}
	return text, len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &text) == nil
}

func members(raw json.RawMessage) (m map[string]json.RawMessage) {
	_ = json.Unmarshal(raw, &m) // what is no object has none
	return m
}

func named(raw json.RawMessage) (text string) {
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return text
	}
	_ = json.Unmarshal(members(raw)["id"], &text)
	return text
}

func format(raw json.RawMessage) bool {
	var kind string
	_ = json.Unmarshal(members(raw)["type"], &kind)
	return strings.HasPrefix(kind, "json")
}

type message struct {
	role    string
	content json.RawMessage
}

func messages(raw json.RawMessage, mixed bool) (all []message, listed bool) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return nil, false
	}
	for _, one := range list {
		m := members(one)
		var kind, role string
		if m == nil || m["type"] != nil && json.Unmarshal(m["type"], &kind) != nil || m["role"] != nil && json.Unmarshal(m["role"], &role) != nil {
			continue
		}
		if !mixed || kind == "" || kind == "message" {
			all = append(all, message{role, m["content"]})
		}
	}
	return all, true
}

func said(raw json.RawMessage) (text string, images, ok bool) {
	if string(raw) == "null" || raw == nil {
		return "", false, false
	}
	if json.Unmarshal(raw, &text) == nil {
		return text, false, true
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return "", false, false
	}
	var texts []string
	for _, one := range list {
		var t string
		if string(one) != "null" && json.Unmarshal(one, &t) == nil {
			texts = append(texts, t)
			continue
		}
		m := members(one)
		var kind string
		if m == nil || m["type"] != nil && json.Unmarshal(m["type"], &kind) != nil || m["text"] != nil && json.Unmarshal(m["text"], &t) != nil {
			continue
		}
		if strings.Contains(kind, "image") {
			images = true
		} else if kind == "input_json" {
			data, _ := value(m["data"])
			texts = append(texts, data)
		} else if t != "" {
			texts = append(texts, t)
		}
	}
	return strings.Join(texts, "\n"), images, true
}

// twice tells whether an object has two members of one name, of which either may count.
func twice(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	var open []map[string]bool // of each bracket: the names; nil for a list
	var key []bool
	for {
		t, err := d.Token()
		if err != nil {
			return err != io.EOF
		}
		switch t {
		case json.Delim('{'):
			open, key = append(open, map[string]bool{}), append(key, true)
			continue
		case json.Delim('['):
			open, key = append(open, nil), append(key, false)
			continue
		case json.Delim('}'), json.Delim(']'):
			open, key = open[:len(open)-1], key[:len(key)-1]
		default:
			if n := len(open) - 1; n >= 0 && open[n] != nil && key[n] {
				name := t.(string)
				if open[n][name] {
					return true
				}
				open[n][name], key[n] = true, false
				continue
			}
		}
		if n := len(open) - 1; n >= 0 && open[n] != nil {
			key[n] = true
		}
	}
}

// bodies are of all forms.
var bodies = []string{
	`{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"text","text":"b"}]}]}`,
	`{"instructions":"x","input":[{"role":"user","content":"y"}],"conversation":{"id":"z"}}`,
	`{"prompt":["a","b"],"session_id":7}`, `{"messages":{"role":1},"system":[[["x"]]]}`,
	`{"conversation":{"id":"c1"},"tools":[{"type":"function"}],"response_format":{"type":"json_schema"},
		"messages":[{"content":"S","role":"system"},{"role":"user","content":["three",null,{"type":"text","text":"four"},{"type":"image_url","image_url":{}}]},{"role":3},7,null,{}]}`,
	`{"text":{"format":{"type":"json_object","x":[{}]}},"input":[{"type":"reasoning","role":"user","content":"no"},{"type":null,"role":"user","content":[]}],"previous_response_id":"resp_1"}`,
	`{"input":"é\ud83d\ude00\ud83d \u00e9\n\t\"\\\/\b\f\r","mess\u0061ges":[]}`, `{"input":null,"prompt":"p","tools":[ ],"messages":null}`,
	`{"a":-0.5e+10,"b":[1,2.0,0,1E5,true,false,null],"c":"0123456789abcdefghijklmnopqrstuvwxyz"}`, "{\"input\":\"\xff\xfe a long tail behind it\"}",
	`{"state":"I was charged twice.","images":["data:,"],"questions":{"a":{"type":"noul","instructions":"Is it late?"}}}`, `{"state": {"mail" : [1, "x"]}}`,
	`{"state":["\ud800"],"images":[]}`, `{"state":7,"prompt":null}`, `{"state":"s","prompt":"p"}`, `{"state":"s","input":"i","images":[1]}`, `{"state":null,"messages":[]}`,
	`{"input":[{"role":"user","content":[{"type":"input_json","data":{"a": 1}},{"type":"input_json","data":7},{"type":"input_json"},{"data":[2]}]}]}`,
	`{}`, `{"messages":[]}`, `{"messages":[],"input":[]}`, ` { } `, `[]`, `null`, ``, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":1e}`, `{"a":tru}`, `{"a":"\x"}`,
	`{"a":"\u12g4"}`, "{\"a\":\"\n\"}", `{"a":"`, `{"a":"\`, `{"a":"\u1`, `{"a":[1,]}`, `{"a":[1 2]}`, `{"a":1}x`, `{"a":1 "b":2}`, `{"a":[}`, `{1:2}`,
}

// agree holds Read to plain.
func agree(t *testing.T, raw []byte) {
	t.Helper()
	want, wrong := plain(raw)
	got, err := conversation.Read(raw)
	if (err != nil) != (wrong != nil) {
		t.Fatalf("%q: %v, encoding/json says %v", raw, err, wrong)
	}
	if err == nil && !twice(raw) {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q: %s", raw, diff)
		}
	}
}

// TestReadIsPlain: the scanner finds what encoding/json finds.
func TestReadIsPlain(t *testing.T) {
	for _, b := range bodies {
		agree(t, []byte(b))
		for cut := range len(b) {
			agree(t, []byte(b[:cut]))
		}
	}
	deep := func(n int) []byte {
		return []byte(`{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}")
	}
	agree(t, deep(9_999))
	agree(t, deep(10_000))
	agree(t, deep(1_000_000))
}

// FuzzRead: whatever comes, it is taken as encoding/json takes it, and one more message leaves the ids that were there.
func FuzzRead(f *testing.F) {
	for _, b := range bodies {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		agree(t, raw)
		p, err := conversation.Read(raw)
		if err != nil {
			return
		}
		a := conversation.Of("t", nil, p)
		if b := conversation.Of("t", nil, p); a.ID != b.ID || len(a.ID) != 32 || a.Turn < 1 {
			t.Fatalf("%+v, then %+v", a, b)
		}
		before := conversation.Rolling("t", p.Turns)
		after := conversation.Rolling("t", append(slices.Clone(p.Turns), conversation.Turn{Role: "user", Text: "one more"}))
		user := len(after) > len(before) // there was a message of the user before
		if user && !slices.Equal(before, after[:len(before)]) {
			t.Fatalf("%v became %v", before, after)
		}
	})
}

// long is a chat of so many bytes.
func long(size int) []byte {
	var m []map[string]string
	for i := 0; ; i++ {
		m = append(m, map[string]string{"role": []string{"user", "assistant"}[i%2], "content": strings.Repeat(fmt.Sprintf("Line %d of what was said, with \"quotes\" and more.\n", i), 20)})
		b, err := json.Marshal(map[string]any{"model": "auto", "messages": m})
		if err != nil {
			panic(err)
		}
		if len(b) >= size {
			return b
		}
	}
}

func BenchmarkRead(b *testing.B) {
	words := strings.Repeat("Some words of a prompt. ", 32<<10/48)
	plain := []byte(`{"model":"auto","messages":[{"role":"user","content":"` + words + `"},{"role":"assistant","content":"` + words + `"},{"role":"user","content":"Go on."}]}`)
	for _, bb := range []struct {
		name string
		body []byte
	}{{"plain", plain}, {"code", long(10_000)}} {
		b.Run(bb.name+" read", func(b *testing.B) {
			b.SetBytes(int64(len(bb.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conversation.Read(bb.body); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(bb.name+" name", func(b *testing.B) {
			p, err := conversation.Read(bb.body)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(bb.body)))
			b.ReportAllocs()
			for b.Loop() {
				conversation.Of("k1", nil, p)
			}
		})
	}
}
