// Command benchproxy measures what a proxy between a client and a streaming model server costs. It starts one server
// that streams events at a set pace, `1bit serve` over it, and the peers that this machine has, and sends the same
// load through each in turn, interleaved round by round, and directly. It prints medians and ratios.
//
// Started under the name llama-server it is that server; see server.go.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"onebit/e2e/rig"
)

type options struct {
	bin, caddy, litellm string
	litellmWhy          string // why there is no LiteLLM
	clients, rounds     int
	seconds             int // of one paced run
	rate                int // events a second of one client
	only                string
}

func main() {
	rig.Serves(4096, events)
	var o options
	flag.StringVar(&o.bin, "bin", "bin/1bit", "our program")
	flag.StringVar(&o.caddy, "caddy", "", "the program caddy")
	flag.StringVar(&o.litellm, "litellm", "", "the program litellm")
	flag.StringVar(&o.litellmWhy, "litellm-missing", "no -litellm given", "why there is no litellm")
	flag.IntVar(&o.clients, "clients", 64, "clients that stream at the same time")
	flag.IntVar(&o.rate, "rate", 50, "events a second of each client")
	flag.IntVar(&o.seconds, "seconds", 5, "length of one paced run")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.StringVar(&o.only, "only", "", "comma-separated names of the paths to measure; empty: all that there are")
	flag.Parse()
	if err := bench(o); err != nil {
		fmt.Fprintln(os.Stderr, "benchproxy:", err)
		os.Exit(1)
	}
}

func bench(o options) error {
	dir, err := os.MkdirTemp("", "benchproxy-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	paths, stop, err := startAll(o, dir)
	defer stop()
	if err != nil {
		return err
	}
	fmt.Printf("date %s, %d cores (%s), Go %s, %d clients at %d events/s for %d s, %d rounds\n", time.Now().Format("2006-01-02"),
		runtime.NumCPU(), rig.CPU(), strings.TrimPrefix(runtime.Version(), "go"), o.clients, o.rate, o.seconds, o.rounds)
	for _, p := range paths {
		fmt.Printf("  %-10s %s\n", p.name, p.version)
	}
	fmt.Println("  load before", rig.Load())
	for range 2 { // connections, caches, compilers
		for _, p := range paths {
			if _, err := p.alone(20); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	for round := range o.rounds {
		for i := range paths {
			p := paths[(i+round)%len(paths)]
			m, err := p.measure(o)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			p.rounds = append(p.rounds, m)
			fmt.Fprintf(os.Stderr, "round %d %-8s %s\n", round+1, p.name, m)
		}
	}
	fmt.Println("  load after ", rig.Load())
	table(paths, o)
	return nil
}
