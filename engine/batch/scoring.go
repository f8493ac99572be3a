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

// Bounds of what is evaluated of branches at a time.
const (
	treeTokens = 256 // of a tree, beyond twice the branch that it begins with
	treeRows   = 48  // rows of logits in a pass: each has a number for every token of the vocabulary
)

// scoring is where a task with branches stands.
type scoring struct {
	branches []Branch
	waiting  []choice // which no tree has had yet, those that begin alike side by side
	tree     *tree    // that is being evaluated, or nil
	result   [][]float64
}

// choice is an option of a branch.
type choice struct{ branch, option int }

// tree is branches with options behind the prompt. What begins alike is in it once.
type tree struct {
	tokens  []int32
	parents []int
	nodes   map[node]int // where each token is
	reads   []reading
	logits  []int // the tokens whose logits are read, ascending
	done    int   // tokens that were evaluated
}

// node is a token behind another one of a tree, or behind the prompt (-1).
type node struct {
	parent int
	token  int32
}

// reading is one token of an option: the logits of the tree's token at tell how likely it is.
type reading struct {
	choice
	at    int
	token int32
}

var errBranch = errors.New("the model could not score a branch")

// score begins the branches of the slot's task. All of its prompt is in the session.
func (s *slot) score() {
	sc := &scoring{branches: s.task.Branches}
	for i, b := range sc.branches {
		for o := range b.Options {
			sc.waiting = append(sc.waiting, choice{i, o})
		}
		sc.result = append(sc.result, make([]float64, len(b.Options)))
	}
	slices.SortStableFunc(sc.waiting, func(a, b choice) int {
		return slices.Compare(sc.branches[a.branch].Tokens, sc.branches[b.branch].Tokens)
	})
	s.scores = sc
}

// plant takes options that wait for the next tree, one at least. When a branch has so many that they are in several
// trees, each evaluates the branch again.
func (sc *scoring) plant() {
	t := &tree{nodes: map[node]int{}}
	most := treeTokens + 2*len(sc.branches[sc.waiting[0].branch].Tokens)
	for len(sc.waiting) > 0 {
		c := sc.waiting[0]
		b := &sc.branches[c.branch]
		tokens, reads := len(t.tokens), len(t.reads)
		t.add(c, b.Tokens, b.Options[c.option])
		if tokens > 0 && len(t.tokens) > most {
			t.cut(tokens, reads)
			break
		}
		sc.waiting = sc.waiting[1:]
	}
	for _, r := range t.reads {
		t.logits = append(t.logits, r.at)
	}
	slices.Sort(t.logits)
	t.logits = slices.Compact(t.logits)
	sc.tree = t
}

// add puts an option into the tree. Its last token need not be evaluated.
func (t *tree) add(c choice, branch, option []int32) {
	at := -1
	for _, id := range branch {
		at = t.put(at, id)
	}
	for i, id := range option {
		t.reads = append(t.reads, reading{c, at, id})
		if i < len(option)-1 {
			at = t.put(at, id)
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
		t.tokens, t.parents = append(t.tokens, token), append(t.parents, parent)
	}
	return at
}

// cut takes out what was put last.
func (t *tree) cut(tokens, reads int) {
	for i := tokens; i < len(t.tokens); i++ {
		delete(t.nodes, node{t.parents[i], t.tokens[i]})
	}
	t.tokens, t.parents, t.reads = t.tokens[:tokens], t.parents[:tokens], t.reads[:reads]
}

// piece returns the step for the next tokens, as many as there is room for.
func (t *tree) piece(room int) Step {
	to := t.done + portion(len(t.tokens)-t.done, room)
	first, _ := slices.BinarySearch(t.logits, t.done)
	last, _ := slices.BinarySearch(t.logits, to)
	if last > first+treeRows {
		last = first + treeRows
		to = t.logits[last-1] + 1
	}
	return Step{Tokens: t.tokens[:to], Tree: &model.Tree{Parents: t.parents[:to], Logits: t.logits[first:last], From: t.done}}
}

// addTree appends a step of a scoring slot, of about as many tokens as there is room for, and returns how many.
func (s *Scheduler) addTree(sl *slot, room int) int {
	sc := sl.scores
	if sc.tree == nil {
		sc.plant()
	}
	step := sc.tree.piece(room)
	step.Session = sl.session
	s.steps = append(s.steps, step)
	s.plans = append(s.plans, plan{slot: sl})
	return step.length()
}

// length returns how many tokens a step evaluates.
func (st *Step) length() int {
	if st.Tree != nil {
		return len(st.Tokens) - st.Tree.From
	}
	return len(st.Tokens)
}

// collectTree reads the probabilities that a piece of a tree tells.
func (s *Scheduler) collectTree(sl *slot, step *Step) {
	if len(step.Outs) != len(step.Tree.Logits) {
		s.fail(sl, errNoLogits)
		return
	}
	sc := sl.scores
	t := sc.tree
	sl.stats.Prompt += step.length()
	t.done = len(step.Tokens)
	at := map[int][]float32{}
	norms := map[int]float64{}
	for i, row := range step.Outs {
		p, _ := sl.sampler.LogProbs(row, 0, 0)
		at[step.Tree.Logits[i]] = row
		norms[step.Tree.Logits[i]] = float64(row[0]) - float64(p)
	}
	for _, r := range t.reads {
		if row := at[r.at]; row != nil {
			sc.result[r.branch][r.option] += float64(row[r.token]) - norms[r.at]
		}
	}
	if t.done < len(t.tokens) {
		return
	}
	if sc.tree = nil; len(sc.waiting) == 0 {
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
