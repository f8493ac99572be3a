package backend_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"onebit/engine/backend"
	"onebit/engine/gguf"
	"onebit/engine/plan"
)

// box is a made-up machine. Its programs are files whose text is what they answer to a question.
type box struct {
	t       *testing.T
	dir     string // holds bin, lib, path, opt and models
	machine *backend.Machine
	asked   []string // the questions that were put
}

// programs of the boxes: where they lie below the box, and which devices they list.
var (
	strix = map[string]string{
		"lib/1bit/hrx/llama-server": "HRX0 Vulkan0", "lib/1bit/vulkan/llama-server": "Vulkan0", "lib/1bit/rocm/llama-server": "ROCm0",
		"lib/1bit/lean/llama-server": "Vulkan0 ROCm0", "lib/1bit/zinc/zinc": "", "lib/1bit/ds4/ds4-server": "",
		"lib/1bit/mlx/lemon-mlx-server": "", "lib/1bit/npu/1bit-npu-server": "qwen2 qwen3", "lib/1bit/onnx/ryzenai-server": "",
		"opt/rocm-therock/7.1/lib/libhsa-runtime64.so.1": "",
	}
	graphics = map[string]string{"path/llama-server": "Vulkan0"}
	bare     = map[string]string{}
	modest   = map[string]string{"path/llama-server": ""} // a llama-server without a GPU
	hrxOnly  = map[string]string{"path/llama-server": "HRX0"}
)

func newBox(t *testing.T, models string, programs map[string]string, environ ...string) *box {
	t.Helper()
	b := &box{t: t, dir: t.TempDir()}
	b.file("bin/1bit", "")
	for path, devices := range programs {
		b.file(path, devices)
	}
	if err := os.Symlink(models, filepath.Join(b.dir, "m")); err != nil {
		t.Fatal(err)
	}
	for i, kv := range environ {
		environ[i] = strings.ReplaceAll(kv, "DIR", b.dir)
	}
	b.machine = &backend.Machine{
		GOOS: "linux", Executable: filepath.Join(b.dir, "bin/1bit"), HSARoot: filepath.Join(b.dir, "opt/rocm-therock"),
		Environ: append(environ, "PATH="+filepath.Join(b.dir, "nowhere")+":"+filepath.Join(b.dir, "path")),
		Memory:  func() (uint64, error) { return 40 * plan.GiB, nil },
		Ask: func(_ context.Context, program string, env []string, args ...string) (string, error) {
			b.asked = append(b.asked, strings.Join(append(append([]string{program}, args...), env...), " "))
			text, err := os.ReadFile(program)
			switch {
			case err != nil:
				return "", err
			case strings.HasPrefix(string(text), "broken"):
				return "", errors.New("exit status 127: a library is missing")
			case args[0] != "--list-devices":
				return strings.ReplaceAll(string(text), " ", "\n"), nil
			case len(text) == 0:
				return "Available devices:\n  (none)\n", nil
			}
			list := "ggml: found devices\nAvailable devices:\n"
			for name := range strings.FieldsSeq(string(text)) {
				list += fmt.Sprintf("  %s: A GPU (16384 MiB, 16000 MiB free)\n", name)
			}
			return list, nil
		},
	}
	return b
}

// path makes a path below the box's folder of one that begins with DIR.
func (b *box) path(s string) string { return strings.ReplaceAll(s, "DIR", b.dir) }

func (b *box) file(name, text string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		b.t.Fatal(err)
	}
	return path
}

type values = map[string]any

// gguf writes a file without tensors, or with experts where the metadata tell of some.
func (b *box) gguf(name, architecture string, more values) {
	b.t.Helper()
	w := gguf.NewWriter()
	set := func(key string, v any) {
		if err := w.Set(key, v); err != nil {
			b.t.Fatal(err)
		}
	}
	set("general.architecture", architecture)
	for key, v := range more {
		set(key, v)
	}
	if _, ok := more[architecture+".expert_count"]; ok {
		for layer := range 2 {
			for _, part := range []string{"up", "gate", "down"} {
				name := fmt.Sprintf("blk.%d.ffn_%s_exps.weight", layer, part)
				if err := w.Add(name, gguf.F32, []uint64{8, 8, 128}, make([]byte, 4*8*8*128)); err != nil {
					b.t.Fatal(err)
				}
			}
		}
	}
	if err := w.WriteFile(b.file(name, "")); err != nil {
		b.t.Fatal(err)
	}
}

// models returns a folder with one model of each kind, for the boxes of a test.
func models(t *testing.T) string {
	t.Helper()
	b := &box{t: t, dir: t.TempDir()}
	b.models()
	return filepath.Join(b.dir, "m")
}

// models writes one model of each kind.
func (b *box) models() {
	b.t.Helper()
	h32 := values{"onebit.hadamard_q4_0": uint32(32)}
	b.gguf("m/plain.gguf", "qwen3", nil)
	b.gguf("m/moe.gguf", "qwen3moe", values{"qwen3moe.expert_count": uint32(128)})
	b.gguf("m/h32.gguf", "qwen3", h32)
	b.gguf("m/h32-moe.gguf", "qwen3moe", values{"onebit.hadamard_q4_0": int64(32), "qwen3moe.expert_count": uint32(128)})
	b.gguf("m/h64.gguf", "qwen3", values{"onebit.hadamard_q4_0": uint32(64)})
	b.gguf("m/prism.gguf", "qwen3", values{"prism.hadamard.version": uint8(1), "general.file_type": uint32(128)})
	for _, n := range []uint32{128, 129, 141, 142, 143} {
		b.gguf(fmt.Sprintf("m/type%d.gguf", n), "qwen3", values{"general.file_type": n})
	}
	b.gguf("m/ternary.gguf", "qwen3", values{"onebit.ternary_q4_0": uint32(128)})
	b.gguf("m/delta.gguf", "qwen35", nil)
	for _, a := range []string{"zaya", "opt", "codegen", "gptneo", "gptj", "kimi-k3", "mamba"} {
		b.gguf("m/"+a+".gguf", a, nil)
	}
	b.gguf("m/flash-next.gguf", "qwen4exp", values{"qwen4exp.expert_count": uint32(512)})
	b.gguf("m/mtp.gguf", "qwen3", nil)
	b.gguf("m/mtp-cut.gguf", "qwen4exp", values{"onebit.draft_vocab": uint32(65536)})
	b.gguf("m/dflash8.gguf", "dflash", values{"dflash.block_size": uint32(8)})
	b.gguf("m/dflash.gguf", "dflash", nil)
	b.gguf("m/mmproj.gguf", "clip", nil)
	b.gguf("m/embed.gguf", "qwen3", nil)
	b.gguf("m/rerank.gguf", "qwen3", nil)
	b.gguf("m/minilm.gguf", "bert", nil)
	b.gguf("m/jina.gguf", "jina-bert-v2", nil)
	b.gguf("m/unnamed", "qwen3", nil)
	b.file("m/empty.gguf", "")
	b.file("m/damaged.gguf", "GGUF\x03\x00\x00\x00\xff\xff\xff\xff")
	b.file("m/star.gguf", "1BP\x00\x01")
	b.file("m/star.1bp", "1BP\x00\x01")
	b.file("m/notes.txt", "hello")
	b.file("m/npu/model.q4nx", "")
	b.file("m/npu/config.json", `{"model_type":"qwen3"}`)
	b.file("m/npu35/model.q4nx", "")
	b.file("m/npu35/config.json", `{"model_type":"qwen3_5_moe"}`)
	b.file("m/onnx/genai_config.json", "{}")
	b.file("m/hf/config.json", `{"model_type":"qwen3"}`)
	b.file("m/hf/model.safetensors", "")
	b.file("m/folder/a.gguf", "")
	b.file("m/long.json", `{"recipes":[{"id":"long","args":["--ubatch-size","1024","--gpu-layers","7","-tb","8"],"env":{"A":"1","B":"2"},"measured":"1 -> 2"}]}`)
	b.file("m/bad.json", `{"recipes":[{"id":"x","args":["-tb","8"]}]}`)
	b.file("m/addon", "qwen3_5_moe")
	b.file("m/tool", "")
}

// dump writes a plan as text, with the box's folder as DIR.
func (b *box) dump(p *backend.Plan, err error) string {
	var s strings.Builder
	if err != nil {
		fmt.Fprintf(&s, "1bit serve: %v\n", err)
	} else {
		mode := map[backend.Mode]string{backend.Single: "single", backend.Adaptive: "adaptive", backend.Long: "long", backend.Classified: "classified"}[p.Mode]
		fmt.Fprintf(&s, "name    %s\ndevice  %s\nwhy     %s\nmode    %s\n", p.Name, p.Shown(), p.Why, mode)
		for _, c := range p.Children() {
			dumpChild(&s, c)
		}
		for _, l := range []struct {
			name  string
			lines []string
		}{{"recipe", p.Recipes}, {"note", p.Notes}, {"warning", p.Warnings}} {
			for _, line := range l.lines {
				fmt.Fprintf(&s, "%s: %s\n", l.name, line)
			}
		}
	}
	return strings.ReplaceAll(s.String(), b.dir, "DIR")
}

func dumpChild(s *strings.Builder, c backend.ChildSpec) {
	command := c.Command(4242)
	fmt.Fprintf(s, "\n%s (%s): %s\n  %s\n", c.Label(), c.Name, command.Path, strings.Join(command.Args, " "))
	for _, kv := range command.Env {
		fmt.Fprintf(s, "  %s\n", kv)
	}
	model := map[backend.ModelField]string{backend.KeepModel: "kept", backend.DropModel: "dropped", backend.RenameModel: "set to " + c.ModelID}[c.ModelField]
	dialect := map[backend.Dialect]string{backend.Llama: "llama", backend.NPU: "npu"}[c.Dialect]
	fmt.Fprintf(s, "  ready %s; slots %d; model %s; dialect %s", c.Ready, c.Slots, model, dialect)
	if c.OpenThink {
		s.WriteString(", opens think")
	}
	s.WriteString("; proof " + map[backend.Proof]string{backend.Token: "a token", backend.Vector: "an embedding", backend.Score: "a score", backend.Word: "its word"}[c.Proof()])
	if c.Parts() {
		s.WriteString("; whole answers from streams")
	}
	s.WriteString("\n")
}
