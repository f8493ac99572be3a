package batch_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"onebit/engine/batch"
	"onebit/engine/model"
)

// logprob is what the fake engine gives option after tokens, worked out token by token from the beginning.
func logprob(e *fakeEngine, tokens, option []int32) float64 {
	sum := 0.0
	for i, id := range option {
		row := e.logits(slices.Concat(tokens, option[:i]))
		p, _ := model.NewSampler(model.SamplerConfig{}).LogProbs(row, id, 0)
		sum += float64(p)
	}
	return sum
}

// branch makes a branch of texts.
func branch(text string, options ...string) batch.Branch {
	b := batch.Branch{Tokens: encode(text)}
	for _, o := range options {
		b.Options = append(b.Options, encode(o))
	}
	return b
}

// score submits a task of scoring.
func (f *fixture) score(prompt string, branches ...batch.Branch) *call {
	f.t.Helper()
	c := &call{gone: make(chan struct{}), done: make(chan struct{})}
	box := batch.NewMailbox()
	o := &batch.Options{CachePrompt: true, Slot: -1}
	if err := f.s.Submit(&batch.Task{Prompt: encode(prompt), Options: o, Gone: c.gone, Box: box, Branches: branches}); err != nil {
		f.t.Fatal(err)
	}
	go c.collect(box)
	return c
}

// Options get the probability that the model gives each, alone or however they begin alike.
func TestScores(t *testing.T) {
	// the letter that is likely is one of few, so that options differ
	e := &fakeEngine{next: func(tokens []int32) int32 { return 'a' + letter(tokens)%3 }}
	many := make([]string, 60)
	for i := range many {
		many[i] = strings.Repeat(string(rune('a'+i%3)), 1+i/3) + "!"
	}
	branches := []batch.Branch{
		branch("one? ", "a", "b", "c"),
		branch("two? ", "abc", "abd", "ab", "a", "b"),
		branch("three? ", "aa", "aaa", "aaaa", "aab", "x"),
		branch("twice? ", "same", "same"),
		branch(strings.Repeat("long ", 60), "yes", "no"),
		branch("many? ", many...),
	}
	meanwhile := alone(t, e, "meanwhile", 30)
	for _, slots := range []int{1, 3} {
		bubble(t, e, slots, 8192, func(f *fixture) {
			prompt := strings.Repeat("the text ", 20)
			other := f.begin("meanwhile", 30)
			c := f.score(prompt, branches...).wait(t)
			if n := len(c.last.Result.Scores); n != len(branches) {
				t.Fatalf("%d branches", n)
			}
			for i, b := range branches {
				for o, option := range b.Options {
					want := logprob(e, slices.Concat(encode(prompt), b.Tokens), option)
					if got := c.last.Result.Scores[i][o]; math.Abs(got-want) > 1e-4 {
						t.Errorf("branch %d, option %d: %v, want %v", i, o, got, want)
					}
				}
			}
			if got := other.wait(t).text; got != meanwhile {
				t.Errorf("another task's answer changed: %q", got)
			}
			again := f.score(prompt, branches[0]).wait(t)
			if n := again.last.State.Timings; n.Cached != len(prompt)-1 || n.Prompt != 1+len("one? ") {
				t.Errorf("the text was not reused: %+v", n)
			}
		})
	}
}

// Options of one token cost their question alone, what options or questions begin with in common is evaluated once, and
// all that fits goes in one pass.
func TestScoringIsShort(t *testing.T) {
	e := &fakeEngine{}
	bubble(t, e, 1, 512, func(f *fixture) {
		c := f.score("text", branch("q", "a", "b", "c"), branch("r", "xyz1", "xyz2", "xyz", "xy")).wait(t)
		if n := c.last.State.Timings.Prompt; n != 4+1+1+3 {
			t.Errorf("%d tokens were evaluated", n)
		}
		c = f.score("text", branch("is it a", "x", "y"), branch("no", "x"), branch("is it bc", "x", "yy"), branch("is it", "x"), branch("is it a", "z")).wait(t)
		if n := c.last.State.Timings.Prompt; n != 1+len("is it a")+len("no")+len("bc")+len("y") {
			t.Errorf("%d tokens were evaluated of branches that begin alike", n)
		}
		if p := e.recorded(); len(p) != 4 {
			t.Errorf("passes: %v", p)
		}
	})
}

// Others go on while there is much to score: no pass is longer than one of a long prompt would be, however long a branch
// or its options are, and what is scored comes to no more than some times its length.
func TestScoringIsCut(t *testing.T) {
	many := make([]string, 300)
	for i := range many {
		many[i] = strings.Repeat(string(rune('a'+i%26)), 30) + strings.Repeat("x", i/26) + "!"
	}
	for name, b := range map[string][]batch.Branch{
		"a long branch":                      {branch(strings.Repeat("why ", 500), "yes", "no")},
		"a long option":                      {branch("why?", strings.Repeat("because ", 300), "no")},
		"many options":                       {branch("which?", many...)},
		"a long branch with many options":    {branch(strings.Repeat("which ", 100), many...)},
		"many branches with as many options": {branch("one?", many...), branch("two?", many...), branch("three?", many...)},
	} {
		t.Run(name, func(t *testing.T) {
			e := &fakeEngine{during: func(steps []batch.Step) error {
				n := 0
				for _, st := range steps {
					if n += len(st.Tokens); st.Tree != nil {
						n -= st.Tree.From
						if len(st.Tree.Logits) > 48 {
							t.Errorf("%d rows of logits", len(st.Tree.Logits))
						}
					}
				}
				time.Sleep(time.Duration(n) * 2 * time.Millisecond)
				return nil
			}}
			all := 0
			for _, branch := range b {
				all += len(branch.Tokens)
				for _, o := range branch.Options {
					all += len(o)
				}
			}
			bubble(t, e, 2, 8192, func(f *fixture) {
				f.run(strings.Repeat("it learns the pace ", 20), 1)
				other := f.begin("meanwhile", 4000)
				c := f.score("text", b...).wait(t)
				close(other.gone)
				<-other.done
				if n := c.last.State.Timings.Prompt; n > 3*all {
					t.Errorf("%d tokens were evaluated for %d", n, all)
				}
				both := 0
				for _, p := range e.recorded() {
					if len(p) < 2 {
						continue
					}
					both++
					if n := p[0].tokens + p[1].tokens; n > 60 {
						t.Errorf("a pass of %d tokens", n)
					}
				}
				if both < all/60 {
					t.Errorf("%d passes have both tasks", both)
				}
			})
		})
	}
}

// A task that ends early leaves no session behind: bubble looks.
func TestScoringEnds(t *testing.T) {
	long := branch(strings.Repeat("q", 400), "yes", "no")
	t.Run("cancelled", func(t *testing.T) {
		bubble(t, &fakeEngine{during: slow(time.Second)}, 1, 1024, func(f *fixture) {
			c := f.score("text", long, long, long)
			time.Sleep(1500 * time.Millisecond)
			close(c.gone)
			<-c.done
			if got := f.begin("next", 3).wait(t).text; len(got) != 3 {
				t.Errorf("then %q", got)
			}
		})
	})
	t.Run("stopped", func(t *testing.T) {
		bubble(t, &fakeEngine{during: slow(time.Second)}, 1, 1024, func(f *fixture) {
			c := f.score("text", long, long)
			time.Sleep(1500 * time.Millisecond)
			f.stop()
			synctest.Wait()
			if <-c.done; !errors.Is(c.last.Err, batch.ErrStopped) {
				t.Errorf("%v", c.last.Err)
			}
		})
	})
	t.Run("the model fails", func(t *testing.T) {
		fail := func(steps []batch.Step) error {
			if steps[0].Tree != nil {
				return errors.New("broken")
			}
			return nil
		}
		bubble(t, &fakeEngine{during: fail}, 1, 1024, func(f *fixture) {
			c := f.score("text", long, long)
			if <-c.done; c.last.Kind != batch.Failed {
				t.Errorf("%v", c.last.Kind)
			}
			if got := f.begin("next", 3).wait(t).text; len(got) != 3 {
				t.Errorf("then %q", got)
			}
		})
	})
}
