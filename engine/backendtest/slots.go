package backendtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Slots is a server in llama-server's dialect, with two slots of at least 512 tokens, that keeps the state of slots in
// files.
type Slots struct {
	URL   string
	Dir   string        // where the files are
	Again func() string // ends the server and starts another with the same folder; returns its URL
	Loose bool          // it takes slots that are not there, and loses what a slot has when a file cannot be restored
	Exact bool          // what is restored goes on with the same bits
}

// slotTimings are those of an answer.
type slotTimings struct {
	Cached int    `json:"cache_n"`
	Prompt int    `json:"prompt_n"`
	Cache  string `json:"cache"`
}

// slotAnswer is what slot actions and completions say.
type slotAnswer struct {
	Slot     *int   `json:"id_slot"`
	Filename string `json:"filename"`
	Saved    int    `json:"n_saved"`
	Written  int64  `json:"n_written"`
	Restored int    `json:"n_restored"`
	Read     int64  `json:"n_read"`
	Erased   int    `json:"n_erased"`
	Timings  struct {
		slotTimings
		Save    *float64 `json:"save_ms"`
		Restore *float64 `json:"restore_ms"`
	} `json:"timings"`
	Choices []struct{ Text string } `json:"choices"`
	Error   struct {
		Message string `json:"message"`
		Type    string `json:"type"`
	} `json:"error"`
}

// ask sends a request and returns the answer's status and body.
func ask(t *testing.T, method, url, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, b
}

// post sends an object.
func post(t *testing.T, url, body string) (int, slotAnswer) {
	t.Helper()
	status, b := ask(t, http.MethodPost, url, body)
	var a slotAnswer
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatalf("%s: %d %s", url, status, b)
	}
	return status, a
}

// act does something with a slot.
func (s *Slots) act(t *testing.T, slot int, action, name string) slotAnswer {
	t.Helper()
	status, a := post(t, fmt.Sprintf("%s/slots/%d?action=%s", s.URL, slot, action), fmt.Sprintf(`{"filename":%q}`, name))
	if status != http.StatusOK || a.Slot == nil || *a.Slot != slot {
		t.Fatalf("%s of slot %d: %d, %+v", action, slot, status, a)
	}
	return a
}

// ids are tokens that every vocabulary has.
func ids(from, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = 40 + (from+i*7)%97
	}
	return list
}

// complete answers a prompt of tokens in a slot, with n tokens more.
func (s *Slots) complete(t *testing.T, slot int, prompt []int, n int) slotAnswer {
	t.Helper()
	b, err := json.Marshal(map[string]any{"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": true, "id_slot": slot, "cache_prompt": true})
	if err != nil {
		t.Fatal(err)
	}
	status, a := post(t, s.URL+"/v1/completions", string(b))
	if status != http.StatusOK || len(a.Choices) != 1 {
		t.Fatalf("a completion in slot %d: %d, %+v", slot, status, a)
	}
	return a
}

// RunSlots holds a server to what the slot actions promise.
func RunSlots(t *testing.T, s *Slots) {
	for _, p := range []struct {
		name string
		test func(*testing.T, *Slots)
	}{
		{"saves what a slot holds", slotSaves},
		{"restores into any slot", slotRestores},
		{"erases", slotErases},
		{"computes in an empty slot that a request names", slotNamed},
		{"saves and restores nothing", slotEmpty},
		{"replaces a file", slotReplaces},
		{"waits for a busy slot", slotBusy},
		{"has all of it after a restart", slotRestart},
		{"refuses", slotRefuses},
		{"refuses files that are none", slotBadFiles},
	} {
		t.Run(p.name, func(t *testing.T) { p.test(t, s) })
	}
}

func slotSaves(t *testing.T, s *Slots) {
	s.act(t, 0, "erase", "")
	s.complete(t, 0, ids(0, 120), 1)
	a := s.act(t, 0, "save", "one.bin")
	info, err := os.Stat(filepath.Join(s.Dir, "one.bin"))
	if err != nil || a.Filename != "one.bin" || a.Saved != 120 || a.Written != info.Size() || a.Timings.Save == nil {
		t.Errorf("%+v; the file: %v, %v", a, info, err)
	}
	if entries, err := os.ReadDir(s.Dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if b := s.complete(t, 0, ids(0, 121), 1); b.Timings.Cached != 120 {
		t.Errorf("the slot lost what was saved: %+v", b.Timings)
	}
}

// slotRestores: a claim of tokens is true, and the answer is the one that the slot itself gives.
func slotRestores(t *testing.T, s *Slots) {
	want := s.complete(t, 0, ids(0, 140), 12)
	s.complete(t, 1, ids(1000, 50), 1)
	a := s.act(t, 1, "restore", "one.bin")
	if a.Filename != "one.bin" || a.Restored != 120 || a.Read == 0 || a.Timings.Restore == nil {
		t.Errorf("%+v", a)
	}
	got := s.complete(t, 1, ids(0, 140), 12)
	if got.Timings.Cached != 120 || got.Timings.Prompt != 20 {
		t.Errorf("120 tokens were restored: %+v", got.Timings)
	}
	if got.Timings.Cache != "" && got.Timings.Cache != "snapshot" {
		t.Errorf("what was restored is called %q", got.Timings.Cache)
	}
	if s.Exact && got.Choices[0].Text != want.Choices[0].Text {
		t.Errorf("%q after a restore, %q without", got.Choices[0].Text, want.Choices[0].Text)
	}
	if again := s.complete(t, 1, ids(0, 140), 1); again.Timings.Cached != 139 || again.Timings.Cache == "snapshot" {
		t.Errorf("the slot's own tokens: %+v", again.Timings)
	}
}

func slotErases(t *testing.T, s *Slots) {
	s.complete(t, 1, ids(0, 30), 1)
	if a := s.act(t, 1, "erase", ""); a.Erased < 30 {
		t.Errorf("%+v", a)
	}
	if a := s.act(t, 1, "erase", ""); a.Erased != 0 {
		t.Errorf("an empty slot had %d tokens", a.Erased)
	}
	if a := s.complete(t, 1, ids(0, 30), 1); a.Timings.Cached != 0 {
		t.Errorf("%d tokens of what was erased were used", a.Timings.Cached)
	}
}

// slotNamed: a request that names an empty slot computes there, and takes nothing from others.
func slotNamed(t *testing.T, s *Slots) {
	want := s.complete(t, 0, ids(5, 60), 8)
	s.act(t, 1, "erase", "")
	got := s.complete(t, 1, ids(5, 60), 8)
	if got.Timings.Cached != 0 || got.Timings.Prompt != 60 {
		t.Errorf("%+v", got.Timings)
	}
	if s.Exact && got.Choices[0].Text != want.Choices[0].Text {
		t.Errorf("%q in one slot, %q in the other", want.Choices[0].Text, got.Choices[0].Text)
	}
	if a := s.act(t, 1, "save", "two.bin"); a.Saved != 67 {
		t.Errorf("after it the slot holds %d tokens", a.Saved)
	}
}

func slotEmpty(t *testing.T, s *Slots) {
	s.act(t, 1, "erase", "")
	if a := s.act(t, 1, "save", "empty.bin"); a.Saved != 0 {
		t.Errorf("%+v", a)
	}
	if a := s.act(t, 0, "restore", "empty.bin"); a.Restored != 0 {
		t.Errorf("%+v", a)
	}
	if a := s.complete(t, 0, ids(0, 20), 1); a.Timings.Cached != 0 {
		t.Errorf("%+v", a.Timings)
	}
}

func slotReplaces(t *testing.T, s *Slots) {
	for _, n := range []int{200, 30} {
		s.complete(t, 0, ids(n, n), 1)
		s.act(t, 0, "save", "same.bin")
		s.act(t, 0, "erase", "")
		if a := s.act(t, 0, "restore", "same.bin"); a.Restored != n {
			t.Errorf("%+v, want %d tokens", a, n)
		}
	}
}

// slotBusy: an action waits for the answer under way and has all of it.
func slotBusy(t *testing.T, s *Slots) {
	s.act(t, 0, "erase", "")
	done := make(chan slotAnswer)
	go func() {
		defer close(done)
		done <- s.complete(t, 0, ids(3, 200), 40)
	}()
	for { // until it has begun
		_, b := ask(t, http.MethodGet, s.URL+"/slots", "")
		var slots []struct {
			Busy bool `json:"is_processing"`
		}
		if err := json.Unmarshal(b, &slots); err != nil || len(slots) != 2 {
			t.Fatalf("%d slots, %v", len(slots), err)
		}
		if slots[0].Busy {
			break
		}
		select {
		case <-done:
			t.Fatal("the answer was there before its slot was seen at work")
		default:
		}
	}
	saved := make(chan slotAnswer)
	go func() {
		defer close(saved)
		saved <- s.act(t, 0, "save", "busy.bin")
	}()
	<-done
	if a := <-saved; a.Saved != 239 {
		t.Errorf("%d tokens were saved, want the prompt and the answer", a.Saved)
	}
}

func slotRestart(t *testing.T, s *Slots) {
	want := s.complete(t, 0, ids(0, 140), 12)
	s.URL = s.Again()
	if a := s.act(t, 1, "restore", "one.bin"); a.Restored != 120 {
		t.Errorf("%+v", a)
	}
	got := s.complete(t, 1, ids(0, 140), 12)
	if got.Timings.Cached != 120 || got.Timings.Prompt != 20 {
		t.Errorf("%+v", got.Timings)
	}
	if s.Exact && got.Choices[0].Text != want.Choices[0].Text {
		t.Errorf("%q after a restart, %q before", got.Choices[0].Text, want.Choices[0].Text)
	}
}

// refused checks that an action is refused, as llama-server does.
func (s *Slots) refused(t *testing.T, path, body string, want int, kind, message string) {
	t.Helper()
	status, a := post(t, s.URL+path, body)
	if status != want || a.Error.Type != kind || !strings.HasPrefix(a.Error.Message, message) {
		t.Errorf("%s %s: %d, %+v; want %d %s %q", path, body, status, a.Error, want, kind, message)
	}
}

const invalidRequest = "invalid_request_error"

func slotRefuses(t *testing.T, s *Slots) {
	for _, path := range []string{"/slots/x?action=erase", "/slots/7?action=erase", "/slots/-1?action=erase"} {
		if !s.Loose || strings.Contains(path, "x") {
			s.refused(t, path, `{}`, http.StatusBadRequest, invalidRequest, "Invalid slot ID")
		}
	}
	for _, path := range []string{"/slots/0", "/slots/0?action=", "/slots/0?action=eat"} {
		s.refused(t, path, `{"filename":"a"}`, http.StatusBadRequest, invalidRequest, "Invalid action")
	}
	long := strings.Repeat("x", 256)
	names := []string{"", ".", "..", "../one.bin", "a/b", "/etc/passwd", `a\b`, "a..b", "a.", " a", "a ", "a:b", "a*", "a?", `a"`, "<a", "a>", "a|b", "a\x01", "a\x7f", "a\u0085", "a\u2215b", "\ufeffa", long}
	for _, action := range []string{"save", "restore"} {
		for _, name := range names {
			body, err := json.Marshal(map[string]string{"filename": name})
			if err != nil {
				t.Fatal(err)
			}
			s.refused(t, "/slots/0?action="+action, string(body), http.StatusBadRequest, invalidRequest, "Invalid filename")
		}
		for _, body := range []string{``, `{`, `{}`, `{"filename":7}`, `[]`} {
			s.refused(t, "/slots/0?action="+action, body, http.StatusBadRequest, invalidRequest, "")
		}
	}
	for _, name := range []string{"ä.bin", strings.Repeat("y", 255)} {
		s.act(t, 0, "save", name)
		s.act(t, 0, "restore", name)
	}
}

// slotBadFiles: what cannot be restored is refused, and the slot works.
func slotBadFiles(t *testing.T, s *Slots) {
	good, err := os.ReadFile(filepath.Join(s.Dir, "one.bin"))
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(good)
	other[0] ^= 0xff
	for name, b := range map[string][]byte{"bad.bin": []byte("garbage"), "none.bin": {}, "torn.bin": good[:len(good)-3], "other.bin": other} {
		if err := os.WriteFile(filepath.Join(s.Dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(s.Dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bad.bin", "none.bin", "torn.bin", "other.bin", "folder", "absent.bin"} {
		s.complete(t, 0, ids(0, 60), 1)
		s.refused(t, "/slots/0?action=restore", `{"filename":"`+name+`"}`, http.StatusBadRequest, invalidRequest, "Unable to restore slot: ")
		if a := s.complete(t, 0, ids(0, 61), 1); !s.Loose && a.Timings.Cached != 60 {
			t.Errorf("%s: the slot lost what it had: %+v", name, a.Timings)
		}
	}
	s.refused(t, "/slots/0?action=save", `{"filename":"folder"}`, http.StatusInternalServerError, "server_error", "Unable to save slot")
	s.act(t, 0, "restore", "one.bin")
}
