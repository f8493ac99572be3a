package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/edge"
	"onebit/engine/backend"
	"onebit/engine/recipe"
)

// serve is `1bit serve`.
func (p program) serve(ctx context.Context, args []string) int {
	cfg, err := config.ParseServe(args)
	switch {
	case errors.Is(err, config.ErrHelp):
		fmt.Fprint(p.stdout, config.ServeUsage)
		return 0
	case errors.Is(err, config.ErrNoModel):
		fmt.Fprint(p.stderr, config.ServeUsage)
		return 2
	case err != nil:
		return p.fail("serve", err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if err := p.serveModel(ctx, cfg); err != nil && ctx.Err() == nil {
		return p.fail("serve", err)
	}
	return 0
}

// serveModel checks first, then takes the port, then starts the models.
func (p program) serveModel(ctx context.Context, cfg config.Config) error {
	begin := time.Now()
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800) // what is alive here is small; a collection delays answers that begin meanwhile
	}
	if os.Getenv("GOMAXPROCS") == "" {
		// the processors are for the model's process; the threads that pass events on mostly wake each other
		runtime.GOMAXPROCS(max(1, runtime.GOMAXPROCS(0)/2))
	}
	a, err := assemble(ctx, cfg, outputs{stdout: p.stdout, stderr: p.stderr, log: p.log(slog.LevelInfo)})
	if err != nil {
		return byName(cfg.Models[0].Model, err)
	}
	server, err := edge.Listen(ctx, edge.Config{Host: cfg.Host, Port: cfg.Port, Drain: cfg.Limits.Drain, Log: a.log}, a.api)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; give another port with --port N, or --port 0 for a free one", err)
	}
	if err != nil {
		return err
	}
	p.tell(a.plan)
	doing := "loading"
	if a.routing != nil {
		doing = "serving"
	}
	p.say("%s %s on %s (%s); listening on %s", doing, a.plan.Name, a.plan.Shown(), a.plan.Why, server.URL())
	if a.routing != nil {
		p.layaLines(a)
	}
	if !server.Loopback() && cfg.APIKey == "" {
		port := server.URL()[strings.LastIndexByte(server.URL(), ':')+1:]
		p.say("warning: THERE IS NO KEY: whoever reaches this machine at port %s can use this model; give --api-key KEY, or --host 127.0.0.1", port)
	}
	defer a.count(p.stderr)
	return a.run(ctx, server, func() { p.announce(a, server.URL(), time.Since(begin)) })
}

// say prints a line about what serve does.
func (p program) say(format string, args ...any) {
	fmt.Fprintf(p.stderr, "1bit serve: "+format+"\n", args...)
}

// tell prints what is about to be started, and what is worth knowing about it.
func (p program) tell(plan *backend.Plan) {
	for _, spec := range plan.Children() {
		p.say("%s on %s: %s", spec.Name, spec.Label(), spec.Program)
		p.log(slog.LevelInfo).Debug("command line", "device", spec.Label(), "args", strings.Join(spec.Command(0).Args, " "), "env", strings.Join(spec.Env, " "))
	}
	for _, line := range plan.Recipes {
		p.say("%s", line)
	}
	for _, line := range plan.Notes {
		p.say("note: %s", line)
	}
	for _, line := range plan.Warnings {
		p.say("warning: %s", line)
	}
}

// example is a request that shows how to use what is served: path and body. It is one that a small model answers too,
// and bounded, so that one which talks on cannot look like a program that hangs.
func example(role recipe.Role) (path, body string) {
	switch role {
	case recipe.Embedding:
		return "embeddings", `{"input":["A river","A mountain"]}`
	case recipe.Reranking:
		return "rerank", `{"query":"What is a river?","documents":["Water that flows","A heap of stone"]}`
	}
	return "chat/completions", `{"messages":[{"role":"user","content":"Which city is the capital of France?"}],"max_tokens":200,"temperature":0}`
}

// announce says what is served and how to use it.
func (p program) announce(a *assembly, url string, took time.Duration) {
	held := ""
	if n := a.children[0].Info().Context; n > 0 {
		held = fmt.Sprintf("\n  context  %d tokens a conversation", n)
	}
	path, body := example(a.plan.Primary.Role)
	fmt.Fprintf(p.stderr, `1bit serve: ready after %v

  address  %s/v1
  model    %s
  device   %s (%s)%s

  curl %s/v1/%s -H 'Content-Type: application/json' \
    -d '%s'

  To stop: Ctrl-C, or kill %d

`, took.Round(10*time.Millisecond), url, a.plan.Name, a.plan.Shown(), a.plan.Why, held, url, path, body, os.Getpid())
}
