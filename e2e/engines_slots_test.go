//go:build linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestEnginesKeepSlots: what a model server that has a user of its own has saved of a conversation is there for the next
// one, which has another, after the box and all of its servers were started anew.
func TestEnginesKeepSlots(t *testing.T) {
	asOthers(t)
	dir, program, model := shelf(t)
	socket := socketIn(t, dir)
	startEngines(t, program, socket)
	slots := filepath.Join(dir, "caches", "slots")
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o711); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(state, "1bit.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "models: [{name: small, file: %q, ctx_size: 4096, parallel: 2, device: cpu}]\n", model), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{state, config} {
		if err := os.Chown(path, boxUser, boxUser); err != nil {
			t.Fatal(err)
		}
	}
	start := func() *appliance {
		return startBoxAs(t, program, state, &syscall.Credential{Uid: boxUser, Gid: boxUser}, "ONEBIT_ENGINES="+socket, "ONEBIT_SLOTS="+slots)
	}
	b := start()
	b.claim()
	key, _ := b.key("")
	story := strings.Repeat("The miller sat by the river and told the children of the old days, when the wheel still turned. ", 30)
	ask := func(b *appliance, more string) (prompt, cached int) {
		t.Helper()
		status, text := b.do(key, "POST", "/v1/chat/completions", fmt.Sprintf(`{"model":"small","max_tokens":4,"temperature":0,"messages":[{"role":"system","content":%q},{"role":"user","content":"Who sat by the river?%s"}]}`, story, more))
		var answer struct {
			Usage struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			}
		}
		if err := json.Unmarshal([]byte(text), &answer); status != 200 || err != nil {
			t.Fatalf("%d %s, %v\n%s", status, text, err, b.log)
		}
		return answer.Usage.Prompt, answer.Usage.Details.Cached
	}
	if prompt, cached := ask(b, ""); prompt < 400 || cached != 0 {
		t.Fatalf("%d of %d tokens were there at first", cached, prompt)
	}
	b.stop()
	files, err := filepath.Glob(filepath.Join(slots, "*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v\n%s", files, err, b.log)
	}
	for path, want := range map[string]os.FileMode{slots: os.ModeDir | 0o750, filepath.Dir(files[0]): os.ModeDir | 0o770, files[0]: 0o660} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if stat := info.Sys().(*syscall.Stat_t); info.Mode() != want || stat.Gid != boxUser || stat.Uid == boxUser {
			t.Errorf("%s: %v of %d:%d", path, info.Mode(), stat.Uid, stat.Gid)
		}
	}
	b = start()
	if prompt, cached := ask(b, " And why?"); cached < prompt*9/10 {
		t.Errorf("%d of %d tokens were there after a restart\n%s", cached, prompt, b.log)
	}
	b.admin("DELETE", "/prompt-cache", "") // the box removes what others have written
	b.soon("the files are gone", func() bool {
		left, err := filepath.Glob(filepath.Join(slots, "*", "*"))
		return err == nil && len(left) == 0
	})
	b.stop()
	nobody(t)
}
