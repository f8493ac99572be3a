package plan_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/gguf"
	"onebit/engine/plan"
)

var update = flag.Bool("update", false, "write the files under testdata anew")

// unknownType is a file with one tensor of a type that no one here knows.
func unknownType(t testing.TB) []byte {
	t.Helper()
	const name = "blk.0.ffn_up_exps.weight"
	var b bytes.Buffer
	_, err := writer(t, arch("llama", "block_count", 1, "context_length", 512), []tensor{{name, gguf.F32, []uint64{8, 8, 2}}}).WriteTo(&b)
	must(t, err)
	at := bytes.Index(b.Bytes(), []byte(name)) + len(name) + 4 + 3*8
	binary.LittleEndian.PutUint32(b.Bytes()[at:], 99)
	return b.Bytes()
}

// models are metadata of real models, with what a llama-server of build 11434 logged as its cache for some of them.
var models = map[string][][2]any{
	"gemma3": arch("gemma3", "context_length", 32768, "embedding_length", 640, "block_count", 18, "attention.head_count", 4,
		"attention.key_length", 256, "attention.value_length", 256, "attention.sliding_window", 512, "attention.head_count_kv", 1),
	"qwen2": arch("qwen2", "block_count", 24, "context_length", 32768, "embedding_length", 896, "attention.head_count", 14,
		"attention.head_count_kv", 2),
	"llama": arch("llama", "block_count", 30, "context_length", 8192, "embedding_length", 576, "attention.head_count", 9,
		"attention.head_count_kv", 3),
	"qwen3next": arch("qwen3next", "block_count", 48, "context_length", 262144, "embedding_length", 2048, "attention.head_count", 16,
		"attention.head_count_kv", 2, "attention.key_length", 256, "attention.value_length", 256,
		"ssm.conv_kernel", 4, "ssm.inner_size", 4096, "ssm.state_size", 128, "ssm.group_count", 16, "ssm.time_step_rank", 32),
	"deepseek2": arch("deepseek2", "block_count", 27, "context_length", 163840, "embedding_length", 2048, "attention.head_count", 16,
		"attention.head_count_kv", 1, "attention.kv_lora_rank", 512, "attention.key_length", 576, "attention.value_length", 512,
		"attention.key_length_mla", 192, "attention.value_length_mla", 128),
	"gpt-oss": arch("gpt-oss", "block_count", 24, "context_length", 131072, "embedding_length", 2880, "attention.head_count", 64,
		"attention.head_count_kv", 8, "attention.key_length", 64, "attention.value_length", 64, "attention.sliding_window", 128),
	"gemma4": arch("gemma4", "block_count", 4, "context_length", 131072, "embedding_length", 2048, "attention.head_count", 8,
		"attention.head_count_kv", []uint32{1, 1, 2, 2}, "attention.key_length", 512, "attention.value_length", 512,
		"attention.key_length_swa", 256, "attention.value_length_swa", 256, "attention.sliding_window", 512,
		"attention.sliding_window_pattern", []bool{true, false, true, false}, "attention.shared_kv_layers", 2),
	"mamba": arch("mamba", "block_count", 2, "context_length", 1<<20, "embedding_length", 768, "attention.head_count", 0,
		"ssm.conv_kernel", 4, "ssm.inner_size", 1536, "ssm.state_size", 16),
	"rwkv7": arch("rwkv7", "block_count", 2, "context_length", 1<<20, "embedding_length", 768, "wkv.head_size", 64),
	"lfm2": arch("lfm2", "block_count", 3, "context_length", 128000, "embedding_length", 1024, "attention.head_count", 16,
		"attention.head_count_kv", []uint32{0, 8, 0}, "shortconv.l_cache", 3),
	"falcon-h1": arch("falcon-h1", "block_count", 2, "context_length", 16384, "embedding_length", 1024, "attention.head_count", 8,
		"attention.head_count_kv", 2, "attention.key_length", 64, "attention.value_length", 64,
		"ssm.conv_kernel", 4, "ssm.inner_size", 1536, "ssm.state_size", 128, "ssm.group_count", 1),
	"nemotron_h": arch("nemotron_h", "block_count", 3, "context_length", 8192, "embedding_length", 1024, "attention.head_count", 8,
		"attention.head_count_kv", []uint32{0, 2, 0}, "feed_forward_length", []uint32{0, 0, 4096},
		"ssm.conv_kernel", 4, "ssm.inner_size", 1024, "ssm.state_size", 128, "ssm.group_count", 8),
	"kimi-linear": arch("kimi-linear", "block_count", 2, "context_length", 8192, "embedding_length", 2304, "attention.head_count", 32,
		"attention.head_count_kv", []uint32{0, 1}, "attention.key_length", 576, "attention.value_length", 512,
		"attention.key_length_mla", 192, "attention.value_length_mla", 128, "kda.head_dim", 128, "ssm.conv_kernel", 4),
	"bert": arch("bert", "block_count", 6, "context_length", 512, "embedding_length", 384, "attention.head_count", 12),
	"mtp": arch("qwen35", "block_count", 9, "nextn_predict_layers", 1, "context_length", 4096, "embedding_length", 1024, "attention.head_count", 8,
		"attention.head_count_kv", 2, "attention.key_length", 128, "attention.value_length", 128,
		"ssm.conv_kernel", 4, "ssm.inner_size", 2048, "ssm.state_size", 128, "ssm.group_count", 8),
	"listed": arch("minimax-01", "block_count", 2, "context_length", 4096, "embedding_length", 1024, "attention.head_count", 8,
		"attention.head_count_kv", 2, "attention.key_length", 128, "attention.value_length", 128, "attention.recurrent_layers", []bool{true, false}),
	"indexed": arch("qwen4exp", "block_count", 4, "context_length", 4096, "embedding_length", 1024, "attention.head_count", 8,
		"attention.head_count_kv", 2, "attention.key_length", 128, "attention.value_length", 128, "attention.indexer.key_length", 64,
		"ssm.conv_kernel", 4, "ssm.inner_size", 2048, "ssm.state_size", 128, "ssm.group_count", 8),
}

func TestCache(t *testing.T) {
	const kib, mib = 1 << 10, 1 << 20
	delta := uint64(4 * (3*(2048+2*8*128) + 2048*128)) // state of a layer of the two small gated delta nets
	for _, c := range []struct {
		name              string
		context, parallel int
		want              plan.Cache
	}{
		// as a llama-server of build 11434 logged
		{"gemma3", 8192, 3, plan.Cache{Full: 24.75 * mib, Window: 45 * mib, PerToken: 3 * kib}},
		{"gemma3", 8192, 0, plan.Cache{Full: 24 * mib, Window: 37.5 * mib, PerToken: 3 * kib}},
		{"qwen2", 8192, 3, plan.Cache{Full: 99 * mib, PerToken: 12 * kib}},
		{"llama", 8192, 3, plan.Cache{Full: 185.625 * mib, PerToken: 22.5 * kib}},
		// by the extents
		{"llama", 0, 1, plan.Cache{Full: 180 * mib, PerToken: 22.5 * kib}},
		{"llama", 1, 1, plan.Cache{Full: 256 * 22.5 * kib, PerToken: 22.5 * kib}},
		{"gemma3", 256, 1, plan.Cache{Full: 256 * 3 * kib, Window: 256 * 15 * kib, PerToken: 3 * kib}},
		{"qwen3next", 32768, 1, plan.Cache{Full: 768 * mib, State: 75.375 * mib, PerToken: 24 * kib}},
		{"qwen3next", 32768, 0, plan.Cache{Full: 768 * mib, State: 4 * 75.375 * mib, PerToken: 24 * kib}},
		{"deepseek2", 4096, 1, plan.Cache{Full: 27 * 576 * 2 * 4096, PerToken: 27 * 576 * 2}},
		{"gpt-oss", 131072, 1, plan.Cache{Full: 12 * 2 * kib * 131072, Window: 12 * 2 * kib * 768, PerToken: 24 * kib}},
		{"gemma4", 8192, 1, plan.Cache{Full: 1 * 1024 * 2 * 8192, Window: 1 * 512 * 2 * 1024, PerToken: 2 * kib}},
		{"mamba", 4096, 2, plan.Cache{State: 2 * 2 * 4 * (3*1536 + 16*1536)}},
		{"rwkv7", 4096, 1, plan.Cache{State: 2 * 4 * (2*768 + 768*64)}},
		{"lfm2", 4096, 1, plan.Cache{Full: 2 * 8 * 64 * 2 * 4096, State: 2 * 4 * 1024 * 2, PerToken: 2 * kib}},
		{"falcon-h1", 4096, 1, plan.Cache{Full: 2 * 2 * 128 * 2 * 4096, State: 2 * 4 * (3*(1536+256) + 1536*128), PerToken: kib}},
		{"nemotron_h", 4096, 1, plan.Cache{Full: 2 * 2 * 128 * 2 * 4096, State: 4 * (3*(1024+2*8*128) + 1024*128), PerToken: kib}},
		{"kimi-linear", 4096, 1, plan.Cache{Full: 576 * 2 * 4096, State: 4 * (3*3*32*128 + 128*128*32), PerToken: 576 * 2}},
		{"bert", 512, 4, plan.Cache{}},
		{"mtp", 4096, 1, plan.Cache{Full: 2 * kib * 4096, State: 6 * delta, PerToken: 2 * kib}},
		{"listed", 4096, 1, plan.Cache{Full: kib * 4096, State: 4 * 128 * 128 * 8, PerToken: kib}},
		{"indexed", 4096, 1, plan.Cache{Full: (kib + 256) * 4096, State: 3 * delta, PerToken: kib + 256}},
	} {
		t.Run(fmt.Sprintf("%s-%d-%d", c.name, c.context, c.parallel), func(t *testing.T) {
			p, err := plan.New(parsed(t, models[c.name], nil), plan.Options{Context: c.context, Parallel: c.parallel})
			must(t, err)
			if diff := cmp.Diff(c.want, p.Cache); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// with returns metadata with some keys replaced or added.
func with(name string, keys ...any) [][2]any {
	out := append([][2]any{}, models[name]...)
	for i := 0; i < len(keys); i += 2 {
		out = append(out, [2]any{keys[i], keys[i+1]})
	}
	return out
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		keys [][2]any
		o    plan.Options
		want string
	}{
		{"no-architecture", nil, plan.Options{}, "general.architecture"},
		{"no-layers", arch("llama"), plan.Options{}, "llama.block_count is 0"},
		{"too-many-layers", with("llama", "llama.block_count", 1<<30), plan.Options{}, "llama.block_count is"},
		{"no-context", arch("llama", "block_count", 1, "embedding_length", 8, "attention.head_count", 1), plan.Options{}, "give one"},
		{"context-negative", models["llama"], plan.Options{Context: -1}, "context of -1"},
		{"slots-negative", models["llama"], plan.Options{Parallel: -1}, "slots -1"},
		{"short-list", with("lfm2", "lfm2.attention.head_count_kv", []uint32{0, 8}), plan.Options{}, "lfm2.attention.head_count_kv has 2 entries for 3 layers"},
		{"short-pattern", with("gemma3", "gemma3.attention.sliding_window_pattern", []bool{true}), plan.Options{}, "sliding_window_pattern has 1 entries"},
		{"negative-heads", with("lfm2", "lfm2.attention.head_count_kv", []int32{0, -8, 0}), plan.Options{}, "head_count_kv[1] is -8"},
		{"huge-head", with("llama", "llama.attention.key_length", uint64(1)<<60), plan.Options{}, "llama.attention.key_length is"},
		{"interval-0", with("qwen3next", "qwen3next.full_attention_interval", 0), plan.Options{}, "full_attention_interval is 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := plan.New(parsed(t, c.keys, nil), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestWeights(t *testing.T) {
	f := parsed(t, models["llama"], []tensor{
		{"token_embd.weight", gguf.F32, []uint64{2}},
		{"output.weight", gguf.F32, []uint64{3}},
		{"blk.0.attn_q.weight", gguf.F32, []uint64{5}},
		{"blk.0.ffn_up_exps.weight", gguf.F32, []uint64{1, 1, 7}},
		{"blk.0.ffn_up_exps.bias", gguf.F32, []uint64{11}},
		{"per_layer_token_embd.weight", gguf.F32, []uint64{13}},
		{"per_layer_model_proj.weight", gguf.F32, []uint64{17}},
	})
	p, err := plan.New(f, plan.Options{Parallel: 1})
	must(t, err)
	want := plan.Weights{Dense: 4 * (3 + 5 + 17), Experts: 4 * (7 + 11), Embeddings: 4 * 2, PerLayer: 4 * 13}
	if diff := cmp.Diff(want, p.Weights); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if p.Resident() != 4*58+p.Cache.Total() || p.Mapped() != 4*45+p.Cache.Total() {
		t.Errorf("resident %d, mapped %d, cache %d", p.Resident(), p.Mapped(), p.Cache.Total())
	}
}

// TestPrint compares the tables with committed ones.
func TestPrint(t *testing.T) {
	given, err := plan.Given(40.3)
	must(t, err)
	for _, c := range []struct {
		name  string
		path  string
		o     plan.Options
		pools []plan.Pool
	}{
		{"flash-next", flashNext(t), plan.Options{Context: 65536}, append(plan.Boxes(), given)},
		{"coder", coder(t), plan.Options{Parallel: 8}, plan.Boxes()},
		{"gemma3", write(t, filepath.Join(t.TempDir(), "gemma.gguf"), models["gemma3"],
			[]tensor{{"token_embd.weight", gguf.Q8_0, []uint64{640, 262144}}}), plan.Options{Context: 8192, Parallel: 3}, plan.Boxes()[:1]},
		{"rwkv7", write(t, filepath.Join(t.TempDir(), "rwkv.gguf"), models["rwkv7"], nil), plan.Options{Parallel: 1}, plan.Boxes()[:1]},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := plan.Open(c.path, c.o)
			must(t, err)
			var b bytes.Buffer
			must(t, plan.Print(&b, p, c.pools))
			golden := filepath.Join("testdata", c.name+".golden")
			if *update {
				must(t, os.MkdirAll("testdata", 0o777))
				must(t, os.WriteFile(golden, b.Bytes(), 0o666))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for line := range strings.Lines(b.String()) {
				if strings.TrimRight(line, " \n") != strings.TrimSuffix(line, "\n") {
					t.Errorf("a line ends in blanks: %q", line)
				}
			}
		})
	}
}

// The page's claims about Flash-Next: all of it does not fit in 128 GB, with its table in the file it does.
func TestFlashNextFits(t *testing.T) {
	p, err := plan.Open(flashNext(t), plan.Options{Context: 8192})
	must(t, err)
	f := p.Fit(plan.Boxes()[2])
	if f.Whole || !f.Mapped {
		t.Errorf("in a 128 GB box: %+v", f)
	}
}

func TestLargestContext(t *testing.T) {
	f := parsed(t, models["qwen2"], nil) // 12 KiB a token
	p, err := plan.New(f, plan.Options{Parallel: 1})
	must(t, err)
	for _, c := range []struct {
		usable uint64
		want   int
	}{
		{0, 0},
		{256*12<<10 - 1, 0},
		{256 * 12 << 10, 256},
		{20000 * 12 << 10, 19968},
		{40000 * 12 << 10, 32768},
	} {
		if got := p.Fit(plan.Pool{Available: c.usable + 8*plan.GiB}); got.Context != c.want || got.Usable != c.usable {
			t.Errorf("with %d bytes usable: %+v, want a context of %d", c.usable, got, c.want)
		}
	}
}

func TestGiven(t *testing.T) {
	p, err := plan.Given(1.5)
	if err != nil || p.Available != 3*plan.GiB/2 || p.Name != "1.5 GiB free" {
		t.Errorf("%+v, error %v", p, err)
	}
	zero := 0.0
	for _, bad := range []float64{0, -1, 1e300, zero / zero} {
		if _, err := plan.Given(bad); err == nil {
			t.Errorf("%v GiB were taken", bad)
		}
	}
}

// A hostile file's text does not reach the terminal's controls.
func TestPrintIsTame(t *testing.T) {
	p, err := plan.New(parsed(t, with("llama", "general.name", "a\x1b[2Jb\nc\xff\u009bd"), nil), plan.Options{Parallel: 1})
	must(t, err)
	var b bytes.Buffer
	must(t, plan.Print(&b, p, []plan.Pool{{Name: "x\ty"}}))
	if first, _, _ := strings.Cut(b.String(), "\n"); first != "a[2Jbcd (llama)" {
		t.Errorf("the first line is %q", first)
	}
}

// seeds are the committed inputs of FuzzNew.
func seeds(t testing.TB) map[string][]byte {
	all := map[string][]byte{"unknown-type": unknownType(t)}
	for name, keys := range models {
		var b bytes.Buffer
		_, err := writer(t, keys, []tensor{{"blk.0.ffn_up_exps.weight", gguf.F32, []uint64{4, 2, 2}}}).WriteTo(&b)
		must(t, err)
		all[name] = b.Bytes()
	}
	return all
}

func TestSeedsAreCommitted(t *testing.T) {
	for name, b := range seeds(t) {
		path := filepath.Join("testdata", "fuzz", "FuzzNew", name)
		want := fmt.Sprintf("go test fuzz v1\n[]byte(%q)\nint(8192)\nint(3)\n", b)
		if *update {
			must(t, os.MkdirAll(filepath.Dir(path), 0o777))
			must(t, os.WriteFile(path, []byte(want), 0o666))
		}
		if got, err := os.ReadFile(path); string(got) != want {
			t.Errorf("%s differs from what the test makes (error %v)", path, err)
		}
	}
}

// FuzzNew checks that any file is planned or refused, and that what is planned can be printed.
func FuzzNew(f *testing.F) {
	f.Fuzz(func(t *testing.T, b []byte, context, parallel int) {
		file, err := gguf.Parse(b)
		if err != nil {
			return
		}
		p, err := plan.New(file, plan.Options{Context: context, Parallel: parallel})
		if err != nil {
			return
		}
		if p.Mapped() > p.Resident() || p.Resident() < p.Weights.Total() || p.Cache.Total() < p.Cache.Full {
			t.Fatalf("sizes make no sense: %+v", p)
		}
		for _, pool := range append(plan.Boxes(), plan.Pool{}, plan.Pool{Available: 1<<64 - 1}) {
			if fit := p.Fit(pool); fit.Whole && !fit.Mapped || fit.Slots != nil && (fit.Slots.N > fit.Slots.Total || fit.Slots.N <= 0) {
				t.Fatalf("in %+v: %+v", pool, fit)
			}
		}
		must(t, plan.Print(new(bytes.Buffer), p, plan.Boxes()))
	})
}
