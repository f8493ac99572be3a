package wire_test

import (
	"encoding/json"
	"errors"
	"testing"

	"onebit/engine"
	"onebit/engine/wire"
)

func TestStrict(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		kind           engine.Kind
	}{
		{"all known", `{"model":"m", "messages":[{"role":"user","content":"{\"n_discard\":1}"}],"max_tokens":5}`,
			`{"model":"m","messages":[{"role":"user","content":"{\"n_discard\":1}"}],"max_tokens":5}`, engine.Chat},
		{"a slot and a discard", `{"id_slot":1,"messages":[],"n_discard":-1,"top_k":3}`, `{"messages":[],"top_k":3}`, engine.Chat},
		{"an escaped name", `{"n_d\u0069scard":-1,"m\u006fdel":"x"}`, `{"model":"x"}`, engine.Chat},
		{"an upstream", `{"api_base":"http://evil.test","base_url":"x","prompt":"p"}`, `{"prompt":"p"}`, engine.Completion},
		{"another kind's", `{"messages":[],"input":"x"}`, `{"input":"x"}`, engine.Embedding},
		{"a template", `{"chat_template":"{{ x }}","messages":[]}`, `{"messages":[]}`, engine.Chat},
		{"nothing", ` { } `, `{}`, engine.Chat},
		{"only unknown", `{"a":1,"b":{"c":[2]}}`, `{}`, engine.Chat},
		{"llama-server's own", `{"content":"x","add_special":true,"model":"m","slot_id":3}`, `{"content":"x","add_special":true,"model":"m"}`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := wire.Strict(c.kind, []byte(c.in))
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

func TestStrictRefuses(t *testing.T) {
	for _, c := range []struct{ name, in, param string }{
		{"twice", `{"max_tokens":1,"max_tokens":2}`, "max_tokens"},
		{"twice, escaped", `{"max_tokens":1,"m\u0061x_tokens":2}`, "max_tokens"},
		{"too large", `{"n_predict":99999999999}`, "n_predict"},
		{"too small", `{"min_keep":-99999999999}`, "min_keep"},
		{"endless", `{"typical_p":1e999}`, "typical_p"},
		{"no object", `[]`, ""},
		{"no JSON", `{"a":NaN}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := wire.Strict(engine.Chat, []byte(c.in))
			e, ok := errors.AsType[*engine.InvalidError](err)
			if !ok || e.Param != c.param {
				t.Errorf("got %s, %v", out, err)
			}
		})
	}
}

func FuzzStrict(f *testing.F) {
	f.Add(`{"model":"m","id_slot":1,"messages":[]}`)
	f.Add(`{"m\u006fdel":"x", "x":{"y":[1,2]}}`)
	f.Fuzz(func(t *testing.T, in string) {
		out, err := wire.Strict(engine.Chat, []byte(in))
		if err != nil {
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(out, &members); err != nil {
			t.Fatalf("%v in %s from %s", err, out, in)
		}
		for _, name := range []string{"id_slot", "n_discard", "chat_template", "api_base"} {
			if _, ok := members[name]; ok {
				t.Errorf("%s is in %s", name, out)
			}
		}
		again, err := wire.Strict(engine.Chat, out)
		if err != nil || string(again) != string(out) {
			t.Errorf("%s became %s, %v", out, again, err)
		}
	})
}
