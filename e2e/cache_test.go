//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/e2e/rig"
)

// talking is a conversation with a box or a server, and what its prompts took.
type talking struct {
	t        *testing.T
	post     func(body []byte) (status int, header http.Header, text []byte)
	model    string
	messages []obj
	header   func(turn int) string // a line before the system prompt; nil for none
	system   string
	turn     int

	prompt, cached int // tokens, of all turns but the first
	last           counted
}

// counted is what an answer says of its prompt.
type counted struct{ prompt, cached, written int }

// say sends the next turn.
func (k *talking) say(words string) counted {
	k.t.Helper()
	system := k.system
	if k.header != nil {
		system = k.header(k.turn) + "\n" + system
	}
	k.messages = append(k.messages, obj{"role": "user", "content": words})
	body, err := json.Marshal(obj{"model": k.model, "messages": append([]obj{{"role": "system", "content": system}}, k.messages...), "max_tokens": 12, "temperature": 0})
	if err != nil {
		k.t.Fatal(err)
	}
	status, _, text := k.post(body)
	var v struct {
		Choices []struct{ Message struct{ Content string } }
		Usage   struct {
			Prompt  int `json:"prompt_tokens"`
			Details struct {
				Cached  int `json:"cached_tokens"`
				Written int `json:"cache_write_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if err := json.Unmarshal(text, &v); err != nil || status != 200 || len(v.Choices) == 0 {
		k.t.Fatalf("turn %d: %d %s", k.turn, status, text)
	}
	k.messages = append(k.messages, obj{"role": "assistant", "content": v.Choices[0].Message.Content})
	k.last = counted{v.Usage.Prompt, v.Usage.Details.Cached, v.Usage.Details.Written}
	if k.turn > 0 {
		k.prompt, k.cached = k.prompt+k.last.prompt, k.cached+k.last.cached
	}
	k.turn++
	return k.last
}

// share is how much of the prompts was reused, after the first turn.
func (k *talking) share() float64 { return float64(k.cached) / float64(max(k.prompt, 1)) }

// poster sends chats to a box with a key.
func (b *appliance) poster(key string) func([]byte) (int, http.Header, []byte) {
	return func(body []byte) (int, http.Header, []byte) {
		res := b.send(key, "POST", "/v1/chat/completions", string(body))
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			b.t.Fatal(err)
		}
		return res.StatusCode, res.Header, text
	}
}

// poster sends chats to a server without keys.
func (s *server) poster() func([]byte) (int, http.Header, []byte) {
	return func(body []byte) (int, http.Header, []byte) {
		r := s.post("/v1/chat/completions", string(body))
		return r.status, nil, r.body
	}
}

// count is how many tokens a text has, by the server's own tokenizer.
func (s *server) count(text string) (int, error) {
	r := s.post("/tokenize", obj{"content": text})
	var said struct{ Tokens []int }
	if err := json.Unmarshal(r.body, &said); err != nil || r.status != 200 {
		return 0, fmt.Errorf("/tokenize: %d %s", r.status, r.body)
	}
	return len(said.Tokens), nil
}

// setting is a number that the environment may set for a longer run.
func setting(t *testing.T, name string, short, whole int) int {
	t.Helper()
	if s := os.Getenv(name); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("%s is no number: %q", name, s)
		}
		return n
	}
	if os.Getenv("ONEBIT_ALL") != "" {
		return whole
	}
	return short
}

// engines are the servers that the cache is tried on: the built-in one, and where all is run the reference's.
func engines(t *testing.T, f func(t *testing.T, more string)) {
	t.Run("built-in", func(t *testing.T) { f(t, "") })
	t.Run("llama-server", func(t *testing.T) {
		program := llamaProgram(t, "llama-server")
		t.Setenv("LLAMA_ARG_THREADS", "1") // see oneThread
		f(t, fmt.Sprintf("programs: {llama_server: %q}\n", program))
	})
}

// cacheModel is the model of these tests: the small one, or the larger where all is run.
func cacheModel(t *testing.T) string {
	if os.Getenv("ONEBIT_ALL") != "" {
		return model(t, "qwen2.5-coder-0.5b")
	}
	return smollm2(t)
}

// TestCacheOverRestarts: a conversation of 12 turns, while everything is stopped and started twice, reuses nearly all of
// its prompts.
func TestCacheOverRestarts(t *testing.T) {
	engines(t, func(t *testing.T, more string) {
		state := boxState(t, more+fmt.Sprintf("models: [{name: small, file: %q, device: cpu, ctx_size: 8192, parallel: 2}]\ncache: {min_tokens: 64}\n", cacheModel(t)))
		b := startBox(t, state)
		b.claim()
		key, _ := b.key("")
		k := &talking{t: t, post: b.poster(key), model: "small", system: rig.Prose(500, 1)}
		for turn := range 12 {
			if turn == 5 || turn == 9 {
				b.stop()
				b = startBox(t, state)
				k.post = b.poster(key)
			}
			c := k.say(fmt.Sprintf("This is turn %d. What is next?", turn))
			t.Logf("turn %d: %d of %d tokens reused", turn, c.cached, c.prompt)
		}
		if k.share() < 0.95 {
			t.Errorf("%.1f%% of the prompts were reused\n%s", 100*k.share(), b.log)
		}
		t.Logf("%.1f%% of the prompts' tokens were reused, two restarts included", 100*k.share())
		s := b.admin("GET", "/prompt-cache", "")
		if s["wrong"].(float64) != 0 || s["entries"].(float64) < 1 || s["restores"].(float64) < 1 {
			t.Errorf("%v", s)
		}
		for _, f := range stateFiles(t, state) {
			if info, err := os.Stat(f); err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s: %v, %v", f, info.Mode(), err)
			}
		}
		b.admin("DELETE", "/prompt-cache", "")
		if all := stateFiles(t, state); len(all) != 0 {
			t.Errorf("emptied, and there are %v", all)
		}
		if c := k.say("And now?"); c.cached > 32 {
			t.Errorf("emptied, and %d tokens are reused", c.cached)
		}
	})
}

// stateFiles are the files with states.
func stateFiles(t *testing.T, state string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(state, "prompt-cache", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestCacheReplay plays agents: three conversations of many turns with long system prompts, whose first line changes with
// each request, take turns on two slots. The tokens of a prompt are those of the server's own tokenizer, from the first turn on.
func TestCacheReplay(t *testing.T) {
	turns, tokens := setting(t, "ONEBIT_CACHE_TURNS", 4, 20), setting(t, "ONEBIT_CACHE_TOKENS", 480, 8000)
	engines(t, func(t *testing.T, more string) {
		file, size := cacheModel(t), 2*(tokens+turns*160+512)
		args := []string{"serve", "--port", "0", "-m", file, "--device", "cpu", "--ctx-size", strconv.Itoa(size), "--parallel", "2"}
		if more != "" {
			args = append(args, "--llama-server", llamaProgram(t, "llama-server"))
		}
		alone := launch(t, args...)
		alone.waitHealthy(120 * time.Second)
		var systems []string
		for i := range 3 {
			text, err := rig.ProseOf(tokens, i, alone.count)
			if err != nil {
				t.Fatal(err)
			}
			systems = append(systems, text)
		}
		without := replay(t, alone.poster(), min(turns, 3), tokens, systems)
		alone.stop()
		t.Logf("the engine alone reused %.1f%%", 100*without)

		state := boxState(t, more+fmt.Sprintf("models: [{name: small, file: %q, device: cpu, ctx_size: %d, parallel: 2}]\ncache: {min_tokens: 64}\n", file, size))
		b := startBox(t, state)
		b.claim()
		key, _ := b.key("")
		with := replay(t, b.poster(key), turns, tokens, systems)
		s := b.admin("GET", "/prompt-cache", "")
		b.stop()
		t.Logf("with the index %.1f%% of the prompts' tokens were reused; it had expected %v and got %v of %v; restored %v, saved %v, wrong %v",
			100*with, s["expected_tokens"], s["saved_tokens"], s["prompt_tokens"], s["restores"], s["saves"], s["wrong"])
		if with < 0.9 || s["wrong"].(float64) > 0 {
			t.Errorf("%.1f%% were reused, %v", 100*with, s)
		}
		// the reference's server leaves such lines out by itself, and keeps prompts in memory, for whoever comes
		if more == "" && without > with/2 {
			t.Errorf("the engine alone reused %.1f%%: this shows nothing", 100*without)
		}
	})
}

// replay runs it and returns the share of tokens that was reused after the first turns.
func replay(t *testing.T, post func([]byte) (int, http.Header, []byte), turns, tokens int, systems []string) float64 {
	t.Helper()
	var all []*talking
	for i, system := range systems {
		all = append(all, &talking{t: t, post: post, model: "small", system: system, header: func(turn int) string {
			return fmt.Sprintf("x-anthropic-billing-header: cc_version=2.1.42; cch=%05x;", (turn*3+i)*40503%0xfffff)
		}})
	}
	prompt, cached := 0, 0
	for turn := range turns {
		for i, k := range all {
			c := k.say(fmt.Sprintf("Result %d of the tool: %s Go on.", turn, rig.Prose(8, 100*turn+i)))
			if most := tokens + (turn+2)*160; c.prompt < tokens || c.prompt > most {
				t.Errorf("turn %d has a prompt of %d tokens, and it should be between %d and %d", turn, c.prompt, tokens, most)
			}
		}
	}
	for _, k := range all {
		prompt, cached = prompt+k.prompt, cached+k.cached
	}
	return float64(cached) / float64(max(prompt, 1))
}

// TestCacheBetweenKeys: a second key's identical prompt gains nothing, and what is cached of many keys at once is nobody
// else's; when a key is revoked, its files go.
func TestCacheBetweenKeys(t *testing.T) {
	engines(t, func(t *testing.T, more string) {
		state := boxState(t, more+fmt.Sprintf("models: [{name: small, file: %q, device: cpu, ctx_size: 6144, parallel: 2}]\ncache: {min_tokens: 64}\n", cacheModel(t)))
		b := startBox(t, state)
		b.claim()
		first, id := b.key("")
		second, _ := b.key("")
		system := rig.Prose(500, 1)
		one := &talking{t: t, post: b.poster(first), model: "small", system: system}
		one.say("Hello.")
		if c := one.say("Hello again."); c.cached < 400 {
			t.Errorf("its own: %+v", c)
		}
		two := &talking{t: t, post: b.poster(second), model: "small", system: system}
		if c := two.say("Hello."); c.cached != 0 {
			t.Errorf("of a slot of another key %d tokens were reused", c.cached)
		}
		b.stop() // now both are in files
		b = startBox(t, state)
		third, _ := b.key("")
		three := &talking{t: t, post: b.poster(third), model: "small", system: system}
		if c := three.say("Hello."); c.cached != 0 {
			t.Errorf("of a file of another key %d tokens were reused", c.cached)
		}
		before := len(stateFiles(t, state))
		b.admin("DELETE", "/keys/"+id, "")
		for end := time.Now().Add(20 * time.Second); len(stateFiles(t, state)) >= before; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the key is revoked, and its files are there: %v", stateFiles(t, state))
			}
		}
		turns := 4
		if more != "" {
			turns = 2 // the reference's server takes its time with a thread
		}
		tenants(t, b, system, turns)
	})
}

// tenants lets many keys talk at once: no canary is in another's answer, and nobody's first turn finds anything.
func tenants(t *testing.T, b *appliance, system string, turns int) {
	var all sync.WaitGroup
	for i := range 4 {
		key, _ := b.key("")
		all.Go(func() {
			k := &talking{t: t, post: b.poster(key), model: "small", system: system}
			canary := fmt.Sprintf("canary%d%d%d", i, i, i)
			for turn := range turns {
				c := k.say("Say " + canary + " again.")
				if turn == 0 && c.cached != 0 {
					t.Errorf("key %d found %d tokens of somebody", i, c.cached)
				}
				for other := range 4 {
					if said := k.messages[len(k.messages)-1]["content"].(string); other != i && strings.Contains(said, fmt.Sprintf("canary%d%d%d", other, other, other)) {
						t.Errorf("key %d is told %q", i, said)
					}
				}
			}
		})
	}
	all.Wait()
	if s := b.admin("GET", "/prompt-cache", ""); s["wrong"].(float64) != 0 {
		t.Errorf("%v", s)
	}
}

// TestCacheMarks: what a client marks is counted, and there for another conversation that shares only that.
func TestCacheMarks(t *testing.T) {
	engines(t, func(t *testing.T, more string) {
		state := boxState(t, more+fmt.Sprintf("models: [{name: small, file: %q, device: cpu, ctx_size: 4096, parallel: 1}]\ncache: {min_tokens: 64}\n", cacheModel(t)))
		b := startBox(t, state)
		b.claim()
		key, _ := b.key("")
		post := b.poster(key)
		ask := func(system any, words string) (counted, http.Header) {
			body, err := json.Marshal(obj{"model": "small", "max_tokens": 4, "temperature": 0,
				"messages": []obj{{"role": "system", "content": system}, {"role": "user", "content": words}}})
			if err != nil {
				t.Fatal(err)
			}
			status, header, text := post(body)
			var v map[string]any
			if err := json.Unmarshal(text, &v); err != nil || status != 200 {
				t.Fatalf("%d %s", status, text)
			}
			n := func(path ...any) int { f, _ := dig(v, path...).(float64); return int(f) }
			return counted{n("usage", "prompt_tokens"), n("usage", "prompt_tokens_details", "cached_tokens"), n("usage", "prompt_tokens_details", "cache_write_tokens")}, header
		}
		marked := []obj{{"type": "text", "text": rig.Prose(600, 1), "cache_control": obj{"type": "ephemeral"}}}
		c, header := ask(marked, "One.")
		if c.written < 500 || c.written > c.prompt || c.cached != 0 || !strings.HasPrefix(header.Get("X-1bit-Cache"), "miss tokens=0 kept=") {
			t.Errorf("%+v, %q", c, header.Get("X-1bit-Cache"))
		}
		ask(rig.Prose(600, 2), "Something else that takes the only slot.")
		c, header = ask(marked, "Two, in another conversation.")
		if c.cached < 500 || c.written != 0 || !strings.HasPrefix(header.Get("X-1bit-Cache"), "hit tokens=") {
			t.Errorf("%+v, %q\n%s", c, header.Get("X-1bit-Cache"), b.log)
		}
		if s := b.admin("GET", "/prompt-cache", ""); s["marked"].(float64) < 1 {
			t.Errorf("%v", s)
		}
	})
}

// TestCacheStandin does the whole with a stand-in, whose state is what it was asked: three conversations on two slots, a
// restart, and a second key.
func TestCacheStandin(t *testing.T) {
	file := newStage(t).gguf("m.gguf", nil)
	state := boxState(t, fmt.Sprintf("programs: {llama_server: %q}\nmodels: [{name: small, file: %q, ctx_size: 8192, parallel: 2, device: vulkan}]\ncache: {min_tokens: 16}\n",
		standin(t, "llama-server"), file))
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	var all []*talking
	for i := range 3 {
		all = append(all, &talking{t: t, post: b.poster(key), model: "small", system: rig.Prose(400, i)})
	}
	for turn := range 6 {
		if turn == 3 {
			b.stop()
			b = startBox(t, state)
		}
		for _, k := range all {
			k.post = b.poster(key)
			k.say(fmt.Sprintf("Turn %d.", turn))
		}
	}
	for i, k := range all {
		if k.share() < 0.9 {
			t.Errorf("conversation %d: %.1f%% were reused", i, 100*k.share())
		}
	}
	second, _ := b.key("")
	other := &talking{t: t, post: b.poster(second), model: "small", system: rig.Prose(400, 0)}
	if c := other.say("Turn 0."); c.cached != 0 {
		t.Errorf("another key reused %d tokens", c.cached)
	}
	if s := b.admin("GET", "/prompt-cache", ""); s["wrong"].(float64) != 0 || s["restores"].(float64) == 0 {
		t.Errorf("%v\n%s", s, b.log)
	}
}
