// Command 1bit is the whole product: `1bit serve` answers an OpenAI-compatible API, `1bit engine` is the built-in
// engine that it starts as a child, `1bit chat` talks in the terminal, `1bit model` obtains models.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"onebit/engine/sandbox"
	"onebit/extensions/worker"
)

// version is set by the linker.
var version = "dev"

const usage = `usage: 1bit COMMAND [options]

  serve     serve a model over an OpenAI-compatible API
  chat      talk to a model in the terminal
  decide    answer typed questions about a text with probabilities
  route     say what kind of request a text is, and on which device it would run
  model     obtain, import and quantise models, plan what fits where
  backend   install the servers that run models, go back to the version before
  appliance run a box: many models, people, keys, HTTPS
  engine    run the built-in engine alone
  engines   own the model servers of a box that runs as another user
  backup    copy a box's state, encrypted
  restore   put a copy back
  help      say more about a command
  config    check or show the configuration of a box
  claim     make a new box yours
  key       make, list and revoke the keys of the box on this machine
  person    invite, list and remove its people
  admin     let an admin who is locked out back in
  trust     make this computer trust a box
  top       show what the box on this machine does
  support   write what somebody needs who is to find out what is wrong
  doctor    say what of this box is usable, and what to do about the rest
  docs      bring documents in, search and ask them
  ext       write, check, run and test modules that decide where conversations run
  tool      measure, cut draft heads, rotate weights
  bench     compare settings of serve, measure the whole wait
  version   print the version

1bit help COMMAND, and 1bit COMMAND -h, say more.
`

func main() {
	os.Exit(program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, own: true}.run(context.Background(), os.Args[1:]))
}

// program is the command with what it reads and writes.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	own            bool // the process is ours alone, and may be changed for good; a test shares it with others
}

// run does what the arguments say and returns the exit status: 0 for success and for a stop by signal, 1 for a failure,
// 2 for a command line that says too little.
func (p program) run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(p.stderr, usage)
		return 2
	}
	switch command, rest := args[0], args[1:]; command {
	case "serve":
		return p.serve(ctx, rest)
	case "engine":
		return p.engine(ctx, rest)
	case "chat":
		return p.chat(ctx, rest)
	case "decide":
		return p.decide(ctx, rest)
	case "route":
		return p.route(ctx, rest)
	case "model":
		return runModel(rest, p.stdout, p.stderr)
	case "backend":
		return runBackend(ctx, rest, p.stdout, p.stderr)
	case "engines":
		return p.engines(ctx, rest)
	case sandbox.Command:
		return p.sandboxExec(rest)
	case worker.Command:
		return worker.Child(rest, os.Stdin, os.Stdout)
	case readerCommand:
		return p.readDocument(ctx, rest)
	case "appliance":
		return p.appliance(ctx, rest)
	case "backup":
		return p.backup(ctx, rest)
	case "restore":
		return p.restoreCopy(ctx, rest)
	case "config":
		return p.config(rest)
	case "claim":
		return p.claim(ctx, rest)
	case "docs":
		return p.docs(ctx, rest)
	case "key":
		return p.key(ctx, rest)
	case "person":
		return p.person(ctx, rest)
	case "admin":
		return p.admin(ctx, rest)
	case "top":
		return p.top(ctx, rest)
	case "support":
		return p.support(ctx, rest)
	case "trust":
		return p.trust(ctx, rest)
	case "doctor":
		return runDoctor(rest, p.stdout, p.stderr)
	case "ext":
		return p.ext(ctx, rest)
	case "tool":
		return p.tool(ctx, rest)
	case "bench":
		return runBench(rest, p.stdout, p.stderr)
	case "version", "--version":
		return p.version(rest)
	case "help", "-h", "--help":
		return p.help(ctx, rest)
	}
	return p.noCommand(args[0])
}

func (p program) noCommand(name string) int {
	fmt.Fprintf(p.stderr, "1bit: there is no command %q\n%s", name, usage)
	return 2
}

// help prints what there is, or what a command says of itself.
func (p program) help(ctx context.Context, words []string) int {
	if len(words) == 0 || slices.Contains([]string{"help", "-h", "--help"}, words[0]) {
		fmt.Fprint(p.stdout, usage)
		return 0
	}
	if !strings.Contains(usage, "\n  "+words[0]+" ") {
		return p.noCommand(words[0])
	}
	return p.run(ctx, append(slices.Clone(words), "--help"))
}

// fail prints why a command ends.
func (p program) fail(command string, err error) int {
	fmt.Fprintf(p.stderr, "1bit %s: %v\n", command, err)
	return 1
}

// log returns a log to standard error. ONEBIT_LOG sets its level: debug, info, warn or error.
func (p program) log(level slog.Level) *slog.Logger {
	if s := os.Getenv("ONEBIT_LOG"); s != "" {
		_ = level.UnmarshalText([]byte(s)) // an unknown word leaves the level as it was
	}
	return slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: level}))
}

// untilSignal returns a context that ends with SIGINT or SIGTERM. A second signal ends the program at once.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
