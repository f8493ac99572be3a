package config_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/config"
	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/recipe"
)

// with returns the options that hold without any option, changed.
func with(change func(*backend.Options)) backend.Options {
	o := backend.Options{Model: "a.gguf", Device: engine.Auto, Role: recipe.Chat, AdaptiveAt: 1, LongFrom: 2048}
	change(&o)
	return o
}

func TestParseServe(t *testing.T) {
	for _, c := range []struct {
		args string
		want func(*config.Config, *backend.Options)
	}{
		{"-m a.gguf", func(*config.Config, *backend.Options) {}},
		{"--model b.gguf -p 0 --host ::1 --device cpu -c 4096 --parallel 4 --alias x", func(c *config.Config, o *backend.Options) {
			c.Host, c.Port = "::1", 0
			o.Model, o.Device, o.Context, o.Parallel, o.Alias = "b.gguf", engine.CPU, 4096, 4, "x"
		}},
		{"-m a.gguf --host [::1]", func(c *config.Config, _ *backend.Options) { c.Host = "::1" }},
		{"-m b.gguf -m a.gguf --port 1 --port 2 --ctx-size 0", func(c *config.Config, _ *backend.Options) { c.Port = 2 }},
		{"-m a.gguf --alias -m", func(_ *config.Config, o *backend.Options) { o.Alias = "-m" }},
		{"-m a.gguf -fa on --llama-server L --zinc Z --ds4 D --mlx-server M --npu N --hrx-libhsa H --ssd-streaming --lean", func(_ *config.Config, o *backend.Options) {
			o.FlashAttn, o.LlamaServer, o.Zinc, o.DS4, o.MLXServer, o.NPU, o.LibHSA = "on", "L", "Z", "D", "M", "N", "H"
			o.SSDStreaming, o.Lean = true, true
		}},
		{"-m a.gguf --flash-attn off --prefill-device hrx --prefill-min-tokens 2000", func(_ *config.Config, o *backend.Options) {
			o.FlashAttn, o.PrefillDevice, o.PrefillMinTokens = "off", "hrx", 2000
		}},
		{"-m a.gguf --mtp h.gguf --dflash d.gguf --mtp-max 6 --mtp-p-min 0.50 --mmproj p.gguf --media-path pics", func(c *config.Config, o *backend.Options) {
			o.MTP, o.DFlash, o.DraftMax, o.DraftPMin, o.Mmproj = "h.gguf", "d.gguf", 6, "0.50", "p.gguf"
			c.MediaPath = "pics"
		}},
		{"-m a.gguf --moe-slots 4608 --moe-subst 0.9 --moe-prefetch 2", func(_ *config.Config, o *backend.Options) {
			o.MoESlots, o.MoESubst, o.MoEPrefetch = 4608, "0.9", 2
		}},
		{"-m a.gguf --moe-slots 4608 --moe-slots auto", func(_ *config.Config, o *backend.Options) { o.MoEAuto = true }},
		{"-m a.gguf --moe-slots auto --moe-slots 12", func(_ *config.Config, o *backend.Options) { o.MoESlots = 12 }},
		{"-m a.gguf --adaptive --adaptive-at 8 --adaptive-sticky", func(_ *config.Config, o *backend.Options) {
			o.Adaptive, o.AdaptiveAt, o.Sticky = true, 8, true
		}},
		{"-m a.gguf --long-model l.gguf --long-from 100 --embed e.gguf --rerank r.gguf", func(_ *config.Config, o *backend.Options) {
			o.LongModel, o.LongFrom, o.Embed, o.Rerank = "l.gguf", 100, "e.gguf", "r.gguf"
		}},
		{"-m a.gguf --embedding", func(_ *config.Config, o *backend.Options) { o.Role = recipe.Embedding }},
		{"-m a.gguf --reranking --embeddings", func(_ *config.Config, o *backend.Options) { o.Role = recipe.Embedding }},
		{"-m a.gguf --embedding --reranking", func(_ *config.Config, o *backend.Options) { o.Role = recipe.Reranking }},
		{"-m a.gguf --npu-opt a=b --npu-opt c=", func(_ *config.Config, o *backend.Options) { o.NPUOptions = []string{"a=b", "c="} }},
		{"-m a.gguf --laya --laya-model d --route-policy p --recipes r --no-recipes", func(_ *config.Config, o *backend.Options) {
			o.Laya, o.LayaModel, o.RoutePolicy, o.Recipes, o.NoRecipes = true, "d", "p", "r", true
		}},
		{"-m a.gguf --strict-model --api-key s3cret", func(c *config.Config, _ *backend.Options) {
			c.StrictModel, c.APIKey = true, "s3cret"
		}},
		{"-m a.gguf --port 9000 --device vulkan --alias n --ctx-size 8192 --reranking", func(c *config.Config, o *backend.Options) { // as Lemonade starts it
			c.Port = 9000
			o.Device, o.Alias, o.Context, o.Role = engine.Vulkan, "n", 8192, recipe.Reranking
		}},
	} {
		t.Run(c.args, func(t *testing.T) {
			want := config.Config{Host: "127.0.0.1", Port: 8000, Limits: config.Defaults()}
			want.Models = []backend.Options{with(func(o *backend.Options) { c.want(&want, o) })}
			got, err := config.ParseServe(strings.Fields(c.args))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
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
		{"a name of two lines", []string{"-m", "a", "--alias", "a\nb"}, nil, "--alias: the value has a control character in it"},
		{"a key that no header takes", []string{"-m", "a", "--api-key", "a\r\nb"}, nil, "--api-key: the value has a control character in it"},
		{"no address in brackets", []string{"-m", "a", "--host", "[]"}, nil, "--host: the value is empty"},
		{"equals sign", []string{"--model=a.gguf"}, nil, "unknown option --model=a.gguf"},
		{"a bare word", []string{"a.gguf"}, nil, "unknown option a.gguf"},
		{"a value behind a switch", []string{"--lean", "on"}, nil, "unknown option on"},
		{"port in words", []string{"--port", "http"}, nil, `--port: "http" is not a whole number`},
		{"port too large", []string{"-p", "65536"}, nil, "from 0 to 65535"},
		{"negative slots", []string{"--parallel", "-1"}, nil, "--parallel"},
		{"unknown device", []string{"--device", "warp"}, nil, `there is no device "warp"; use auto, npu, hrx`},
		{"long from nothing", []string{"--long-from", "0"}, nil, `--long-from: "0" is not a whole number from 1`},
		{"an NPU option without value", []string{"--npu-opt", "fast"}, nil, `--npu-opt: "fast" is not of the form KEY=VALUE`},
		{"an NPU option without key", []string{"--npu-opt", "=x"}, nil, `--npu-opt: "=x" is not of the form KEY=VALUE`},
		{"experts in words", []string{"--moe-slots", "many"}, nil, `--moe-slots: "many" is not a whole number from 0 to 16777216, or auto`},
		{"a probability above 1", []string{"--mtp-p-min", "1.5"}, nil, `--mtp-p-min: "1.5" is not a number from 0 to 1`},
		{"a probability that is none", []string{"--moe-subst", "NaN"}, nil, `--moe-subst: "NaN" is not a number from 0 to 1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.ParseServe(c.args)
			if err == nil || (c.is != nil && !errors.Is(err, c.is)) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v %q", err, c.is, c.says)
			}
		})
	}
}

// TestUsageNamesEveryOption keeps the help complete.
func TestUsageNamesEveryOption(t *testing.T) {
	for _, name := range strings.Fields(`-m --model -p --port --host --device -c --ctx-size -fa --flash-attn --alias --llama-server --zinc --ds4
		--mlx-server --npu --hrx-libhsa --ssd-streaming --prefill-device --prefill-min-tokens --lean --mtp --dflash --mtp-max
		--mtp-p-min --mmproj --moe-slots --moe-subst --moe-prefetch --parallel --adaptive --adaptive-at --adaptive-sticky
		--long-model --long-from --embed --rerank --embedding --reranking --npu-opt --laya --laya-model --route-policy
		--recipes --no-recipes --strict-model --api-key --media-path -h --help`) {
		if !strings.Contains(config.ServeUsage, name+" ") && !strings.Contains(config.ServeUsage, name+",") {
			t.Errorf("the help does not name %s", name)
		}
	}
}

// TestPaperNamesEverything keeps SERVE.md complete: options, variables and recipes.
func TestPaperNamesEverything(t *testing.T) {
	b, err := os.ReadFile("../SERVE.md")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(^|\s)(-{1,2}[a-z][a-z0-9-]*)|ONEBIT_[A-Z0-9_]+|LEMONADE_[A-Z_]+`).FindAllString(config.ServeUsage, -1)
	if len(names) < 50 {
		t.Fatalf("the help has no more names than %q", names)
	}
	recipes, err := recipe.Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recipes.All() {
		names = append(names, r.ID)
	}
	for _, name := range names {
		name = strings.TrimSpace(name)
		if !regexp.MustCompile("`[^`]*" + regexp.QuoteMeta(name) + "([^a-z0-9-]|$)").Match(b) {
			t.Errorf("SERVE.md does not name %s", name)
		}
	}
}

func TestSecret(t *testing.T) {
	s := config.Secret("s3cret")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", s)
	encoded, err := json.Marshal(map[string]any{"key": s})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{log.String(), string(encoded)}
	for _, verb := range []string{"%s", "%v", "%+v", "%#v", "%q", "%x", "%X", "%d", "%t", "%T", "%08.3f"} {
		all = append(all, fmt.Sprintf(verb, s), fmt.Sprintf(verb, struct{ K config.Secret }{s}), fmt.Sprintf(verb, []config.Secret{s}), fmt.Sprintf(verb, map[string]config.Secret{"k": s}))
	}
	for _, said := range all {
		if strings.Contains(said, "s3cret") || strings.Contains(said, "733363726574") {
			t.Errorf("it is shown: %s", said)
		}
	}
}
