//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// filled makes a collection of texts, each a file, and waits until all can be found.
func (b *appliance) filled(key, name string, texts map[string]string) string {
	b.t.Helper()
	status, text := b.do(key, "POST", "/v1/vector_stores", fmt.Sprintf(`{"name":%q}`, name))
	if status != 200 {
		b.t.Fatal(status, text)
	}
	store := member(b.t, text, "id")
	for name, content := range texts {
		id := member(b.t, b.upload(key, name, content), "id")
		if status, text := b.do(key, "POST", "/v1/vector_stores/"+store+"/files", fmt.Sprintf(`{"file_id":%q}`, id)); status != 200 {
			b.t.Fatal(status, text)
		}
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, text := b.do(key, "GET", "/v1/vector_stores/"+store, "")
		if strings.Contains(text, fmt.Sprintf(`"completed":%d,`, len(texts))) {
			return store
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the documents are not in: %s\n%s", text, b.log)
		}
	}
}

// told asks a question and returns what the answer's header says of documents, and the answer.
func (b *appliance) told(key, model, question string) (documents, answer string) {
	b.t.Helper()
	res := b.send(key, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}],"max_tokens":4,"temperature":0}`, model, question))
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		b.t.Fatalf("%q: %d %s %v\n%s", question, res.StatusCode, text, err, b.log)
	}
	return res.Header.Get("X-1bit-Documents"), string(text)
}

var household = map[string]string{
	"well.md":   "# Well\n\nThe well behind the mill is eleven metres deep.",
	"boiler.md": "# Boiler\n\nThe boiler shows E-17 when its pump is dry.",
}

// TestDocumentsByKeyAndPolicy gives passages to clients that know nothing of it: their key is bound to a collection, or a
// module asks for one. Either works for whoever may see the collection, and for nobody else.
func TestDocumentsByKeyAndPolicy(t *testing.T) {
	b := startBox(t, boxState(t, fmt.Sprintf("models:\n  - {name: large, file: %q, ctx_size: 2048}\n  - {name: all-minilm-l6-v2, file: %q, role: embedding}\n",
		smollm2(t), model(t, "all-minilm-l6-v2"))))
	b.claim()
	key, _ := b.key("")
	store := b.filled(key, "House", household)
	if said, _ := b.told(key, "large", "How deep is the well?"); said != "" {
		t.Errorf("a key that is not bound is told %q", said)
	}
	bound, _ := b.key(`,"collections":["House"],"bind":true`)
	wrong := exec.Command(binary, "key", "create", "wrong", "--collection", "Hosue", "--bind", "--socket", filepath.Join(b.state, "admin.sock"))
	if out, err := wrong.CombinedOutput(); err == nil || !strings.Contains(string(out), `"House" (`+store+`)`) {
		t.Errorf("a collection that there is not: %s", out)
	}
	said, answer := b.told(bound, "large", "How deep is the well?")
	if !strings.HasPrefix(said, store+"; n=2; hybrid") || !strings.Contains(answer, `"file_citation"`) || !strings.Contains(answer, "well.md") {
		t.Errorf("a bound key: %q, %s", said, answer)
	}
	if status, text := b.do(bound, "POST", "/v1/chat/completions", `{"model":"large","messages":[{"role":"user","content":"Hi"}],"max_tokens":2,"documents":{"collections":[]}}`); status != 200 || strings.Contains(text, "file_citation") {
		t.Errorf("turned off: %d %s", status, text)
	}

	// a module asks for more passages than there are
	module := policyModule(`{"v":1,"action":"route","candidates":["large"],"rag":{"collection":"House","top_k":100},"reason":"house"}`, false)
	if status, answer, _ := b.push(module, manifestOf("house", "1.0.0")); status != 200 && status != 201 {
		t.Fatal(status, answer)
	}
	b.admin("POST", "/bindings/policy/activate", `{"module":"house"}`)
	said, answer = b.told(key, "auto", "What does E-17 mean?")
	if !strings.HasPrefix(said, store+"; n=2; hybrid") || !strings.Contains(answer, "boiler.md") {
		t.Errorf("by a module: %q, %s", said, answer)
	}
	// the same module, and somebody for whom that collection does not exist
	other := b.admin("POST", "/people", `{"name":"Bea","role":"member"}`)
	foreign, _ := b.key(fmt.Sprintf(`,"owner":%q`, other["id"]))
	said, answer = b.told(foreign, "auto", "What does E-17 mean?")
	if strings.Contains(said, store) || strings.Contains(answer, "boiler.md") || strings.Contains(answer, "file_citation") {
		t.Errorf("somebody else is told %q: %s", said, answer)
	}
}

// TestDocumentsReranked has a box order what it found by a model that ranks, or by late interaction.
func TestDocumentsReranked(t *testing.T) {
	text, err := os.ReadFile("testdata/passages.txt")
	if err != nil {
		t.Fatal(err)
	}
	passages := strings.Split(strings.TrimSpace(string(text)), "\n")
	texts := map[string]string{}
	for _, n := range []int{0, 1, 8, 18} {
		texts[fmt.Sprintf("p%d.txt", n)] = passages[n]
	}
	embedding := fmt.Sprintf("models:\n  - {name: all-minilm-l6-v2, file: %q, role: embedding}\n", model(t, "all-minilm-l6-v2"))
	const query = `{"query":"the ferry sails to the island before seven, in strong wind"%s}`
	for name, config := range map[string]string{
		"a model": embedding + fmt.Sprintf("  - {name: ranker, file: %q, role: reranking}\n", newRanker(string(text)).publish(t)),
		"late":    embedding + "documents: {late: true}\n",
		"none":    embedding,
	} {
		t.Run(name, func(t *testing.T) {
			b := startBox(t, boxState(t, config))
			b.claim()
			key, _ := b.key("")
			store := b.filled(key, "x", texts)
			how := func(more string) (string, string) {
				res := b.send(key, "POST", "/v1/vector_stores/"+store+"/search", fmt.Sprintf(query, more))
				defer res.Body.Close()
				text, err := io.ReadAll(res.Body)
				if err != nil || res.StatusCode != 200 {
					t.Fatalf("%d %s %v\n%s", res.StatusCode, text, err, b.log)
				}
				return res.Header.Get("X-1bit-Search"), string(text)
			}
			said, found := how("")
			want := "hybrid; reranked"
			if name == "none" {
				want = "hybrid"
			}
			if said != want || strings.Index(found, passages[8][:20]) > strings.Index(found, passages[0][:20]) || !strings.Contains(found, passages[8][:20]) {
				t.Errorf("%s: %s\n%s", said, found, b.log)
			}
			if said, _ := how(`,"ranking_options":{"ranker":"none"}`); said != "hybrid" {
				t.Errorf("without a ranker: %s", said)
			}
		})
	}
}

// TestResponsesForms: the built-in engine holds an answer to a schema through a box, and refuses one that it cannot hold to.
func TestResponsesForms(t *testing.T) {
	b := startBox(t, boxState(t, fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 2048}]\n", smollm2(t))))
	b.claim()
	key, _ := b.key("")
	ask := func(format string) (int, string) {
		return b.do(key, "POST", "/v1/responses", fmt.Sprintf(`{"model":"small","input":"Hi","max_output_tokens":64,"text":{"format":%s}}`, format))
	}
	status, text := ask(`{"type":"json_schema","name":"n","strict":true,"schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}}`)
	var answer struct {
		Output []struct{ Content []struct{ Text string } }
	}
	var said struct{ N *int64 }
	if err := json.Unmarshal([]byte(text), &answer); status != 200 || err != nil || len(answer.Output) != 1 || len(answer.Output[0].Content) != 1 {
		t.Fatalf("%d %v %s", status, err, text)
	}
	if err := json.Unmarshal([]byte(answer.Output[0].Content[0].Text), &said); err != nil || said.N == nil {
		t.Errorf("the answer has another form (%v): %s", err, text)
	}
	status, text = ask(`{"type":"json_schema","name":"n","schema":{"type":"object","properties":{"n":{"not":{"type":"string"}}}}}`)
	if status != 400 || !strings.Contains(text, "#/properties/n") {
		t.Errorf("a schema that is not known whole: %d %s", status, text)
	}
	if status, text := ask(`{"type":"text"}`); status != 200 {
		t.Errorf("text: %d %s", status, text)
	}
}
