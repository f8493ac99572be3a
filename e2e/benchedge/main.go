// Command benchedge measures what the box costs between its clients and a model server: `1bit appliance` with its
// encryption, keys, quotas and usage on, beside Caddy as a TLS reverse proxy to the same server, over HTTP/1.1, HTTP/2
// and HTTP/3 in turn, interleaved round by round. It also measures a thousand streams at once, memory and the start.
//
// Started under the name llama-server it is that model server; see server.go.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"onebit/e2e/rig"
)

type options struct {
	bin, caddy string
	rounds     int
	seconds    int // of one closed-loop run
	clients    int // that ask at the same time in it
	streams    int // at the same time
	hold       int // seconds that the streams run
}

func main() {
	rig.Serves(4096, answers)
	var o options
	flag.StringVar(&o.bin, "bin", "bin/1bit", "our program")
	flag.StringVar(&o.caddy, "caddy", "", "the program caddy")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.IntVar(&o.seconds, "seconds", 4, "length of one run")
	flag.IntVar(&o.clients, "clients", 32, "clients at the same time")
	flag.IntVar(&o.streams, "streams", 1000, "streams at the same time")
	flag.IntVar(&o.hold, "hold", 20, "seconds that the streams run")
	flag.Parse()
	if err := bench(o); err != nil {
		fmt.Fprintln(os.Stderr, "benchedge:", err)
		os.Exit(1)
	}
}

// protocols in the order in which they are measured.
var protocols = []string{"h1", "h2", "h3"}

// figures of one protocol through one peer in one round.
type figures struct {
	rate     float64 // requests a second, closed loop
	cpu      float64 // microseconds of the peer's processor time for one request of it
	p50, p99 float64 // microseconds of one request, one client
}

func bench(o options) error {
	dir, err := os.MkdirTemp("", "benchedge-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := &world{dir: dir, options: o}
	defer w.stop()
	if err := w.start(); err != nil {
		return err
	}
	fmt.Printf("date %s, %d cores, Go %s, load %s\n", time.Now().Format("2006-01-02"), runtime.NumCPU(), strings.TrimPrefix(runtime.Version(), "go"), rig.Load())
	for _, p := range w.peers {
		fmt.Printf("  %-6s %s\n", p.name, p.version)
	}
	fmt.Printf("box: %v from exec to listening, %.1f MB resident when idle (bars: 150 ms, 60 MB)\n", w.box.Listening.Round(time.Millisecond), w.idle)
	all := map[string]map[string][]figures{}
	for round := range o.rounds {
		for _, protocol := range protocols {
			for i := range w.peers {
				p := w.peers[(i+round)%len(w.peers)]
				f, err := p.measure(protocol, o)
				if err != nil {
					return fmt.Errorf("%s over %s: %w", p.name, protocol, err)
				}
				if all[p.name] == nil {
					all[p.name] = map[string][]figures{}
				}
				all[p.name][protocol] = append(all[p.name][protocol], f)
				fmt.Fprintf(os.Stderr, "round %d %s %-6s %7.0f requests/s, %5.0f us p50, %5.0f us p99, %4.0f us CPU a request\n", round+1, protocol, p.name, f.rate, f.p50, f.p99, f.cpu)
			}
		}
	}
	table(w, all)
	for _, protocol := range protocols {
		if err := w.crowd(protocol); err != nil {
			return fmt.Errorf("%d streams over %s: %w", o.streams, protocol, err)
		}
	}
	fmt.Println("load after", rig.Load())
	return nil
}

// table prints medians, and ratios of the medians.
func table(w *world, all map[string]map[string][]figures) {
	fmt.Println("\n| protocol | peer | requests/s | ratio | CPU us a request | p50 us | p99 us | p50 above direct |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, protocol := range protocols {
		base := median(all["caddy"][protocol], func(f figures) float64 { return f.rate })
		direct := median(all["direct"][protocol], func(f figures) float64 { return f.p50 })
		for _, p := range w.peers {
			rate := median(all[p.name][protocol], func(f figures) float64 { return f.rate })
			p50 := median(all[p.name][protocol], func(f figures) float64 { return f.p50 })
			p99 := median(all[p.name][protocol], func(f figures) float64 { return f.p99 })
			ratio := "-"
			if base > 0 {
				ratio = fmt.Sprintf("%.2f", rate/base)
			}
			cpu := median(all[p.name][protocol], func(f figures) float64 { return f.cpu })
			fmt.Printf("| %s | %s | %.0f | %s | %.0f | %.0f | %.0f | %.0f |\n", protocol, p.name, rate, ratio, cpu, p50, p99, p50-direct)
		}
	}
	fmt.Println()
}

func median(all []figures, of func(figures) float64) float64 {
	if len(all) == 0 {
		return 0
	}
	values := make([]float64, len(all))
	for i, f := range all {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
