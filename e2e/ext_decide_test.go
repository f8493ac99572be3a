//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// decidingModule makes a module that asks the box which of two things a text is, and says words when it was told.
func decidingModule(words string) []byte {
	const buffer, answer, question, out = 4096, 1024, 2048, 16384
	asked := `{"text":"My roof leaks and water runs down the wall.","criteria":{"roof":"about a roof","car":"about a car"}}`
	i32 := func(n int64) []byte { return append([]byte{0x41}, leb(n, true)...) }
	section := func(id byte, b []byte) []byte { return append([]byte{id}, sized(b)...) }
	name := func(s string) []byte { return sized([]byte(s)) }
	export := func(s string, kind, index byte) []byte { return append(name(s), kind, index) }
	body := func(code ...[]byte) []byte { return sized([]byte{0}, bytes.Join(code, nil), []byte{0x0b}) }
	data := func(at int64, s string) []byte {
		return append(append(append([]byte{0}, i32(at)...), 0x0b), sized([]byte(s))...)
	}
	packed := append([]byte{0x42}, leb(answer<<32|int64(len(words)), true)...)
	route := bytes.Join([][]byte{
		i32(question), i32(int64(len(asked))), i32(out), i32(4096), {0x10, 0}, // decide
		i32(0), {0x4a, 0x04, 0x40}, packed, {0x0f, 0x0b}, // more than nothing came back: the answer
		{0x42, 0},
	}, nil)
	return bytes.Join([][]byte{
		[]byte("\x00asm\x01\x00\x00\x00"),
		section(1, listed([]byte{0x60, 0, 0}, []byte{0x60, 1, 0x7f, 1, 0x7f}, []byte{0x60, 2, 0x7f, 0x7f, 1, 0x7e}, []byte{0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f})),
		section(2, listed(append(append(name("laya_v1"), name("decide")...), 0, 3))),
		section(3, listed([]byte{0}, []byte{1}, []byte{2})),
		section(5, listed([]byte{1, 2, 16})),
		section(7, listed(export("memory", 2, 0), export("laya_abi_v1", 0, 1), export("laya_buffer", 0, 2), export("laya_route", 0, 3))),
		section(10, listed(body(), body(i32(buffer)), body(route))),
		section(11, listed(data(answer, words), data(question, asked))),
	}, nil)
}

// TestModulesDecide lets a policy ask the box's own model. While that is not in memory nobody can tell it, and the
// default policy decides.
func TestModulesDecide(t *testing.T) {
	b := startBox(t, boxState(t, fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048}]\n", smollm2(t))))
	b.claim()
	key, _ := b.key("")
	manifest := `{"name":"asker","version":"1","abi":1,"kind":"policy","classes":["told"],"capabilities":["decide"]}`
	status, answer, hash := b.push(decidingModule(`{"v":1,"action":"route","class":"told","candidates":["small"]}`), manifest)
	if status != 201 && status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	b.admin("POST", "/bindings/policy/activate", fmt.Sprintf(`{"module":%q}`, hash))
	ask := func(text string) string {
		t.Helper()
		res := b.send(key, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"auto","max_tokens":1,"messages":[{"role":"user","content":%q}]}`, text))
		defer res.Body.Close()
		if res.StatusCode != 200 {
			t.Fatalf("%d %s", res.StatusCode, b.log)
		}
		return res.Header.Get("X-1bit-Route") + " / " + res.Header.Get("X-1bit-Route-Why")
	}
	if got := ask("one"); strings.HasPrefix(got, "told ") {
		t.Errorf("before the model is in memory: %s", got)
	}
	n := 0
	b.soon("a decision of the model in memory", func() bool { // a module waits for one for a bounded time, in which a busy machine may not be done
		n++
		return strings.HasPrefix(ask(fmt.Sprintf("%d times two", n)), "told ")
	})
}
