// Command benchcache plays agents against a model, with the box's prompt cache and without, and shows how long each turn takes
// to its first token. Some conversations with long system prompts, whose first line changes with each request as some
// agents have it, take turns on fewer slots; halfway everything is stopped and started again.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"time"
)

// options are the command line.
type options struct {
	bin, model, llama string
	turns, tokens     int
	talks, slots      int
	restart           bool
	plain             bool
	engine            bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/1bit", "our program")
	flag.StringVar(&o.model, "model", "", "a model file")
	flag.StringVar(&o.llama, "llama", "", "folder with llama-server, to play against that too")
	flag.IntVar(&o.turns, "turns", 20, "turns of each conversation")
	flag.IntVar(&o.tokens, "tokens", 8000, "tokens of a system prompt, as the server itself counts them: a prompt has as many from the first turn on, and with the turns more")
	flag.IntVar(&o.talks, "conversations", 3, "conversations that take turns")
	flag.IntVar(&o.slots, "slots", 2, "slots of the server")
	flag.BoolVar(&o.restart, "restart", true, "stop and start everything halfway")
	flag.BoolVar(&o.plain, "plain", false, "without the line that changes")
	flag.BoolVar(&o.engine, "engine", true, "play against the built-in engine")
	flag.Parse()
	if o.model == "" {
		fmt.Fprintln(os.Stderr, "benchcache: -model names a file")
		os.Exit(2)
	}
	var servers []string
	if o.engine {
		servers = append(servers, "")
	}
	if o.llama != "" {
		servers = append(servers, o.llama)
	}
	for _, llama := range servers {
		if err := compare(context.Background(), o, llama); err != nil {
			fmt.Fprintln(os.Stderr, "benchcache:", err)
			os.Exit(1)
		}
	}
}

// compare plays with the index and without, and shows both.
func compare(ctx context.Context, o options, llama string) error {
	name := "the built-in engine"
	if llama != "" {
		name = "llama-server"
	}
	fmt.Printf("\n%s: %d conversations of %d turns on %d slots, system prompts of %d tokens", name, o.talks, o.turns, o.slots, o.tokens)
	if o.restart {
		fmt.Printf(", everything stopped and started after turn %d", o.turns/2)
	}
	fmt.Println()
	first := &alone{o: o, llama: llama}
	systems, err := first.systems(ctx)
	if err != nil {
		return fmt.Errorf("making the system prompts: %w", err)
	}
	without, err := play(ctx, o, first, systems)
	if err != nil {
		return fmt.Errorf("without the index: %w", err)
	}
	b, err := newBoxed(o, llama)
	if err != nil {
		return err
	}
	defer b.remove()
	with, err := play(ctx, o, b, systems)
	if err != nil {
		return fmt.Errorf("with the index: %w", err)
	}
	least, most := sizes(append(with, without...))
	if least < o.tokens {
		return fmt.Errorf("a prompt has %d tokens, and all were to have %d", least, o.tokens)
	}
	chart(with, without)
	fmt.Printf("prompts of %d to %d tokens\n", least, most)
	fmt.Printf("reused after the first turns: with the index %.1f%%, without %.1f%% of the prompts' tokens\n", 100*share(with), 100*share(without))
	fmt.Println(b.said)
	return nil
}

// turn is what one turn took.
type turn struct {
	number, talk   int
	first          time.Duration // to the first token
	prompt, cached int           // tokens
}

// sizes are the tokens of the shortest and of the longest prompt.
func sizes(all []turn) (least, most int) {
	least = math.MaxInt
	for _, t := range all {
		least, most = min(least, t.prompt), max(most, t.prompt)
	}
	return least, most
}

// share is how much of the prompts was reused after the first turns.
func share(all []turn) float64 {
	prompt, cached := 0, 0
	for _, t := range all {
		if t.number > 0 {
			prompt, cached = prompt+t.prompt, cached+t.cached
		}
	}
	return float64(cached) / float64(max(prompt, 1))
}
