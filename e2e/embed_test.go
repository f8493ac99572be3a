//go:build unix

package e2e_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEmbeddings serves the default models of a fresh machine, all on the built-in engine.
func TestEmbeddings(t *testing.T) {
	const name = "all-MiniLM-L6-v2-Q8_0"
	s := start(t, "serve", "--port", "0", "-m", smollm2(t), "--device", "cpu", "--embed", model(t, "all-minilm-l6-v2"))
	t.Run("models", func(t *testing.T) {
		_, _, body := s.get("/v1/models")
		if !strings.Contains(body, `"id":"`+name+`"`) || !strings.Contains(body, `"role":"embedding"`) {
			t.Errorf("%s", body)
		}
	})
	t.Run("vectors", func(t *testing.T) { realVectors(t, s, name) })
	t.Run("too long", func(t *testing.T) {
		r := s.post("/v1/embeddings", obj{"input": []string{"short", strings.Repeat("word ", 600)}})
		v := r.json(t)
		if r.status != 400 || dig(v, "error", "n_prompt_tokens") != 602.0 || dig(v, "error", "n_ctx") != 512.0 {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("chat goes on", func(t *testing.T) {
		if r := s.post("/v1/chat/completions", chat("Hello", obj{"max_tokens": 4})); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
		if r := s.post("/v1/rerank", obj{"query": "a", "documents": []string{"b"}}); r.status != 501 {
			t.Errorf("rerank: %d %s", r.status, r.body)
		}
	})
	t.Run("the official client", func(t *testing.T) {
		py := os.Getenv("ONEBIT_E2E_PYTHON")
		if py == "" {
			t.Fatal(`ONEBIT_E2E_PYTHON is not set: run "make e2e", or eval "$(bash e2e/setup.sh clients)"`)
		}
		runTool(t, 2*time.Minute, py, "clients/openai_embeddings.py", s.URL+"/v1", name)
	})
}

// vectorsOf returns the vectors of texts.
func vectorsOf(t *testing.T, s *server, texts []string) [][]float64 {
	t.Helper()
	r := s.post("/v1/embeddings", obj{"input": texts})
	var v struct {
		Data []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal(r.body, &v); r.status != 200 || err != nil || len(v.Data) != len(texts) {
		t.Fatalf("%d %v %.300s", r.status, err, r.body)
	}
	all := make([][]float64, len(texts))
	for i := range v.Data {
		all[i] = v.Data[i].Embedding
	}
	return all
}

// TestRealEmbeddings compares the built-in engine's vectors with those of the reference server on the same files.
func TestRealEmbeddings(t *testing.T) {
	program := llamaProgram(t, "llama-server")
	text, err := os.ReadFile("testdata/passages.txt")
	if err != nil {
		t.Fatal(err)
	}
	texts := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i := range 6 { // of all lengths
		texts = append(texts, strings.Join(texts[:i+1], " "))
	}
	dir := minilmFolder(t)
	for kind, least := range map[string]float64{"F32": 0.9999, "F16": 0.9999, "Q8_0": 0.998} { // the reference itself rounds Q8_0 by so much
		file := filepath.Join(t.TempDir(), kind+".gguf")
		importModel(t, dir, file, kind)
		args := []string{"serve", "--port", "0", "-m", file, "--embedding", "--device", "cpu"}
		ours := vectorsOf(t, start(t, args...), texts)
		other := launchWith(t, []string{oneThread}, append(args, "--llama-server", program)...)
		other.waitHealthy(2 * time.Minute)
		worst := 1.0
		for i, v := range vectorsOf(t, other, texts) {
			worst = min(worst, cosine(ours[i], v))
		}
		t.Logf("%s: the least cosine of %d texts is %.6f", kind, len(texts), worst)
		if worst < least {
			t.Errorf("%s: a cosine of %.6f, under %g", kind, worst, least)
		}
	}
}
