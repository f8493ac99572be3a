//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"onebit/e2e/rig"
)

// modelWriter is the program that writes models with random weights.
var modelWriter = sync.OnceValues(func() (string, error) {
	dir, err := standins() // it goes with them
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "gen")
	cmd := exec.Command("go", "build", "-o", program, "../engine/gguf/synth/gen")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the writer of models: %w\n%s", err, out)
	}
	return program, nil
})

// synthetic writes a model with random weights. It says noise, and always the same to the same prompt.
func synthetic(t *testing.T, args ...string) string {
	t.Helper()
	program, err := modelWriter()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "synthetic.gguf")
	if out, err := exec.Command(program, append(args, "-type", "Q8_0", "-wide", "-context", "8192", "-o", file)...).CombinedOutput(); err != nil {
		t.Fatalf("writing a model: %v\n%s", err, out)
	}
	return file
}

// said is what an answer says in all the ways that it has.
type said struct {
	counted
	text   string
	header http.Header
}

// hit is how many tokens that were reused make one: all prompts of a model begin with the same few.
const hit = 32

var cacheHeader = regexp.MustCompile(`^(hit|miss) tokens=(\d+)( kept=\d+)? steady=\d+$`)

// answer sends a chat, whole or streamed, and makes sure that the header, the usage and the server's own timings say the same.
func (b *appliance) answer(key string, stream bool, body obj) (a said) {
	b.t.Helper()
	if stream {
		body["stream"], body["stream_options"] = true, obj{"include_usage": true}
	} else {
		delete(body, "stream")
		delete(body, "stream_options")
	}
	raw, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	status, header, text := b.poster(key)(raw)
	if status != 200 {
		b.t.Fatalf("%d %s\n%s", status, text, b.log)
	}
	a.header = header
	objects := []string{string(text)}
	if stream {
		objects = nil
		for line := range strings.Lines(string(text)) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok && data != "[DONE]" {
				objects = append(objects, data)
			}
		}
	}
	timed := -1
	for _, o := range objects {
		var v struct {
			Choices []struct{ Message, Delta struct{ Content string } }
			Timings *struct {
				Cached *int `json:"cache_n"`
			}
			Usage *struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached  int `json:"cached_tokens"`
					Written int `json:"cache_write_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(o), &v); err != nil || strings.Contains(o, "prompt_progress") {
			b.t.Fatalf("%v: %s", err, o)
		}
		if len(v.Choices) > 0 {
			a.text += v.Choices[0].Message.Content + v.Choices[0].Delta.Content
		}
		if v.Timings != nil && v.Timings.Cached != nil {
			timed = *v.Timings.Cached
		}
		if v.Usage != nil {
			a.counted = counted{v.Usage.Prompt, v.Usage.Details.Cached, v.Usage.Details.Written}
		}
	}
	m := cacheHeader.FindStringSubmatch(header.Get("X-1bit-Cache"))
	if m == nil || m[2] != strconv.Itoa(a.cached) || (m[1] == "hit") != (a.cached >= hit) || timed != a.cached {
		b.t.Errorf("streamed %v: the header says %q, the usage %+v, the timings %d", stream, header.Get("X-1bit-Cache"), a.counted, timed)
	}
	if m != nil && (stream && m[3] != "" || !stream && m[3] != fmt.Sprintf(" kept=%d", a.written)) {
		b.t.Errorf("streamed %v: the header says %q, the usage %+v", stream, m[0], a.counted)
	}
	// what was expected is not told, only what came of it
	if _, n, told := strings.Cut(header.Get("X-1bit-Route-Why"), "; cached="); told && n != strconv.Itoa(a.cached) {
		b.t.Errorf("streamed %v: %q, and it was %+v", stream, header.Get("X-1bit-Route-Why"), a.counted)
	}
	return a
}

// shape is a kind of model, and what a server can do with its states.
type shape struct {
	name    string
	model   []string
	env     string // of the server
	builtin bool   // our own engine has it
	files   bool   // llama-server goes on from a restored state
	cuts    bool   // and from the begin of one
}

// TestCacheShapes: on one slot, with files and a restart between the turns, models of all shapes say the same as without a
// cache; what a server cannot go on from is neither claimed nor expected; and what it can is reused.
func TestCacheShapes(t *testing.T) {
	shapes := []shape{
		{name: "plain", model: []string{"-arch", "qwen3"}, builtin: true, files: true, cuts: true},
		{name: "window", model: []string{"-arch", "gemma3", "-window", "128"}, builtin: true},
		{name: "window kept whole", model: []string{"-arch", "gemma3", "-window", "128"}, env: "LLAMA_ARG_SWA_FULL", files: true},
		{name: "recurrent", model: []string{"-arch", "mamba"}, files: true},
		{name: "hybrid", model: []string{"-arch", "lfm2"}, files: true},
	}
	engines(t, func(t *testing.T, more string) {
		for _, s := range shapes {
			ours := more == ""
			if ours && !s.builtin {
				continue
			}
			s.files, s.cuts = s.files || ours, s.cuts || ours
			t.Run(s.name, func(t *testing.T) {
				if s.env != "" {
					t.Setenv(s.env, "1")
				}
				s.play(t, more)
			})
		}
	})
}

func (s shape) play(t *testing.T, more string) {
	state := boxState(t, more+fmt.Sprintf("models: [{name: small, file: %q, device: cpu, ctx_size: 8192, parallel: 1}]\ncache: {min_tokens: 64}\n", synthetic(t, s.model...)))
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	system := rig.Prose(160, 1)
	messages := []obj{{"role": "system", "content": system}}
	// turn asks, and asks the same for a key that has nothing, in whose way the only slot is
	turn := func(messages []obj, stream bool, most int) said {
		t.Helper()
		body := obj{"model": "auto", "messages": messages, "max_tokens": most, "temperature": 0, "ignore_eos": true}
		a := b.answer(key, stream, body)
		stranger, _ := b.key("")
		if alone := b.answer(stranger, stream, body); alone.text != a.text || alone.cached != 0 || a.text == "" {
			t.Errorf("with the cache %q, without %q, %+v", a.text, alone.text, alone.counted)
		}
		return a
	}
	next := func(words string, stream bool, most int) said {
		messages = append(messages, obj{"role": "user", "content": words})
		a := turn(messages, stream, most)
		messages = append(messages, obj{"role": "assistant", "content": "so it is"})
		return a
	}
	// the last token of an answer is in no state: after an answer of one token a state is the prompt and nothing more
	before := next("begin", false, 1)
	for i, stream := range []bool{false, true, false} {
		if i == 1 {
			b.stop()
			b = startBox(t, state)
		}
		a := next(fmt.Sprint("go on ", i), stream, 1)
		if want := s.files; (a.cached >= before.prompt-8) != want || !want && a.cached != 0 {
			t.Errorf("turn %d: %d of %d reused, after one of %d", i, a.cached, a.prompt, before.prompt)
		}
		before = a
	}
	cut := turn([]obj{messages[0], {"role": "user", "content": "something else"}}, true, 8)
	if s.cuts && cut.cached < 100 || !s.cuts && cut.cached != 0 {
		t.Errorf("of another conversation %d of %d are reused", cut.cached, cut.prompt)
	}
	if a := next("the last words", true, 8); (a.cached >= before.prompt-8) != s.files {
		t.Errorf("%d of %d reused", a.cached, a.prompt)
	}
	marked := b.answer(key, false, obj{"model": "auto", "max_tokens": 1, "messages": []obj{{"role": "user", "content": []obj{
		{"type": "text", "text": rig.Prose(150, 2), "cache_control": obj{"type": "ephemeral"}},
	}}}})
	if s.files != (marked.written > 100) || !s.files && marked.written != 0 {
		t.Errorf("%d tokens are said to be kept", marked.written)
	}
	live := []obj{{"role": "system", "content": rig.Prose(160, 3)}, {"role": "user", "content": "begin"}}
	first := b.answer(key, true, obj{"model": "auto", "messages": live, "max_tokens": 1})
	live = append(live, obj{"role": "assistant", "content": "so it is"}, obj{"role": "user", "content": "go on"})
	if a := b.answer(key, true, obj{"model": "auto", "messages": live, "max_tokens": 1}); a.cached < first.prompt-8 {
		t.Errorf("in its slot %d of %d are reused, after %d", a.cached, a.prompt, first.prompt)
	}
	c := b.admin("GET", "/prompt-cache", "")
	if c["wrong"].(float64) != 0 || c["expected_tokens"].(float64) > c["saved_tokens"].(float64)+8 { // where a block ends is an estimate
		t.Errorf("%v\n%s", c, b.log)
	}
	t.Logf("expected %v, reused %v of %v, saved %v, restored %v", c["expected_tokens"], c["saved_tokens"], c["prompt_tokens"], c["saves"], c["restores"])
}

// TestCacheSaysTheSame: of all forms of answers, streamed or not, the headers say what the usage says.
func TestCacheSaysTheSame(t *testing.T) {
	engines(t, func(t *testing.T, more string) {
		state := boxState(t, more+fmt.Sprintf("models: [{name: small, file: %q, device: cpu, ctx_size: 8192, parallel: 2}]\n", synthetic(t, "-arch", "qwen3")))
		b := startBox(t, state)
		b.claim()
		key, _ := b.key("")
		b.preferring("one", "small") // a policy is told what would be reused, and so is the client, once it is true
		for i := range 4 {
			a := b.answer(key, i%2 == 1, obj{"model": "auto", "max_tokens": 4, "temperature": 0, "messages": []obj{
				{"role": "system", "content": rig.Prose(200, 1)}, {"role": "user", "content": fmt.Sprint("conversation ", i)},
			}})
			if why := a.header.Get("X-1bit-Route-Why"); strings.Contains(why, "; cached=") != (i > 0) || i > 0 && a.cached < 100 {
				t.Errorf("conversation %d: %q, %+v", i, why, a.counted)
			}
		}
		words, usage := rig.Prose(200, 2), regexp.MustCompile(`"(?:cached_tokens|cache_read_input_tokens)":(\d+)`)
		for path, body := range map[string]obj{
			"/v1/completions": {"prompt": words}, "/v1/responses": {"input": words}, "/v1/messages": {"max_tokens": 4, "messages": []obj{{"role": "user", "content": words}}},
		} {
			body["model"] = "small"
			for i, stream := range []bool{false, true, false, true} {
				if body["stream"] = stream; stream && path == "/v1/completions" {
					body["stream_options"] = obj{"include_usage": true}
				} else {
					delete(body, "stream_options")
				}
				raw, err := json.Marshal(body)
				if err != nil {
					t.Fatal(err)
				}
				res := b.send(key, "POST", path, string(raw))
				raw, err = io.ReadAll(res.Body)
				res.Body.Close()
				if err != nil {
					t.Fatal(err)
				}
				text := string(raw)
				found := usage.FindAllStringSubmatch(text, -1)
				m := cacheHeader.FindStringSubmatch(res.Header.Get("X-1bit-Cache"))
				if res.StatusCode != 200 || len(found) == 0 || m == nil || m[2] != found[len(found)-1][1] || (m[3] == "") != stream || i > 0 && m[1] != "hit" {
					t.Errorf("%s, streamed %v: %d %q %v %s", path, stream, res.StatusCode, res.Header.Get("X-1bit-Cache"), found, text)
				}
			}
		}
	})
}

// TestCacheMarkedAndKilled: what a client has marked survives a kill the moment its answer has ended.
func TestCacheMarkedAndKilled(t *testing.T) {
	engines(t, func(t *testing.T, more string) {
		state := boxState(t, more+fmt.Sprintf("models: [{name: small, file: %q, device: cpu, ctx_size: 8192, parallel: 1}]\n", synthetic(t, "-arch", "qwen3")))
		b := startBox(t, state)
		b.claim()
		key, _ := b.key("")
		for i, stream := range []bool{false, true} {
			body := obj{"model": "auto", "max_tokens": 4, "messages": []obj{
				{"role": "system", "content": []obj{{"type": "text", "text": rig.Prose(200, 10+i), "cache_control": obj{"type": "ephemeral"}}}}, {"role": "user", "content": "hello"},
			}}
			a := b.answer(key, stream, body)
			if a.written < 100 {
				t.Fatalf("%+v", a.counted)
			}
			b = b.again(syscall.SIGKILL, "")
			if a = b.answer(key, stream, body); a.cached < a.prompt-8 || a.written != 0 {
				t.Errorf("after the kill: %+v\n%s", a.counted, b.log)
			}
		}
	})
}

// TestCacheSeveral: a request for several answers, or with several prompts, costs others no more slots than its server needs,
// and of none of them more is expected afterwards than is there.
func TestCacheSeveral(t *testing.T) {
	engines(t, func(t *testing.T, more string) {
		state := boxState(t, more+fmt.Sprintf("models: [{name: small, file: %q, device: cpu, ctx_size: 8192, parallel: 4}]\ncache: {budget: 0}\n", synthetic(t, "-arch", "qwen3")))
		b := startBox(t, state)
		b.claim()
		key, _ := b.key("")
		var all []obj
		for i := range 4 {
			all = append(all, obj{"model": "small", "max_tokens": 2, "messages": []obj{{"role": "system", "content": rig.Prose(200, i)}, {"role": "user", "content": "begin"}}})
			b.answer(key, false, all[i])
		}
		lost := 0
		look := func() {
			t.Helper()
			lost = 0
			for i := range all {
				if a := b.answer(key, true, all[i]); a.cached == 0 {
					lost++
				} else if a.cached < a.prompt-8 {
					t.Errorf("%+v", a.counted)
				}
			}
			if c := b.admin("GET", "/prompt-cache", ""); c["wrong"].(float64) != 0 {
				t.Errorf("%v\n%s", c, b.log)
			}
		}
		most := 2 // of llama-server's slots, beside the one that has the prompt
		if more == "" {
			most = 0
		}
		all[3]["n"], all[3]["temperature"] = 3, 1
		for _, stream := range []bool{false, true} {
			all[3]["stream"] = stream
			raw, err := json.Marshal(all[3])
			if err != nil {
				t.Fatal(err)
			}
			if status, text := b.do(key, "POST", "/v1/chat/completions", string(raw)); status != 200 || !strings.Contains(text, `"index":2`) {
				t.Fatalf("%d %s", status, text)
			}
			several := all[3]
			all[3] = obj{"model": "small", "max_tokens": 2, "messages": several["messages"]}
			if look(); lost != most {
				t.Errorf("streamed %v: %d conversations were lost", stream, lost)
			}
			all[3] = several
		}
		all = all[:3]
		if status, text := b.do(key, "POST", "/v1/completions", `{"model":"small","prompt":["one","two","three"],"max_tokens":2}`); status != 200 || !strings.Contains(text, `"index":2`) {
			t.Fatalf("%d %s", status, text)
		}
		if look(); lost > 1 {
			t.Errorf("several prompts: %d conversations were lost", lost)
		}
	})
}
