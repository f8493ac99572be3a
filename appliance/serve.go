package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/edge"
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
	if err := p.serveModel(ctx, cfg); err != nil {
		return p.fail("serve", err)
	}
	return 0
}

// serveModel checks first, then takes the port, then starts the model.
func (p program) serveModel(ctx context.Context, cfg config.Config) error {
	begin := time.Now()
	a, err := assemble(cfg, outputs{stdout: p.stdout, stderr: p.stderr, log: p.log(slog.LevelInfo)})
	if err != nil {
		return err
	}
	server, err := edge.Listen(ctx, edge.Config{Host: cfg.Host, Port: cfg.Port, Drain: cfg.Limits.Drain, Log: a.log}, a.api)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "1bit serve: loading %s on %s (%s); listening on %s\n", a.model.Name, a.model.Device, a.model.Why, server.URL())
	if !server.Loopback() {
		fmt.Fprintf(p.stderr, "1bit serve: warning: there is no key: whoever reaches %s can use this model\n", server.URL())
	}
	return a.run(ctx, server, func() { p.announce(a, server.URL(), time.Since(begin)) })
}

// announce says what is served and how to use it.
func (p program) announce(a *assembly, url string, took time.Duration) {
	held := ""
	if n := a.child.Info().Context; n > 0 {
		held = fmt.Sprintf("\n  context  %d tokens a conversation", n)
	}
	fmt.Fprintf(p.stderr, `1bit serve: ready after %v

  address  %s/v1
  model    %s
  device   %s (%s)%s

  curl %s/v1/chat/completions -H 'Content-Type: application/json' \
    -d '{"messages":[{"role":"user","content":"What is the capital of France?"}]}'

  To stop: Ctrl-C, or kill %d

`, took.Round(10*time.Millisecond), url, a.model.Name, a.model.Device, a.model.Why, held, url, os.Getpid())
}
