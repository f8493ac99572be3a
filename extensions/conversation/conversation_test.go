package conversation_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/extensions/conversation"
)

func read(t testing.TB, body string) conversation.Prompt {
	t.Helper()
	p, err := conversation.Read([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return p
}

func of(t testing.TB, body string) conversation.Identity {
	t.Helper()
	return conversation.Of("anna", nil, read(t, body))
}

// TestSame: forms of one conversation, and its later turns, have one id.
func TestSame(t *testing.T) {
	first := of(t, `{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hello there"}]}`)
	if len(first.ID) != 32 || first.Turn != 1 {
		t.Fatalf("%+v", first)
	}
	for name, tt := range map[string]struct {
		body string
		turn int
	}{
		"the next turn": {`{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hello there"},{"role":"assistant","content":"Hi"},{"role":"user","content":"How are you?"}]}`, 2},
		"with a tool":   {`{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hello there"},{"role":"assistant","content":null,"tool_calls":[{}]},{"role":"tool","content":"42"},{"role":"user","content":"And?"}]}`, 2},
		"parts":         {`{"messages":[{"role":"system","content":[{"type":"text","text":"Be kind."}]},{"role":"user","content":[{"type":"text","text":"Hello there"}]}]}`, 1},
		"space":         {`{"messages":[{"role":"system","content":" Be kind.\n"},{"role":"user","content":"Hello there "}]}`, 1},
		"developer":     {`{"messages":[{"role":"developer","content":"Be kind."},{"role":"user","content":"Hello there"}]}`, 1},
		"another model": {`{"model":"other","temperature":2,"tools":[{"type":"function"}],"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hello there"}]}`, 1},
		"Anthropic":     {`{"system":"Be kind.","messages":[{"role":"user","content":[{"type":"text","text":"Hello there"}]}]}`, 1},
		"a billing line": {`{"system":[{"type":"text","text":"x-anthropic-billing-header: cch=1f3a;"},{"type":"text","text":"Be kind."}],
			"messages":[{"role":"user","content":"Hello there"}]}`, 1},
		"Responses":         {`{"instructions":"Be kind.","input":"Hello there"}`, 1},
		"Responses, a list": {`{"instructions":"Be kind.","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hello there"}]},{"type":"reasoning","content":"x"},{"role":"assistant","content":"Hi"},{"role":"user","content":"More"}]}`, 2},
		"a strange member":  {`{"text":7,"response_format":"x","messages":[7,{"role":"system","content":"Be kind."},{"role":"user","content":"Hello there"}]}`, 1},
	} {
		got := of(t, tt.body)
		if got.ID != first.ID || got.Turn != tt.turn || len(got.Alike) != tt.turn {
			t.Errorf("%s: %+v, the first turn is %+v", name, got, first)
		}
	}
}

// TestDifferent: other conversations have other ids.
func TestDifferent(t *testing.T) {
	seen := map[conversation.ID]string{}
	for name, id := range map[string]conversation.ID{
		"a":            of(t, `{"messages":[{"role":"user","content":"a"}]}`).ID,
		"b":            of(t, `{"messages":[{"role":"user","content":"b"}]}`).ID,
		"a as system":  of(t, `{"messages":[{"role":"system","content":"a"}]}`).ID,
		"a, then b":    of(t, `{"messages":[{"role":"system","content":"a"},{"role":"user","content":"b"}]}`).ID,
		"ab":           of(t, `{"messages":[{"role":"user","content":"ab"}]}`).ID,
		"nothing":      of(t, `{}`).ID,
		"another's":    conversation.Of("bert", nil, read(t, `{"messages":[{"role":"user","content":"a"}]}`)).ID,
		"by id":        of(t, `{"conversation":"a","messages":[{"role":"user","content":"a"}]}`).ID,
		"by id, bert":  conversation.Of("bert", nil, read(t, `{"conversation":"a","messages":[{"role":"user","content":"a"}]}`)).ID,
		"by session":   of(t, `{"session_id":"a"}`).ID,
		"a state":      of(t, `{"state":"one text","questions":{}}`).ID,
		"another":      of(t, `{"state":"another text","questions":{}}`).ID,
		"a JSON":       of(t, `{"state":{"mail":"one"},"questions":{}}`).ID,
		"another JSON": of(t, `{"state":{"mail":"two"},"questions":{}}`).ID,
		"a part":       of(t, `{"input":[{"role":"user","content":[{"type":"input_json","data":{"x":1}}]}]}`).ID,
		"another part": of(t, `{"input":[{"role":"user","content":[{"type":"input_json","data":{"x":2}}]}]}`).ID,
		"by an answer": of(t, `{"previous_response_id":"a"}`).ID,
		"by header":    conversation.Of("anna", http.Header{"X-Session-Id": {"a"}}, conversation.Prompt{}).ID,
	} {
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s are one conversation", name, other)
		}
		seen[id] = name
	}
}

// TestRolling: conversations that began alike part where they differ, and each goes on with the ids that it had.
func TestRolling(t *testing.T) {
	turn := func(role, text string) conversation.Turn { return conversation.Turn{Role: role, Text: text} }
	opening := []conversation.Turn{turn("system", "s"), turn("user", "hello")}
	one := append(slices.Clone(opening), turn("assistant", "hi"), turn("user", "go on"), turn("assistant", "so"), turn("user", "more"))
	two := append(slices.Clone(opening), turn("assistant", "what?"), turn("user", "go on"))
	a, b, first := conversation.Rolling("t", one), conversation.Rolling("t", two), conversation.Rolling("t", opening)
	if len(first) != 1 || len(a) != 3 || len(b) != 2 {
		t.Fatal(first, a, b)
	}
	if a[0] != first[0] || b[0] != first[0] || a[1] == b[1] {
		t.Errorf("%v and %v, from %v", a, b, first)
	}
	if diff := cmp.Diff(a[:2], conversation.Rolling("t", one[:4])); diff != "" {
		t.Error(diff)
	}
	// fixed for ever: what is kept under an id must be found by the next release
	if first[0] != "3c451e4870241729d6e85eac94d8eb6d" {
		t.Errorf("the id of a known opening is %s", first[0])
	}
}

func TestExplicit(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for name, tt := range map[string]struct {
		h    http.Header
		body conversation.IDs
		want string
	}{
		"none":            {},
		"ours":            {header("x-1bit-conversation", "7", "x-session-id", "8"), conversation.IDs{Conversation: "9"}, "x-1bit-conversation:7"},
		"a session":       {header("x-session-id", "8"), conversation.IDs{Conversation: "9"}, "x-session-id:8"},
		"a coding agent":  {header("x-claude-code-session-id", "5"), conversation.IDs{}, "x-claude-code-session-id:5"},
		"the body":        {header(), conversation.IDs{Conversation: "9", Session: "10", Previous: "11"}, "conversation:9"},
		"the body's next": {header(), conversation.IDs{Session: "10", Previous: "11"}, "session:10"},
		"an answer":       {header(), conversation.IDs{Previous: "11"}, "previous:11"},
		"too long":        {header("x-1bit-conversation", strings.Repeat("x", 257)), conversation.IDs{}, ""},
		"no text":         {header(), conversation.IDs{Conversation: "a\nb"}, ""},
	} {
		got, ok := conversation.Explicit(tt.h, tt.body)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
	id := conversation.Of("t", header("x-session-id", "8"), read(t, `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]}`))
	if id.Turn != 2 || id.Alike != nil {
		t.Errorf("%+v", id)
	}
}

func TestRead(t *testing.T) {
	p := read(t, `{"conversation":{"id":"c1"},"tools":[{"type":"function"}],"response_format":{"type":"json_schema"},
		"messages":[{"role":"system","content":"S"},{"role":"user","content":"one"},{"role":"assistant","content":"two"},
		{"role":"user","content":["three",{"type":"text","text":"four"},{"type":"image_url","image_url":{}}]}]}`)
	want := conversation.Prompt{
		IDs: conversation.IDs{Conversation: "c1"}, Tools: true, Images: true, JSON: true,
		Turns: []conversation.Turn{{Role: "system", Text: "S"}, {Role: "user", Text: "one"}, {Role: "assistant", Text: "two"}, {Role: "user", Text: "three\nfour"}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	if p.LastUser() != "three\nfour" || p.System() != "S" || p.Whole() != "S\none\ntwo\nthree\nfour\n" {
		t.Errorf("%q %q %q", p.LastUser(), p.System(), p.Whole())
	}
	if _, err := conversation.Read([]byte(`[1]`)); err == nil {
		t.Error("a list is no body")
	}
}

// TestLongTexts: a text of up to 1 KiB counts in full, a longer one by its length and its checksums. Ids are kept over restarts,
// so what they are made of must not change.
func TestLongTexts(t *testing.T) {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	for _, size := range []int{0, 1, 512, 1022, 1023, 1024, 1025, 1990, 2048, 4096, 32 << 10} {
		turns := []conversation.Turn{{Role: "system", Text: strings.Repeat("s", size)}, {Role: "user", Text: "u" + strings.Repeat("x", size)}}
		var sum [32]byte
		for n, texts := range [][]string{{"conversation 1", "anna"}, {"system", turns[0].Text}, {"user", turns[1].Text}} {
			if n == 1 && size == 0 {
				continue
			}
			one := sum[:]
			for _, t := range texts {
				one = binary.LittleEndian.AppendUint64(slices.Clip(one), uint64(len(t)))
				if len(t) <= 1024 {
					one = append(one, t...)
					continue
				}
				one = binary.LittleEndian.AppendUint32(one, crc32.ChecksumIEEE([]byte(t)))
				one = binary.LittleEndian.AppendUint32(one, crc32.Checksum([]byte(t), castagnoli))
			}
			sum = sha256.Sum256(one)
		}
		if ids := conversation.Rolling("anna", turns); len(ids) != 1 || string(ids[0]) != hex.EncodeToString(sum[:16]) {
			t.Errorf("%d bytes: %v", size, ids)
		}
	}
}

// TestLongTextsApart: a change of one byte anywhere makes another conversation, and so does another tenant, however long its
// name is.
func TestLongTextsApart(t *testing.T) {
	long := []byte(strings.Repeat("Some words of a prompt. ", 100))
	name := func(tenant string) conversation.ID {
		return conversation.Rolling(tenant, []conversation.Turn{{Role: "user", Text: string(long)}})[0]
	}
	seen := map[conversation.ID]int{name("anna"): -1}
	for i := range long {
		long[i] ^= 1
		if other, ok := seen[name("anna")]; ok {
			t.Fatalf("the change of byte %d is that of %d", i, other)
		}
		seen[name("anna")] = i
		long[i] ^= 1
	}
	tenant := strings.Repeat("t", 5000)
	if _, ok := seen[name("ben")]; ok || name(tenant+"a") == name(tenant+"b") {
		t.Error("two tenants share a conversation")
	}
}

// TestTenantsCountInFull: a tenant's name that has the checksums of another's is still another tenant.
func TestTenantsCountInFull(t *testing.T) {
	// both polynomials, multiplied: whoever adds this to a text changes neither of its checksums
	alike := product(1<<32|0x04c11db7, 1<<32|0x1edc6f41)
	one := make([]byte, 2048)
	two := slices.Clone(one)
	for i, b := range alike {
		two[1000+i] ^= b
	}
	if crc32.ChecksumIEEE(one) != crc32.ChecksumIEEE(two) || bytes.Equal(one, two) {
		t.Fatal("these are no two texts of the same checksums")
	}
	turns := []conversation.Turn{{Role: "user", Text: "Hello"}}
	if conversation.Rolling(string(one), turns)[0] == conversation.Rolling(string(two), turns)[0] {
		t.Error("two tenants share a conversation")
	}
}

// product multiplies two polynomials over one bit each, and returns the bits of the result in the order of a reflected checksum.
func product(a, b uint64) []byte {
	var bits [65]bool
	for i := range 33 {
		for j := range 33 {
			if a>>i&1 == 1 && b>>j&1 == 1 {
				bits[i+j] = !bits[i+j]
			}
		}
	}
	out := make([]byte, 9)
	for i := range bits { // the highest power comes first, in the lowest bit
		if bits[64-i] {
			out[i/8] |= 1 << (i % 8)
		}
	}
	return out
}
