package config

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"unicode"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/recipe"
)

// ServeUsage is the help of `1bit serve`.
const ServeUsage = `usage: 1bit serve -m MODEL [options]

Serves one model over an OpenAI-compatible API.

  -m, --model MODEL         a .gguf file, an NPU or ONNX directory, or with --device mlx an id (required)
  -p, --port N              port to listen on (8000; 0 takes a free one)
      --host ADDR           address to listen on (127.0.0.1)
      --alias NAME          the model's name for clients (the file's name)
      --device NAME         auto, npu, hrx, rocm, cpu, vulkan, zinc, ds4, mlx or onnx (auto)
  -c, --ctx-size N          tokens of context, shared by all slots (the backend chooses)
      --parallel N          requests that run at the same time (the backend chooses)
  -fa, --flash-attn VALUE   passed to llama-server (vulkan, hrx, cpu)
      --embedding           the model makes embeddings
      --reranking           the model ranks documents

programs
      --llama-server PATH   for vulkan, hrx, rocm; with --device cpu it replaces the built-in engine
      --zinc PATH   --ds4 PATH   --mlx-server PATH   --npu PATH
      --hrx-libhsa PATH     the HSA runtime for hrx
      --npu-opt KEY=VALUE   passed to the NPU server; may be given more than once
      --ssd-streaming       ds4 reads its weights from the drive
      --lean                vulkan or rocm on the lean tree's llama-server
      --recipes FILE        tuned settings in place of the built-in ones
      --no-recipes          no tuned settings

drafting and images (vulkan, hrx, rocm)
      --mtp HEAD.gguf       the model's multi-token head drafts
      --dflash DRAFT.gguf   a block drafter drafts
      --mtp-max N           longest draft
      --mtp-p-min P         how sure a drafted token must be, 0 to 1
      --mmproj FILE         image projector
      --media-path DIR      requests may name image files below this folder

memory and load
      --moe-slots N|auto    experts held in GPU memory, the rest is read from the file (vulkan)
      --moe-subst R         a held expert may stand in for a missing one that scores 1/R times as high
      --moe-prefetch N      experts read ahead
      --prefill-device hrx  long prompts are read on hrx, answers written on vulkan
      --prefill-min-tokens N
      --adaptive            a second backend on rocm for what vulkan does not hold
      --adaptive-at N       requests that vulkan holds (1)
      --adaptive-sticky     a conversation stays where it is while there is room
      --long-model FILE     a Hadamard-rotated file on rocm for long conversations
      --long-from N         tokens from which a conversation is long (2048)

beside the model
      --embed MODEL.gguf    serves /v1/embeddings
      --rerank MODEL.gguf   serves /v1/rerank

choosing the device (--device auto)
      --laya                a classifier and a policy choose for each conversation
      --laya-model PATH     the same, by another classifier: a folder, a .gguf file or a URL
      --route-policy FILE   which class goes where (all to hrx, else what is there)

access
      --api-key KEY         clients must send it as bearer token
      --strict-model        requests that name another model get 404
  -h, --help                this text

ONEBIT_LLAMA_SERVER, ONEBIT_LEAN_SERVER, ONEBIT_ZINC, ONEBIT_DS4, ONEBIT_NPU, ONEBIT_ONNX_SERVER and
LEMONADE_MLX_SERVER name programs. ONEBIT_LOG=debug|info|warn|error sets what is logged, and
ONEBIT_CPU=avx512|avx2|generic the built-in engine's instructions.
`

// ErrHelp says that help was asked for.
var ErrHelp = errors.New("help was asked for")

// ErrNoModel says that the one required option is missing.
var ErrNoModel = errors.New("no model was given")

// ParseServe reads the command line of `1bit serve`, strictly and from left to right: an option that takes a value has
// it in the argument after it. ErrHelp is returned the moment that -h is reached.
func ParseServe(args []string) (Config, error) {
	o := backend.Options{Device: engine.Auto, Role: recipe.Chat, AdaptiveAt: 1, LongFrom: 2048}
	c := Config{Host: "127.0.0.1", Port: 8000, Limits: Defaults()}
	switches, values := switches(&c, &o), values(&c, &o)
	for len(args) > 0 {
		name := args[0]
		if name == "-h" || name == "--help" {
			return Config{}, ErrHelp
		}
		if set, ok := switches[name]; ok {
			set()
			args = args[1:]
			continue
		}
		set, ok := values[name]
		switch {
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
	if o.Model == "" {
		return Config{}, ErrNoModel
	}
	c.Models = []backend.Options{o}
	return c, nil
}

// switches are the options without a value.
func switches(c *Config, o *backend.Options) map[string]func() {
	on := func(to *bool) func() { return func() { *to = true } }
	role := func(r recipe.Role) func() { return func() { o.Role = r } }
	return map[string]func(){
		"--embedding":       role(recipe.Embedding),
		"--embeddings":      role(recipe.Embedding),
		"--reranking":       role(recipe.Reranking),
		"--ssd-streaming":   on(&o.SSDStreaming),
		"--lean":            on(&o.Lean),
		"--adaptive":        on(&o.Adaptive),
		"--adaptive-sticky": on(&o.Sticky),
		"--laya":            on(&o.Laya),
		"--no-recipes":      on(&o.NoRecipes),
		"--strict-model":    on(&c.StrictModel),
	}
}

// values are the options with a value.
func values(c *Config, o *backend.Options) map[string]func(string) error {
	all := map[string]func(string) error{
		"-m":               text(&o.Model),
		"-p":               number(&c.Port, 0, 65535),
		"-c":               number(&o.Context, 0, 1<<30),
		"-fa":              text(&o.FlashAttn),
		"--host":           address(&c.Host),
		"--alias":          line(&o.Alias),
		"--device":         device(&o.Device),
		"--parallel":       number(&o.Parallel, 0, 1024),
		"--llama-server":   text(&o.LlamaServer),
		"--zinc":           text(&o.Zinc),
		"--ds4":            text(&o.DS4),
		"--mlx-server":     text(&o.MLXServer),
		"--npu":            text(&o.NPU),
		"--npu-opt":        pair(&o.NPUOptions),
		"--hrx-libhsa":     text(&o.LibHSA),
		"--prefill-device": text(&o.PrefillDevice),
		"--mtp":            text(&o.MTP),
		"--dflash":         text(&o.DFlash),
		"--mtp-max":        number(&o.DraftMax, 0, 1024),
		"--mtp-p-min":      fraction(&o.DraftPMin),
		"--mmproj":         text(&o.Mmproj),
		"--moe-slots":      experts(o),
		"--moe-subst":      fraction(&o.MoESubst),
		"--moe-prefetch":   number(&o.MoEPrefetch, 0, 1<<20),
		"--adaptive-at":    number(&o.AdaptiveAt, 0, 1024),
		"--long-model":     text(&o.LongModel),
		"--long-from":      number(&o.LongFrom, 1, 1<<30),
		"--embed":          text(&o.Embed),
		"--rerank":         text(&o.Rerank),
		"--laya-model":     text(&o.LayaModel),
		"--route-policy":   text(&o.RoutePolicy),
		"--recipes":        text(&o.Recipes),
		"--api-key":        line(&c.APIKey),
		"--media-path":     text(&c.MediaPath),

		"--prefill-min-tokens": number(&o.PrefillMinTokens, 0, 1<<30),
	}
	maps.Copy(all, map[string]func(string) error{
		"--model": all["-m"], "--port": all["-p"], "--ctx-size": all["-c"], "--flash-attn": all["-fa"],
	})
	return all
}

func text[T ~string](to *T) func(string) error {
	return func(s string) error {
		if s == "" {
			return errors.New("the value is empty")
		}
		*to = T(s)
		return nil
	}
}

// line takes a text without control characters: one that is shown on a line, or sent in a header.
func line[T ~string](to *T) func(string) error {
	return func(s string) error {
		if strings.ContainsFunc(s, unicode.IsControl) {
			return errors.New("the value has a control character in it")
		}
		return text(to)(s)
	}
}

// address takes a name or an address, an IPv6 address also in the brackets that it has in URLs.
func address(to *string) func(string) error {
	return func(s string) error {
		if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
			s = strings.TrimSuffix(inner, "]")
		}
		return text(to)(s)
	}
}

// number takes a whole number within bounds.
func number(to *int, least, most int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
		}
		*to = n
		return nil
	}
}

// fraction takes a number from 0 to 1 and keeps it as it was written.
func fraction(to *string) func(string) error {
	return func(s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f <= 1) {
			return fmt.Errorf("%q is not a number from 0 to 1", s)
		}
		*to = s
		return nil
	}
}

// pair takes KEY=VALUE, any number of times.
func pair(to *[]string) func(string) error {
	return func(s string) error {
		if key, _, ok := strings.Cut(s, "="); !ok || key == "" {
			return fmt.Errorf("%q is not of the form KEY=VALUE", s)
		}
		*to = append(*to, s)
		return nil
	}
}

// experts takes a number of experts, or auto.
func experts(o *backend.Options) func(string) error {
	return func(s string) error {
		if o.MoEAuto = s == "auto"; o.MoEAuto {
			o.MoESlots = 0
			return nil
		}
		if err := number(&o.MoESlots, 0, 1<<24)(s); err != nil {
			return fmt.Errorf("%w, or auto", err)
		}
		return nil
	}
}

func device(to *engine.Device) func(string) error {
	return func(s string) error {
		d := engine.Device(s)
		if !d.Known() {
			return fmt.Errorf("there is no device %q; use auto, npu, hrx, rocm, cpu, vulkan, zinc, ds4, mlx or onnx", s)
		}
		*to = d
		return nil
	}
}
