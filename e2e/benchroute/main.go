// Command benchroute measures what choosing a model costs: requests that leave the model to the box beside requests that
// name it, to the same box, interleaved one by one, with model servers that answer at once. Nothing else differs, so the
// difference of the medians is the choice.
//
// Ways of asking, each in conversations of its own:
//
//	named     the model by its name: nothing is chosen
//	known     auto, in a conversation whose place is known
//	default   auto, a new conversation each time, by the default policy
//	policy    the same by a policy in JSON, run by the built-in module
//	kept      auto, in a conversation that the policy has decided
//
// Started under the name llama-server it is the model server.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/e2e/rig"
)

type options struct {
	bin              string
	module, manifest string
	rounds           int
	each             int // requests of each way in a round
	models           int
}

func main() {
	rig.Serves(131072, answers)
	var o options
	flag.StringVar(&o.bin, "bin", "bin/1bit", "our program")
	flag.StringVar(&o.module, "module", "", "the module that runs policies in JSON; empty leaves them out")
	flag.StringVar(&o.manifest, "manifest", "", "its manifest")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.IntVar(&o.each, "each", 1500, "requests of each way in a round")
	flag.IntVar(&o.models, "models", 4, "models to choose among")
	flag.Parse()
	if err := bench(o); err != nil {
		fmt.Fprintln(os.Stderr, "benchroute:", err)
		os.Exit(1)
	}
}

// way is one way of asking.
type way struct {
	name  string
	aim   float64 // microseconds that it may add; 0 for no aim
	model string
	fresh bool // a new conversation each time
	key   string
}

// taken is what requests took, in microseconds.
type taken struct {
	wait []float64 // of the client, for the whole answer
	own  []float64 // of the box itself, until the backend had the request, as it says
	load []float64 // of the machine meanwhile
}

// sizes of the conversations: bytes of what was said before.
var sizes = []struct {
	name  string
	bytes int
}{{"short", 200}, {"8k tokens", 32 << 10}}

func bench(o options) error {
	dir, err := os.MkdirTemp("", "benchroute-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := &world{dir: dir, options: o}
	defer w.stop()
	if err := w.start(); err != nil {
		return err
	}
	ways := []way{
		{"named", 0, "m1", true, w.plain}, {"known", 20, "auto", false, w.plain}, {"default", 0, "auto", true, w.plain},
	}
	if w.policy != "" {
		ways = append(ways, way{"policy", 50, "auto", true, w.policy}, way{"kept", 20, "auto", false, w.policy})
	}
	fmt.Printf("date %s, %d cores, Go %s, load %s, %d models, %d rounds of %d requests each way, interleaved one by one\n",
		time.Now().Format("2006-01-02"), runtime.NumCPU(), strings.TrimPrefix(runtime.Version(), "go"), rig.Load(), o.models, o.rounds, o.each)
	for _, s := range sizes {
		all, err := w.measure(ways, s.bytes)
		if err != nil {
			return fmt.Errorf("%s conversations: %w", s.name, err)
		}
		table(s.name, ways, all)
	}
	if w.policy == "" {
		fmt.Println("no module that runs policies in JSON was given: those two ways were left out")
	}
	fmt.Println("load after", rig.Load())
	return nil
}

// sampled is how many requests of a way come between two looks at the load.
const sampled = 50

// measure asks in all ways in turn. Each round begins with another one.
func (w *world) measure(ways []way, size int) ([]taken, error) {
	all := make([]taken, len(ways))
	c := w.client()
	defer c.CloseIdleConnections()
	n := 0
	for round := range w.rounds {
		for i := range w.each + w.each/10 {
			for j := range ways {
				k := (j + i + round) % len(ways)
				x := ways[k]
				n++
				id := n
				if !x.fresh {
					id = k + size // one conversation for the whole run
				}
				wait, own, err := w.ask(c, x, conversation(id, size))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", x.name, err)
				}
				if i >= w.each/10 { // what is before warms up
					all[k].wait, all[k].own = append(all[k].wait, wait), append(all[k].own, own)
					if i%sampled == 0 {
						all[k].load = append(all[k].load, loadNow())
					}
				}
			}
		}
	}
	return all, nil
}

// conversation is a chat of a size that no other id has.
func conversation(id, size int) string {
	turn := func(role, text string) string { return `{"role":"` + role + `","content":` + strconv.Quote(text) + `}` }
	return "[" + turn("user", fmt.Sprintf("Conversation %d. %s", id, strings.Repeat("Some words of a prompt. ", size/48))) + "," +
		turn("assistant", strings.Repeat("And an answer to it. ", size/48)) + "," + turn("user", "Go on.") + "]"
}

// table prints medians, and what each way adds to a named model.
func table(size string, ways []way, all []taken) {
	fmt.Printf("\n%s conversations, microseconds; \"added\" is the difference of the medians, \"ratio\" their quotient\n\n", size)
	fmt.Println("| way | p50 | p99 | ratio | added | box p50 | box p99 | box added p50 | box added p99 | aim | load p50 |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|")
	base, own := all[0].wait, all[0].own
	for i, x := range ways {
		aim := "-"
		if x.aim > 0 {
			aim = fmt.Sprintf("<= %.0f: met", x.aim)
			if at(all[i].own, 50)-at(own, 50) > x.aim {
				aim = fmt.Sprintf("<= %.0f: missed", x.aim)
			}
		}
		fmt.Printf("| %s | %.0f | %.0f | %.3f | %.1f | %.0f | %.0f | %.0f | %.0f | %s | %.1f |\n", x.name,
			at(all[i].wait, 50), at(all[i].wait, 99), at(all[i].wait, 50)/at(base, 50), at(all[i].wait, 50)-at(base, 50),
			at(all[i].own, 50), at(all[i].own, 99), at(all[i].own, 50)-at(own, 50), at(all[i].own, 99)-at(own, 99), aim, at(all[i].load, 50))
	}
}

// at is the value below which so many percent lie; 0 of none.
func at(values []float64, percent int) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)]
}

// loadNow is how many want to run, of the latest minute; 0 where nobody says.
func loadNow() float64 {
	latest, _, _ := strings.Cut(rig.Load(), " ")
	n, err := strconv.ParseFloat(latest, 64)
	if err != nil {
		return 0
	}
	return n
}
