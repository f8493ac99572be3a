package laya_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/extensions/laya"
)

// labelled is a line of a test set.
type labelled struct{ Text, Class, Lang string }

// frozen reads the test sets, by language.
func frozen(t testing.TB) map[string][]labelled {
	t.Helper()
	files, err := filepath.Glob("testdata/test-*.jsonl")
	if err != nil || len(files) != 10 {
		t.Fatalf("%d test sets, %v", len(files), err)
	}
	sets := map[string][]labelled{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var l labelled
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			sets[l.Lang] = append(sets[l.Lang], l)
		}
	}
	return sets
}

func builtin(t testing.TB) *laya.Model {
	t.Helper()
	m, err := laya.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// bars are the shares that the weights must reach on sets that nothing was tuned on, and the sizes of the sets.
func bar(lang string) (share float64, size int) {
	if lang == "en" {
		return 0.97, 400
	}
	return 0.90, 60
}

func TestAccuracy(t *testing.T) {
	m, f := builtin(t), new(laya.Features)
	var bins [10]struct{ sure, right, n float64 }
	total := 0.0
	for lang, set := range frozen(t) {
		right := 0
		for _, l := range set {
			a := m.Classify([]byte(l.Text), len(l.Text), f)
			b := &bins[min(int(a.Confidence*10), 9)]
			b.n++
			b.sure += float64(a.Confidence)
			if a.Class.String() == l.Class {
				right++
				b.right++
			}
			total++
		}
		share, size := bar(lang)
		if got := float64(right) / float64(len(set)); got < share || len(set) < size {
			t.Errorf("%s: %.1f%% of %d are right; at least %.0f%% of %d must be", lang, 100*got, len(set), 100*share, size)
		}
	}
	off := 0.0
	for _, b := range bins {
		off += math.Abs(b.sure - b.right)
	}
	// The confidence is fitted on stranger requests than these, so that here it is too low rather than right.
	if ece := off / total; ece > 0.1 {
		t.Errorf("the calibration error is %.3f", ece)
	}
}

// TestLong: the length of what the user wrote decides alone, whatever the text is.
func TestLong(t *testing.T) {
	m, f := builtin(t), new(laya.Features)
	for lang, set := range frozen(t) {
		var b strings.Builder
		for _, l := range set {
			b.WriteString(l.Text + "\n")
		}
		text := b.String()
		for _, n := range []int{laya.LongBytes, laya.LongBytes + 1, len(text)} {
			if a := m.Classify([]byte(text[:min(n, 4096)]), n, f); a.Class != laya.LongDoc || a.Confidence != 1 || a.Scores[laya.LongDoc] != 1 {
				t.Errorf("%s: %d bytes are %v", lang, n, a)
			}
		}
		if a := m.Classify([]byte(text[:laya.LongBytes-1]), laya.LongBytes-1, f); a.Class == laya.LongDoc {
			t.Errorf("%s: %d bytes are %v", lang, laya.LongBytes-1, a)
		}
	}
}

// TestCareless: case, accents, greetings and punctuation change little.
func TestCareless(t *testing.T) {
	m, f := builtin(t), new(laya.Features)
	for text, want := range map[string]laya.Class{
		"WHAT IS THE CAPITAL OF PERU???":                                      laya.Short,
		"whats the capital of peru":                                           laya.Short,
		"hi! could you please write a bash script that zips a folder, thanks": laya.Code,
		"cual es la capital de peru":                                          laya.Short,
		"Explain how vaccines work.":                                          laya.Prose,
		"pls explain how vaccines work":                                       laya.Prose,
		"commit it":                                                           laya.Code,
		"make it shorter":                                                     laya.Prose,
		"regex for emails":                                                    laya.Code,
		"top 10 horror movies":                                                laya.Prose,
		"classify as positive or negative: the food was cold":                 laya.Short,
		"Tom has 12 apples and gives 5 to Ann. How many are left?":            laya.Short,
	} {
		if a := m.Classify([]byte(text), len(text), f); a.Class != want {
			t.Errorf("%q is %v, %.2f", text, a.Class, a.Confidence)
		}
	}
}

func TestAnswer(t *testing.T) {
	m, f := builtin(t), new(laya.Features)
	for _, text := range []string{"", " ", "?", "x", "\x00\xff\xfe", strings.Repeat("ab ", 340), strings.Repeat("漢", 340), strings.Repeat("!", 1023)} {
		a := m.Classify([]byte(text), len(text), f)
		total := float32(0)
		for _, s := range a.Scores {
			if !(s >= 0 && s <= 1) {
				t.Errorf("%.20q: scores %v", text, a.Scores)
			}
			total += s
		}
		if total < 0.9999 || total > 1.0001 || a.Scores[a.Class] != a.Confidence || a.Class == laya.LongDoc {
			t.Errorf("%.20q: %v", text, a)
		}
		if b := m.Classify([]byte(text), len(text), f); b != a {
			t.Errorf("%.20q: %v, then %v", text, a, b)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	m, f := builtin(t), new(laya.Features)
	text := []byte(strings.Repeat("please explain this, ", 45))
	if n := testing.AllocsPerRun(10, func() { m.Classify(text, len(text), f) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLoadRefuses(t *testing.T) {
	good, err := os.ReadFile("weights.bin")
	if err != nil {
		t.Fatal(err)
	}
	if len(good) > 1_000_000 {
		t.Errorf("the weights are %d bytes", len(good))
	}
	change := func(at int, v byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = v
		return b
	}
	for name, b := range map[string][]byte{
		"nothing": nil, "short": good[:100], "long": append(append([]byte(nil), good...), 0), "magic": change(0, 'X'), "version": change(4, 9),
		"rows": change(10, 0xff), "no temperature": change(19, 0x80),
	} {
		if _, err := laya.Load(b); !errors.Is(err, laya.ErrWeights) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzRead: whatever a text holds, its features lie in the table and fit.
func FuzzRead(f *testing.F) {
	for _, s := range []string{"", "hello world", "Ünïcode ÄÖÜ ß", "日本語のテキスト", "\xff\xfe\x80", "हिन्दी में", "a\u0301", "```go\nx := 1\n```", "\U0001f600 ok", strings.Repeat("a", 2000)} {
		f.Add([]byte(s), uint32(1000))
	}
	features := new(laya.Features)
	f.Fuzz(func(t *testing.T, text []byte, rows uint32) {
		rows = rows%laya.MaxRows + 1
		features.Read(text, rows)
		for bag := range laya.Bags {
			for _, r := range features.Bag(bag) {
				if r >= rows {
					t.Fatalf("row %d of %d", r, rows)
				}
			}
		}
	})
}

// FuzzLoad: weights that are not ours are refused or answer within range.
func FuzzLoad(f *testing.F) {
	good, err := os.ReadFile("weights.bin")
	if err != nil {
		f.Fatal(err)
	}
	small := append([]byte(nil), good[:20]...)
	small[8], small[9], small[10] = 2, 0, 0
	f.Add(append(small, good[len(good)-(32*56+3*40)-2*laya.Dims:]...))
	f.Add([]byte("LAYA\x01\x00\x00\x00"))
	features := new(laya.Features)
	f.Fuzz(func(_ *testing.T, b []byte) {
		if m, err := laya.Load(b); err == nil {
			m.Classify([]byte("what is this"), 12, features)
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	m, f := builtin(b), new(laya.Features)
	for name, text := range map[string]string{
		"50 bytes": "how do I reverse a linked list in Go, recursively?",
		"1 KB":     strings.Repeat("Could you explain, please, how this works? ", 24)[:1000],
		"1 KB han": strings.Repeat("请解释一下这个东西是怎么工作的", 24)[:999],
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Classify([]byte(text), len(text), f)
			}
		})
	}
}
