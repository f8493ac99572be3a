package extensions

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/conversation"
	"onebit/extensions/host"
	"onebit/extensions/payload"
)

// Input is a request that somebody has to decide about.
type Input struct {
	ID         string // of the request
	API        string // "chat", "completion", "response"
	Model      string // as the client asked
	Tenant     string // whose it is
	Key        string // id of the API key; empty for none
	Header     http.Header
	Stream     bool
	Body       []byte
	Private    bool            // it must not be remembered for dry runs
	Candidates []abi.Candidate // those that it may use, in the box's order
	Free       []string        // of those, the ones that would begin with it at once

	// What is known about a candidate for this prompt. Each may be nil, and is asked only when it matters.
	Expect func(candidate string) int           // tokens that it would not compute again
	Wait   func(candidate string) time.Duration // until it would begin
}

// Outcome is a decision. It names a candidate unless it refuses or there was none.
type Outcome struct {
	Candidate  string
	Ranked     []string      // those that are tried in turn, Candidate first
	Patience   time.Duration // how long Candidate is waited for before the next is tried; 0: as long as for any
	Class      string        // empty when nobody said one
	Confidence float64
	Params     map[string]json.RawMessage // to set in the request, within Bounds
	Headers    map[string]string          // of the response; names begin with x-laya-
	RAG        *abi.RAG                   // passages to add; nil for none. Whether the caller may see them is the store's to say
	Refusal    *Refusal                   // the request is turned away
	Why        string                     // for people, fit for a header
	Module     string                     // NAME@SHA8 of the module that decided; empty for the default policy
	Kept       bool                       // it was decided in an earlier turn

	Conversation string // to Settle with; empty when nothing is remembered
}

// Refusal is what a client is told that is turned away.
type Refusal struct {
	Status        int
	Code, Message string
}

// Decides tells whether anybody but the default policy has a say at the moment.
func (m *Manager) Decides() bool {
	return slices.ContainsFunc(m.table.Load().places, func(p *place) bool { return p.Kind == abi.Policy && (p.Active != nil || p.Canary != nil) })
}

// Decide says where a request runs. It always answers: what a module does not decide the default policy does.
func (m *Manager) Decide(ctx context.Context, in Input) Outcome {
	bound := func() (policy, classifier *place) {
		t := m.table.Load()
		return t.find(abi.Policy, in.Key, in.Model), t.find(abi.Classifier, in.Key, in.Model)
	}
	policy, classifier := bound()
	if len(in.Candidates) == 0 || len(in.Candidates) == 1 && policy == nil && classifier == nil && m.scorer() == nil {
		return byDefault(in.Candidates)
	}
	prompt, err := conversation.Read(in.Body)
	if err != nil {
		return byDefault(in.Candidates) // whoever serves it will say what is wrong with it
	}
	owner := Owner{Person: in.Tenant, Key: in.Key, Private: in.Private}
	who := conversation.Of(owner.scope(), in.Header, prompt)
	e, err := m.kept.take(ctx, owner, who)
	if err != nil {
		return byDefault(in.Candidates)
	}
	defer e.give()
	e.private = in.Private
	policy, classifier = bound() // the turn may have been long in coming
	d := &deciding{m: m, in: in, prompt: prompt, who: who, kept: e, policy: policy, classifier: classifier, now: m.cfg.Now()}
	o := d.decide(ctx)
	if o.Refusal == nil {
		m.keepLater(e)
	}
	return o
}

// byDefault is the default policy: what is healthy on an HRX device, else the first that is healthy, else the first.
func byDefault(from []abi.Candidate) Outcome {
	o := Outcome{Why: "default"}
	if len(from) == 0 {
		return o
	}
	o.Ranked = make([]string, 0, len(from))
	for _, hrx := range []bool{true, false} {
		for _, c := range from {
			if c.Healthy && (c.Device == "hrx") == hrx {
				o.Ranked = append(o.Ranked, c.ID)
			}
		}
	}
	if len(o.Ranked) == 0 {
		o.Ranked = append(o.Ranked, from[0].ID)
	}
	o.Candidate = o.Ranked[0]
	return o
}

// deciding is one decision on its way. The conversation's turn is held.
type deciding struct {
	m                  *Manager
	in                 Input
	prompt             conversation.Prompt
	who                conversation.Identity
	kept               *entry
	policy, classifier *place
	turn               int
	now                time.Time
	req                abi.Request
	fallback           Outcome
	unclassified       string // why nobody said a class, for people
	expected           []int  // of each candidate, plus one; 0 where nobody has asked
}

// expect is how much of the prompt the candidate at a place of the list need not compute again. To find out takes longer than
// all the rest of a decision, so it is asked once, and only of those that somebody wants to know it of.
func (d *deciding) expect(i int) int {
	if d.in.Expect == nil {
		return 0
	}
	if d.expected == nil {
		d.expected = make([]int, len(d.in.Candidates))
	}
	if d.expected[i] == 0 {
		d.expected[i] = 1 + d.in.Expect(d.in.Candidates[i].ID)
	}
	return d.expected[i] - 1
}

func (d *deciding) decide(ctx context.Context) Outcome {
	k := &d.kept.decision
	d.turn = max(d.who.Turn, k.turns)
	if d.who.Alike == nil {
		d.turn = max(d.who.Turn, k.turns+1) // the client may send no more than what is new
	}
	stays := k.decided && d.serves(k.outcome.Candidate)
	valid := stays && (k.until.IsZero() || d.now.Before(k.until))
	if valid && (d.policy == nil || !d.policy.EveryTurn) {
		if k.turns != d.turn {
			k.turns = d.turn
			d.kept.touch()
		}
		return d.again()
	}
	d.soon()
	d.ask()
	d.fallback = byDefault(d.in.Candidates)
	if stays {
		d.fallback.Candidate = k.outcome.Candidate // a failure in a later turn moves nobody
		d.fallback.Ranked = d.ranked(k.outcome.Candidate, d.fallback.Ranked)
		for i := range d.req.Candidates {
			d.req.Candidates[i].Sticky = d.req.Candidates[i].ID == k.outcome.Candidate
		}
	}
	if k.by == nil || !valid {
		k.by = map[string]string{}
	}
	if refusal := d.classify(ctx, valid); refusal != nil {
		return *refusal
	}
	o, keep, ttl := d.route(ctx)
	o.Why += d.unclassified
	if !d.in.Private {
		d.m.recorded.add(d.req)
	}
	d.observe(o)
	if o.Refusal != nil {
		return o
	}
	o = d.place(o, stays)
	if keep && ctx.Err() == nil {
		k.decided, k.outcome, k.until = true, o, time.Time{}
		d.kept.touch()
		if k.turns = d.turn; k.first.IsZero() {
			k.first = d.now
		}
		if ttl > 0 {
			k.until = d.now.Add(ttl)
		}
	}
	return o
}

// soon wakes up whoever is asked first, while the question is made ready.
func (d *deciding) soon() {
	for _, p := range []*place{d.classifier, d.policy} {
		if p == nil || p.active == nil {
			continue
		}
		if w, ok := p.active.worker.(interface{ Soon() }); ok {
			w.Soon()
		}
		return
	}
}

// place says where a conversation goes that was just decided about. One that has a place stays there unless its policy's
// wish is worth the change.
func (d *deciding) place(o Outcome, stays bool) Outcome {
	o.Conversation = string(d.kept.id)
	if k := &d.kept.decision; k.decided {
		switch {
		case !stays:
			o.Why += "; " + d.lost()
		case o.Candidate != k.outcome.Candidate:
			moves, why := d.moves(o.Candidate)
			if !moves {
				o.Ranked = d.ranked(k.outcome.Candidate, o.Ranked)
				o.Candidate = k.outcome.Candidate
			}
			o.Why += "; " + why
		default:
			o.Why += "; kept"
		}
	}
	for i := range d.in.Candidates {
		if d.in.Candidates[i].ID != o.Candidate {
			continue
		}
		if n := d.expect(i); n > 0 {
			o.Why += "; cached=" + strconv.Itoa(n)
		}
	}
	o.Patience = d.patience(o)
	return o
}

// tokens is how many the prompt has, estimated.
func (d *deciding) tokens() int {
	whole := 0
	for _, t := range d.prompt.Turns {
		whole += len(t.Text)
	}
	return (whole + 3) / 4
}

// serves tells whether a candidate is there and healthy, or no other is: a conversation must not be caught where nothing
// answers any more.
func (d *deciding) serves(id string) bool {
	there, others := false, false
	for _, c := range d.in.Candidates {
		if c.ID != id {
			others = others || c.Healthy
			continue
		}
		if c.Healthy {
			return true
		}
		there = true
	}
	return there && !others
}

// ask makes what a module is given.
func (d *deciding) ask() {
	last := d.prompt.LastUser()
	tenant := sha256.Sum256([]byte("tenant\x00" + d.in.Tenant))
	d.req = abi.Request{
		V: abi.Version, ID: d.in.ID, Conversation: string(d.kept.id), Turn: d.turn, API: d.in.API, Model: d.in.Model,
		Tenant: hex.EncodeToString(tenant[:8]), Key: d.in.Key, Hour: d.now.Hour(), Tokens: d.tokens(), Bytes: len(last),
		Flags:      abi.Flags{Stream: d.in.Stream, Tools: d.prompt.Tools, Images: d.prompt.Images, JSON: d.prompt.JSON},
		Candidates: slices.Clone(d.in.Candidates),
	}
	if d.policy != nil || d.classifier != nil {
		for i := range d.req.Candidates {
			d.req.Candidates[i].Cached = d.expect(i)
		}
	}
	d.req.Head, d.req.Tail = payload.Cut(last)
	for _, name := range d.m.cfg.Policy().Headers {
		if v := d.in.Header.Get(name); v != "" {
			if d.req.Headers == nil {
				d.req.Headers = map[string]string{}
			}
			d.req.Headers[strings.ToLower(name)] = v
		}
	}
}

func (d *deciding) text(part abi.Part) string {
	switch part {
	case abi.System:
		return d.prompt.System()
	case abi.Whole:
		return d.prompt.Whole()
	}
	return d.prompt.LastUser()
}

// classify asks the classifier, once in a conversation. Its failure refuses the request only where the operator says so.
func (d *deciding) classify(ctx context.Context, again bool) *Outcome {
	if again {
		k := d.kept.outcome
		d.fallback.Class, d.fallback.Confidence = k.Class, k.Confidence
		d.req.Class, d.req.Confidence = k.Class, k.Confidence
		return nil
	}
	if d.classifier == nil {
		d.score(ctx)
		return nil
	}
	s := d.hold(&d.classifier)
	if s == nil && (d.classifier == nil || d.classifier.Active == nil) {
		return nil // only a shadow, which waits for what is obeyed
	}
	dec, v := d.consult(ctx, d.classifier, s)
	if v.cause != "" && d.classifier.OnError == FailReject {
		o := refusedBy(d.classifier, v)
		return &o
	}
	if dec != nil {
		d.req.Class, d.req.Confidence, d.req.Scores = dec.Class, dec.Confidence, dec.Scores
		d.fallback.Class, d.fallback.Confidence = dec.Class, dec.Confidence
		v.class = dec.Class
	}
	d.m.count(d.classifier, s, v, false)
	return nil
}

// route asks the policy. keep says that the conversation keeps the outcome, ttl for how long when that is bounded.
func (d *deciding) route(ctx context.Context) (o Outcome, keep bool, ttl time.Duration) {
	if d.policy == nil {
		return d.fallback, true, 0
	}
	s := d.hold(&d.policy)
	if s == nil && (d.policy == nil || d.policy.Active == nil) {
		return d.fallback, true, 0
	}
	dec, v := d.consult(ctx, d.policy, s)
	o = d.fallback
	if v.cause != "" {
		d.m.count(d.policy, s, v, false)
		if d.policy.OnError == FailReject {
			return refusedBy(d.policy, v), false, 0
		}
		o.Why = "default; " + v.named() + "error=" + v.cause
		return o, true, 0
	}
	if dec == nil || dec.Action == abi.ActionAbstain {
		d.m.count(d.policy, s, v, false)
		o.Why = "default; " + v.named() + "abstain"
		return o, true, 0
	}
	o.Module, o.Why = s.label(), "module="+s.label()
	if reason := plainText(dec.Reason); reason != "" {
		o.Why += "; " + reason
	}
	if s.stage == "canary" {
		o.Why += "; canary"
	}
	if dec.Class != "" {
		o.Class, o.Confidence = dec.Class, dec.Confidence
	}
	o.Headers, o.RAG = dec.Headers, dec.RAG
	if dec.Action == abi.ActionReject {
		o.Refusal = &Refusal{Status: dec.Reject.Status, Code: dec.Reject.Code, Message: dec.Reject.Message}
		v.disagrees, v.class = true, o.Class
		d.m.count(d.policy, s, v, true)
		return o, false, 0
	}
	if at := d.first(dec.Candidates); at != "" {
		o.Candidate, o.Ranked = at, d.ranked(at, dec.Candidates) // nowhere that the policy did not name
	}
	o.Params = clamp(dec.Params, d.m.cfg.Policy().Params, d.in.Body)
	v.disagrees, v.class = o.Candidate != d.fallback.Candidate, o.Class
	d.m.count(d.policy, s, v, true)
	return o, true, time.Duration(dec.TTL) * time.Second
}

// first is the first healthy candidate of a list, else its first.
func (d *deciding) first(ids []string) string {
	for _, id := range ids {
		if slices.ContainsFunc(d.in.Candidates, func(c abi.Candidate) bool { return c.ID == id && c.Healthy }) {
			return id
		}
	}
	if len(ids) > 0 {
		return ids[0]
	}
	return ""
}

// hold takes part in what decides for the conversation in a place; nil when nothing runs there. When that has just ended,
// the place of the moment takes over.
func (d *deciding) hold(p **place) *seat {
	for {
		s := d.choose(*p)
		if s == nil || s.hold() {
			return s
		}
		*p = d.m.table.Load().find((*p).Kind, d.in.Key, d.in.Model)
		if *p == nil {
			return nil
		}
	}
}

// choose picks what decides for the conversation in a place: the generation that has decided for it before, while that is
// warm, else the canary for its share, else what is active.
func (d *deciding) choose(p *place) *seat {
	for _, s := range []*seat{p.active, p.canary, p.previous} {
		if s != nil && d.kept.by[p.Name] == s.key {
			return s
		}
	}
	s := p.active
	if p.canary != nil && share(d.kept.id) < p.Percent {
		s = p.canary
	}
	if s != nil {
		d.kept.by[p.Name] = s.key
	}
	return s
}

// share places a conversation between 0 and 100.
func share(id conversation.ID) float64 {
	h := sha256.Sum256([]byte("canary\x00" + string(id)))
	return float64(binary.LittleEndian.Uint64(h[:8])%10_000) / 100
}

// verdict is what came of asking a module.
type verdict struct {
	label     string
	cause     string // why there is no decision; empty when there is, or no opinion
	took      time.Duration
	asked     bool // it ran
	blame     bool // the failure is the module's
	units     int64
	pages     uint32
	disagrees bool
	class     string
}

func (v verdict) named() string {
	if v.label == "" {
		return ""
	}
	return "module=" + v.label + "; "
}

// refusedBy is the answer where a module that must decide does not.
func refusedBy(p *place, v verdict) Outcome {
	return Outcome{
		Why:     v.named() + "error=" + v.cause,
		Refusal: &Refusal{Status: http.StatusServiceUnavailable, Code: "extension_failed", Message: "the module that has to pass each request of the binding " + p.Name + " does not answer at the moment"},
	}
}

// usualRequest is what most requests to modules take, in bytes.
const usualRequest = 4 << 10

// consult asks a module that is held, unless its breaker is open, and gives it back. A nil decision without a cause is no opinion.
func (d *deciding) consult(ctx context.Context, p *place, s *seat) (*abi.Decision, verdict) {
	m := d.m
	if s == nil {
		return nil, verdict{cause: "absent", label: m.table.Load().label(p.Active.Module)}
	}
	defer s.release()
	v := verdict{label: s.label()}
	if !s.breaker.allows(d.now) {
		v.cause = "breaker"
		return nil, v
	}
	raw, err := payload.AppendRequest(make([]byte, 0, usualRequest), &d.req)
	if err != nil {
		s.breaker.forget()
		v.cause = "request"
		return nil, v
	}
	begin := time.Now()
	v.asked = true
	res, err := s.worker.Call(ctx, host.Call{
		Function: functionOf(s.module.Manifest.Kind), Request: raw, Text: d.text, Seed: host.Seed(raw),
		Services: m.services(s, d.in.Tenant), Deadline: m.deadline(ctx, s),
	})
	v.took, v.units, v.pages = time.Since(begin), res.Units, res.Pages
	for _, l := range res.Log {
		m.logged(s, l)
	}
	var dec *abi.Decision
	if err == nil {
		if dec, err = payload.ReadDecision(res.Answer, m.offer(s.module.Manifest, d.req.Candidates)); err != nil {
			v.cause, v.blame = "void", true
		}
	} else {
		v.cause, v.blame = causeOf(err)
	}
	switch {
	case ctx.Err() != nil && v.cause != "":
		s.breaker.forget() // the client has gone
		v.blame = false
	case v.cause != "" && !v.blame:
		s.breaker.forget()
	case s.breaker.report(m.cfg.Now(), v.cause == ""):
		m.cfg.Log.Error("a module is suspended: it failed again and again", "module", s.label(), "why", err)
	}
	if err != nil {
		m.cfg.Log.Debug("a module brought no decision", "module", s.label(), "cause", v.cause, "why", err)
	}
	return dec, v
}

// deadline of a call: that of the module's limits, or of the request when that is earlier.
func (m *Manager) deadline(ctx context.Context, s *seat) time.Time {
	at := time.Now().Add(limits(s.module.Manifest).Deadline)
	if d, ok := ctx.Deadline(); ok && d.Before(at) {
		return d
	}
	return at
}

// causeOf names a failure, and tells whether it is the module's.
func causeOf(err error) (cause string, blame bool) {
	if c, ok := errors.AsType[*host.CallError](err); ok {
		return string(c.Cause), c.Cause != host.CauseHost && !errors.Is(err, ErrWaited)
	}
	switch {
	case errors.Is(err, ErrFull):
		return "full", false // too many ask; that is not its fault
	case errors.Is(err, context.Canceled):
		return "cancelled", false
	case errors.Is(err, context.DeadlineExceeded):
		return string(host.CauseTimeout), true
	}
	return "worker", true
}

// services stand behind a module's capabilities in one call.
func (m *Manager) services(s *seat, tenant string) host.Services {
	name := s.module.Manifest.Name
	return host.Services{
		Now: m.cfg.Now, Tokens: m.cfg.Services.Tokens, Embed: m.cfg.Services.Embed, Decide: m.cfg.Services.Decide,
		KV:     m.shelves.of(name, tenant),
		Metric: func(metric string, v float64) { m.metrics.add(name, metric, v) },
	}
}

// logged writes a module's line to the box's log. A module may write anything, so it is quoted by the log.
func (m *Manager) logged(s *seat, l host.Line) {
	log := m.cfg.Log.Debug
	switch l.Level {
	case abi.Info:
		log = m.cfg.Log.Info
	case abi.Warn, abi.Error:
		log = m.cfg.Log.Warn // nothing that a module says is an error of the box
	}
	log("a module says", "module", s.label(), "text", l.Text)
}

// count notes what a module did, and raises the alarm when its guard is passed.
func (m *Manager) count(p *place, s *seat, v verdict, decided bool) {
	if s == nil {
		return
	}
	if v.asked {
		s.stats.add(one{took: v.took, failed: v.blame, disagrees: v.disagrees && decided}, v.cause, v.class, v.units, v.pages)
	} else if v.cause != "" {
		s.stats.skip(v.cause)
	}
	if !p.Guard.guards() || s.stage != "active" && s.stage != "canary" || !v.asked {
		return
	}
	if why := p.Guard.breach(s.stats.usage()); why != "" {
		select {
		case m.alarms <- alarm{binding: p.Name, seat: s, why: why}:
		default: // one is on its way
		}
	}
}

// mostText is how long a module's words may be in a header, in bytes.
const mostText = 120

// isPlain tells whether words need no change, as most do not.
func isPlain(s string) bool {
	if len(s) > mostText {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > 0x7e || c == ';' || c == ' ' && (i == 0 || i == len(s)-1 || s[i-1] == ' ') {
			return false
		}
	}
	return true
}

// plainText is a module's words as they may stand in a header.
func plainText(s string) string {
	if isPlain(s) {
		return s
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r < ' ' || r == 0x7f || r == ';':
			return ' '
		case r > 0x7e:
			return '?'
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	return s[:min(len(s), mostText)]
}
