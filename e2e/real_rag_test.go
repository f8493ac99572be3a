//go:build unix

package e2e_test

import (
	"encoding/base64"
	bits "encoding/binary"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// importModel makes a GGUF file of a published model.
func importModel(t *testing.T, dir, out, kind string) {
	t.Helper()
	if code, _, errs := command(t, 2*time.Minute, "model", "import", dir, "--out", out, "--type", kind); code != 0 {
		t.Fatalf("model import %s: %d %s", dir, code, errs)
	}
}

// minilm imports the sentence encoder.
func minilm(t *testing.T) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "MiniLM.gguf")
	importModel(t, minilmFolder(t), out, "F16")
	return out
}

// minilmFolder fetches the sentence encoder and returns the folder of its files.
func minilmFolder(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("bash", "minilm.sh")
	var errs strings.Builder
	cmd.Stderr = &errs
	dir, err := cmd.Output()
	if err != nil {
		t.Fatalf("fetching MiniLM: %v\n%s", err, errs.String())
	}
	return strings.TrimSpace(string(dir))
}

// TestRealRAG serves a chat model with an encoder and a ranker beside it.
func TestRealRAG(t *testing.T) {
	llamaProgram(t, "llama-server")
	text, err := os.ReadFile("testdata/passages.txt")
	if err != nil {
		t.Fatal(err)
	}
	passages := strings.Split(strings.TrimSpace(string(text)), "\n")
	s := startLlama(t, "qwen2.5-coder-0.5b", "--alias", "coder", "--ctx-size", "4096", "--embed", minilm(t), "--rerank", newRanker(string(text)).publish(t))
	t.Run("models", func(t *testing.T) {
		_, _, body := s.get("/v1/models")
		for _, want := range []string{`"id":"coder"`, `"id":"MiniLM"`, `"role":"embedding"`, `"id":"ranker"`, `"role":"rerank"`} {
			if !strings.Contains(body, want) {
				t.Errorf("models lack %s: %s", want, body)
			}
		}
	})
	t.Run("embeddings", func(t *testing.T) { realVectors(t, s, "MiniLM") })
	t.Run("rerank", func(t *testing.T) { realOrder(t, s, passages) })
	t.Run("the whole loop", func(t *testing.T) {
		py := os.Getenv("ONEBIT_E2E_PYTHON")
		if py == "" {
			t.Fatal(`ONEBIT_E2E_PYTHON is not set: run "make test-all", or eval "$(bash e2e/setup.sh clients)"`)
		}
		runTool(t, 5*time.Minute, py, "rag.py", s.URL+"/v1", "testdata/passages.txt")
	})
}

// unpack reads a vector that is packed as base64.
func unpack(t *testing.T, text string) []float64 {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 4*384 {
		t.Fatalf("%v, %d bytes", err, len(raw))
	}
	v := make([]float64, len(raw)/4)
	for i := range v {
		v[i] = float64(math.Float32frombits(bits.LittleEndian.Uint32(raw[4*i:])))
	}
	return v
}

// cosine is the similarity of two vectors of the same length.
func cosine(a, b []float64) float64 {
	dot, aa, bb := 0.0, 0.0, 0.0
	for i := range a {
		dot, aa, bb = dot+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	return dot / math.Sqrt(aa*bb)
}

// realVectors compares the encoder's vectors with those of an independent computation, in both forms.
func realVectors(t *testing.T, s *server, name string) {
	b, err := os.ReadFile("testdata/minilm.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Text   string
			IDs    []int
			Vector string
		}
	}
	if err := json.Unmarshal(b, &golden); err != nil || len(golden.Cases) == 0 {
		t.Fatal(err)
	}
	var texts []string
	tokens := 0
	for _, c := range golden.Cases {
		texts, tokens = append(texts, c.Text), tokens+len(c.IDs)
	}
	r := s.post("/v1/embeddings", obj{"model": name, "input": texts})
	v := r.json(t)
	packed := s.post("/v1/embeddings", obj{"model": name, "input": texts, "encoding_format": "base64"}).json(t)
	if r.status != 200 || v["model"] != name || packed["model"] != name || dig(v, "usage", "prompt_tokens") != float64(tokens) {
		t.Fatalf("%d, usage %v, want %d tokens: %.300s", r.status, v["usage"], tokens, r.body)
	}
	for i, c := range golden.Cases {
		numbers, _ := dig(v, "data", i, "embedding").([]any)
		got := make([]float64, 384)
		for k, x := range numbers {
			got[k], _ = x.(float64)
		}
		text, _ := dig(packed, "data", i, "embedding").(string)
		want := unpack(t, c.Vector)
		plain, other := cosine(got, want), cosine(unpack(t, text), want)
		t.Logf("%q: cosine %.6f, packed %.6f", c.Text, plain, other)
		if len(numbers) != 384 || dig(v, "data", i, "index") != float64(i) || plain < 0.999 || other < 0.999 {
			t.Errorf("%q: %d numbers, cosine %v, packed %v", c.Text, len(numbers), plain, other)
		}
	}
}

// realOrder asks for the order of passages that share six, one and no words with the query.
func realOrder(t *testing.T, s *server, passages []string) {
	documents := []string{passages[1], passages[8], passages[18], passages[0]}
	query := "the ferry sails to the island before seven, in strong wind"
	scores := map[float64]float64{}
	r := s.post("/v1/rerank", obj{"model": "ranker", "query": query, "documents": documents})
	v := r.json(t)
	results, _ := v["results"].([]any)
	if r.status != 200 || v["model"] != "ranker" || len(results) != 4 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	last := math.Inf(1)
	for _, e := range results {
		index, _ := dig(e, "index").(float64)
		score, _ := dig(e, "relevance_score").(float64)
		if scores[index] = score; score > last {
			t.Errorf("the results are not in order: %v", results)
		}
		last = score
	}
	t.Logf("scores %v", scores)
	if dig(results, 0, "index") != 1.0 || dig(results, 1, "index") != 2.0 || scores[2] < scores[0]+1 || scores[1] < scores[2]+1 {
		t.Errorf("the order is wrong: %v", results)
	}
	v = s.post("/v1/rerank", obj{"model": "ranker", "query": query, "documents": documents, "top_n": 2}).json(t)
	results, _ = v["results"].([]any)
	if len(results) != 2 || dig(results, 0, "index") != 1.0 || dig(results, 1, "index") != 2.0 {
		t.Errorf("top_n 2: %v", v)
	}
}
