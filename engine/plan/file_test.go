package plan_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"onebit/engine/gguf"
)

// must ends the test when something that a test needs goes wrong.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tensor is a tensor of a made file. Its data are zeros that take no room.
type tensor struct {
	name  string
	typ   gguf.Type
	shape []uint64
}

func (x tensor) size() uint64 {
	elems, bytes, _ := x.typ.Block()
	n := uint64(1)
	for _, e := range x.shape {
		n *= e
	}
	return n / uint64(elems) * uint64(bytes)
}

// zeros are written in place of data.
var zeros = make([]byte, 16<<20)

// writer returns a file of metadata and tensors. Integers of metadata become uint32.
func writer(t testing.TB, keys [][2]any, tensors []tensor) *gguf.Writer {
	t.Helper()
	w := gguf.NewWriter()
	for _, k := range keys {
		if n, ok := k[1].(int); ok {
			k[1] = uint32(n)
		}
		must(t, w.Set(k[0].(string), k[1]))
	}
	for _, x := range tensors {
		must(t, w.AddFunc(x.name, x.typ, x.shape, func(out io.Writer) error {
			for left := x.size(); left > 0; {
				n, err := out.Write(zeros[:min(left, uint64(len(zeros)))])
				if err != nil {
					return err
				}
				left -= uint64(n)
			}
			return nil
		}))
	}
	return w
}

// sparse is a file that skips what is written in large pieces, so that gigabytes of zeros take no room on the disk.
type sparse struct {
	f  *os.File
	at int64
}

func (s *sparse) Write(b []byte) (int, error) {
	if len(b) < 1<<20 {
		if _, err := s.f.WriteAt(b, s.at); err != nil {
			return 0, err
		}
	}
	s.at += int64(len(b))
	return len(b), nil
}

// write writes a file into a folder and returns its path.
func write(t testing.TB, path string, keys [][2]any, tensors []tensor) string {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	s := &sparse{f: f}
	_, err = writer(t, keys, tensors).WriteTo(s)
	must(t, err)
	must(t, f.Truncate(s.at))
	must(t, f.Close())
	return path
}

// shards writes a model as several files and returns the path of the last one.
func shards(t testing.TB, name string, keys [][2]any, parts ...[]tensor) string {
	t.Helper()
	dir, path, total := t.TempDir(), "", 0
	for _, p := range parts {
		total += len(p)
	}
	for i, p := range parts {
		k := [][2]any{{"split.no", i}, {"split.count", len(parts)}, {"split.tensors.count", total}}
		if i == 0 {
			k = append(k, keys...)
		}
		path = write(t, filepath.Join(dir, fmt.Sprintf("%s-%05d-of-%05d.gguf", name, i+1, len(parts))), k, p)
	}
	return path
}

// parsed returns a small file as it is read from memory.
func parsed(t testing.TB, keys [][2]any, tensors []tensor) *gguf.File {
	t.Helper()
	var b bytes.Buffer
	_, err := writer(t, keys, tensors).WriteTo(&b)
	must(t, err)
	f, err := gguf.Parse(b.Bytes())
	must(t, err)
	return f
}

// arch returns metadata: general.architecture and the architecture's own keys.
func arch(name string, keys ...any) [][2]any {
	out := [][2]any{{"general.architecture", name}}
	for i := 0; i < len(keys); i += 2 {
		out = append(out, [2]any{name + "." + keys[i].(string), keys[i+1]})
	}
	return out
}

// mixture returns the experts of one layer, each of ff by width by three matrices of the given types.
func mixture(layer, experts, width, ff int, gate, up, down gguf.Type) []tensor {
	name := func(part string) string { return fmt.Sprintf("blk.%d.ffn_%s_exps.weight", layer, part) }
	in, out := []uint64{uint64(width), uint64(ff), uint64(experts)}, []uint64{uint64(ff), uint64(width), uint64(experts)}
	return []tensor{{name("gate"), gate, in}, {name("up"), up, in}, {name("down"), down, out}}
}

// flashNext makes a model as large as Qwen3.8-Flash-Next UD-Q4_K_XL, in three files: 48 layers of 512 experts that take
// 71.7 GiB, 26.8 GiB of per-layer embeddings, and 5.1 GiB of other tensors.
func flashNext(t testing.TB) string {
	t.Helper()
	keys := append(arch("qwen4exp",
		"block_count", 48, "context_length", 262144, "embedding_length", 2048, "attention.head_count", 16,
		"attention.head_count_kv", 2, "attention.key_length", 256, "attention.value_length", 256,
		"attention.indexer.key_length", 128, "full_attention_interval", 4,
		"ssm.conv_kernel", 4, "ssm.inner_size", 4096, "ssm.state_size", 128, "ssm.group_count", 16),
		[2]any{"general.name", "Qwen3.8 Flash Next"})
	parts := [][]tensor{{
		{"token_embd.weight", gguf.Q8_0, []uint64{2048, 248320}},
		{"output.weight", gguf.Q8_0, []uint64{2048, 248320}},
		{"blk.0.attn_qkv.weight", gguf.Q8_0, []uint64{2048, 2020000}},
	}, {
		{"per_layer_token_embd.weight", gguf.Q8_0, []uint64{4096, 6612000}},
	}, nil}
	for i := range 48 {
		gate := gguf.Q4_K
		if i < 9 {
			gate = gguf.Q5_K
		}
		parts[1+i/24] = append(parts[1+i/24], mixture(i, 512, 2048, 768, gate, gate, gguf.Q6_K)...)
	}
	return shards(t, "flash-next", keys, parts...)
}

// coder makes a model as large as Qwen3-Coder-30B-A3B-Instruct-Q4_K_M: 48 layers of 128 experts.
func coder(t testing.TB) string {
	t.Helper()
	keys := append(arch("qwen3moe",
		"block_count", 48, "context_length", 262144, "embedding_length", 2048, "attention.head_count", 32,
		"attention.head_count_kv", 4, "attention.key_length", 128, "attention.value_length", 128,
		"expert_count", 128), [2]any{"general.name", "Qwen3 Coder 30B A3B Instruct"})
	tensors := []tensor{
		{"token_embd.weight", gguf.Q4_K, []uint64{2048, 151936}},
		{"output.weight", gguf.Q6_K, []uint64{2048, 151936}},
		{"blk.0.attn_q.weight", gguf.Q4_K, []uint64{2048, 439000}},
	}
	for i := range 48 {
		down := gguf.Q4_K
		if i%2 == 0 {
			down = gguf.Q6_K
		}
		tensors = append(tensors, mixture(i, 128, 2048, 768, gguf.Q4_K, gguf.Q4_K, down)...)
	}
	return write(t, filepath.Join(t.TempDir(), "coder.gguf"), keys, tensors)
}
