//go:build unix

package e2e_test

import (
	bits "encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// ranker makes the weights of a BERT cross-encoder by hand. Its score is the number of content words that stand in both
// the query and the document, in one layer: each word is a dimension of its own; attention with equal weights counts the
// words of the pair; the feed-forward step tells what was counted twice from what was counted once, and adds up.
// The norm after the attention divides by the root of the sum of the counts' squares; that sum must be 10 to 32.
type ranker struct {
	words []string // the vocabulary, special tokens first
	width int
}

var specials = []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}

// newRanker knows the words of a text.
func newRanker(text string) ranker {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) })
	slices.Sort(words)
	r := ranker{words: append(slices.Clone(specials), slices.Compact(words)...)}
	r.width = (len(r.words) + 1 + 31) / 32 * 32 // one more than words: the last dimension adds up
	return r
}

// content tells the words that count: not the short ones and not the special tokens.
func (r ranker) content(i int) bool {
	return i >= len(specials) && i < len(r.words) && len(r.words[i]) > 3
}

// weights are a matrix by its rule, or a vector when it has no columns.
type weights struct {
	name       string
	rows, cols int
	at         func(row, col int) float64
}

func (r ranker) weights() []weights {
	w, last := r.width, r.width-1
	zero := func(int, int) float64 { return 0 }
	one := func(int, int) float64 { return 1 }
	same := func(row, col int) float64 {
		if row == col {
			return 1
		}
		return 0
	}
	// the norm of the embeddings turns a word into √(w-1) in its dimension and -1/√(w-1) in the others
	counted := func(row, col int) float64 {
		if row == col && r.content(row) {
			return 100
		}
		return 0
	}
	level := func(row, _ int) float64 {
		if r.content(row) {
			return 100 / math.Sqrt(float64(w-1))
		}
		return 0
	}
	// a step from 0 to 1 for each word at a third of the norm: what was counted once stays below, twice is above
	up := func(row, col int) float64 { return 4 * same(row%w, col) }
	threshold := func(row, _ int) float64 { return -4*0.33*math.Sqrt(float64(w)) - float64(row/w) }
	sum := func(row, col int) float64 {
		switch {
		case row != last || !r.content(col%w):
			return 0
		case col < w:
			return 4
		}
		return -4
	}
	lastOnly := func(scale float64) func(int, int) float64 {
		return func(row, col int) float64 {
			if col == last && (row == last || row == 0) {
				return scale
			}
			return 0
		}
	}
	list := []weights{
		{"embeddings.word_embeddings.weight", len(r.words), w, same},
		{"embeddings.position_embeddings.weight", 512, w, zero},
		{"embeddings.token_type_embeddings.weight", 2, w, zero},
		{"classifier.weight", 1, w, lastOnly(8)},
		{"classifier.bias", 1, 0, zero},
	}
	both := func(name string, rows, cols int, matrix, bias func(int, int) float64) {
		list = append(list, weights{name + ".weight", rows, cols, matrix}, weights{name + ".bias", rows, 0, bias})
	}
	const layer = "encoder.layer.0."
	both("embeddings.LayerNorm", w, 0, one, zero)
	both(layer+"attention.self.query", w, w, zero, zero)
	both(layer+"attention.self.key", w, w, zero, zero)
	both(layer+"attention.self.value", w, w, counted, level)
	both(layer+"attention.output.dense", w, w, same, zero)
	both(layer+"attention.output.LayerNorm", w, 0, one, zero)
	both(layer+"intermediate.dense", 2*w, w, up, threshold)
	both(layer+"output.dense", w, 2*w, sum, zero)
	both(layer+"output.LayerNorm", w, 0, one, zero)
	both("pooler.dense", w, w, lastOnly(0.1), zero)
	return list
}

// publish writes the model as its makers would publish it, and imports it.
func (r ranker) publish(t *testing.T) (gguf string) {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	object := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	header, data := obj{}, []byte(nil)
	for _, m := range r.weights() {
		name, shape, begin := m.name, []int{m.rows, m.cols}, len(data)
		if !strings.HasPrefix(name, "classifier") {
			name = "bert." + name
		}
		if m.cols == 0 {
			shape = shape[:1]
		}
		for row := range m.rows {
			for col := range max(1, m.cols) {
				data = bits.LittleEndian.AppendUint32(data, math.Float32bits(float32(m.at(row, col))))
			}
		}
		header[name] = obj{"dtype": "F32", "shape": shape, "data_offsets": []int{begin, len(data)}}
	}
	head := object(header)
	file("model.safetensors", slices.Concat(bits.LittleEndian.AppendUint64(nil, uint64(len(head))), head, data))
	file("vocab.txt", []byte(strings.Join(r.words, "\n")+"\n"))
	file("tokenizer_config.json", object(obj{"do_lower_case": true, "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}))
	file("config.json", object(obj{
		"model_type": "bert", "architectures": []string{"BertForSequenceClassification"}, "num_hidden_layers": 1, "hidden_size": r.width,
		"intermediate_size": 2 * r.width, "num_attention_heads": 1, "max_position_embeddings": 512, "layer_norm_eps": 1e-12,
		"type_vocab_size": 2, "hidden_act": "gelu", "vocab_size": len(r.words),
	}))
	gguf = filepath.Join(dir, "ranker.gguf")
	importModel(t, dir, gguf, "F32")
	return gguf
}
