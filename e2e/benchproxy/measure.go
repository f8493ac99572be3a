package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/e2e/rig"
)

// measures are the figures of one path in one round: microseconds unless said otherwise.
type measures struct {
	idle50, idle99   float64 // to the first event, one client
	first50, first99 float64 // to the first event, among all clients
	event50, event99 float64 // an event's way, among all clients
	kept             float64 // share of the events that the pace asked for
	paced            float64 // processor time of the proxy for one event
	rate             float64 // events a second, unpaced
	unpaced          float64 // processor time of the proxy for one event, unpaced
}

func (m measures) String() string {
	return fmt.Sprintf("first alone %.0f/%.0f  first %.0f/%.0f  event %.0f/%.0f us  kept %.2f  cpu %.1f us  unpaced %.0f/s %.2f us",
		m.idle50, m.idle99, m.first50, m.first99, m.event50, m.event99, m.kept, m.paced, m.rate, m.unpaced)
}

// measure runs all loads once.
func (p *path) measure(o options) (m measures, err error) {
	idle, err := p.alone(200)
	if err != nil {
		return m, err
	}
	m.idle50, m.idle99 = quantile(idle.first, 0.5), quantile(idle.first, 0.99)
	used := p.cpu()
	s := p.paced(o)
	m.paced = perEvent(p.cpu()-used, s.count)
	m.first50, m.first99 = quantile(s.first, 0.5), quantile(s.first, 0.99)
	m.event50, m.event99 = quantile(s.events, 0.5), quantile(s.events, 0.99)
	m.kept = float64(s.count) / float64(s.want)
	p.settle()
	used = p.cpu()
	n, took := p.unpaced()
	m.unpaced = perEvent(p.cpu()-used, n)
	m.rate = float64(n) / took
	p.settle()
	return m, nil
}

func perEvent(d time.Duration, n int) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(max(n, 1))
}

// quantile returns a quantile in microseconds; 0 of nothing.
func quantile(v []int64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return float64(v[int(q*float64(len(v)-1))]) / 1e3
}

// cpu is the processor time that the proxy has used, user and system.
func (p *path) cpu() time.Duration {
	if p.pid == 0 {
		return 0
	}
	total := rig.Spent(p.pid)
	children, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.pid))
	for _, c := range children {
		b, _ := os.ReadFile(c)
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && !p.parent {
				total += rig.Spent(pid)
			}
		}
	}
	return total
}

// settle waits until the proxy has nothing left to do.
func (p *path) settle() {
	for range 40 {
		used := p.cpu()
		time.Sleep(150 * time.Millisecond)
		if p.cpu()-used <= 10*time.Millisecond {
			return
		}
	}
}

// middle is the median over the rounds of what f takes from each round and the direct path's of the same round.
func (p *path) middle(direct *path, f func(m, d measures) float64) float64 {
	var v []float64
	for i, m := range p.rounds {
		v = append(v, f(m, direct.rounds[i]))
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// table prints the medians of all rounds in Markdown.
func table(paths []*path, o options) {
	direct := paths[0]
	fmt.Printf("\nMedians of %d rounds; p50 / p99 in microseconds; \"added\" is over direct in the same round.\n\n", o.rounds)
	fmt.Println("| path | first event, 1 client, added | first event, all, added | an event, all, added | kept pace | CPU us/event paced | unpaced events/s | of direct | CPU us/event unpaced |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, p := range paths {
		at := func(f func(m, d measures) float64) float64 { return p.middle(direct, f) }
		pair := func(f50, f99 func(measures) float64) string {
			over := func(f func(measures) float64) float64 {
				return at(func(m, d measures) float64 {
					if p == direct {
						return f(m)
					}
					return f(m) - f(d)
				})
			}
			return fmt.Sprintf("%.0f / %.0f", over(f50), over(f99))
		}
		name := p.name
		if p == direct {
			name += " (not added)"
		}
		fmt.Printf("| %s | %s | %s | %s | %.0f %% | %.1f | %.0f | %.2f | %.2f |\n", name,
			pair(func(m measures) float64 { return m.idle50 }, func(m measures) float64 { return m.idle99 }),
			pair(func(m measures) float64 { return m.first50 }, func(m measures) float64 { return m.first99 }),
			pair(func(m measures) float64 { return m.event50 }, func(m measures) float64 { return m.event99 }),
			100*at(func(m, _ measures) float64 { return m.kept }), at(func(m, _ measures) float64 { return m.paced }),
			at(func(m, _ measures) float64 { return m.rate }), at(func(m, d measures) float64 { return m.rate / d.rate }),
			at(func(m, _ measures) float64 { return m.unpaced }))
	}
	ratios(paths)
}

// ratios prints how ours stands to each peer: below 1 is better, but for the rate.
func ratios(paths []*path) {
	var ours *path
	for _, p := range paths {
		if p.name == "1bit" {
			ours = p
		}
	}
	if ours == nil {
		return
	}
	fmt.Printf("\n1bit as a share of each peer, medians of the rounds' ratios (whole times, not added; below 1 is better, for the rate above 1):\n\n")
	for _, p := range paths[1:] {
		if p == ours {
			continue
		}
		r := func(f func(measures) float64) float64 {
			return ours.middle(p, func(m, d measures) float64 { return f(m) / max(f(d), 1e-3) })
		}
		fmt.Printf("- %s: first event alone %.2f / %.2f, first event %.2f / %.2f, event %.2f / %.2f, CPU paced %.2f, rate %.2f, CPU unpaced %.2f\n", p.name,
			r(func(m measures) float64 { return m.idle50 }), r(func(m measures) float64 { return m.idle99 }),
			r(func(m measures) float64 { return m.first50 }), r(func(m measures) float64 { return m.first99 }),
			r(func(m measures) float64 { return m.event50 }), r(func(m measures) float64 { return m.event99 }),
			r(func(m measures) float64 { return m.paced }), r(func(m measures) float64 { return m.rate }),
			r(func(m measures) float64 { return m.unpaced }))
	}
}
