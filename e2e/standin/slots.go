package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// table is what slots hold, when the stand-in was started with --slot-save-path: it finds the prompt's beginning in a slot,
// as a llama-server does, and says how much of it it had. Words are its tokens.
type table struct {
	model string
	dir   string
	bytes int           // of a token's state in a file: STANDIN_STATE (64)
	pace  time.Duration // for a token of a prompt that the slot does not have: STANDIN_PREFILL (0s)

	mu   sync.Mutex
	rows []row
	uses int
	news chan struct{} // closed when a slot becomes idle
}

// row is one slot.
type row struct {
	busy   bool
	used   int // order of last use, 0 is never
	tokens []string
}

// turn is a request in a slot.
type turn struct {
	slot   int
	prompt []string
	cached int // tokens of the prompt
}

func newTable(s *server) *table {
	dir := s.value("--slot-save-path")
	if dir == "" {
		return nil
	}
	t := &table{model: s.model, dir: dir, bytes: 64, rows: make([]row, cap(s.slots)), news: make(chan struct{})}
	if n, err := strconv.Atoi(os.Getenv("STANDIN_STATE")); err == nil {
		t.bytes = n
	}
	t.pace, _ = time.ParseDuration(setting("STANDIN_PREFILL", "0s"))
	return t
}

// words are the tokens of a request's prompt.
func (a asked) words() []string {
	var all []string
	if len(a.Tools) > 0 {
		all = append(all, string(a.Tools))
	}
	for _, m := range a.Messages {
		all = append(all, "<"+m.Role+">")
		all = append(all, strings.Fields(content(m.Content))...)
	}
	if len(a.Messages) > 0 {
		all = append(all, "<assistant>")
	}
	var ids []int
	if json.Unmarshal(a.Prompt, &ids) == nil {
		for _, id := range ids {
			all = append(all, strconv.Itoa(id))
		}
		return all
	}
	return append(all, strings.Fields(content(a.Prompt))...)
}

// content is a text, or the texts of parts.
func content(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(raw, &parts) // anything else has no text
	for _, p := range parts {
		text += p.Text + " "
	}
	return text
}

// said is what is answered.
func (s *server) said(a asked) []string {
	if s.table == nil || a.MaxTokens == nil {
		return pieces
	}
	var all []string
	for i := range *a.MaxTokens {
		if i == len(pieces) && !a.IgnoreEOS {
			break
		}
		all = append(all, " "+strings.TrimSpace(pieces[i%len(pieces)]))
	}
	return all
}

// common is how many tokens two lists begin with alike.
func common(a, b []string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// choose returns the idle slot for a prompt: the one that is named, else the one that has most of its beginning, else the
// one that was not used for longest. -1 is none.
func (t *table) choose(named int, prompt []string) int {
	best, most := -1, 0
	for i := range t.rows {
		if t.rows[i].busy || (named >= 0 && i != named%len(t.rows)) {
			continue
		}
		if n := common(t.rows[i].tokens, prompt); n > most && 10*n > len(prompt) {
			best, most = i, n
		} else if most == 0 && (best < 0 || t.rows[i].used < t.rows[best].used) {
			best = i
		}
	}
	return best
}

// hold waits for a slot and takes it.
func (t *table) hold(ctx context.Context, named int, prompt []string) (int, bool) {
	for {
		t.mu.Lock()
		i, news := t.choose(named, prompt), t.news
		if i >= 0 {
			t.rows[i].busy = true
		}
		t.mu.Unlock()
		if i >= 0 {
			return i, true
		}
		select {
		case <-news:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// free gives a slot back.
func (t *table) free(i int, tokens []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.uses++
	t.rows[i].busy, t.rows[i].tokens, t.rows[i].used = false, tokens, t.uses
	close(t.news)
	t.news = make(chan struct{})
}

// begin takes a slot for a request and reads what it does not have of the prompt.
func (t *table) begin(r *http.Request, a asked) (*turn, bool) {
	named := -1
	if a.Slot != nil {
		named = *a.Slot
	}
	prompt := a.words()
	i, ok := t.hold(r.Context(), named, prompt)
	if !ok {
		return nil, false
	}
	u := &turn{slot: i, prompt: prompt}
	if a.CachePrompt == nil || *a.CachePrompt {
		u.cached = max(0, min(common(t.rows[i].tokens, prompt), len(prompt)-1))
	}
	select {
	case <-time.After(t.pace * time.Duration(len(prompt)-u.cached)):
		return u, true
	case <-r.Context().Done():
		t.free(i, prompt[:u.cached])
		return nil, false
	}
}

// end leaves in the slot what it has read and said, but for the last word.
func (t *table) end(u *turn, said []string) {
	words := strings.Fields(strings.Join(said, ""))
	t.free(u.slot, slices.Concat(u.prompt, words[:max(0, len(words)-1)]))
}

// list is GET /slots.
func (t *table) list() []any {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []any
	for i, r := range t.rows {
		all = append(all, map[string]any{"id": i, "n_ctx": 4096, "is_processing": r.busy, "n_prompt_tokens": len(r.tokens)})
	}
	return all
}

// state is a file. Nothing is done against torn ones, as in the original.
type state struct {
	Magic  string   `json:"magic"`
	Model  string   `json:"model"`
	Tokens []string `json:"tokens"`
	State  string   `json:"state"` // so many bytes as a model would have
}

const stateMagic = "standin's slot"

// act is POST /slots/{id}.
func (s *server) act(w http.ResponseWriter, r *http.Request) {
	t := s.table
	if t == nil {
		refuse(w, http.StatusNotImplemented, "This server does not support slots action. Start it with `--slot-save-path`", "not_supported_error")
		return
	}
	invalid := func(message string) { refuse(w, http.StatusBadRequest, message, "invalid_request_error") }
	id, err := strconv.Atoi(r.PathValue("id"))
	action := r.URL.Query().Get("action")
	switch {
	case err != nil:
		invalid("Invalid slot ID")
		return
	case !slices.Contains([]string{"save", "restore", "erase"}, action):
		invalid("Invalid action")
		return
	}
	var in struct {
		Filename *string `json:"filename"`
	}
	if action != "erase" {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Filename == nil {
			invalid("key 'filename' not found")
			return
		}
		if !fileName(*in.Filename) {
			invalid("Invalid filename")
			return
		}
	}
	i, ok := t.hold(r.Context(), max(id, 0), nil)
	if !ok {
		return
	}
	tokens := t.rows[i].tokens
	note(map[string]any{"event": "slot", "action": action, "slot": i, "filename": in.Filename, "tokens": len(tokens), "device": s.device})
	begun := time.Now()
	took := func(name string) map[string]float64 {
		return map[string]float64{name: float64(time.Since(begun)) / float64(time.Millisecond)}
	}
	switch action {
	case "erase":
		t.free(i, nil)
		answer(w, map[string]any{"id_slot": id, "n_erased": len(tokens)})
	case "save":
		n, err := t.save(filepath.Join(t.dir, *in.Filename), tokens)
		t.free(i, tokens)
		if err != nil {
			refuse(w, http.StatusInternalServerError, "Unable to save slot", "server_error")
			return
		}
		answer(w, map[string]any{"id_slot": id, "filename": *in.Filename, "n_saved": len(tokens), "n_written": n, "timings": took("save_ms")})
	default:
		tokens, n, ok := t.restore(filepath.Join(t.dir, *in.Filename))
		t.free(i, tokens)
		if !ok {
			invalid("Unable to restore slot: No available space in KV cache or invalid slot save file")
			return
		}
		answer(w, map[string]any{"id_slot": id, "filename": *in.Filename, "n_restored": len(tokens), "n_read": n, "timings": took("restore_ms")})
	}
}

// fileName is the rule for names, in short.
func fileName(name string) bool {
	return name != "" && len(name) <= 255 && !strings.Contains(name, "..") && strings.Trim(name, " ") == name && !strings.HasSuffix(name, ".") &&
		!strings.ContainsAny(name, `/\:*?"<>|`) && !strings.ContainsFunc(name, func(r rune) bool {
		return r < ' ' || (r >= 0x7f && r <= 0x9f) || slices.Contains([]rune{0xff0e, 0x2215, 0x2216, 0xfffd, 0xfeff}, r)
	})
}

func (t *table) save(path string, tokens []string) (int, error) {
	b, err := json.Marshal(state{stateMagic, t.model, tokens, strings.Repeat("0", t.bytes*len(tokens))})
	if err != nil {
		return 0, err
	}
	return len(b), os.WriteFile(path, b, 0o666)
}

func (t *table) restore(path string) (tokens []string, size int, ok bool) {
	b, err := os.ReadFile(path)
	var f state
	if err != nil || json.Unmarshal(b, &f) != nil || f.Magic != stateMagic || f.Model != t.model || len(f.State) != t.bytes*len(f.Tokens) {
		return nil, 0, false
	}
	return f.Tokens, len(b), true
}
