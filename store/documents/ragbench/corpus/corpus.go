// Package corpus makes a labelled set to measure retrieval with: the papers of
// an invented world, and questions with the sentence that answers each.
//
// The world is written by hand in the folder world, as topics that are told of
// several firms, machines, towns or islands each with other numbers: for every
// answer there are near-duplicates that answer another question. Around each
// topic stand sentences of its kind of paper that answer nothing. Questions are
// of five kinds: Paraphrase asks in other words, Keyword gives a name, a code or
// a number as somebody types it into a search box, Mixed is between the two,
// Local asks in the language of a paper that is not English, and Across asks
// English papers in another language.
//
// Equal seeds give equal worlds.
package corpus

import (
	"embed"
	"fmt"
	"hash/fnv"
	"html"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
)

//go:embed world
var world embed.FS

// Kind says how a question is put.
type Kind string

// The kinds of questions.
const (
	Paraphrase Kind = "paraphrase"
	Keyword    Kind = "keyword"
	Mixed      Kind = "mixed"
	Local      Kind = "local"
	Across     Kind = "across"
)

// Half says what a question may be used for. No topic is in both.
type Half string

// The halves.
const (
	Dev  Half = "dev"  // to tune with
	Test Half = "test" // to report
)

// Document is one paper.
type Document struct {
	Name  string // of a file; its ending says the format
	Text  string
	Pages int // of 265 words
	Words int
}

// Question is one question and where its answer stands.
type Question struct {
	Text     string
	Kind     Kind
	Half     Half
	Document string // name
	Answer   string // as it stands in the document, but for white space
}

// World is the whole set.
type World struct {
	Documents []Document
	Questions []Question
}

const (
	pageWords    = 265
	sectionWords = 135 // a section has at least so many
	asked        = 2   // of how many entities each question is asked
)

// New makes a world.
func New(seed uint64) (*World, error) {
	w := &World{}
	err := fs.WalkDir(world, "world", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := world.ReadFile(name)
		if err != nil {
			return err
		}
		s, err := parse(string(b))
		if err != nil {
			return fmt.Errorf("reading %s: %w", path.Base(name), err)
		}
		return w.add(s, seed)
	})
	return w, err
}

// seeded returns a source of numbers that depends on names alone, so that a
// change of one topic leaves the others as they are.
func seeded(seed uint64, names ...string) *rand.Rand {
	h := fnv.New64a()
	for _, n := range names {
		h.Write([]byte(n + "\x00"))
	}
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// section is one topic, told of one entity.
type section struct {
	topic   *topic
	text    string // paragraphs between empty lines
	answers map[string]string
	values  map[string]string
}

func (w *World) add(s *subject, seed uint64) error {
	pages := map[string][]section{}
	for _, e := range s.entities {
		f := filler{values: e, r: seeded(seed, s.file, e[s.columns[0]])}
		name, title := f.fill(s.file), f.fill(s.title)
		var list []section
		for _, t := range s.topics {
			p, err := s.section(t, e, seed)
			if err != nil {
				return fmt.Errorf("topic %q: %w", t.name, err)
			}
			list = append(list, p)
		}
		text := format(name, title, list)
		words := len(strings.Fields(text))
		w.Documents = append(w.Documents, Document{Name: name, Text: text, Pages: (words + pageWords/2) / pageWords, Words: words})
		pages[name] = list
	}
	for i, t := range s.topics {
		if err := w.ask(s, i, pages, seeded(seed, s.file, t.name, "questions")); err != nil {
			return fmt.Errorf("topic %q: %w", t.name, err)
		}
	}
	return nil
}

// ask adds a topic's questions, each of some entities.
func (w *World) ask(s *subject, i int, pages map[string][]section, r *rand.Rand) error {
	half := Dev
	if i%2 == 1 {
		half = Test
	}
	for _, q := range s.topics[i].questions {
		for _, n := range r.Perm(len(s.entities))[:min(asked, len(s.entities))] {
			name := (&filler{values: s.entities[n], r: r}).fill(s.file)
			p := pages[name][i]
			f := filler{values: p.values, r: r}
			text := f.fill(q.text)
			answer := p.answers[q.answer]
			if f.err != nil || answer == "" {
				return fmt.Errorf("question %q has no answer %q: %w", text, q.answer, f.err)
			}
			w.Questions = append(w.Questions, Question{Text: text, Kind: q.kind, Half: half, Document: name, Answer: answer})
		}
	}
	return nil
}

func (s *subject) section(t *topic, e map[string]string, seed uint64) (section, error) {
	f := filler{values: map[string]string{}, r: seeded(seed, s.file, t.name, e[s.columns[0]])}
	for k, v := range e {
		f.values[k] = v
	}
	body, answers, err := marks(f.fill(t.body))
	if err != nil {
		return section{}, err
	}
	p := section{topic: t, answers: answers, values: f.values}
	order := f.r.Perm(len(s.filler))
	words := len(strings.Fields(body))
	var sentences []string
	for _, i := range order {
		if words >= sectionWords {
			break
		}
		sentence := (&filler{values: e, r: f.r}).fill(s.filler[i])
		words += len(strings.Fields(sentence))
		sentences = append(sentences, sentence)
	}
	var paragraphs []string
	for len(sentences) > 0 {
		n := min(2+f.r.IntN(4), len(sentences))
		paragraphs = append(paragraphs, strings.Join(sentences[:n], " "))
		sentences = sentences[n:]
	}
	p.text = strings.Join(slices.Insert(paragraphs, f.r.IntN(len(paragraphs)+1), body), "\n\n")
	return p, f.err
}

// marks takes the marks [name:sentence] out of a text and returns the sentences.
func marks(text string) (string, map[string]string, error) {
	answers := map[string]string{}
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "[")
		out.WriteString(before)
		if !ok {
			return out.String(), answers, nil
		}
		inside, after, ok := strings.Cut(rest, "]")
		name, sentence, named := strings.Cut(inside, ":")
		if !ok || !named {
			return "", nil, fmt.Errorf("a mark without an end or a name: %.40q", rest)
		}
		out.WriteString(sentence)
		answers[name] = sentence
		text = after
	}
}

// format writes a document in the format that its name asks for.
func format(name, title string, pages []section) string {
	var t strings.Builder
	switch path.Ext(name) {
	case ".html":
		fmt.Fprintf(&t, "<!doctype html><html><head><title>%[1]s</title></head><body><h1>%[1]s</h1>\n", html.EscapeString(title))
		for _, p := range pages {
			fmt.Fprintf(&t, "<h2>%s</h2>\n<p>%s</p>\n", html.EscapeString(p.topic.name), strings.ReplaceAll(html.EscapeString(p.text), "\n\n", "</p>\n<p>"))
		}
		t.WriteString("</body></html>\n")
	case ".md":
		fmt.Fprintf(&t, "# %s\n", title)
		for _, p := range pages {
			fmt.Fprintf(&t, "\n## %s\n\n%s\n", p.topic.name, tables(p.text))
		}
	default:
		fmt.Fprintf(&t, "%s\n", strings.ToUpper(title))
		for i, p := range pages {
			fmt.Fprintf(&t, "\n%d. %s\n\n%s\n", i+1, p.topic.name, p.text)
		}
	}
	return t.String()
}

// tables sets the lines of tables off from the text, with a rule under the first.
func tables(text string) string {
	var out []string
	inside := false
	for line := range strings.SplitSeq(text, "\n") {
		row := strings.HasPrefix(line, "|")
		if row && !inside {
			out = append(out, "", line, strings.Repeat("|---", strings.Count(line, "|")-1)+"|")
		} else {
			out = append(out, line)
		}
		inside = row
	}
	return strings.Join(out, "\n")
}
