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

// TestModuleProcessKilled kills the processes of active modules again and again while clients are served. No request is lost:
// the module decides, or the default policy does and says why. Each client's key has a module of its own, so that there are
// many processes to kill; all are killed once each has served. ONEBIT_ALL makes it 1,000 kills.
func TestModuleProcessKilled(t *testing.T) {
	b := startBox(t, boxState(t, twoStandins(t)))
	b.claim()
	var group sync.WaitGroup
	var byDefault, lost atomic.Int64
	decided := make([]atomic.Int64, times(10, 20))
	done := make(chan struct{})
	for n := range decided {
		name := fmt.Sprintf("larger%d", n)
		if status, answer, _ := b.push(policyModule(toLarge(name), false), manifestOf(name, "1.0.0")); status != 201 {
			t.Fatalf("uploading: %d %s", status, answer)
		}
		key, id := b.key("")
		b.admin("POST", "/bindings/"+name+"/activate", fmt.Sprintf(`{"module":%q,"keys":[%q]}`, name, id))
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				case <-time.After(2 * time.Millisecond):
				}
				why, err := b.decided(key, fmt.Sprint("client ", n, " asks ", i))
				switch {
				case err == nil && strings.HasPrefix(why, "module="+name+"@"):
					decided[n].Add(1)
				case err == nil && strings.HasPrefix(why, "default; module="+name+"@") && strings.Contains(why, "; error="):
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
	for end := time.Now().Add(time.Duration(times(2, 20)) * time.Minute); kills < wanted && time.Now().Before(end); {
		var was []int64
		for n := range decided {
			was = append(was, decided[n].Load())
		}
		for n := range decided { // a breaker that opened is probed after some seconds
			for decided[n].Load() == was[n] && time.Now().Before(end) {
				time.Sleep(time.Millisecond)
			}
		}
		for _, pid := range b.workers() {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				kills++
			}
		}
	}
	close(done)
	group.Wait()
	total := int64(0)
	for n := range decided {
		total += decided[n].Load()
	}
	t.Logf("%d kills: %d requests decided by the module, %d by the default policy with a reason, %d lost", kills, total, byDefault.Load(), lost.Load())
	if lost.Load() > 0 {
		t.Errorf("%d requests were lost\n%s", lost.Load(), b.log)
	}
	if kills < wanted {
		t.Errorf("only %d kills", kills)
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
