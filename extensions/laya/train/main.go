// Command train makes the weights of the built-in classifier from the grammars beside it and from public prompts. The same seed,
// grammars and prompts give the same file. CARD.md, one folder up, says where the prompts come from and what the result is worth.
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"onebit/extensions/laya"
)

//go:embed grammar/*.txt
var grammars embed.FS

// options are what the command line chooses.
type options struct {
	data, sets, out string
	seed            uint64
	steps, rows     int
	rate            float64
	report          string
}

func main() {
	var o options
	flag.StringVar(&o.data, "data", "", "folder that holds public-prompts.jsonl.gz")
	flag.StringVar(&o.sets, "sets", "extensions/laya/testdata", "folder of the labelled sets")
	flag.StringVar(&o.out, "o", "extensions/laya/weights.bin", "file to write")
	flag.Uint64Var(&o.seed, "seed", 2, "seed of all chance")
	flag.IntVar(&o.steps, "steps", 500_000, "examples to learn from")
	flag.IntVar(&o.rows, "rows", laya.MaxRows, "rows of the table")
	flag.Float64Var(&o.rate, "rate", 0.12, "learning rate of the table")
	flag.StringVar(&o.report, "report", "", "train nothing: print what the weights score on the sets of that name: dev, test, rough, or real and real-train of the public prompts")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "train:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	if o.report != "" {
		return report(o)
	}
	c, err := newCorpus(o)
	if err != nil {
		return err
	}
	dev, err := readSets(o.sets, "dev")
	if err != nil {
		return err
	}
	n := train(o, c, dev)
	t := calibrate(n, c.held)
	b := n.pack(t)
	if err := os.WriteFile(o.out, b, 0o644); err != nil {
		return fmt.Errorf("writing weights: %w", err)
	}
	fmt.Printf("temperature %.3f, %d bytes, sha256 %x\n", t, len(b), sha256.Sum256(b))
	o.report = "dev"
	return report(o)
}

// corpus makes examples.
type corpus struct {
	tongues []*grammar             // English first
	public  [laya.Chosen][]example // their class is from a rule
	read    [laya.Chosen][]example // or from a reader
	held    []labelled             // read too, and never trained on
	banned  map[string]bool        // the sentences of the test sets
}

func newCorpus(o *options) (*corpus, error) {
	c := &corpus{banned: map[string]bool{}}
	common, err := openGrammar("common", nil)
	if err != nil {
		return nil, err
	}
	for _, lang := range []string{"en", "es", "de", "fr", "pt", "it", "ru", "zh", "ja", "hi"} {
		g, err := openGrammar(lang, common)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		g.mix(swapped)
		c.tongues = append(c.tongues, g)
		if lang == "en" { // names are the same elsewhere
			for _, name := range []string{"person", "work"} {
				common.slots[name] = g.slots[name]
			}
		}
	}
	public, err := readPublic(o.data, readByHand())
	if err != nil {
		return nil, fmt.Errorf("reading public prompts: %w", err)
	}
	tests, err := readSets(o.sets, "test")
	if err != nil {
		return nil, err
	}
	for _, t := range tests {
		c.banned[same(t.Text)] = true
	}
	for _, e := range public.ruled {
		c.public[e.class] = append(c.public[e.class], e)
	}
	for _, e := range public.read {
		c.read[e.class] = append(c.read[e.class], e)
	}
	for _, e := range public.held {
		c.held = append(c.held, labelled{Text: e.text, Class: laya.Class(e.class).String(), class: e.class, Lang: "real"})
	}
	c.tongues[0].strange = append(c.tongues[0].strange, spans(c.public)...)
	for _, g := range c.tongues {
		g.count()
	}
	fmt.Printf("public prompts by rule: code %d, short %d, prose %d; read: %d, %d, %d; held out: %d; languages: %d\n", len(c.public[0]), len(c.public[1]),
		len(c.public[2]), len(c.read[0]), len(c.read[1]), len(c.read[2]), len(c.held), len(c.tongues))
	return c, nil
}

// openGrammar reads the files of a language.
func openGrammar(lang string, base *grammar) (*grammar, error) {
	b, err := fs.ReadFile(grammars, "grammar/"+lang+".txt")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"-more", "-frames", "-breadth", "-subjects", "-tasks"} {
		if more, err := fs.ReadFile(grammars, "grammar/"+lang+name+".txt"); err == nil {
			b = append(append(b, '\n'), more...)
		}
	}
	return readGrammar(lang, bytes.NewReader(b), base)
}

// part is a text or, now and then, less of it: without the end of a long one.
func part(r *rand.Rand, s string) string {
	if len(s) < 200 || !chance(r, 0.3) {
		return s
	}
	at := 120 + r.IntN(len(s)-120)
	if i := strings.IndexAny(s[at:], " \n。、，"); i >= 0 {
		return s[:at+i]
	}
	return s
}

// same is a form in which two spellings of one sentence are equal.
func same(s string) string { return strings.Trim(strings.ToLower(s), " .?!") }

// next makes an example.
func (c *corpus) next(r *rand.Rand) (text string, class int, read bool) {
	for {
		class, read := r.IntN(laya.Chosen), false
		g := c.tongues[0]
		var s string
		switch x := r.Float64(); {
		case chance(r, reads):
			s, read = part(r, c.read[class][r.IntN(len(c.read[class]))].text), true
		case x < [...]float64{published, facts, published}[class]:
			s = c.public[class][r.IntN(len(c.public[class]))].text
		case x < 1-otherwise || len(c.tongues) == 1:
			s = g.text(r, class)
		default:
			g = c.tongues[1+r.IntN(len(c.tongues)-1)]
			s = g.text(r, class)
		}
		if chance(r, 0.06) {
			s += [...]string{" ", ". ", "\n", "\n\n", ", "}[r.IntN(5)] + g.text(r, class)
		}
		if c.banned[same(s)] {
			continue
		}
		if read && chance(r, 0.7) || chance(r, blurred) && !strings.Contains(s, "\n") {
			share := blurShare
			if read { // they are few: without this their subjects would be learned by heart
				share = readShare
			}
			s = g.blur(r, s, share)
		}
		s = g.roughen(r, s)
		if s != "" && len(s) < laya.LongBytes && !c.banned[same(s)] {
			return s, class, read
		}
	}
}

// How an example is made harder, so that nothing is leaned on alone.
const (
	dropped   = 0.4  // share of rows that it does without, from none to twice that
	swapped   = 0.05 // share of slots of content that hold something else
	blurred   = 0.5  // share of texts in which words are replaced
	blurShare = 0.3  // share of their rarer words
	readShare = 0.5  // the same of the prompts whose class a person gave
	published = 0.15 // share of texts that are public prompts
	facts     = 0.1  // the same for short answers, whose sources are collections of facts and orders
	reads     = 0.30 // share of texts that are public prompts whose class a person gave
	otherwise = 0.52 // share of texts in other languages than English
	layerRate = 0.001
)

func train(o *options, c *corpus, dev []labelled) *net {
	r := rand.New(rand.NewPCG(o.seed, 0x1a4a))
	n := newNet(r, o.rows)
	f := new(laya.Features)
	p := &pass{grad: make([]float32, parameters)}
	right, seen := 0, 0
	for step := range o.steps {
		text, class, read := c.next(r)
		f.Read([]byte(text), uint32(o.rows))
		drop := dropped * 2 * r.Float64()
		if read {
			drop = 0.3 + 0.6*r.Float64()
		}
		for bag := range p.rows {
			p.rows[bag] = p.rows[bag][:0]
			for _, row := range f.Bag(bag) {
				if !chance(r, drop) {
					p.rows[bag] = append(p.rows[bag], row)
				}
			}
		}
		n.forward(p)
		if p.prob[class] > 0.5 {
			right++
		}
		seen++
		left := 1 - float64(step)/float64(o.steps)
		n.learn(p, class, float32(o.rate*left), float32(layerRate*left))
		if (step+1)%(o.steps/10) == 0 {
			ok := 0
			for i := range dev {
				n.read(p, f, dev[i].Text)
				if best(p.prob) == dev[i].class {
					ok++
				}
			}
			fmt.Printf("%9d examples: training %.4f, dev %.4f\n", step+1, float64(right)/float64(seen), float64(ok)/float64(len(dev)))
			right, seen = 0, 0
		}
	}
	return n
}

// read does a text without dropping anything.
func (n *net) read(p *pass, f *laya.Features, text string) {
	f.Read([]byte(text), uint32(n.rows))
	for bag := range p.rows {
		p.rows[bag] = append(p.rows[bag][:0], f.Bag(bag)...)
	}
	n.forward(p)
}

func best(prob [laya.Chosen]float32) int {
	b := 0
	for i, v := range prob {
		if v > prob[b] {
			b = i
		}
	}
	return b
}

// labelled is a line of a labelled set.
type labelled struct {
	Text  string `json:"text"`
	Class string `json:"class"`
	Lang  string `json:"lang"`
	class int
}

// readSets reads the sets of a name, such as dev, in the order of their files' names.
func readSets(dir, name string) ([]labelled, error) {
	files, err := filepath.Glob(filepath.Join(dir, name+"-*.jsonl"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no set %s-*.jsonl in %s", name, dir)
	}
	sort.Strings(files)
	var out []labelled
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(bytes.NewReader(b))
		for lines.Scan() {
			var l labelled
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if l.class = classOf(l.Class); l.class < 0 {
				return nil, fmt.Errorf("%s: no class %q", file, l.Class)
			}
			out = append(out, l)
		}
	}
	return out, nil
}
