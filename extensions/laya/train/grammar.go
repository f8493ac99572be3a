package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"unicode"

	"onebit/extensions/laya"
)

// A grammar is templates for each class. A line may hold [one|of|these], also within one another, and {slot}, which stands for a
// line of that slot. "= name" begins a slot, "=! name" one whose lines are taken as they are, "@ class" the templates of a class.
type grammar struct {
	lang    string
	slots   map[string]*slot
	classes [laya.Chosen]choice
	strange []string       // what stands in for a slot of content now and then
	swap    float64        // how often
	common  map[string]int // in how many templates a word occurs
	words   []string       // what stands in for words that occur in few
}

// content are the slots that say what a request is about and little of what kind it is.
var content = map[string]bool{"topic": true, "ptopic": true, "howto": true, "person": true, "work": true, "novel": true, "event": true, "food": true,
	"animal": true, "country": true, "city": true, "word": true, "phrase": true, "group": true, "era": true, "job": true, "chore": true, "society": true,
	"gadget": true, "task": true, "dotask": true, "taskwo": true, "thing": true, "concept": true, "bug": true, "thirds": true, "concept3": true,
	"app": true, "infra": true, "quick": true, "gtopic": true, "made": true, "formed": true, "disease": true, "idea": true, "codewish": true, "lifewish": true,
	"lifeproblem": true, "fact": true, "entity": true, "theme": true, "domain": true}

type slot struct {
	raw   bool
	lines choice
}

// A choice picks a line, those with many readings more often.
type choice struct {
	lines []string
	until []float64 // running sum of weights
}

func (c *choice) add(line string, weight float64) {
	if len(c.until) > 0 {
		weight += c.until[len(c.until)-1]
	}
	c.lines, c.until = append(c.lines, line), append(c.until, weight)
}

func (c *choice) pick(r *rand.Rand) string {
	x := r.Float64() * c.until[len(c.until)-1]
	return c.lines[sort.SearchFloat64s(c.until, x)]
}

// readGrammar reads a grammar; the slots of base are its own too.
func readGrammar(lang string, src io.Reader, base *grammar) (*grammar, error) {
	g := &grammar{lang: lang, slots: map[string]*slot{}}
	if base != nil {
		for k, v := range base.slots {
			g.slots[k] = v
		}
	}
	var current *slot
	class := -1
	lines := bufio.NewScanner(src)
	for n := 1; lines.Scan(); n++ {
		line := strings.ReplaceAll(lines.Text(), `\n`, "\n")
		switch {
		case line == "" || strings.HasPrefix(line, "# "):
		case strings.HasPrefix(line, "@ "):
			if class = classOf(strings.TrimSpace(line[1:])); class < 0 {
				return nil, fmt.Errorf("%s line %d: no such class", lang, n)
			}
			current = nil
		case isSlot(line):
			name := strings.TrimSpace(strings.TrimPrefix(line[1:], "!"))
			current, class = &slot{raw: line[1:2] == "!"}, -1
			g.slots[name] = current
		case current != nil:
			current.lines.add(line, 1)
		case class >= 0:
			g.classes[class].add(line, 1)
		default:
			return nil, fmt.Errorf("%s line %d: outside of a slot or class", lang, n)
		}
	}
	for i := range g.classes {
		if err := g.weigh(&g.classes[i]); err != nil {
			return nil, err
		}
	}
	return g, lines.Err()
}

// mix lets the contents of any slot stand in for any other.
func (g *grammar) mix(swap float64) {
	g.swap = swap
	for _, name := range slices.Sorted(maps.Keys(g.slots)) {
		if !content[name] {
			continue
		}
		for _, l := range g.slots[name].lines.lines {
			if !strings.ContainsAny(l, "{[") {
				g.strange = append(g.strange, l)
			}
		}
	}
}

// weigh tries each template, and gives it a weight that grows with the number of its readings.
func (g *grammar) weigh(c *choice) error {
	total := 0.0
	for i, line := range c.lines {
		n, err := g.readings(line, 0)
		if err != nil {
			return fmt.Errorf("%s: %q: %w", g.lang, line, err)
		}
		total += 1 + math.Log(n)
		c.until[i] = total
	}
	return nil
}

// readings is about how many texts a template stands for.
func (g *grammar) readings(line string, depth int) (float64, error) {
	if depth > 6 {
		return 0, fmt.Errorf("slots go in circles")
	}
	n := 1.0
	for len(line) > 0 {
		lit, inner, open, rest, err := cut(line)
		if err != nil {
			return 0, err
		}
		_, line = lit, rest
		sum := 0.0
		switch open {
		case '{':
			s, ok := g.slots[inner]
			if !ok || len(s.lines.lines) == 0 {
				return 0, fmt.Errorf("no slot {%s}", inner)
			}
			sum = float64(len(s.lines.lines))
			if !s.raw {
				for _, l := range s.lines.lines {
					if _, err := g.readings(l, depth+1); err != nil {
						return 0, err
					}
				}
			}
		case '[':
			for _, alt := range split(inner) {
				k, err := g.readings(alt, depth)
				if err != nil {
					return 0, err
				}
				sum += k
			}
		default:
			continue
		}
		n *= sum
	}
	return min(n, 1e6), nil
}

// cut finds the first {slot} or [choice]; open is 0 when there is none.
func cut(line string) (literal, inner string, open byte, rest string, err error) {
	at := strings.IndexAny(line, "{[")
	if at < 0 {
		return line, "", 0, "", nil
	}
	depth := 0
	for i := at; i < len(line); i++ {
		switch line[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return line[:at], line[at+1 : i], line[at], line[i+1:], nil
			}
		}
	}
	return "", "", 0, "", fmt.Errorf("a bracket is not closed")
}

// split splits a choice at its own bars.
func split(inner string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(inner) {
		switch inner[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '|':
			if depth == 0 {
				out, from = append(out, inner[from:i]), i+1
			}
		}
	}
	return append(out, inner[from:])
}

// text makes one text of a class.
func (g *grammar) text(r *rand.Rand, class int) string {
	var b strings.Builder
	g.expand(&b, r, g.classes[class].pick(r))
	return strings.TrimSpace(b.String())
}

func (g *grammar) expand(b *strings.Builder, r *rand.Rand, line string) {
	for len(line) > 0 {
		lit, inner, open, rest, _ := cut(line) // weigh has tried it
		b.WriteString(lit)
		line = rest
		switch open {
		case '{':
			if (inner == "pre" || inner == "post") && r.IntN(5) > 1 {
				continue
			}
			s := g.slots[inner]
			if content[inner] && len(g.strange) > 0 && chance(r, g.swap) {
				b.WriteString(g.strange[r.IntN(len(g.strange))])
				continue
			}
			if s.raw {
				b.WriteString(s.lines.pick(r))
			} else {
				g.expand(b, r, s.lines.pick(r))
			}
		case '[':
			alts := split(inner)
			g.expand(b, r, alts[r.IntN(len(alts))])
		}
	}
}

func classOf(name string) int {
	for c := range laya.Chosen {
		if laya.Class(c).String() == name {
			return c
		}
	}
	return -1
}

// isSlot knows the first line of a slot: "= name" or "=! name".
func isSlot(line string) bool {
	return strings.HasPrefix(line, "=! ") || strings.HasPrefix(line, "= ")
}

// count fills common and words.
func (g *grammar) count() {
	g.common = map[string]int{}
	letters := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }
	for _, c := range g.classes {
		for _, line := range c.lines {
			seen := map[string]bool{}
			for _, w := range strings.FieldsFunc(strings.ToLower(line), letters) {
				if !seen[w] {
					seen[w] = true
					g.common[w]++
				}
			}
		}
	}
	for _, s := range g.strange {
		for _, w := range strings.Fields(s) {
			if g.common[w] < rare {
				g.words = append(g.words, w)
			}
		}
	}
}

// rare is the number of templates from which a word is more than the subject of a request.
const rare = 4

// blur replaces some of the words that occur in few templates, so that what a request is about weighs less than how it is put.
func (g *grammar) blur(r *rand.Rand, s string, share float64) string {
	words := strings.Split(s, " ")
	for i, w := range words {
		if len(w) > 3 && g.common[strings.ToLower(strings.Trim(w, ",.?!"))] < rare && chance(r, share) {
			words[i] = g.words[r.IntN(len(g.words))]
		}
	}
	return strings.Join(words, " ")
}
