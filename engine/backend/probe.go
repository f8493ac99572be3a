package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"onebit/engine"
	"onebit/engine/gguf"
)

// Kind is what a model is on disk.
type Kind int

// The kinds.
const (
	GGUF      Kind = iota + 1 // a file for llama-server and its like
	Container                 // a 1BP file, for ds4
	Q4NX                      // a directory for an NPU server
	GenAI                     // a directory of ONNX Runtime GenAI
	Hub                       // an id of Hugging Face, not on disk
)

// Model is what can be told of a model without loading it. Values that a file lacks, or that cannot be read because it
// is damaged, are zero.
type Model struct {
	Path         string
	Kind         Kind
	Architecture string // general.architecture; of a Q4NX directory the model_type of its config.json
	Experts      bool   // it is a mixture of experts
	Hadamard     bool   // onebit.hadamard_q4_0 = 32: weights rotated for W4A4
	Prism        bool   // prism.hadamard.version > 0
	FileType     int64  // general.file_type
	Ternary      bool   // onebit.ternary_q4_0 = 128
	DraftVocab   int64  // onebit.draft_vocab: a draft head cut down to so many tokens
	BlockSize    int64  // tokens that a block drafter makes at once
}

// Probe looks at a model. The errors say what is accepted; damage inside of a file is none, since the program that loads
// it says better what is wrong.
func Probe(path string, wish engine.Device) (Model, error) {
	if wish == engine.MLX {
		return Model{Path: path, Kind: Hub}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return Model{}, fmt.Errorf("the model %q cannot be read: %w", path, reason(err))
	}
	if info.IsDir() {
		return probeDirectory(path)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its other end
		return Model{}, fmt.Errorf("the model %q is not a regular file", path)
	}
	magic, err := first4(path)
	switch {
	case err != nil:
		return Model{}, fmt.Errorf("the model %q cannot be read: %w", path, reason(err))
	case magic == "1BP\x00":
		return Model{Path: path, Kind: Container}, nil
	case magic == "GGUF" || strings.HasSuffix(path, ".gguf"):
		return probeGGUF(path), nil
	}
	return Model{}, fmt.Errorf("the model %q is none that is served: a .gguf file, a 1BP container, a directory with model.q4nx or genai_config.json, or with --device mlx an id of Hugging Face", path)
}

func probeDirectory(path string) (Model, error) {
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(path, name))
		return err == nil
	}
	switch {
	case has("genai_config.json"):
		return Model{Path: path, Kind: GenAI}, nil
	case has("model.q4nx"):
		return Model{Path: path, Kind: Q4NX, Architecture: modelType(path)}, nil
	}
	remedy := "name the .gguf file in it"
	if has("config.json") {
		remedy = "make a GGUF file of it with `1bit model import`"
	}
	return Model{}, fmt.Errorf("the model %q is a directory without model.q4nx (npu) and without genai_config.json (onnx); %s", path, remedy)
}

// modelType reads the one value of a config.json that matters here.
func modelType(dir string) string {
	f, err := os.Open(filepath.Join(dir, "config.json"))
	if err != nil {
		return ""
	}
	defer f.Close()
	var c struct {
		ModelType string `json:"model_type"`
	}
	if json.NewDecoder(io.LimitReader(f, 1<<20)).Decode(&c) != nil {
		return ""
	}
	return c.ModelType
}

func probeGGUF(path string) Model {
	m := Model{Path: path, Kind: GGUF}
	f, err := gguf.Open(path)
	if err != nil {
		return m
	}
	defer func() { _ = f.Close() }() // it was only read
	number := func(key string) int64 {
		n, _ := f.Int(key)
		return n
	}
	m.Architecture = f.Architecture()
	m.Experts = number(m.Architecture+".expert_count") > 0
	m.Hadamard = number("onebit.hadamard_q4_0") == 32
	m.Prism = number("prism.hadamard.version") > 0
	m.FileType = number("general.file_type")
	m.Ternary = number("onebit.ternary_q4_0") == 128
	m.DraftVocab = number("onebit.draft_vocab")
	m.BlockSize = number(m.Architecture + ".block_size")
	return m
}

// compact reports whether a file is of one of the formats that hrx alone has kernels for.
func (m Model) compact() bool {
	return !m.Prism && slices.Contains([]int64{128, 129, 141, 142, 143}, m.FileType)
}

// deltaNet reports whether the architecture keeps a recurrent state that hrx cannot hold for several sequences.
func (m Model) deltaNet() bool {
	return slices.Contains([]string{"qwen35", "qwen35moe", "qwen3next"}, m.Architecture)
}

// forkOnly reports whether the architecture is one that the llama-server of the hrx build alone has.
func (m Model) forkOnly() bool {
	return slices.Contains([]string{"zaya", "opt", "codegen", "gptneo", "gptj"}, m.Architecture)
}

// beyondHRX reports whether the architecture is one that the llama-server of the hrx build lacks.
func (m Model) beyondHRX() bool {
	return slices.Contains([]string{
		"bailingmoe3", "blackmamba", "dots3note", "granite_swa", "graniteswitch", "hrm_text", "hy_v4", "kimi-k3", "maple",
		"minimax-01", "muse-glimmer", "pockettts", "qwen3tts", "qwen4exp", "spark2_5", "zamba", "zamba2",
	}, m.Architecture)
}

// reason takes the path out of a file error, where it would be said twice.
func reason(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// first4 returns the first four bytes of a file, fewer when there are no more.
func first4(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var b [4]byte
	n, err := io.ReadFull(f, b[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	return string(b[:n]), nil
}
