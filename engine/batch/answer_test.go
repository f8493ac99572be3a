package batch_test

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/batch"
	"onebit/engine/model"
)

// Where answers end, and what is let out of them.
func TestAnswers(t *testing.T) {
	tests := []struct {
		name   string
		reply  string
		n      int
		change []func(*batch.Options)
		want   string
		result batch.Result // without Held
	}{
		{"end token", "hello", -1, nil, "hello", batch.Result{Stop: batch.StopEOS}},
		{"limit", "hello", 3, nil, "hel", batch.Result{Stop: batch.StopLimit}},
		{"nothing to make", "hello", 0, nil, "", batch.Result{Stop: batch.StopLimit}},
		{"end at the limit", "hello", 6, nil, "hello", batch.Result{Stop: batch.StopEOS}},
		{"line end", "a\nb", -1, nil, "a\nb", batch.Result{Stop: batch.StopEOS, Newline: true}},
		{"stop string over tokens", "hello world", -1, []func(*batch.Options){stopAt("lo w")}, "hel", batch.Result{Stop: batch.StopWord, StopText: "lo w"}},
		{"the earliest of several", "hello world", -1, []func(*batch.Options){stopAt("world", "o")}, "hell", batch.Result{Stop: batch.StopWord, StopText: "o"}},
		{"stop string not met", "hello", -1, []func(*batch.Options){stopAt("hells")}, "hello", batch.Result{Stop: batch.StopEOS}},
		{"beginning of a stop string at the end", "hello", -1, []func(*batch.Options){stopAt("lot")}, "hello", batch.Result{Stop: batch.StopEOS}},
		{"stop string in its own beginning", "aaab", -1, []func(*batch.Options){stopAt("aab")}, "a", batch.Result{Stop: batch.StopWord, StopText: "aab"}},
		{"stop string in a character", "x€y", -1, []func(*batch.Options){stopAt("€")}, "x", batch.Result{Stop: batch.StopWord, StopText: "€"}},
		{"characters of many bytes", "é€😀", -1, nil, "é€😀", batch.Result{Stop: batch.StopEOS}},
		{"cut character", "é€", 3, nil, "é\uFFFD", batch.Result{Stop: batch.StopLimit}},
		{"no characters", "a\xff\xfeb", -1, nil, "a\uFFFD\uFFFDb", batch.Result{Stop: batch.StopEOS}},
		{"context", strings.Repeat("x", 100), -1, nil, strings.Repeat("x", 62), batch.Result{Stop: batch.StopLimit, Truncated: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, &fakeEngine{next: say(encode(tt.reply)...)}, 1, 64, func(f *fixture) {
				c := f.run("q:", tt.n, tt.change...)
				got := *c.last.Result
				got.Held = 0
				if c.text != tt.want {
					t.Errorf("text %q, want %q", c.text, tt.want)
				}
				if d := cmp.Diff(tt.result, got); d != "" {
					t.Error(d)
				}
				for _, e := range c.events {
					if !utf8.ValidString(e.Text) {
						t.Errorf("an event has the text %q", e.Text)
					}
				}
			})
		})
	}
}

// Text that may become a stop string is held back, and let go as soon as it
// cannot.
func TestHoldingBack(t *testing.T) {
	bubble(t, &fakeEngine{next: say(encode("a ST STOX STOP")...)}, 1, 64, func(f *fixture) {
		var got []string
		for _, e := range f.run("q:", -1, stopAt("STOP")).events {
			if e.Kind == batch.Text {
				got = append(got, e.Text)
			}
		}
		if d := cmp.Diff([]string{"a", " ", "ST ", "STOX", " "}, got); d != "" {
			t.Error(d)
		}
	})
}

// Tokens go out with the text that they make certain, in order, each once; those
// of a stop string do not go out.
func TestPieces(t *testing.T) {
	tests := []struct {
		name  string
		reply string
		stop  []string
		want  []int32
		start []int
	}{
		{"plain", "ab", nil, []int32{'a', 'b', end}, []int{0, 1, 2}},
		{"a character of many bytes", "é!", nil, []int32{0xc3, 0xa9, '!', end}, []int{0, 0, 2, 3}},
		{"stop string", "abSTOP", []string{"STOP"}, []int32{'a', 'b'}, []int{0, 1}},
		{"no stop string", "abST", []string{"STOP"}, []int32{'a', 'b', 'S', 'T', end}, []int{0, 1, 2, 3, 4}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, &fakeEngine{next: say(encode(tt.reply)...)}, 1, 64, func(f *fixture) {
				var ids []int32
				var starts []int
				for _, e := range f.run("q:", -1, stopAt(tt.stop...)).events {
					for _, p := range e.Pieces {
						ids, starts = append(ids, p.ID), append(starts, p.Start)
					}
				}
				if !slices.Equal(ids, tt.want) || !slices.Equal(starts, tt.start) {
					t.Errorf("tokens %v at %v, want %v at %v", ids, starts, tt.want, tt.start)
				}
			})
		})
	}
}

func TestControlTokens(t *testing.T) {
	for shown, want := range map[bool]string{false: "ab", true: "a<m>b"} {
		bubble(t, &fakeEngine{next: say('a', marker, 'b')}, 1, 64, func(f *fixture) {
			c := f.run("q:", -1, func(o *batch.Options) { o.Shown = map[int32]bool{marker: shown} })
			if c.text != want {
				t.Errorf("text %q, want %q", c.text, want)
			}
		})
	}
}

func TestLogprobs(t *testing.T) {
	bubble(t, &fakeEngine{next: say('a')}, 1, 64, func(f *fixture) {
		c := f.run("q:", 1, func(o *batch.Options) { o.Logprobs, o.TopLogprobs = true, 2 })
		p := c.events[1].Pieces[0].Prob
		if p == nil || len(p.Top) != 2 || p.Top[0].ID != 'a' || p.Top[1].ID != 0 || p.Logprob > 0 || p.Logprob < -1e-6 {
			t.Errorf("probabilities %+v", p)
		}
		if p := f.run("q:", 1).events[1].Pieces[0].Prob; p != nil {
			t.Errorf("probabilities %+v that nobody asked for", p)
		}
	})
}

func TestTimeLimit(t *testing.T) {
	reply := encode(strings.Repeat("ab\n", 20))
	bubble(t, &fakeEngine{next: say(reply...), during: slow(100 * time.Millisecond)}, 1, 256, func(f *fixture) {
		c := f.run("q:", -1, func(o *batch.Options) { o.TimeLimit = 750 * time.Millisecond })
		if c.text != "ab\nab\nab\n" || c.last.Result.Stop != batch.StopLimit {
			t.Errorf("%q, %v", c.text, c.last.Result.Stop)
		}
	})
}

func TestProgress(t *testing.T) {
	bubble(t, &fakeEngine{}, 1, 1024, func(f *fixture) {
		var seen []int
		for _, e := range f.run(strings.Repeat("y", 203), 1, func(o *batch.Options) { o.Progress = true }).events {
			if e.Kind == batch.Progress {
				seen = append(seen, e.State.Processed)
			}
		}
		if d := cmp.Diff([]int{64, 203}, seen); d != "" {
			t.Error(d)
		}
	})
}

// An empty prompt has no answer, and takes no pass.
func TestEmptyPrompt(t *testing.T) {
	e := &fakeEngine{}
	bubble(t, e, 1, 64, func(f *fixture) {
		if c := f.run("", 5); c.text != "" || c.last.Result.Stop != batch.StopNone {
			t.Errorf("%q, %v", c.text, c.last.Result.Stop)
		}
	})
	if n := len(e.recorded()); n > 0 {
		t.Errorf("%d passes", n)
	}
}

// Sampling is the task's own: the same seed gives the same answer whatever else
// runs, another seed another.
func TestSeeds(t *testing.T) {
	ask := func(f *fixture, seed uint64) *call {
		c := &call{gone: make(chan struct{}), done: make(chan struct{})}
		box := batch.NewMailbox()
		err := f.s.Submit(&batch.Task{
			Prompt: encode("a"), Options: &batch.Options{Slot: -1, MaxTokens: 30}, Gone: c.gone, Box: box,
			Sampling: model.SamplerConfig{Temperature: 50, TopP: 1, RepeatPenalty: 1, Seed: seed},
		})
		if err != nil {
			t.Fatal(err)
		}
		go c.collect(box)
		return c
	}
	bubble(t, &fakeEngine{}, 3, 64, func(f *fixture) {
		one := ask(f, 1).wait(t).text
		again, two := ask(f, 1), ask(f, 2)
		if got := again.wait(t).text; got != one {
			t.Errorf("the same seed gave %q and %q", one, got)
		}
		if two.wait(t).text == one {
			t.Error("another seed gave the same")
		}
	})
}
