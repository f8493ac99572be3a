package batch

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Branch is a continuation of a task's prompt, and the options of which one is to follow it.
type Branch struct {
	Tokens  []int32   // at least one
	Options [][]int32 // each at least one token
}

// scoring is where a task with branches stands.
type scoring struct {
	waiting []*fork // that no pass has had yet: the options' own, then branches that have some, then the others
	running int     // forks in the pass under way
	open    map[Session]bool
	result  [][]float64
}

// fork is a timeline of its own that begins with the prompt: a branch, or a branch with the beginning of an option.
type fork struct {
	branch int
	tokens []int32   // what a pass evaluates
	rows   int       // of tokens, from the last back, whose logits are wanted
	reads  []reading // what is read from them
	parts  bool      // it will be forked: some of its options have more tokens than one
	parent *fork     // what is forked; nil for the slot's session
	kids   int       // forks of this one that are not done
	own    Session
}

// reading is one option's token that a fork's logits give the probability of.
type reading struct {
	option, row int
	token       int32
}

var (
	errBranch = errors.New("the model could not score a branch")
	errForks  = fmt.Errorf("scoring options: %w", errors.ErrUnsupported)
)

// score begins the branches of the slot's task. All of its prompt is in the session.
func (s *slot) score() error {
	if _, ok := s.session.(Forker); !ok {
		return errForks
	}
	sc := &scoring{open: map[Session]bool{}}
	var leaves []*fork
	for i, b := range s.task.Branches {
		f := &fork{branch: i, tokens: b.Tokens, rows: 1}
		for o, option := range b.Options {
			f.reads = append(f.reads, reading{o, 0, option[0]})
			f.parts = f.parts || len(option) > 1
		}
		if f.parts {
			sc.waiting = append(sc.waiting, f)
		} else {
			leaves = append(leaves, f)
		}
		sc.result = append(sc.result, make([]float64, len(b.Options)))
	}
	sc.waiting = append(sc.waiting, leaves...)
	s.scores = sc
	return nil
}

// endings returns the forks of a branch for what the options have behind their first tokens. Options that begin alike
// share what they have in common: each token that tells options apart, or ends one that others go on from, is
// evaluated once for each path that ends there.
func endings(parent *fork, options [][]int32) []*fork {
	order := make([]int, 0, len(options))
	for o := range options {
		if len(options[o]) > 1 {
			order = append(order, o)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return slices.Compare(options[a], options[b]) })
	var forks []*fork
	for k := len(order) - 1; k >= 0; k-- { // an option comes after its own beginnings
		option := options[order[k]]
		path := option[:len(option)-1]
		if last := len(forks) - 1; last >= 0 && len(forks[last].tokens) >= len(path) && slices.Equal(forks[last].tokens[:len(path)], path) {
			forks[last].read(order[k], option)
			continue
		}
		f := &fork{branch: parent.branch, tokens: path, rows: len(path), parent: parent}
		f.read(order[k], option)
		forks = append(forks, f)
	}
	return forks
}

// read notes what of an option the fork's logits tell.
func (f *fork) read(option int, tokens []int32) {
	for i, id := range tokens[1:] {
		f.reads = append(f.reads, reading{option, i, id})
	}
}

// addForks appends steps of a scoring slot, about as many tokens as there is room for, and returns how many. Branches that
// nothing is forked from are left for the pass that those forks need: they are short, and a pass of a few tokens costs much of
// what a full one does.
func (s *Scheduler) addForks(sl *slot, room int) int {
	sc, taken, parts := sl.scores, 0, false
	for len(sc.waiting) > 0 && (taken == 0 || taken+len(sc.waiting[0].tokens) <= room) {
		f := sc.waiting[0]
		if parts && f.parent == nil && !f.parts {
			break
		}
		parts = parts || f.parts
		base := sl.session
		if f.parent != nil {
			base = f.parent.own
		}
		own, err := base.(Forker).Fork()
		if err != nil {
			if taken == 0 {
				s.fail(sl, fmt.Errorf("making a session: %w", err))
			}
			return taken
		}
		f.own = own
		sc.open[own] = true
		sc.waiting = sc.waiting[1:]
		sc.running++
		taken += len(f.tokens)
		s.steps = append(s.steps, Step{Session: own, Tokens: f.tokens, Logits: true, Rows: f.rows})
		s.plans = append(s.plans, plan{slot: sl, branch: f})
	}
	return taken
}

// collectFork reads the probabilities that a fork's logits tell.
func (s *Scheduler) collectFork(sl *slot, f *fork, step *Step) {
	sc := sl.scores
	if sc == nil {
		return // the task has failed in this pass
	}
	if len(step.Outs) != f.rows {
		s.fail(sl, errNoLogits)
		return
	}
	sl.stats.Prompt += len(f.tokens)
	norms := make([]float64, f.rows)
	for i, row := range step.Outs {
		p, _ := sl.sampler.LogProbs(row, f.tokens[0], 0)
		norms[i] = float64(row[f.tokens[0]]) - float64(p)
	}
	for _, r := range f.reads {
		sc.result[f.branch][r.option] += float64(step.Outs[r.row][r.token]) - norms[r.row]
	}
	if f.parent == nil {
		forks := endings(f, sl.task.Branches[f.branch].Options)
		f.kids = len(forks)
		sc.waiting = append(forks, sc.waiting...)
	} else if f.parent.kids--; f.parent.kids == 0 {
		sc.drop(f.parent)
	}
	if f.kids == 0 {
		sc.drop(f)
	}
	if sc.running--; sc.running == 0 && len(sc.waiting) == 0 {
		s.scored(sl)
	}
}

// drop closes a fork that nothing more is read from.
func (sc *scoring) drop(f *fork) {
	delete(sc.open, f.own)
	f.own.Close()
}

// close closes all forks. What they begin with is the slot's.
func (sc *scoring) close() {
	for session := range sc.open {
		session.Close()
	}
	clear(sc.open)
}

// scored reports the probabilities and frees the slot.
func (s *Scheduler) scored(sl *slot) {
	scores := sl.scores.result
	for _, options := range scores {
		for i := range options {
			options[i] = finite(options[i])
		}
	}
	sl.stats.PromptFor = time.Since(sl.started)
	s.finish(sl, Result{Stop: StopLimit, Scores: scores})
}
