package payload_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions/abi"
	"onebit/extensions/payload"
)

// all is an offer of everything.
func all() payload.Offer {
	return payload.Offer{Candidates: []string{"a", "b", "c"}, Classes: []string{"code", "prose"}, Params: []string{"temperature", "stop"}, RAG: true, Reject: true}
}

func TestReadDecision(t *testing.T) {
	tests := []struct {
		name, in string
		want     *abi.Decision
	}{
		{"nothing", "", nil},
		{"abstention", `{"v":1,"action":"abstain"}`, &abi.Decision{V: 1, Action: abi.ActionAbstain}},
		{"class", ` { "action" : "route" , "v" : 1.0 , "class":"code","confidence":0.75,"scores":{"code":0.75,"prose":2.5e-1}} `,
			&abi.Decision{V: 1, Action: abi.ActionRoute, Class: "code", Confidence: 0.75, Scores: map[string]float64{"code": 0.75, "prose": 0.25}}},
		{"route", `{"v":1,"action":"route","candidates":["c","a"],"params":{"temperature":0.5,"stop":["x",null]},"headers":{"x-laya-why":"é\t\u00e9\ud83d\ude00"},
			"rag":{"collection":"docs","top_k":3,"query":"q","more":{}},"reason":"because\n","ttl_s":60}`,
			&abi.Decision{V: 1, Action: abi.ActionRoute, Candidates: []string{"c", "a"}, Params: map[string]json.RawMessage{"temperature": []byte("0.5"), "stop": []byte(`["x",null]`)},
				Headers: map[string]string{"x-laya-why": "é\té😀"}, RAG: &abi.RAG{Collection: "docs", TopK: 3, Query: "q"}, Reason: "because\n", TTL: 60}},
		{"rejection", `{"v":1,"action":"reject","reject":{"status":429,"code":"slow_down","message":"later"}}`,
			&abi.Decision{V: 1, Action: abi.ActionReject, Reject: &abi.Reject{Status: 429, Code: "slow_down", Message: "later"}}},
		{"unknown members", `{"v":1,"action":"abstain","Action":"reject","new":{"a":[1,true,"x"]},"":null}`, &abi.Decision{V: 1, Action: abi.ActionAbstain}},
		{"16 deep", `{"v":1,"action":"abstain","x":` + strings.Repeat("[", 15) + strings.Repeat("]", 15) + `}`, &abi.Decision{V: 1, Action: abi.ActionAbstain}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := payload.ReadDecision([]byte(tt.in), all())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadDecisionVoid(t *testing.T) {
	with := func(s string) string { return `{"v":1,"action":"route",` + s + `}` }
	none := payload.Offer{}
	tests := []struct {
		name, in string
		o        payload.Offer
		want     string // in the error
	}{
		{"not JSON", "route", all(), "not an object"},
		{"space alone", " ", all(), "not an object"},
		{"array", "[]", all(), "not an object"},
		{"cut", `{"v":1,"action":"route"`, all(), "decision: the text ends too early"},
		{"more", `{"v":1,"action":"abstain"}{}`, all(), "something follows"},
		{"zero byte behind", "{\"v\":1,\"action\":\"abstain\"}\x00", all(), "something follows"},
		{"too long", `{"v":1,"action":"abstain","reason":"` + strings.Repeat("x", abi.MaxDecision) + `"}`, all(), "at most 16384"},
		{"no version", `{"action":"abstain"}`, all(), "version is missing"},
		{"version 2", `{"v":2,"action":"abstain"}`, all(), "v: 2 is not from 1 to 1"},
		{"no action", `{"v":1}`, all(), "action is missing"},
		{"action", `{"v":1,"action":"Route"}`, all(), `"Route" is no action`},
		{"key twice", `{"v":1,"action":"route","action":"abstain"}`, all(), "occurs twice"},
		{"key twice, escaped", `{"v":1,"action":"route","\u0061ction":"abstain"}`, all(), "occurs twice"},
		{"key twice, far down", with(`"x":{"y":[{"z":1,"z":1}]}`), all(), "x.y[0].z: this name occurs twice"},
		{"key that would break a line", with(`"\n\u001b[2J` + strings.Repeat("x", 300) + `":nul`), all(), "decision: ??[2J" + strings.Repeat("x", 195) + ": an unknown word"},
		{"many keys twice", with(`"x":{"` + strings.Join(strings.Split("abcdefghijklmnopqrstuvwxyz", ""), `":1,"`) + `":1,"q":1}`), all(), "x.q: this name occurs twice"},
		{"17 deep", with(`"x":` + strings.Repeat("[", 16) + strings.Repeat("]", 16)), all(), "nested deeper than 16"},
		{"class", with(`"class":"poem"`), all(), `"poem" was not offered`},
		{"class without classes", with(`"class":"code"`), none, "was not offered"},
		{"confidence", with(`"confidence":1.01`), all(), "not from 0 to 1"},
		{"confidence below", with(`"confidence":-0.1`), all(), "not from 0 to 1"},
		{"confidence text", with(`"confidence":"1"`), all(), "not a number"},
		{"confidence NaN", with(`"confidence":NaN`), all(), "not a number"},
		{"huge number", with(`"scores":{"code":1e999}`), all(), "out of range"},
		{"huge number, unknown member", with(`"x":1e999`), all(), "out of range"},
		{"score", with(`"scores":{"poem":1}`), all(), "was not offered"},
		{"bad number", with(`"x":01`), all(), "is not"},
		{"bad number 2", with(`"x":1.`), all(), "digit is missing"},
		{"bad number 3", with(`"x":-`), all(), "digit is missing"},
		{"bad number 4", with(`"x":1e+`), all(), "digit is missing"},
		{"bad number 5", with(`"x":+1`), all(), "not a number"},
		{"candidate", with(`"candidates":["a","z"]`), all(), `candidates[1]: "z" was not offered`},
		{"candidate twice", with(`"candidates":["a","a"]`), all(), "occurs twice"},
		{"candidate null", with(`"candidates":[null]`), all(), "not a string"},
		{"candidates null", with(`"candidates":null`), all(), "not an array"},
		{"trailing comma", with(`"candidates":["a",]`), all(), "not a string"},
		{"param", with(`"params":{"top_p":1}`), all(), "params.top_p: this parameter was not granted"},
		{"header's name", with(`"headers":{"x-other":"1"}`), all(), "begins with x-laya-"},
		{"header's name, upper case", with(`"headers":{"x-laya-A":"1"}`), all(), "begins with x-laya-"},
		{"header's name, colon", with(`"headers":{"x-laya-a: b\r\nset-cookie":"1"}`), all(), "begins with x-laya-"},
		{"header's name, empty", with(`"headers":{"x-laya-":"1"}`), all(), "begins with x-laya-"},
		{"header LF", with(`"headers":{"x-laya-a":"1\n"}`), all(), "control character"},
		{"header CR", with(`"headers":{"x-laya-a":"1\u000dset-cookie: a"}`), all(), "control character"},
		{"header NUL", with(`"headers":{"x-laya-a":"1\u0000"}`), all(), "control character"},
		{"header number", with(`"headers":{"x-laya-a":1}`), all(), "not a string"},
		{"rag not granted", with(`"rag":{"collection":"c","top_k":1}`), none, "was not granted"},
		{"rag without top_k", with(`"rag":{"collection":"c"}`), all(), "missing"},
		{"rag top_k", with(`"rag":{"collection":"c","top_k":1000000}`), all(), "not from 1 to 100"},
		{"rag top_k 2", with(`"rag":{"collection":"c","top_k":1.5}`), all(), "not a whole number"},
		{"reject not granted", `{"v":1,"action":"reject","reject":{"status":403,"code":"no","message":"no"}}`, none, "rejecting was not granted"},
		{"reject without how", `{"v":1,"action":"reject"}`, all(), "does not say how"},
		{"reject while routing", with(`"reject":{"status":403,"code":"no","message":"no"}`), all(), "does not reject"},
		{"reject 200", `{"v":1,"action":"reject","reject":{"status":200,"code":"no","message":"no"}}`, all(), "not from 400 to 499"},
		{"reject 500", `{"v":1,"action":"reject","reject":{"status":500,"code":"no","message":"no"}}`, all(), "not from 400 to 499"},
		{"reject code", `{"v":1,"action":"reject","reject":{"status":403,"code":"a b","message":"no"}}`, all(), "a code has"},
		{"reject message", `{"v":1,"action":"reject","reject":{"status":403,"code":"no"}}`, all(), "missing"},
		{"ttl", with(`"ttl_s":-1`), all(), "not from 0"},
		{"ttl for ever", with(`"ttl_s":1e15`), all(), "not from 0"},
		{"not UTF-8", with("\"reason\":\"\xff\""), all(), "not UTF-8"},
		{"not UTF-8, escaped", with("\"reason\":\"\\n\xff\""), all(), "not UTF-8"},
		{"half a character", with(`"reason":"\ud83d"`), all(), "half of a character"},
		{"half a character 2", with(`"reason":"\ud83d\u0041"`), all(), "half of a character"},
		{"half a character 3", with(`"reason":"\ude00x"`), all(), "half of a character"},
		{"control character", with("\"reason\":\"a\nb\""), all(), "control character"},
		{"escape", with(`"reason":"\x41"`), all(), "unknown escape"},
		{"escape 2", with(`"reason":"\u+041"`), all(), "unknown escape"},
		{"word", with(`"x":nul`), all(), "unknown word"},
		{"word 2", with(`"x":truth`), all(), "unknown word"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := payload.ReadDecision([]byte(tt.in), tt.o)
			if got != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %+v, %v; want an error with %q", got, err, tt.want)
			}
			if _, ok := errors.AsType[*payload.Error](err); !ok {
				t.Errorf("%T is no Error", err)
			}
		})
	}
}

// FuzzReadDecision: what is taken is JSON, keeps to the offer, and means the same when it is written and read again.
func FuzzReadDecision(f *testing.F) {
	f.Add([]byte(`{"v":1,"action":"route","class":"code","confidence":0.5,"candidates":["a","b"],"headers":{"x-laya-a":"b"},"params":{"stop":[]},"scores":{"code":1}}`))
	f.Add([]byte(`{"v":1,"action":"reject","reject":{"status":403,"code":"no","message":"no"},"rag":{"collection":"c","top_k":1},"ttl_s":3}`))
	f.Add([]byte(`{"v":1,"action":"abstain","a\ud83d\ude00":[[[{"x":-1.5e-7}]]]}`))
	o := all()
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := payload.ReadDecision(b, o)
		if err != nil {
			if d != nil {
				t.Fatal("a void decision came through in part")
			}
			return
		}
		if d == nil {
			if len(b) > 0 {
				t.Fatalf("%q is no opinion", b)
			}
			return
		}
		if !json.Valid(b) || len(b) > abi.MaxDecision {
			t.Fatalf("%q was taken", b)
		}
		for _, c := range d.Candidates {
			if !strings.Contains("abc", c) {
				t.Fatalf("candidate %q", c)
			}
		}
		for name, v := range d.Headers {
			if !strings.HasPrefix(name, "x-laya-") || strings.ContainsAny(name+v, "\r\n\x00") {
				t.Fatalf("header %q: %q", name, v)
			}
		}
		again, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		d2, err := payload.ReadDecision(again, o)
		if err != nil {
			if len(again) > abi.MaxDecision {
				return // encoding/json writes some characters longer
			}
			t.Fatalf("%q became %q: %v", b, again, err)
		}
		if third, err := json.Marshal(d2); err != nil || string(third) != string(again) {
			t.Fatalf("%q became %q, then %q", b, again, third)
		}
	})
}

func BenchmarkReadDecision(b *testing.B) {
	in := []byte(`{"v":1,"action":"route","class":"code","confidence":0.91,"scores":{"code":0.91,"prose":0.09},"candidates":["b","a"],"params":{"temperature":0.2},"headers":{"x-laya-policy":"size"},"reason":"a short question"}`)
	o := all()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := payload.ReadDecision(in, o); err != nil {
			b.Fatal(err)
		}
	}
}
