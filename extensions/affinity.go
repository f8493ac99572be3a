package extensions

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/conversation"
)

// Owner is whose a conversation is. Two owners never share one.
type Owner struct {
	Person, Key string // ids; the key is empty where somebody talks without one
	Private     bool   // nothing of it may survive a restart
}

// scope tells the conversations of one owner from those of all others.
func (o Owner) scope() string {
	if o.Key != "" {
		return "key\x00" + o.Key
	}
	return o.Person
}

// Conversation is what is kept of one over a restart.
type Conversation struct {
	ID     string
	Names  []string // by which it is found; given to Put, those that it did not have before
	Owner  Owner    // given to Put, not returned by Find
	Place  string   // the candidate
	Class  string
	Sure   float64 // the class's confidence
	Module string  // NAME@SHA8; empty for the default policy
	Tokens int     // of prompt and answer of the last turn that was served
	Turns  int
	Until  time.Time // zero: for as long as it is kept
	First  time.Time
	Used   time.Time
	Detail []byte // JSON, for Find to return as it was
}

// Conversations keeps where conversations are. Its methods may be called at the same time.
type Conversations interface {
	// Find returns the conversation of the first of the names that is known; nil when there is none, or nobody can tell.
	Find(ctx context.Context, names []string) *Conversation
	// May tells at once whether Find can find one: where it is false there is none. Most conversations are new.
	May(names []string) bool
	// Put keeps one. It never waits for a disk.
	Put(c Conversation)
}

// detail is the part of a conversation that only the manager reads. Words that a module may have taken from a prompt, its
// reason and its question for passages, are not in it.
type detail struct {
	Latest  string                     `json:"latest"` // the name of its latest turn
	Ranked  []string                   `json:"ranked,omitempty"`
	By      map[string]string          `json:"by,omitempty"`
	Params  map[string]json.RawMessage `json:"params,omitempty"`
	Headers map[string]string          `json:"headers,omitempty"`
	RAG     *abi.RAG                   `json:"rag,omitempty"`
}

// entry is a conversation as memory has it.
func (c *Conversation) entry(owner Owner) *entry {
	e := &entry{id: conversation.ID(c.ID), owner: owner}
	var d detail
	if json.Unmarshal(c.Detail, &d) != nil || c.Place == "" {
		d = detail{} // somebody wrote it who knew another form: it is decided anew
	}
	e.latest = conversation.ID(d.Latest)
	if e.latest == "" {
		return e
	}
	e.decision = decision{
		decided: true, by: d.By, until: c.Until, tokens: c.Tokens, turns: c.Turns, first: c.First,
		outcome: Outcome{
			Conversation: c.ID, Candidate: c.Place, Ranked: d.Ranked, Class: c.Class, Confidence: c.Sure, Module: c.Module,
			Params: d.Params, Headers: d.Headers, RAG: d.RAG, Why: plainWhy(c.Module),
		},
	}
	if e.by == nil {
		e.by = map[string]string{}
	}
	given := e.decision
	e.given.Store(&given)
	return e
}

// plainWhy is what a decision's reason begins with.
func plainWhy(module string) string {
	if module == "" {
		return "default"
	}
	return "module=" + module
}

// usedEvery is how often it is noted that a conversation is in use, when nothing else has changed.
const usedEvery = time.Minute

// later are conversations to be kept when nobody waits.
type later struct {
	mu  sync.Mutex
	all []*entry
}

// keepLater has a conversation kept soon. The entry's turn is held. Whoever asks is answered first.
func (m *Manager) keepLater(e *entry) {
	if m.kept.store == nil || e.private || !e.decided || e.listed || !m.stale(e) {
		return
	}
	e.listed = true
	m.later.mu.Lock()
	defer m.later.mu.Unlock()
	m.later.all = append(m.later.all, e)
}

// stale tells whether what is kept of a conversation is no longer true. The entry's turn is held.
func (m *Manager) stale(e *entry) bool {
	return e.changed || m.cfg.Now().Sub(e.keptAt) >= usedEvery || m.kept.renamed(e)
}

// flush keeps what is to be kept by now. A conversation that somebody decides about is left for the next time, unless this is
// the last one.
func (l *later) flush(m *Manager, last bool) {
	l.mu.Lock()
	all := l.all
	l.all = nil
	l.mu.Unlock()
	for _, e := range all {
		select {
		case e.turn <- struct{}{}:
			e.listed = false
			m.keep(e)
			<-e.turn
			continue
		default:
		}
		if !last {
			l.mu.Lock()
			l.all = append(l.all, e)
			l.mu.Unlock()
		}
	}
}

// keep hands what is decided for a conversation over to what survives a restart, unless it is there. The entry's turn is held.
func (m *Manager) keep(e *entry) {
	if m.kept.store == nil || e.private || !e.decided || !m.stale(e) {
		return
	}
	names, latest, ok := m.kept.unkept(e)
	if !ok {
		return
	}
	now := m.cfg.Now()
	e.changed, e.keptAt = false, now
	o := &e.outcome
	d := detail{Latest: latest, Ranked: o.Ranked, By: e.by, Params: o.Params, Headers: o.Headers}
	if o.RAG != nil {
		d.RAG = &abi.RAG{Collection: o.RAG.Collection, TopK: o.RAG.TopK}
	}
	b, err := json.Marshal(d)
	if err != nil {
		m.cfg.Log.Error("a conversation is not kept", "error", err)
		return
	}
	m.kept.store.Put(Conversation{
		ID: string(e.id), Names: names, Owner: e.owner, Place: o.Candidate, Class: o.Class, Sure: o.Confidence, Module: o.Module,
		Tokens: e.tokens, Turns: e.turns, Until: e.until, First: e.first, Used: now, Detail: b,
	})
}

// Served is what came of a request that was decided about.
type Served struct {
	Candidate string // that has served it
	Response  string // the id of the answer, when later requests may name it; empty when not
	Tokens    int    // of prompt and answer; 0 when nobody knows
}

// settleLimit is how long Settle waits for the turn of a conversation.
const settleLimit = 5 * time.Second

// Settle notes what has served a request that Decide answered with o: a conversation that was served elsewhere, because its
// own place could not, is there from now on.
func (m *Manager) Settle(ctx context.Context, o Outcome, s Served) {
	if o.Conversation == "" || s.Candidate == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
	defer cancel()
	e := m.kept.byID(ctx, conversation.ID(o.Conversation))
	if e == nil {
		return
	}
	defer e.give()
	if !e.decided {
		return
	}
	if s.Candidate != o.Candidate && s.Candidate != e.outcome.Candidate {
		e.outcome.Candidate = s.Candidate
		e.touch()
	}
	if s.Tokens > 0 && s.Tokens != e.tokens {
		e.tokens = s.Tokens
		e.touch()
	}
	if s.Response != "" {
		m.kept.also(e, conversation.Answer(e.owner.scope(), s.Response))
	}
	m.keep(e)
}

// Forget drops what is remembered of conversations, of all that which says so of, and returns how many.
func (m *Manager) Forget(which func(Owner) bool) int { return m.kept.forget(which) }

// What a change of place may cost. A policy that is asked in each turn names another place for a reason, and that reason is
// worth some waiting; no policy's reason is worth an endless one.
const (
	worth       = 2 * time.Second  // so much longer to the first token may a change of place take
	leastWait   = 2 * time.Second  // so long a conversation waits for its place in any case,
	mostWait    = 30 * time.Second // and so long at most while another place is free
	unknownRate = 100.0            // prompt tokens a second, of a place that was never measured
)

// candidate finds one that is offered.
func (d *deciding) candidate(id string) *abi.Candidate {
	for i := range d.in.Candidates {
		if d.in.Candidates[i].ID == id {
			return &d.in.Candidates[i]
		}
	}
	return nil
}

// prompt is how many tokens the request has, with what it only refers to.
func (d *deciding) promptTokens() int { return max(d.tokens(), d.kept.tokens) }

// fresh is how long it takes a place until it has computed the prompt.
func (d *deciding) fresh(c *abi.Candidate, cached int) time.Duration {
	rate := c.PromptS
	if rate <= 0 {
		rate = unknownRate
	}
	n := max(0, d.promptTokens()-cached)
	return time.Duration(float64(n) / rate * float64(time.Second))
}

// cached is how much of the prompt a place need not compute again.
func (d *deciding) cached(c *abi.Candidate) int {
	switch {
	case d.in.Expect != nil:
		return d.expect(slices.IndexFunc(d.in.Candidates, func(o abi.Candidate) bool { return o.ID == c.ID }))
	case c.ID != d.kept.outcome.Candidate:
		return 0
	case d.kept.tokens > 0:
		return d.kept.tokens // nobody has looked; where it was served last its turns are likely to be
	}
	return max(0, d.tokens()-(len(d.prompt.LastUser())+3)/4)
}

// wait is how long a request is before it has a place's attention.
func (d *deciding) wait(c *abi.Candidate) time.Duration {
	if d.in.Wait == nil {
		return 0
	}
	return d.in.Wait(c.ID)
}

// moves tells whether a conversation changes over to the place that its policy now names before its own: when the first
// token comes there about as soon. The second result says why, fit for a header.
func (d *deciding) moves(to string) (bool, string) {
	here, there := d.candidate(d.kept.outcome.Candidate), d.candidate(to)
	if here == nil || there == nil {
		return there != nil, "switched: " + named(d.kept.outcome.Candidate) + " is gone"
	}
	stay := d.fresh(here, d.cached(here)) + d.wait(here)
	move := d.fresh(there, d.cached(there)) + d.wait(there)
	if move-stay <= worth {
		return true, "switched: the policy wants " + named(to)
	}
	return false, "kept: " + named(to) + " would take " + (move - stay).Round(time.Second).String() + " more"
}

// patience is how long a conversation waits for its place while another one is free: as long as that one would take to
// compute the prompt anew, within bounds. Zero: there is no other, and it waits as long as any request.
func (d *deciding) patience(o Outcome) time.Duration {
	here := d.candidate(o.Candidate)
	if here == nil || slices.Contains(d.in.Free, o.Candidate) {
		return 0
	}
	for _, id := range o.Ranked[min(1, len(o.Ranked)):] {
		if c := d.candidate(id); c != nil && c.Healthy && slices.Contains(d.in.Free, id) {
			return min(max(d.fresh(c, d.cached(c)), leastWait), mostWait)
		}
	}
	return 0
}

// named is a candidate's name as it may stand in a header.
func named(id string) string { return plainText(id) }

// lost says why a conversation that was decided is not where it was.
func (d *deciding) lost() string {
	name := d.kept.outcome.Candidate
	if c := d.candidate(name); c != nil {
		return "switched: " + named(name) + " is not well"
	}
	return "switched: " + named(name) + " is gone"
}

// ranked are the candidates in the order in which they are tried: first, then those of a list that are healthy.
func (d *deciding) ranked(first string, list []string) []string {
	all := []string{first}
	for _, id := range list {
		if c := d.candidate(id); c != nil && c.Healthy && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all
}

// again is what was decided in an earlier turn, as it is now.
func (d *deciding) again() Outcome {
	o := d.kept.outcome
	o.Kept = true
	o.Why, _, _ = strings.Cut(o.Why, "; switched: ")
	o.Why, _, _ = strings.Cut(o.Why, "; kept")
	o.Why, _, _ = strings.Cut(o.Why, "; cached=")
	o.Why += "; kept"
	list := o.Ranked
	if o.Module == "" {
		list = byDefault(d.in.Candidates).Ranked
	}
	o.Ranked = d.ranked(o.Candidate, list)
	if len(o.Params) > 0 { // the client may ask for less than it did
		o.Params = clamp(maps.Clone(o.Params), slices.Collect(maps.Keys(o.Params)), d.in.Body)
	}
	o.Patience = d.patience(o)
	return o
}
