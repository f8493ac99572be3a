//go:build unix

package e2e_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestDecisions asks typed questions of a chat model on the built-in engine.
func TestDecisions(t *testing.T) {
	s := start(t, "serve", "--port", "0", "-m", smollm2(t), "--device", "cpu", "--alias", "small")
	t.Run("System One", func(t *testing.T) {
		r := s.post("/v1/systemone", obj{"state": obj{"mail": "I was charged twice."}, "questions": obj{
			"angry": obj{"type": "noul", "instructions": "Is the customer angry?"},
			"team":  obj{"type": "choice", "instructions": "Which team?", "criteria": obj{"billing": nil, "shipping": "parcels"}},
			"much":  obj{"type": "score", "instructions": "How urgent?", "criteria": []string{"can wait", "today", "now"}},
		}})
		v := r.json(t)
		p, _ := dig(v, "answers", "angry", "noul").(float64)
		sum := 0.0
		for _, option := range []string{"billing", "shipping"} {
			x, _ := dig(v, "answers", "team", "probabilities", option).(float64)
			sum += x
		}
		if r.status != 200 || p <= 0 || p >= 1 || sum < 0.999999 || sum > 1.000001 || dig(v, "usage", "output_tokens") != 0.0 ||
			dig(v, "answers", "much", "legend", "2") != "now" || dig(v, "model") != "small" {
			t.Errorf("%d %s", r.status, r.body)
		}
		if how := r.header.Get("X-1bit-Decision"); !strings.Contains(how, "not calibrated") {
			t.Errorf("made in the way %q", how)
		}
	})
	t.Run("a bad question", func(t *testing.T) {
		if r := s.post("/v1/systemone", obj{"state": "x", "questions": obj{"a": obj{"type": "score", "instructions": "q", "criteria": []string{"one"}}}}); r.status != 400 {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	t.Run("the command", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), binary, "decide", "--url", s.URL, "--predicate", "Is it raining?", "--choice", "What falls?=rain,snow")
		cmd.Stdin = strings.NewReader("Take an umbrella, it pours.")
		out, err := cmd.Output()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if err != nil || len(lines) != 2 || !strings.HasPrefix(lines[0], "0.") || !strings.Contains(lines[1], "confidence") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("the official client", func(t *testing.T) {
		py := os.Getenv("ONEBIT_E2E_PYTHON")
		if py == "" {
			t.Fatal(`ONEBIT_E2E_PYTHON is not set: run "make e2e", or eval "$(bash e2e/setup.sh clients)"`)
		}
		runTool(t, 3*time.Minute, py, "clients/openai_decisions.py", s.URL+"/v1", "small")
	})
}
