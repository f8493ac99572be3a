package config

import (
	"errors"
	"fmt"
	"strconv"

	"onebit/engine"
)

// ServeUsage is the help of `1bit serve`.
const ServeUsage = `usage: 1bit serve -m MODEL.gguf [options]

Serves one model over an OpenAI-compatible API.

  -m, --model FILE      the model, a GGUF file (required)
  -p, --port N          port to listen on (8000; 0 takes a free one)
      --host ADDR       address to listen on (127.0.0.1)
      --alias NAME      the model's name for clients (the file's name)
      --device NAME     where it runs: auto or cpu (auto)
  -c, --ctx-size N      tokens of context, shared by all slots (the engine chooses)
      --parallel N      how many requests run at the same time (the engine chooses)
  -h, --help            this text

ONEBIT_LOG=debug|info|warn|error sets what is logged, and ONEBIT_CPU=avx512|avx2|generic the engine's instructions.
`

// ErrHelp says that help was asked for.
var ErrHelp = errors.New("help was asked for")

// ErrNoModel says that the one required option is missing.
var ErrNoModel = errors.New("no model was given")

// later are options of the full command that this version does not have yet.
var later = map[string]bool{
	"-fa": true, "--flash-attn": true, "--llama-server": true, "--zinc": true, "--ds4": true, "--mlx-server": true,
	"--hrx-libhsa": true, "--ssd-streaming": true, "--prefill-device": true, "--prefill-min-tokens": true, "--lean": true,
	"--mtp": true, "--dflash": true, "--mtp-max": true, "--mtp-p-min": true, "--mmproj": true, "--moe-slots": true,
	"--moe-subst": true, "--moe-prefetch": true, "--adaptive": true, "--adaptive-at": true, "--long-model": true,
	"--long-from": true, "--embed": true, "--rerank": true, "--embedding": true, "--embeddings": true,
	"--reranking": true, "--npu-opt": true, "--laya": true, "--laya-model": true, "--route-policy": true,
	"--recipes": true, "--no-recipes": true,
}

// ParseServe reads the command line of `1bit serve`, strictly and from left to right: each option has one value, in
// the argument after it. ErrHelp is returned the moment that -h is reached.
func ParseServe(args []string) (Config, error) {
	m := Model{Device: engine.Auto}
	c := Config{Host: "127.0.0.1", Port: 8000, Limits: Defaults()}
	for len(args) > 0 {
		name := args[0]
		if name == "-h" || name == "--help" {
			return Config{}, ErrHelp
		}
		set, ok := serveOption(name, &c, &m)
		switch {
		case later[name]:
			return Config{}, fmt.Errorf("%s is not part of this version, which serves GGUF files on the built-in cpu engine; leave it out", name)
		case !ok:
			return Config{}, fmt.Errorf("unknown option %s", name)
		case len(args) == 1:
			return Config{}, fmt.Errorf("%s needs a value", name)
		}
		if err := set(args[1]); err != nil {
			return Config{}, fmt.Errorf("%s: %w", name, err)
		}
		args = args[2:]
	}
	if m.Path == "" {
		return Config{}, ErrNoModel
	}
	if m.Name == "" {
		m.Name = servedName(m.Path)
	}
	c.Models = []Model{m}
	return c, nil
}

// serveOption returns what takes the value of an option.
func serveOption(name string, c *Config, m *Model) (set func(string) error, ok bool) {
	switch name {
	case "-m", "--model":
		return text(&m.Path), true
	case "-p", "--port":
		return number(&c.Port, 65535), true
	case "--host":
		return text(&c.Host), true
	case "--alias":
		return text(&m.Name), true
	case "-c", "--ctx-size":
		return number(&m.Context, 1<<30), true
	case "--parallel":
		return number(&m.Parallel, 1024), true
	case "--device":
		return device(&m.Device), true
	}
	return nil, false
}

func text(to *string) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("the value is empty")
		}
		*to = s
		return nil
	}
}

// number takes a whole number from 0 to most.
func number(to *int, most int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > most {
			return fmt.Errorf("%q is not a whole number from 0 to %d", s, most)
		}
		*to = n
		return nil
	}
}

func device(to *engine.Device) func(string) error {
	return func(s string) error {
		switch d := engine.Device(s); {
		case d == engine.Auto || d == engine.CPU:
			*to = d
		case d.Known():
			return fmt.Errorf("the device %s is not part of this version; use auto or cpu", s)
		default:
			return fmt.Errorf("there is no device %q; use auto or cpu", s)
		}
		return nil
	}
}
