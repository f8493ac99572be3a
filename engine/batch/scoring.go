package batch

import (
	"errors"
	"slices"
	"time"

	"onebit/engine/model"
)

// Branch is a continuation of a task's prompt, and the options of which one is to follow it.
type Branch struct {
	Tokens  []int32   // at least one
	Options [][]int32 // each at least one token
}

// scoring is where a task with branches stands.
type scoring struct {
	branches []Branch
	waiting  []int // of branches, which no pass has had yet, those that begin alike side by side
	result   [][]float64
}

// tree is branches with their options, for one pass. What begins alike is in it once.
type tree struct {
	tokens []int32
	model.Tree
	nodes map[node]int // where each token is
	reads []reading
}

// node is a token behind another one of a tree, or behind the prompt (-1).
type node struct {
	parent int
	token  int32
}

// reading is one token of an option: the logits of the tree's token at tell how likely it is.
type reading struct {
	branch, option, at int
	token              int32
}

var errBranch = errors.New("the model could not score a branch")

// score begins the branches of the slot's task. All of its prompt is in the session.
func (s *slot) score() {
	sc := &scoring{branches: s.task.Branches}
	for i, b := range sc.branches {
		sc.waiting = append(sc.waiting, i)
		sc.result = append(sc.result, make([]float64, len(b.Options)))
	}
	slices.SortStableFunc(sc.waiting, func(a, b int) int { return slices.Compare(sc.branches[a].Tokens, sc.branches[b].Tokens) })
	s.scores = sc
}

// plant takes waiting branches for a pass that has room for about so many tokens, one at least.
func (sc *scoring) plant(room int) *tree {
	t := &tree{nodes: map[node]int{}}
	for len(sc.waiting) > 0 {
		tokens, reads := len(t.tokens), len(t.reads)
		t.add(sc.waiting[0], &sc.branches[sc.waiting[0]])
		if tokens > 0 && len(t.tokens) > room {
			t.cut(tokens, reads)
			break
		}
		sc.waiting = sc.waiting[1:]
	}
	for _, r := range t.reads {
		t.Logits = append(t.Logits, r.at)
	}
	slices.Sort(t.Logits)
	t.Logits = slices.Compact(t.Logits)
	return t
}

// add puts a branch into the tree. The last token of an option need not be evaluated.
func (t *tree) add(branch int, b *Branch) {
	root := -1
	for _, id := range b.Tokens {
		root = t.put(root, id)
	}
	for o, option := range b.Options {
		at := root
		for i, id := range option {
			t.reads = append(t.reads, reading{branch, o, at, id})
			if i < len(option)-1 {
				at = t.put(at, id)
			}
		}
	}
}

// put returns where a token behind another one is.
func (t *tree) put(parent int, token int32) int {
	n := node{parent, token}
	at, ok := t.nodes[n]
	if !ok {
		at = len(t.tokens)
		t.nodes[n] = at
		t.tokens, t.Parents = append(t.tokens, token), append(t.Parents, parent)
	}
	return at
}

// cut takes out what was put last.
func (t *tree) cut(tokens, reads int) {
	for i := tokens; i < len(t.tokens); i++ {
		delete(t.nodes, node{t.Parents[i], t.tokens[i]})
	}
	t.tokens, t.Parents, t.reads = t.tokens[:tokens], t.Parents[:tokens], t.reads[:reads]
}

// addTree appends a step of a scoring slot, of about as many tokens as there is room for, and returns how many.
func (s *Scheduler) addTree(sl *slot, room int) int {
	t := sl.scores.plant(room)
	s.steps = append(s.steps, Step{Session: sl.session, Tokens: t.tokens, Tree: &t.Tree})
	s.plans = append(s.plans, plan{slot: sl, tree: t})
	return len(t.tokens)
}

// collectTree reads the probabilities that a tree's logits tell.
func (s *Scheduler) collectTree(sl *slot, t *tree, step *Step) {
	if len(step.Outs) != len(t.Logits) {
		s.fail(sl, errNoLogits)
		return
	}
	sl.stats.Prompt += len(t.tokens)
	norms := make([]float64, len(t.Logits))
	for i, row := range step.Outs {
		p, _ := sl.sampler.LogProbs(row, 0, 0)
		norms[i] = float64(row[0]) - float64(p)
	}
	for _, r := range t.reads {
		row, _ := slices.BinarySearch(t.Logits, r.at)
		sl.scores.result[r.branch][r.option] += float64(step.Outs[row][r.token]) - norms[row]
	}
	if len(sl.scores.waiting) == 0 {
		s.scored(sl)
	}
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
