package promptcache

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"onebit/engine"
)

// How long a server may take for what is asked of it beside requests.
const (
	askLimit  = 10 * time.Second
	moveLimit = 2 * time.Minute // a state is saved or restored between two passes of the model
	maxSaid   = 8 << 20         // bytes of an answer
)

// call asks the server for something of our own.
func (b *Backend) call(ctx context.Context, limit time.Duration, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var raw []byte
	var err error
	if body != nil {
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	in, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	in.Header.Set("Content-Type", "application/json")
	res, err := b.relay.Relay(in)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	said, err := io.ReadAll(io.LimitReader(res.Body, maxSaid))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return &engine.StatusError{Status: res.StatusCode, Body: said}
	}
	return json.Unmarshal(said, into)
}

// look finds out how many slots the server has.
func (b *Backend) look(ctx context.Context) error {
	b.mu.Lock()
	there := len(b.slots) > 0
	b.mu.Unlock()
	if there {
		return nil
	}
	var props struct {
		Slots int    `json:"total_slots"`
		Build string `json:"build_info"`
	}
	err := b.call(ctx, askLimit, http.MethodGet, "/props", nil, &props)
	if _, refused := errors.AsType[*engine.StatusError](err); err != nil && !refused {
		return err
	}
	n := props.Slots
	if n < 1 {
		n = b.inner.Slots()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := len(b.slots); id < n; id++ {
		b.slots = append(b.slots, &slot{id: id})
	}
	if b.builtin = strings.HasPrefix(props.Build, "1bit"); b.builtin {
		b.live.never, b.kept.never = false, false
	}
	return nil
}

// done is what a server says of a slot's file.
type done struct {
	Saved    int   `json:"n_saved"`
	Restored int   `json:"n_restored"`
	Written  int64 `json:"n_written"`
	Read     int64 `json:"n_read"`
}

// onSlot has the server do something to a slot.
func (b *Backend) onSlot(ctx context.Context, id int, action, file string) (d done, err error) {
	body := map[string]string{}
	if file != "" {
		body["filename"] = file
	}
	err = b.call(ctx, moveLimit, http.MethodPost, "/slots/"+strconv.Itoa(id)+"?action="+action, body, &d)
	return d, err
}

// newName is a file's.
func newName() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails
	return hex.EncodeToString(raw[:])
}

// save writes the state of a slot, which is the caller's, to a file, and returns what says when that is recorded; nil when it
// cannot be written, which is no reason not to go on.
func (b *Backend) save(ctx context.Context, s *slot) (recorded <-chan error) {
	b.mu.Lock()
	e := Entry{File: newName(), Model: folder(b.model), Of: b.of, Scope: s.scope, Points: s.held, Marked: s.marked, Used: s.used}
	n := s.n
	b.mu.Unlock()
	if !b.c.room(e, n) {
		return nil
	}
	d, err := b.onSlot(ctx, s.id, "save", e.File)
	path := b.c.path(e.Model, e.File)
	if err == nil && d.Saved <= 0 {
		err = errors.New("it saved nothing")
	}
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(path); err == nil {
			e.Tokens, e.Bytes = d.Saved, info.Size()
			if d.Written != e.Bytes { // it counts none where it failed half way
				err = fmt.Errorf("it wrote %d bytes, and the file has %d", d.Written, e.Bytes)
			}
		}
	}
	if err != nil {
		b.failed("saving the state of a conversation", err)
		_ = os.Remove(path) // nobody knows it; what stays is swept at the next start
		return nil
	}
	_ = os.Chmod(path, 0o600) // it lies in a folder of ours in any case
	if recorded = b.c.keep(e); recorded == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
	s.file, s.saved = e.File, s.n
	return recorded
}

// maxFailures in a row are the end of files for a while.
const maxFailures = 3

// failed notes that something with files did not work.
func (b *Backend) failed(what string, err error) {
	b.mu.Lock()
	b.failures++
	last := b.failures == maxFailures
	if last {
		b.pause()
	}
	until := b.paused
	b.mu.Unlock()
	if last {
		b.c.cfg.Log.Warn("the states of conversations are not kept in files for a while", "model", b.model, "until", until, "why", err)
		return
	}
	b.c.cfg.Log.Info(what, "model", b.model, "why", err)
}

// restore brings the state of a file into a slot, which is the caller's, and reports whether it did.
func (b *Backend) restore(ctx context.Context, s *slot, e *entry) bool {
	if !b.proven(ctx, s) {
		return false
	}
	d, err := b.onSlot(ctx, s.id, "restore", e.File)
	if err == nil && d.Restored <= 0 {
		err = errors.New("it restored nothing")
	}
	if err != nil {
		b.failed("restoring the state of a conversation", err)
		b.c.remove(e.File)
		return false
	}
	b.c.count(func(n *Counts) { n.Restores++ })
	return true
}

// probeText is long enough to tell what was reused, and no more.
const (
	probeText = "This is a test of a prompt cache. It saves what was computed of these lines, erases it and restores it."
	probeMore = " Then it goes on."
)

// proven finds out, once for each build of a program, whether what a server restores is reused. The slot is the caller's,
// and what it holds is lost.
func (b *Backend) proven(ctx context.Context, s *slot) bool {
	b.proving.Lock() // one probe at a time; who comes second has its result
	defer b.proving.Unlock()
	if was := b.c.verdict(b.of); was != untried {
		return was == good
	}
	cached, all, err := b.probe(ctx, s.id)
	verdict := good
	switch {
	case err != nil:
		verdict = untried // it may have been a bad moment
		b.failed("trying whether states can be restored", err)
	case cached*2 < all:
		verdict = bad
		b.c.cfg.Log.Warn("this build computes anew what it says it has restored: the states of conversations are not kept in files",
			"model", b.model, "reused", cached, "of", all)
	}
	b.c.mu.Lock()
	b.c.proofs[b.of] = verdict
	b.c.mu.Unlock()
	if verdict == bad {
		b.c.discard(func(e *Entry) bool { return e.Of == b.of })
	}
	return verdict == good
}

// probe saves, erases and restores a small prompt, and returns how many of its tokens a longer one reuses.
func (b *Backend) probe(ctx context.Context, id int) (cached, all int, err error) {
	type answer struct {
		Timings struct {
			Prompt int `json:"prompt_n"`
			Cached int `json:"cache_n"`
		} `json:"timings"`
	}
	run := func(text string, reuse bool) (a answer, err error) {
		err = b.call(ctx, moveLimit, http.MethodPost, "/completion", map[string]any{
			"prompt": text, "n_predict": 0, "id_slot": id, "cache_prompt": reuse, "temperature": 0,
		}, &a)
		return a, err
	}
	first, err := run(probeText, false)
	if err != nil {
		return 0, 0, err
	}
	all = first.Timings.Prompt + first.Timings.Cached
	name := newName()
	defer func() { _ = os.Remove(b.c.path(folder(b.model), name)) }()
	if _, err := b.onSlot(ctx, id, "save", name); err != nil {
		return 0, 0, err
	}
	if _, err := b.onSlot(ctx, id, "erase", ""); err != nil {
		return 0, 0, err
	}
	if _, err := b.onSlot(ctx, id, "restore", name); err != nil {
		return 0, 0, err
	}
	second, err := run(probeText+probeMore, true)
	return second.Timings.Cached, max(all, 1), err
}
