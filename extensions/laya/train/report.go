package main

import (
	"fmt"
	"os"
	"strings"

	"onebit/extensions/laya"
)

// score is what a model does on one language.
type score struct {
	n, right  int
	confusion [laya.Chosen][laya.Chosen]int // [label][answer]
	bins      [10]struct {
		n, right int
		sum      float64
	}
}

func (s *score) see(label int, a laya.Answer) {
	s.n++
	s.confusion[label][a.Class]++
	b := &s.bins[min(int(a.Confidence*10), 9)]
	b.n++
	b.sum += float64(a.Confidence)
	if int(a.Class) == label {
		s.right++
		b.right++
	}
}

// ece is the expected calibration error over ten equal bins of confidence.
func (s *score) ece() float64 {
	e := 0.0
	for _, b := range s.bins {
		d := b.sum - float64(b.right)
		e += max(d, -d)
	}
	return e / float64(s.n)
}

// report prints the figures of the weights on the sets of a name. Of the test sets it shows no text.
func report(o *options) error {
	b, err := os.ReadFile(o.out)
	if err != nil {
		return err
	}
	m, err := laya.Load(b)
	if err != nil {
		return err
	}
	set, err := sets(o)
	if err != nil {
		return err
	}
	var all score
	langs := map[string]*score{}
	var order []string
	f := new(laya.Features)
	for _, l := range set {
		if langs[l.Lang] == nil {
			langs[l.Lang] = new(score)
			order = append(order, l.Lang)
		}
		a := m.Classify([]byte(l.Text), len(l.Text), f)
		langs[l.Lang].see(l.class, a)
		all.see(l.class, a)
		if int(a.Class) != l.class && o.report != "test" && o.report != "real" {
			fmt.Printf("  %s: %s, not %s (%.2f): %.100q\n", l.Lang, a.Class, l.Class, a.Confidence, l.Text)
		}
	}
	fmt.Printf("| %s | requests | right | ECE | code as short, prose | short as code, prose | prose as code, short |\n|---|---|---|---|---|---|---|\n", o.report)
	langs["all"] = &all
	for _, lang := range append(order, "all") {
		s := langs[lang]
		c := s.confusion
		fmt.Printf("| %s | %d | %.1f%% | %.3f | %d, %d | %d, %d | %d, %d |\n", lang, s.n, 100*float64(s.right)/float64(s.n), s.ece(),
			c[0][1], c[0][2], c[1][0], c[1][2], c[2][0], c[2][1])
	}
	return nil
}

// sets reads what is reported on.
func sets(o *options) ([]labelled, error) {
	if !strings.HasPrefix(o.report, "real") {
		return readSets(o.sets, o.report)
	}
	p, err := readPublic(o.data, readByHand())
	if err != nil {
		return nil, err
	}
	if o.report == "real-train" {
		p.held = p.read
	}
	var out []labelled
	for _, e := range p.held {
		out = append(out, labelled{Text: e.text, Class: laya.Class(e.class).String(), Lang: "real", class: e.class})
	}
	return out, nil
}
