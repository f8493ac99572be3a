package batch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/batch"
)

// Tasks that arrive together decode together, and each answer is the one it gets
// alone.
func TestBatching(t *testing.T) {
	const n = 4
	var want [n]string
	prompt := func(i int) string { return strings.Repeat("x", 3+40*i) }
	for i := range n {
		want[i] = alone(t, &fakeEngine{}, prompt(i), 10+i)
	}
	e := &fakeEngine{during: slow(time.Millisecond)}
	bubble(t, e, n, 256, func(f *fixture) {
		var calls []*call
		for i := range n {
			calls = append(calls, f.begin(prompt(i), 10+i))
		}
		for i, c := range calls {
			if got := c.wait(t).text; got != want[i] {
				t.Errorf("task %d: %q together, %q alone", i, got, want[i])
			}
		}
	})
	widest := 0
	for _, p := range e.recorded() {
		widest = max(widest, len(p))
	}
	if widest != n {
		t.Errorf("at most %d tasks shared a pass, want %d", widest, n)
	}
}

// However a prompt is cut into passes and whoever else is there, the answer is
// the same.
func TestPromptCuts(t *testing.T) {
	prompt := strings.Repeat("a long prompt ", 60)
	want := alone(t, &fakeEngine{}, prompt, 20)
	for _, pass := range []time.Duration{0, time.Millisecond, 300 * time.Millisecond, 10 * time.Second} {
		bubble(t, &fakeEngine{during: slow(pass)}, 3, 2048, func(f *fixture) {
			others := []*call{f.begin("b", 200), f.begin(strings.Repeat("c", 300), 5)}
			synctest.Wait()
			if got := f.run(prompt, 20).text; got != want {
				t.Errorf("passes of %v: %q, alone %q", pass, got, want)
			}
			for _, c := range others {
				c.wait(t)
			}
		})
	}
}

// While one long prompt is processed, another task's tokens keep coming, and no
// pass takes long.
func TestLongPromptDoesNotStopOthers(t *testing.T) {
	e := &fakeEngine{during: func(steps []batch.Step) error {
		for _, s := range steps {
			time.Sleep(time.Duration(len(s.Tokens)) * time.Millisecond)
		}
		return nil
	}}
	bubble(t, e, 2, 8192, func(f *fixture) {
		writer := f.begin("w", 400)
		time.Sleep(10 * time.Millisecond)
		long := f.begin(strings.Repeat("x", 4000), 1)
		writer.wait(t)
		long.wait(t)
	})
	together := 0
	for i, p := range e.recorded() {
		sum := 0
		for _, part := range p {
			sum += part.tokens
		}
		if len(p) == 2 {
			together++
		}
		if most := map[bool]int{true: 100, false: 256}[len(p) == 2]; sum > most {
			t.Errorf("pass %d over %d tasks has %d tokens, more than %d", i, len(p), sum, most)
		}
	}
	if together < 30 {
		t.Errorf("only %d passes served both", together)
	}
}

// A short prompt does not wait for the whole of a long one before it.
func TestShortPromptBesideLong(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(100 * time.Millisecond)}, 2, 8192, func(f *fixture) {
		long := f.begin(strings.Repeat("x", 6000), 1)
		synctest.Wait()
		began := time.Now()
		f.run("y", 1)
		if d := time.Since(began); d > 300*time.Millisecond {
			t.Errorf("the short prompt took %v", d)
		}
		long.wait(t)
	})
}

func TestPrefixReuse(t *testing.T) {
	const base = "a long beginning that two prompts share: "
	tests := []struct {
		name, first, second string
		change              []func(*batch.Options)
		cached              int
	}{
		{"the same prompt", base, base, nil, len(base) - 1},
		{"a longer prompt", base, base + "And more", nil, len(base)},
		{"another end", base + "x", base + "y", nil, len(base)},
		{"a shorter prompt", base + "x", base, nil, len(base) - 1},
		{"another prompt", base, "something else", nil, 0},
		{"reuse switched off", base, base, []func(*batch.Options){noReuse}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := alone(t, &fakeEngine{}, tt.second, 4)
			bubble(t, &fakeEngine{}, 1, 256, func(f *fixture) {
				f.run(tt.first, 4)
				c := f.run(tt.second, 4, tt.change...)
				if c.text != want {
					t.Errorf("answer %q, alone %q", c.text, want)
				}
				if got := c.last.State.Timings; got.Cached != tt.cached || got.Cached+got.Prompt != len(tt.second) {
					t.Errorf("%d tokens cached and %d processed, want %d cached", got.Cached, got.Prompt, tt.cached)
				}
			})
		})
	}
}

// Which slot a task gets.
func TestSlotChoice(t *testing.T) {
	long := strings.Repeat("one conversation ", 5)
	system := "be brief. "
	type ask struct {
		prompt string
		slot   int
	}
	tests := []struct {
		name  string
		tasks []ask
		want  []int
	}{
		{"the same prompt again", []ask{{long, -1}, {long, -1}}, []int{0, 0}},
		{"an unused slot for another prompt", []ask{{long, -1}, {"other", -1}}, []int{0, 1}},
		{"the least recently used slot", []ask{{"a", -1}, {"b", -1}, {"c", -1}, {"d", -1}}, []int{0, 1, 2, 0}},
		{"the longest beginning", []ask{{long + "x", -1}, {long + "xyz", 1}, {long + "xyw", -1}}, []int{0, 1, 1}},
		{"a conversation is not lost for a short common beginning", []ask{{system + long + long, -1}, {system + "hello there", -1}}, []int{0, 1}},
		{"a slot of choice", []ask{{"a", 2}}, []int{2}},
		{"a slot of choice, though another has the prompt", []ask{{long, -1}, {long, 2}}, []int{0, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, &fakeEngine{}, 3, 512, func(f *fixture) {
				var got []int
				for _, a := range tt.tasks {
					got = append(got, f.run(a.prompt, 1, inSlot(a.slot)).last.State.Slot)
				}
				if d := cmp.Diff(tt.want, got); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

// More tasks than slots are served in the order of their arrival.
func TestQueueOrder(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(10 * time.Millisecond)}, 1, 256, func(f *fixture) {
		const n = 6
		order := make(chan int, n)
		for i := range n {
			c := f.begin(fmt.Sprint("prompt ", i), 5)
			go func() {
				<-c.done
				order <- i
			}()
		}
		synctest.Wait()
		if m := f.s.Metrics(); m.Queued != n-1 || m.Busy != 1 {
			t.Errorf("%d queued, %d busy", m.Queued, m.Busy)
		}
		for i := range n {
			if got := <-order; got != i {
				t.Fatalf("task %d ended as number %d", got, i)
			}
		}
	})
}

// A task that waits for its slot does not hold up those behind it.
func TestPinnedTaskWaitsAlone(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(10 * time.Millisecond)}, 2, 256, func(f *fixture) {
		busy := f.begin("a", 50, inSlot(0))
		pinned := f.begin("b", 1, inSlot(0))
		if c := f.run("c", 1); c.last.State.Slot != 1 {
			t.Errorf("slot %d", c.last.State.Slot)
		}
		select {
		case <-pinned.done:
			t.Error("the pinned task did not wait for its slot")
		default:
		}
		busy.wait(t)
		if slot := pinned.wait(t).last.State.Slot; slot != 0 {
			t.Errorf("the pinned task ran in slot %d", slot)
		}
	})
}

// A cancelled task is gone after the pass under way, wherever it stands.
func TestCancel(t *testing.T) {
	const pass = 20 * time.Millisecond
	tests := []struct {
		name   string
		busy   bool // another task holds the slot
		prompt string
		after  time.Duration
	}{
		{"generating", false, "a", 10 * pass},
		{"queued", true, "a", 3 * pass},
		{"processing the prompt", false, strings.Repeat("x", 3000), 2 * pass},
		{"before it began", false, "a", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := &fakeEngine{during: slow(pass)}
			bubble(t, e, 1, 4096, func(f *fixture) {
				var other *call
				if tt.busy {
					other = f.begin("busy", 20)
				}
				c := f.begin(tt.prompt, 3000)
				time.Sleep(tt.after)
				close(c.gone)
				before := len(e.recorded())
				time.Sleep(2 * pass)
				if m := f.s.Metrics(); m.Queued != 0 {
					t.Error("the task is still queued")
				}
				if tt.busy {
					other.wait(t)
					return
				}
				if n := len(e.recorded()) - before; n > 1 {
					t.Errorf("%d passes after the task was cancelled", n)
				}
				if f.s.States()[0].Busy {
					t.Error("the slot is still busy")
				}
				if got := f.run("next", 3).text; len(got) != 3 {
					t.Errorf("the next task got %q", got)
				}
			})
		})
	}
}

// A pass that fails costs only the task at fault.
func TestFailureIsIsolated(t *testing.T) {
	want := alone(t, &fakeEngine{}, "good", 30)
	e := &fakeEngine{during: func(steps []batch.Step) error {
		time.Sleep(time.Millisecond)
		for _, s := range steps {
			if s.Tokens[len(s.Tokens)-1] == 'X' {
				// As a real engine might, it has already taken some of the tokens.
				first := steps[0].Session.(*fakeSession)
				first.tokens = append(first.tokens, 1)
				return errors.New("no memory for X")
			}
		}
		return nil
	}}
	bubble(t, e, 2, 256, func(f *fixture) {
		good := f.begin("good", 30)
		time.Sleep(5 * time.Millisecond)
		bad := f.begin("badX", 5)
		<-bad.done
		if bad.last.Kind != batch.Failed || !strings.Contains(bad.last.Err.Error(), "no memory for X") {
			t.Errorf("kind %v, error %v", bad.last.Kind, bad.last.Err)
		}
		if got := good.wait(t).text; got != want {
			t.Errorf("the other task got %q, alone %q", got, want)
		}
		if got := f.run("good", 30).text; got != want {
			t.Errorf("later, the same task got %q", got)
		}
	})
}

// The end of Run ends all tasks, and later ones are refused.
func TestStop(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(10 * time.Millisecond)}, 1, 4096, func(f *fixture) {
		running := f.begin("a", 4000)
		queued := f.begin("b", 10)
		time.Sleep(time.Second)
		f.stop()
		for name, c := range map[string]*call{"running": running, "queued": queued} {
			<-c.done
			if !errors.Is(c.last.Err, batch.ErrStopped) {
				t.Errorf("%s: the last event is of kind %v, with the error %v", name, c.last.Kind, c.last.Err)
			}
		}
		if err := f.s.Submit(&batch.Task{}); !errors.Is(err, batch.ErrStopped) {
			t.Errorf("a later task: %v", err)
		}
	})
}

func TestTimings(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(100 * time.Millisecond)}, 1, 256, func(f *fixture) {
		f.run("12345678", 5)
		c := f.run("12345678", 5)
		want := batch.Timings{Cached: 7, Prompt: 1, PromptFor: 100 * time.Millisecond, Predicted: 5, PredictFor: 400 * time.Millisecond}
		if d := cmp.Diff(want, c.last.State.Timings); d != "" {
			t.Error(d)
		}
		m := f.s.Metrics()
		wantMetrics := batch.Metrics{
			Prompt: 9, Predicted: 10, Cached: 7, PromptFor: 200 * time.Millisecond, PredictFor: 800 * time.Millisecond,
			RecentPrompts:     batch.Rate{Passes: 9, Spent: 200 * time.Millisecond},
			RecentPredictions: batch.Rate{Passes: 8, Spent: 800 * time.Millisecond},
			Passes:            10, Taking: 10, Longest: 12,
		}
		if d := cmp.Diff(wantMetrics, m); d != "" {
			t.Error(d)
		}
		if m := f.s.Metrics(); m.RecentPrompts.PerSecond() != 0 || m.RecentPredictions.PerSecond() != 0 {
			t.Error("recent rates do not begin anew")
		}
	})
}

func TestStates(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(time.Second)}, 2, 256, func(f *fixture) {
		c := f.begin("prompt", 10)
		time.Sleep(3500 * time.Millisecond)
		got := f.s.States()
		want := []batch.State{
			{Busy: true, Task: 1, Tag: "prompt", Held: 8, Remain: 7,
				Timings: batch.Timings{Prompt: 6, PromptFor: time.Second, Predicted: 3, PredictFor: 2 * time.Second}},
			{ID: 1},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		c.wait(t)
		if got := f.s.States()[0]; got.Busy || got.Held != 15 || got.Tag != "prompt" {
			t.Errorf("after the task: %+v", got)
		}
	})
}

// Reading states and metrics never waits for a pass.
func TestReadingDoesNotWait(t *testing.T) {
	bubble(t, &fakeEngine{during: slow(time.Hour)}, 1, 256, func(f *fixture) {
		c := f.begin("a", 1)
		synctest.Wait()
		began := time.Now()
		f.s.States()
		f.s.Metrics()
		if d := time.Since(began); d != 0 {
			t.Errorf("it took %v", d)
		}
		c.wait(t)
	})
}
