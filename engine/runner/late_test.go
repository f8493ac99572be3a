package runner_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestLate: a model that makes vectors ranks where it is asked to, by the vectors of all tokens.
func TestLate(t *testing.T) {
	f := encoder(t, nil, "")
	v := f.ok("/v1/rerank", `{"query":"the river","documents":["an old mill","the river","a stone"],"late":true}`)
	results, _ := v["results"].([]any)
	if len(results) != 3 || dig(results[0], "index") != 1.0 {
		t.Fatalf("%s", short(v))
	}
	if score, _ := dig(results[0], "relevance_score").(float64); score < 0.99 || score > 1.001 {
		t.Errorf("the same text has the score %v", score)
	}
	// a longer text is read as far as is asked for
	long := `"the river` + strings.Repeat(" stone", 40) + `"`
	v = f.ok("/v1/rerank", `{"query":"the river","documents":[`+long+`,"the river stone"],"late":true,"late_tokens":5}`)
	results, _ = v["results"].([]any)
	if dig(results[0], "relevance_score") != dig(results[1], "relevance_score") {
		t.Errorf("%s", short(v))
	}
	for body, status := range map[string]int{
		`{"query":"the river","documents":["a"]}`:                             http.StatusNotImplemented,
		`{"query":"the river","documents":["a"],"late":false}`:                http.StatusNotImplemented,
		`{"query":"the river","documents":["a"],"late":true,"late_tokens":0}`: http.StatusBadRequest,
		`{"query":"the river","documents":["a"],"late":1}`:                    http.StatusBadRequest,
	} {
		if r := f.post("/v1/rerank", body); r.status != status {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
}
