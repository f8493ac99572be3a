// The crashwriter writes to a store as fast as it can and says on its standard output what is safe, until it is killed.
// The crash tests start it again on the same directory, and hold what it then finds against what it had promised.
//
//	have keys=N blobs=N settings=N usage=N requests=N talks=N   at the start, after every check of the file
//	ack TABLE N                                                the first N rows of TABLE are on the disk
//	bad REASON                                                 something does not add up; the program ends with status 1
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"

	"onebit/store"
)

func main() {
	dir := flag.String("dir", "", "the state directory")
	check := flag.Bool("check", false, "only check and say what is there")
	flag.Parse()
	if err := run(context.Background(), *dir, *check); err != nil {
		fmt.Println("bad", err)
		os.Exit(1)
	}
}

// writer counts the rows of each table, the first being 1.
type writer struct {
	s     *store.Store
	out   sync.Mutex
	owner store.Actor

	keys, blobs, settings int
	usage, requests       int
	talks                 int
}

func (w *writer) say(format string, args ...any) {
	w.out.Lock()
	defer w.out.Unlock()
	fmt.Printf(format+"\n", args...)
}

func run(ctx context.Context, dir string, checkOnly bool) (err error) {
	s, err := store.Open(ctx, store.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if d := s.Degraded(); d != nil {
		return fmt.Errorf("degraded: %s", d.Reason)
	}
	w := &writer{s: s}
	if err := w.begin(ctx); err != nil {
		return err
	}
	if err := w.look(ctx); err != nil {
		return err
	}
	w.say("have keys=%d blobs=%d settings=%d usage=%d requests=%d talks=%d", w.keys, w.blobs, w.settings, w.usage, w.requests, w.talks)
	if checkOnly {
		return nil
	}
	failed := make(chan error)
	go func() { failed <- s.Run(ctx) }()
	go func() { failed <- w.write(ctx) }()
	go func() { failed <- w.queue(ctx) }()
	return <-failed
}

// begin finds or makes the person that owns everything.
func (w *writer) begin(ctx context.Context) error {
	p, err := w.s.PersonByName(ctx, store.System(), "owner")
	if errors.Is(err, store.ErrNotFound) {
		p, err = w.s.CreatePerson(ctx, store.System(), store.Person{Name: "owner", Role: store.RoleAdmin})
	}
	w.owner = store.Actor{Person: p.ID, Admin: true}
	return err
}

// look checks the whole file and counts what is there. A gap is an error.
func (w *writer) look(ctx context.Context) error {
	r, err := w.s.Scrub(ctx)
	if err != nil {
		return err
	}
	if len(r.Damaged)+len(r.Problems) > 0 {
		return fmt.Errorf("damage: %v %v", r.Damaged, r.Problems)
	}
	if err := w.lookAtKeys(ctx); err != nil {
		return err
	}
	for ; ; w.blobs++ {
		_, err := w.s.Blob(ctx, w.owner, blobHash(w.blobs+1), &bytes.Buffer{})
		if errors.Is(err, store.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
	}
	if w.blobs != r.Blobs {
		return fmt.Errorf("%d blobs, of which the first %d are contiguous", r.Blobs, w.blobs)
	}
	v, err := w.s.Setting(ctx, "n")
	if err == nil {
		err = json.Unmarshal(v, &w.settings)
	} else if errors.Is(err, store.ErrNotFound) {
		err = nil
	}
	if err != nil {
		return err
	}
	return w.lookAtQueued(ctx)
}

// lookAtKeys counts keys, and that each came together with its entry in the audit log.
func (w *writer) lookAtKeys(ctx context.Context) error {
	all, err := w.s.Keys(ctx, w.owner)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, k := range all {
		names[k.Name] = true
	}
	for names[strconv.Itoa(w.keys+1)] {
		w.keys++
	}
	audited, last := 0, int64(0)
	for {
		some, err := w.s.AuditLog(ctx, w.owner, last, 1000)
		if err != nil {
			return err
		}
		if len(some) == 0 {
			break
		}
		for _, e := range some {
			if last = e.ID; e.Action == "key.create" {
				audited++
			}
		}
	}
	if len(all) != w.keys || audited != w.keys {
		return fmt.Errorf("%d keys, of which the first %d are contiguous, and %d entries in the audit log", len(all), w.keys, audited)
	}
	return nil
}

func (w *writer) lookAtQueued(ctx context.Context) error {
	totals, err := w.s.UsageTotals(ctx, w.owner, store.UsageFilter{})
	if err != nil {
		return err
	}
	for _, u := range totals {
		w.usage += int(u.Requests)
	}
	for ; ; w.requests++ {
		_, err := w.s.Request(ctx, w.owner, requestID(w.requests+1))
		if errors.Is(err, store.ErrNotFound) {
			return w.lookAtTalks(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// lookAtTalks counts conversations, and that each is whole: what it says of itself and by which it is found belong together.
func (w *writer) lookAtTalks(ctx context.Context) error {
	for ; ; w.talks++ {
		n := w.talks + 1
		c, err := w.s.FindConversation(ctx, []string{talkName(n, 1)})
		if errors.Is(err, store.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		turns := int(c.Turns)
		if c.ID != talkName(n, 1) || len(c.Names) != turns || c.Names[turns-1] != talkName(n, turns) || c.Place != strconv.Itoa(turns) ||
			string(c.Detail) != strconv.Itoa(turns) {
			return fmt.Errorf("conversation %d is %+v", n, c)
		}
	}
	n, err := w.s.Conversations(ctx)
	if err == nil && int(n) != w.talks {
		err = fmt.Errorf("%d conversations, of which the first %d are contiguous", n, w.talks)
	}
	return err
}

// talk adds a conversation and a turn to the one before.
func (w *writer) talk() error {
	w.talks++
	for n, turns := range map[int]int{w.talks: 1, w.talks - 1: 2} {
		if n == 0 {
			continue
		}
		err := w.s.PutConversation(store.Conversation{
			ID: talkName(n, 1), Names: []string{talkName(n, turns)}, Owner: w.owner, Place: strconv.Itoa(turns), Turns: int64(turns),
			Detail: fmt.Append(nil, turns),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// talkName is by what a conversation is found from a turn on.
func talkName(n, turn int) string { return fmt.Sprintf("%016x%016x", n, turn) }

// write makes synchronous changes, each of which spans two tables.
func (w *writer) write(ctx context.Context) error {
	for {
		n := w.keys + 1
		hash := sha256.Sum256(fmt.Append(nil, "key", n))
		if _, err := w.s.CreateKey(ctx, w.owner, store.Key{Name: strconv.Itoa(n)}, hash); err != nil {
			return err
		}
		w.keys = n
		w.say("ack keys %d", n)

		n = w.blobs + 1
		if _, _, err := w.s.PutBlob(ctx, w.owner, bytes.NewReader(content(n))); err != nil {
			return err
		}
		w.blobs = n
		w.say("ack blobs %d", n)

		n = w.settings + 1
		if err := w.s.SetSetting(ctx, w.owner, "n", fmt.Append(nil, n)); err != nil {
			return err
		}
		w.settings = n
		w.say("ack settings %d", n)
	}
}

// queue adds rows to the group commit, which Run works off as well, and acknowledges what is flushed.
func (w *writer) queue(ctx context.Context) error {
	for {
		for range 10 {
			w.usage++
			w.s.AddUsage(store.UsageRow{Person: w.owner.Person, Model: strconv.Itoa(w.usage % 5), Requests: 1, Prompt: 3})
			w.requests++
			if err := w.talk(); err != nil {
				return err
			}
			w.s.AddRequest(store.RequestRow{ID: requestID(w.requests), Person: w.owner.Person, Privacy: store.PrivacyFull, PromptText: content(w.requests)[:400]})
		}
		if err := w.s.Flush(ctx); err != nil {
			return err
		}
		w.say("ack usage %d", w.usage)
		w.say("ack requests %d", w.requests)
		w.say("ack talks %d", w.talks)
	}
}

func requestID(n int) string { return "r" + strconv.Itoa(n) }

// content is what blob n holds: 3 KB that do not compress or repeat.
func content(n int) []byte {
	var b []byte
	for i := 0; len(b) < 3000; i++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", n, i))
		b = append(b, sum[:]...)
	}
	return b
}

func blobHash(n int) string { return fmt.Sprintf("%x", sha256.Sum256(content(n))) }
