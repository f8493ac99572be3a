package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/config"
	"onebit/engine"
)

func TestParseServe(t *testing.T) {
	type want struct {
		Host  string
		Port  int
		Model config.Model
	}
	for _, c := range []struct {
		args string
		want want
	}{
		{"-m dir/Qwen3-0.6B.gguf", want{"127.0.0.1", 8000, config.Model{Path: "dir/Qwen3-0.6B.gguf", Name: "Qwen3-0.6B", Device: engine.Auto}}},
		{"--model a.gguf -p 0 --host ::1 --device cpu -c 4096 --parallel 4 --alias x",
			want{"::1", 0, config.Model{Path: "a.gguf", Name: "x", Device: engine.CPU, Context: 4096, Parallel: 4}}},
		{"-m a.gguf -m b.gguf --port 1 --port 2 --ctx-size 0", want{"127.0.0.1", 2, config.Model{Path: "b.gguf", Name: "b", Device: engine.Auto}}},
		{"-m models/Qwen3-0.6B-4bit/", want{"127.0.0.1", 8000, config.Model{Path: "models/Qwen3-0.6B-4bit/", Name: "Qwen3-0.6B-4bit", Device: engine.Auto}}},
		{"-m x.1bp --alias -m", want{"127.0.0.1", 8000, config.Model{Path: "x.1bp", Name: "-m", Device: engine.Auto}}},
		{"-m .gguf", want{"127.0.0.1", 8000, config.Model{Path: ".gguf", Name: ".gguf", Device: engine.Auto}}},
	} {
		t.Run(c.args, func(t *testing.T) {
			got, err := config.ParseServe(strings.Fields(c.args))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, want{got.Host, got.Port, got.Models[0]}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestParseServeRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		is   error  // the error itself, or
		says string // what it says
	}{
		{"nothing", nil, config.ErrNoModel, ""},
		{"no model", []string{"--port", "1"}, config.ErrNoModel, ""},
		{"help at once", []string{"-h"}, config.ErrHelp, ""},
		{"help before a mistake", []string{"--help", "--nonsense"}, config.ErrHelp, ""},
		{"mistake before help", []string{"--nonsense", "-h"}, nil, "unknown option --nonsense"},
		{"no value", []string{"-m"}, nil, "-m needs a value"},
		{"empty value", []string{"-m", ""}, nil, "-m: the value is empty"},
		{"equals sign", []string{"--model=a.gguf"}, nil, "unknown option --model=a.gguf"},
		{"a bare word", []string{"a.gguf"}, nil, "unknown option a.gguf"},
		{"port in words", []string{"--port", "http"}, nil, `--port: "http" is not a whole number`},
		{"port too large", []string{"-p", "65536"}, nil, "from 0 to 65535"},
		{"negative slots", []string{"--parallel", "-1"}, nil, "--parallel"},
		{"unknown device", []string{"--device", "warp"}, nil, `there is no device "warp"`},
		{"a later device", []string{"--device", "vulkan"}, nil, "the device vulkan is not part of this version"},
		{"a later option", []string{"-m", "a.gguf", "--mtp", "h.gguf"}, nil, "--mtp is not part of this version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.ParseServe(c.args)
			if err == nil || (c.is != nil && !errors.Is(err, c.is)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v %q", err, c.is, c.says)
			}
		})
	}
}
