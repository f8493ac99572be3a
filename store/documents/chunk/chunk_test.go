package chunk_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"onebit/store/documents/chunk"
	"onebit/store/documents/extract"
)

// words counts as a simple tokenizer does: words and marks.
func words(t string) int {
	n, in := 0, false
	for _, r := range t {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r):
			if !in {
				n++
			}
			in = true
		default:
			in = false
			if !unicode.IsSpace(r) {
				n++
			}
		}
	}
	return n
}

// uneven counts as no sum of parts does.
func uneven(t string) int { return words(t) + len(t)%5 + strings.Count(t, "e. ")*2 }

func doc(blocks ...extract.Block) *extract.Document { return &extract.Document{Blocks: blocks} }

func heading(level int, t string) extract.Block {
	return extract.Block{Kind: extract.Heading, Level: level, Text: t}
}

func para(t string) extract.Block { return extract.Block{Kind: extract.Paragraph, Text: t} }

func texts(chunks []chunk.Chunk) []string {
	var t []string
	for _, c := range chunks {
		t = append(t, c.Embedded())
	}
	return t
}

func TestSplit(t *testing.T) {
	rows := "name | age"
	for i := range 12 {
		rows += fmt.Sprintf("\nperson %d | %d", i, 20+i)
	}
	tests := []struct {
		name string
		max  int
		over int
		doc  *extract.Document
		want []string
	}{
		{"nothing", 50, 0, doc(), nil},
		{"white space", 50, 0, doc(para(" \n\t ")), nil},
		{"path", 50, 0, doc(heading(1, "Garden"), heading(2, "Roses"), para("Cut them in March."), heading(2, "Oaks"), para("Leave them.")),
			[]string{"Garden > Roses\nCut them in March.", "Garden > Oaks\nLeave them."}},
		{"headings alone are found too", 50, 0, doc(heading(1, "Part one"), heading(1, "Part two"), para("Text.")),
			[]string{"Part one", "Part two\nText."}},
		{"a higher heading ends the path", 50, 0, doc(heading(2, "Low"), para("A."), heading(1, "High"), para("B.")),
			[]string{"Low\nA.", "High\nB."}},
		{"paragraphs together", 50, 0, doc(para("One two."), para("Three four.")), []string{"One two.\n\nThree four."}},
		{"between sentences", 16, 0, doc(para("A b c d e f. G h i j k l. M n o p q r.")),
			[]string{"A b c d e f. G h i j k l.", "M n o p q r."}},
		{"overlap", 16, 8, doc(para("A b c d e f. G h i j k l. M n o p q r.")),
			[]string{"A b c d e f. G h i j k l.", "G h i j k l. M n o p q r."}},
		{"a paragraph stays whole", 16, 0, doc(para("A b c d e f g h."), para("I j k. L m n o. P q.")),
			[]string{"A b c d e f g h.", "I j k. L m n o. P q."}},
		{"other scripts", 16, 0, doc(para("一二三四五六七八九十一二。一二三四五六七八九十一二三四。")),
			[]string{"一二三四五六七八九十一二。 一二三四五六七八九十一二三四。"}},
		{"long words", 16, 0, doc(para(strings.Repeat("ab ", 20))), []string{"ab ab ab ab ab ab ab ab ab ab", "ab ab ab ab ab ab ab ab ab ab"}},
		{"table", 24, 0, doc(extract.Block{Kind: extract.Table, Text: rows}), []string{
			"name | age\nperson 0 | 20\nperson 1 | 21\nperson 2 | 22\nperson 3 | 23",
			"name | age\nperson 4 | 24\nperson 5 | 25\nperson 6 | 26\nperson 7 | 27",
			"name | age\nperson 8 | 28\nperson 9 | 29\nperson 10 | 30\nperson 11 | 31"}},
		{"code whole", 40, 0, doc(para("Some words first. And some more of them here."), extract.Block{Kind: extract.Code, Text: "if a {\n\tb()\n}\nreturn c(d, e, f, g, h)"}),
			[]string{"Some words first. And some more of them here.\n\nif a {\n\tb()\n}\nreturn c(d, e, f, g, h)"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := texts(chunk.Split(test.doc, chunk.Options{Max: test.max, Overlap: test.over, Count: words}))
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestPlaces(t *testing.T) {
	d := doc(heading(1, "Über"), extract.Block{Kind: extract.Paragraph, Text: "Eins zwei. Drei vier.", Page: 3},
		extract.Block{Kind: extract.Code, Text: "x\ny", Page: 4})
	text := d.Text()
	for _, c := range chunk.Split(d, chunk.Options{Max: 100, Count: words}) {
		if c.Page != 3 {
			t.Errorf("page %d, want 3", c.Page)
		}
		if got := text[c.Start:c.End]; got != "Eins zwei. Drei vier.\n\nx\ny" {
			t.Errorf("it covers %q", got)
		}
	}
}

// TestAnyDocument holds the promises of Split for documents of any shape.
func TestAnyDocument(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []string{"alpha", "be", "e. ", "c", "\n", " ", ". ", "? ", "漢字", "ö", "|", strings.Repeat("x", 90), "। ", "\t"}
	for range 2000 {
		d := doc()
		for range r.IntN(8) {
			var b extract.Block
			b.Kind = []extract.Kind{extract.Heading, extract.Paragraph, extract.List, extract.Table, extract.Code}[r.IntN(5)]
			b.Level = 1 + r.IntN(4)
			for range r.IntN(60) {
				b.Text += alphabet[r.IntN(len(alphabet))]
			}
			d.Blocks = append(d.Blocks, b)
		}
		o := chunk.Options{Max: 16 + r.IntN(60), Overlap: r.IntN(40), Count: words}
		if r.IntN(2) == 0 {
			o.Count = uneven
		}
		check(t, d, o)
		if t.Failed() {
			t.Fatalf("document %#v, options %d %d", d.Blocks, o.Max, o.Overlap)
		}
	}
}

func check(t *testing.T, d *extract.Document, o chunk.Options) {
	t.Helper()
	text := d.Text()
	covered := make([]bool, len(text))
	for _, c := range chunk.Split(d, o) {
		if n := o.Count(c.Embedded()); n > max(o.Max, 16) || n != c.Tokens {
			t.Errorf("chunk %q has %d tokens, says %d, allowed are %d", c.Embedded(), n, c.Tokens, o.Max)
		}
		if !utf8.ValidString(c.Text) || strings.TrimSpace(c.Text) == "" {
			t.Errorf("chunk %q", c.Text)
		}
		if c.Start < 0 || c.End > len(text) || c.Start >= c.End {
			t.Errorf("chunk at %d to %d of %d", c.Start, c.End, len(text))
			return
		}
		for i := c.Start; i < c.End; i++ {
			covered[i] = true
		}
	}
	offset := 0
	for _, b := range d.Blocks {
		for i, r := range b.Text {
			if b.Kind != extract.Heading && !unicode.IsSpace(r) && !covered[offset+i] {
				t.Errorf("%q at %d is in no chunk", r, offset+i)
				return
			}
		}
		offset += len(b.Text) + len(extract.Separator)
	}
}

func TestLongTextIsCutInReasonableTime(t *testing.T) {
	calls := 0
	count := func(s string) int { calls += len(s); return words(s) }
	text := strings.Repeat("wordwithoutanyend", 60_000) // a megabyte without a border
	chunk.Split(doc(para(text)), chunk.Options{Max: 256, Count: func(s string) int { calls += len(s); return len(s) / 4 }})
	if calls > 40*len(text) {
		t.Errorf("the tokenizer was given %d bytes for %d", calls, len(text))
	}
	calls = 0
	text = strings.Repeat("some words in a line. ", 50_000)
	chunk.Split(doc(para(text)), chunk.Options{Max: 256, Overlap: 64, Count: count})
	if calls > 40*len(text) {
		t.Errorf("the tokenizer was given %d bytes for %d", calls, len(text))
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("# a\nb. c", uint8(20), uint8(4))
	f.Add("a | b\n1 | 2\n", uint8(16), uint8(0))
	f.Fuzz(func(t *testing.T, text string, most, over uint8) {
		d := doc()
		for i, part := range strings.Split(strings.ToValidUTF8(text, "?"), "#") {
			d.Blocks = append(d.Blocks, extract.Block{Kind: []extract.Kind{extract.Paragraph, extract.Table, extract.Heading, extract.Code}[i%4], Level: i % 3, Text: part})
		}
		check(t, d, chunk.Options{Max: int(most), Overlap: int(over), Count: words})
	})
}

// TestName has the document's name lead the path, unless the title says as much.
func TestName(t *testing.T) {
	o := chunk.Options{Max: 64, Count: words, Name: "K-210 manual"}
	for name, test := range map[string]struct {
		d    *extract.Document
		want []string
	}{
		"no headings":           {doc(para("Keep dry.")), []string{"K-210 manual\nKeep dry."}},
		"a title of its own":    {doc(heading(1, "Care"), para("Keep dry.")), []string{"K-210 manual > Care\nKeep dry."}},
		"a title with the name": {doc(heading(1, "The K 210: Manual"), heading(2, "Care"), para("Keep dry.")), []string{"The K 210: Manual > Care\nKeep dry."}},
	} {
		if diff := cmp.Diff(test.want, texts(chunk.Split(test.d, o))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	o.Max = 16
	for _, c := range chunk.Split(doc(heading(1, "Care"), para(strings.Repeat("Keep it dry. ", 20))), o) {
		if c.Tokens > o.Max {
			t.Errorf("%d tokens: %q", c.Tokens, c.Embedded())
		}
	}
}
