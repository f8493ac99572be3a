//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestModuleProcessKilled kills the process of the active module again and again while clients are served. No request is lost:
// the module decides, or the default policy does and says why. ONEBIT_ALL makes it 1,000 kills.
func TestModuleProcessKilled(t *testing.T) {
	b := startBox(t, boxState(t, twoStandins(t)))
	b.claim()
	key, _ := b.key("")
	if status, answer, _ := b.push(policyModule(toLarge("1"), false), manifestOf("larger", "1.0.0")); status != 201 {
		t.Fatalf("uploading: %d %s", status, answer)
	}
	b.admin("POST", "/bindings/policy/activate", `{"module":"larger"}`)
	var group sync.WaitGroup
	var decided, byDefault, lost atomic.Int64
	done := make(chan struct{})
	for n := range 6 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				why, err := b.decided(key, fmt.Sprint("client ", n, " asks ", i))
				switch {
				case err == nil && strings.HasPrefix(why, "module=larger@"):
					decided.Add(1)
				case err == nil && strings.HasPrefix(why, "default; module=larger@") && strings.Contains(why, "; error="):
					byDefault.Add(1)
				default:
					if lost.Add(1) < 4 {
						t.Errorf("a request was lost: %q %v", why, err)
					}
				}
			}
		})
	}
	kills, wanted := 0, times(20, 1000)
	seen := map[int]bool{}
	for end := time.Now().Add(time.Duration(times(3, 25)) * time.Minute); kills < wanted && time.Now().Before(end); {
		was := decided.Load()
		for _, pid := range b.workers() {
			if syscall.Kill(pid, syscall.SIGKILL) == nil && !seen[pid] {
				seen[pid] = true
				kills++
			}
		}
		for decided.Load() == was && time.Now().Before(end) { // a breaker that opened is probed after some seconds
			time.Sleep(time.Millisecond)
		}
	}
	close(done)
	group.Wait()
	t.Logf("%d kills: %d requests decided by the module, %d by the default policy with a reason, %d lost", kills, decided.Load(), byDefault.Load(), lost.Load())
	if lost.Load() > 0 {
		t.Errorf("%d requests were lost\n%s", lost.Load(), b.log)
	}
	if kills < wanted || decided.Load() == 0 {
		t.Errorf("only %d kills, %d requests decided", kills, decided.Load())
	}
}

// decided asks for one word in a new conversation and returns why it ran where it did.
func (b *appliance) decided(key, prompt string) (string, error) {
	r, err := http.NewRequest("POST", "https://127.0.0.1:"+b.port+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"model":"auto","messages":[{"role":"user","content":%q}],"max_tokens":1}`, prompt)))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := b.client.Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != 200 || !json.Valid(text)) {
		err = fmt.Errorf("%d %s", res.StatusCode, text)
	}
	return res.Header.Get("X-1bit-Route-Why"), err
}
