//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// playing is the configuration of a box whose models are the stand-in's.
func playing(t *testing.T, s *stage, names ...string) string {
	t.Helper()
	program := standin(t, "llama-server")
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("{name: %s, file: %q, device: cpu, ctx_size: 65536, parallel: 8}", name, s.gguf(name+".gguf", nil)))
	}
	return fmt.Sprintf("models: [%s]\nprograms: {llama_server: %q}\n", strings.Join(all, ", "), program)
}

// dialogue is a conversation with a box.
type dialogue struct {
	key   string
	model string
	said  []string // by the user
}

// reply says more and returns who answered, and why.
func (b *appliance) reply(d *dialogue, words string) (model, why string) {
	b.t.Helper()
	status, model, h := b.try(d, words)
	if status != 200 {
		b.t.Fatalf("%q: %d %v\n%s", d.said, status, h, b.log)
	}
	return model, h.Get("X-1bit-Route-Why")
}

// try is reply for an answer that may be a refusal, or none: then the status is 0.
func (b *appliance) try(d *dialogue, words string) (status int, model string, h http.Header) {
	d.said = append(d.said, words)
	var messages []obj
	for i, text := range d.said {
		if i > 0 {
			messages = append(messages, obj{"role": "assistant", "content": "Yes."})
		}
		messages = append(messages, obj{"role": "user", "content": text})
	}
	body, err := json.Marshal(obj{"model": d.model, "messages": messages, "max_tokens": 4})
	if err != nil {
		b.t.Error(err)
		return 0, "", nil
	}
	r, err := http.NewRequest(http.MethodPost, "https://127.0.0.1:"+b.port+"/v1/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		b.t.Error(err)
		return 0, "", nil
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+d.key)
	res, err := b.client.Do(r)
	if err != nil {
		return 0, "", nil
	}
	defer res.Body.Close()
	var answer struct{ Model string }
	text, err := io.ReadAll(res.Body)
	if err != nil || json.Unmarshal(text, &answer) != nil {
		return 0, "", nil
	}
	return res.StatusCode, answer.Model, res.Header
}

// again ends a box and starts it anew with a configuration; an empty one is that which is there.
func (b *appliance) again(end syscall.Signal, config string) *appliance {
	b.t.Helper()
	b.cmd.Process.Signal(end)
	<-b.done
	if config != "" {
		if err := os.WriteFile(filepath.Join(b.state, "1bit.yaml"), []byte(config), 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	return startBox(b.t, b.state)
}

// preferring binds a policy that names models in an order, where a model is offered that begins as the first does.
func (b *appliance) preferring(name string, models ...string) {
	b.t.Helper()
	words, err := json.Marshal(obj{"v": 1, "action": "route", "candidates": models, "reason": "they said so"})
	if err != nil {
		b.t.Fatal(err)
	}
	status, answer, hash := b.push(moduleWhere(`"id":"`+models[0][:2], string(words), false), manifestOf(name, "1"))
	if status != 201 && status != 200 {
		b.t.Fatalf("%d %s\n%s", status, answer, b.log)
	}
	b.admin("POST", "/bindings/policy/activate", fmt.Sprintf(`{"module":%q}`, hash))
}

// TestAffinity: conversations stay where they are over restarts and kills of everything, whatever the policy says of new
// ones by then; they move when their place is gone, with a reason; and no key comes into the conversation of another.
func TestAffinity(t *testing.T) {
	s := newStage(t)
	all := playing(t, s, "small", "large", "third")
	b := startBox(t, boxState(t, all))
	b.claim()
	key, id := b.key("")
	other, _ := b.key("")
	first := &dialogue{key: key, model: "auto"}
	if model, why := b.reply(first, "Please refactor all of it."); model != "small" || why != "default" {
		t.Fatalf("the first turn: %s, %s", model, why)
	}
	b.preferring("larger", "large")
	second := &dialogue{key: key, model: "auto"}
	if model, why := b.reply(second, "Something else."); model != "large" || !strings.HasPrefix(why, "module=larger@") {
		t.Fatalf("a conversation of the policy: %s, %s", model, why)
	}
	for turn := 1; turn < 12; turn++ {
		switch turn % 4 {
		case 1:
			b.soon("what is decided to be on its way to the disk", func() bool {
				return b.admin("GET", "/status", "")["store"].(map[string]any)["queued"] == 0.0
			})
			time.Sleep(200 * time.Millisecond) // the commit
			b = b.again(syscall.SIGKILL, "")
		case 3:
			b = b.again(syscall.SIGTERM, "")
		}
		if model, why := b.reply(first, "commit it"); model != "small" || why != "default; kept" {
			t.Errorf("turn %d of the first: %s, %s", turn+1, model, why)
		}
		if model, why := b.reply(second, "go on"); model != "large" || !strings.HasPrefix(why, "module=larger@") || !strings.HasSuffix(why, "; kept") {
			t.Errorf("turn %d of the second: %s, %s", turn+1, model, why)
		}
	}
	foreign := *first
	foreign.key = other
	if model, why := b.reply(&foreign, "commit it"); model != "large" || strings.HasSuffix(why, "kept") {
		t.Errorf("another key with the same words: %s, %s", model, why)
	}
	named := *second
	named.model = "third"
	if model, why := b.reply(&named, "and now by name"); model != "third" || why != "" {
		t.Errorf("a model that is named: %s, %s", model, why)
	}
	b = b.again(syscall.SIGTERM, playing(t, s, "small", "third"))
	if model, why := b.reply(second, "still there?"); model != "small" || !strings.HasSuffix(why, "; switched: large is gone") {
		t.Errorf("its model is gone: %s, %s", model, why)
	}
	b = b.again(syscall.SIGTERM, all)
	if model, why := b.reply(second, "and now?"); model != "small" || !strings.HasSuffix(why, "; kept") {
		t.Errorf("its old model is back: %s, %s", model, why)
	}
	if n := b.admin("DELETE", "/conversations?key="+id, "")["deleted"]; n != 2.0 {
		t.Errorf("%v conversations of the key were forgotten", n)
	}
	if model, why := b.reply(first, "who are you?"); model != "large" || strings.HasSuffix(why, "kept") {
		t.Errorf("a conversation that was forgotten: %s, %s", model, why)
	}
}

// TestAffinityPrivate: where the conversations of a key are whose privacy is none, is known while the box runs and no longer.
func TestAffinityPrivate(t *testing.T) {
	b := startBox(t, boxState(t, playing(t, newStage(t), "small", "large")))
	b.claim()
	private, _ := b.key(`,"privacy":"none"`)
	usual, _ := b.key("")
	hidden, kept := &dialogue{key: private, model: "auto"}, &dialogue{key: usual, model: "auto"}
	for _, d := range []*dialogue{hidden, kept} {
		if model, why := b.reply(d, "Hello"); model != "small" || why != "default" {
			t.Fatalf("%s, %s", model, why)
		}
	}
	b.preferring("larger", "large")
	if model, why := b.reply(hidden, "Still there?"); model != "small" || why != "default; kept" {
		t.Errorf("while the box runs: %s, %s", model, why)
	}
	b = b.again(syscall.SIGTERM, "")
	if model, why := b.reply(hidden, "And now?"); model != "large" || strings.HasSuffix(why, "kept") {
		t.Errorf("over a restart it is a new one: %s, %s", model, why)
	}
	if model, why := b.reply(kept, "And here?"); model != "small" || why != "default; kept" {
		t.Errorf("that of another key: %s, %s", model, why)
	}
}

// TestAffinityOfAnswers: a request that goes on from an answer is in its conversation, over a restart.
func TestAffinityOfAnswers(t *testing.T) {
	b := startBox(t, boxState(t, playing(t, newStage(t), "small", "large")))
	b.claim()
	key, _ := b.key("")
	respond := func(more string) (id, model, why string) {
		res := b.send(key, "POST", "/v1/responses", `{"input":"Hello","model":"auto"`+more+`}`)
		defer res.Body.Close()
		var answer struct{ ID, Model string }
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != 200 {
			t.Fatalf("%d %v\n%s", res.StatusCode, err, b.log)
		}
		return answer.ID, answer.Model, res.Header.Get("X-1bit-Route-Why")
	}
	id, model, _ := respond("")
	if model != "small" {
		t.Fatal(model)
	}
	b.preferring("larger", "large")
	for turn := range 5 {
		if turn%2 == 1 {
			b = b.again(syscall.SIGTERM, "")
		}
		var why string
		if id, model, why = respond(fmt.Sprintf(`,"previous_response_id":%q`, id)); model != "small" || why != "default; kept" {
			t.Errorf("turn %d: %s, %s", turn, model, why)
		}
	}
	if _, model, why := respond(`,"instructions":"Be brief."`); model != "large" {
		t.Errorf("another conversation: %s, %s", model, why)
	}
}

// TestAffinityFailover: a request whose model cannot be had is answered by the next one of its policy's order, and its
// conversation stays there.
func TestAffinityFailover(t *testing.T) {
	s := newStage(t)
	large := s.file("broken.bin", "")
	if err := os.Truncate(large, 1<<40); err != nil { // no machine has memory for that
		t.Fatal(err)
	}
	config := strings.Replace(playing(t, s, "small", "large", "third"), "models: [", fmt.Sprintf("models: [{name: broken, file: %q, device: cpu}, ", large), 1)
	b := startBox(t, boxState(t, config))
	b.claim()
	key, _ := b.key("")
	b.preferring("two", "broken", "third", "large")
	d := &dialogue{key: key, model: "auto"}
	if model, why := b.reply(d, "Hello"); model != "third" || !strings.HasSuffix(why, "; failover=third") {
		t.Errorf("%s, %s", model, why)
	}
	b = b.again(syscall.SIGTERM, "")
	if model, why := b.reply(d, "Hello again"); model != "third" || !strings.HasSuffix(why, "; kept") {
		t.Errorf("the next turn: %s, %s", model, why)
	}
	if status, text := b.do(key, "POST", "/v1/chat/completions", `{"model":"broken","messages":[{"role":"user","content":"Hello"}]}`); status != 507 {
		t.Errorf("by name: %d %s", status, text)
	}
	narrow, _ := b.key(`,"models":["broken","small"]`) // no model that it may not use takes over
	if status, model, h := b.try(&dialogue{key: narrow, model: "auto"}, "Hi"); status != 200 || model != "small" || !strings.HasSuffix(h.Get("X-1bit-Route-Why"), "; failover=small") {
		t.Errorf("a key for two models: %d, %s, %v", status, model, h)
	}
}

// TestAffinityOfMany: a thousand conversations go on where they were after a restart.
func TestAffinityOfMany(t *testing.T) {
	b := startBox(t, boxState(t, playing(t, newStage(t), "small", "large")))
	b.claim()
	key, _ := b.key("")
	const count = 1000
	talks := make([]*dialogue, count)
	at := make([]string, count) // the model of each
	round := func(from, to int, words, suffix string) {
		var group sync.WaitGroup
		next := make(chan int)
		for range 8 {
			group.Go(func() {
				for i := range next {
					status, by, h := b.try(talks[i], words)
					if why := h.Get("X-1bit-Route-Why"); status != 200 || at[i] != "" && by != at[i] || !strings.HasSuffix(why, suffix) {
						t.Errorf("conversation %d, %s: %d, %s, %s; it was at %s", i, words, status, by, why, at[i])
					}
					at[i] = by
				}
			})
		}
		for i := from; i < to && !t.Failed(); i++ {
			next <- i
		}
		close(next)
		group.Wait()
	}
	for i := range talks {
		talks[i] = &dialogue{key: key, model: "auto", said: []string{fmt.Sprint("conversation ", i)}}
	}
	round(0, count/2, "begin", "default")
	b.preferring("larger", "large")
	round(count/2, count, "begin", "") // a busy machine may leave a decision to the default policy
	if n := len(slices.DeleteFunc(slices.Clone(at), func(m string) bool { return m != "large" })); n < count/10 {
		t.Errorf("only %d of %d conversations are at the policy's model", n, count)
	}
	b = b.again(syscall.SIGTERM, "")
	begin := time.Now()
	round(0, count, "go on", "; kept")
	t.Logf("%d conversations kept their model over a restart, in %v", count, time.Since(begin).Round(time.Millisecond))
}

// TestAffinityKilled kills a box at any moment, again and again, each time with other models: whatever it knows of its
// conversations then, each is answered by a model that there is, and says why it moved.
func TestAffinityKilled(t *testing.T) {
	kills := 20
	if os.Getenv("ONEBIT_ALL") == "1" {
		kills = 200
	}
	s := newStage(t)
	sets := [][]string{{"small", "large"}, {"small", "lasting"}, {"lasting", "large"}, {"large", "small"}}
	b := startBox(t, boxState(t, playing(t, s, sets[0]...)))
	b.claim()
	key, _ := b.key("")
	b.preferring("larger", "large")
	dice := rand.New(rand.NewPCG(7, 11))
	talks := make([]*dialogue, 24)
	for i := range talks {
		talks[i] = &dialogue{key: key, model: "auto", said: []string{fmt.Sprint("conversation ", i)}}
	}
	kept, moved := 0, 0
	for kill := range kills {
		set := sets[kill%len(sets)]
		var group sync.WaitGroup
		var mu sync.Mutex
		for lane := range 4 {
			group.Go(func() {
				for n := 0; ; n++ {
					status, model, h := b.try(talks[lane*6+n%6], "more")
					if status == 0 {
						return // it was killed
					}
					why, _, _ := strings.Cut(h.Get("X-1bit-Route-Why"), "; cached=") // there may be something of it already
					mu.Lock()
					switch {
					case status != 200 || !slices.Contains(set, model):
						t.Errorf("kill %d: %d by %q of %v, %s", kill, status, model, set, why)
					case strings.HasSuffix(why, "kept"):
						kept++
					case strings.Contains(why, "; switched: ") && strings.HasSuffix(why, " is gone"):
						moved++
					case strings.Contains(why, "switched"):
						t.Errorf("kill %d: %s", kill, why)
					}
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(dice.IntN(900)) * time.Millisecond) // any moment, from before its models are up
		b.cmd.Process.Signal(syscall.SIGKILL)
		<-b.done
		group.Wait()
		if t.Failed() {
			return
		}
		b = b.again(syscall.SIGKILL, playing(t, s, sets[(kill+1)%len(sets)]...))
		for _, d := range talks { // a conversation stays short enough for its model
			d.said = d.said[:min(len(d.said), 40)]
		}
	}
	if kept < kills || moved == 0 {
		t.Errorf("kept %d times, moved %d times: the kills came too early to show anything", kept, moved)
	}
	t.Logf("%d kills; kept %d times, moved %d times", kills, kept, moved)
}
