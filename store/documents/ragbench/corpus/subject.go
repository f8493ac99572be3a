package corpus

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// subject is one file of the world: a kind of paper.
type subject struct {
	columns     []string
	entities    []map[string]string
	file, title string
	filler      []string
	topics      []*topic
}

type topic struct {
	name, body string
	questions  []question
}

type question struct {
	kind         Kind
	answer, text string
}

// kindOf reads the letters of questions' kinds.
func kindOf(letter string) (Kind, bool) {
	k, ok := map[string]Kind{"p": Paraphrase, "k": Keyword, "m": Mixed, "l": Local, "x": Across}[letter]
	return k, ok
}

// parse reads a file of the world: blocks between empty lines, whose first line
// says what each is.
func parse(text string) (*subject, error) {
	s := &subject{}
	for block := range strings.SplitSeq(text, "\n\n") {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		word, rest, _ := strings.Cut(lines[0], " ")
		var err error
		switch word {
		case "entity":
			err = s.readEntities(rest, lines[1:])
		case "filler":
			s.filler = lines[1:]
		case "topic":
			err = s.readTopic(rest, lines[1:])
		default:
			err = fmt.Errorf("a block cannot begin with %q", lines[0])
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *subject) readEntities(columns string, lines []string) error {
	s.columns = strings.Split(columns, "|")
	for _, line := range lines {
		if rest, ok := strings.CutPrefix(line, "file "); ok {
			s.file = rest
			continue
		}
		if rest, ok := strings.CutPrefix(line, "title "); ok {
			s.title = rest
			continue
		}
		values := strings.Split(line, "|")
		if len(values) != len(s.columns) {
			return fmt.Errorf("%q has not %d columns", line, len(s.columns))
		}
		e := map[string]string{}
		for i, c := range s.columns {
			e[c] = values[i]
		}
		s.entities = append(s.entities, e)
	}
	return nil
}

func (s *subject) readTopic(name string, lines []string) error {
	t := &topic{name: name}
	var body []string
	for _, line := range lines {
		rest, ok := strings.CutPrefix(line, "? ")
		if !ok {
			body = append(body, line)
			continue
		}
		letter, rest, _ := strings.Cut(rest, " ")
		answer, text, _ := strings.Cut(rest, " ")
		kind, ok := kindOf(letter)
		if !ok || text == "" {
			return fmt.Errorf("the question %q is not understood", line)
		}
		t.questions = append(t.questions, question{kind, answer, text})
	}
	t.body = strings.Join(body, "\n")
	s.topics = append(s.topics, t)
	return nil
}

// filler fills in what stands in braces: {name}, {n 3 9} for a number,
// {pick a|b} for one of several, and {name=...} to keep the value under a name.
type filler struct {
	values map[string]string
	r      *rand.Rand
	err    error
}

func (f *filler) fill(text string) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "{")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		inside, after, _ := strings.Cut(rest, "}")
		name, what, named := strings.Cut(inside, "=")
		if !named {
			what = inside
		}
		v := f.value(what)
		if named {
			f.values[name] = v
		}
		out.WriteString(v)
		text = after
	}
}

func (f *filler) value(what string) string {
	word, rest, _ := strings.Cut(what, " ")
	switch word {
	case "n":
		low, high, _ := strings.Cut(rest, " ")
		from, err1 := strconv.Atoi(low)
		to, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || to < from {
			f.err = fmt.Errorf("%q is no range", what)
			return ""
		}
		return strconv.Itoa(from + f.r.IntN(to-from+1))
	case "pick":
		list := strings.Split(rest, "|")
		return list[f.r.IntN(len(list))]
	}
	v, ok := f.values[what]
	if !ok {
		f.err = fmt.Errorf("nothing has the name %q", what)
	}
	return v
}
