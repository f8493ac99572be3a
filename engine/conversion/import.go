package conversion

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
	"onebit/engine/tokenizer"
)

// Import says how a published model becomes a GGUF file.
type Import struct {
	Dir  string // folder with config.json, tokenizer.json or vocab.txt, and safetensors
	Out  string // the GGUF file
	Type string // storage type of the matrices, such as Q8_0; "" keeps the published one
	Pre  string // name of the pre-tokenizer, for those that cannot be told from tokenizer.json
	Log  Log
}

// Write makes the file. It refuses what it would have to guess: an unknown architecture, a tensor without a place, a
// pre-tokenizer without a name, a damaged file.
func (i Import) Write() error {
	if err := distinct(i.Out); err != nil {
		return err
	}
	f, err := openFolder(i.Dir)
	if err != nil {
		return fmt.Errorf("importing %q: %w", i.Dir, err)
	}
	defer leave(f)
	w, tokens, err := i.plan(f)
	if err != nil {
		return fmt.Errorf("importing %q: %w", i.Dir, err)
	}
	return write(w, i.Out, func(made *gguf.File) error {
		t, err := tokenizer.New(made)
		if err != nil {
			return err
		}
		if t.Size() != tokens {
			return fmt.Errorf("the vocabulary has %d tokens instead of %d", t.Size(), tokens)
		}
		i.Log.say("%s: %s, %d tensors, %d tokens", i.Out, made.Architecture(), len(made.Tensors()), tokens)
		return nil
	})
}

// plan returns the file to write and the size of its vocabulary.
func (i Import) plan(f *folder) (*gguf.Writer, int, error) {
	c, err := readConfig(f)
	if err != nil {
		return nil, 0, err
	}
	arch, err := c.arch()
	if err != nil {
		return nil, 0, err
	}
	list, err := i.tensors(f, c, arch)
	if err != nil {
		return nil, 0, err
	}
	rows := rowsOf(list, "token_embd.weight")
	if rows < 1 || rows > maxTokens {
		return nil, 0, fmt.Errorf("an embedding of %d rows", rows)
	}
	w := gguf.NewWriter()
	if err := i.metadata(w, f, c, list); err != nil {
		return nil, 0, err
	}
	v, err := readTokens(f, c, rows, i.Pre)
	if err != nil {
		return nil, 0, err
	}
	if err := setAll(w, v); err != nil {
		return nil, 0, err
	}
	if factors, err := c.ropeFactors(); err != nil {
		return nil, 0, err
	} else if factors != nil {
		raw := make([]byte, 4*len(factors))
		if err := tensor.Quantize(tensor.F32, factors, raw); err != nil {
			return nil, 0, err
		}
		if err := w.Add("rope_freqs.weight", gguf.F32, []uint64{uint64(len(factors))}, raw); err != nil {
			return nil, 0, err
		}
	}
	for _, t := range list {
		if err := w.AddFunc(t.name, t.to, t.shape, t.write); err != nil {
			return nil, 0, err
		}
	}
	return w, rows, nil
}

// metadata sets all keys but those of the vocabulary.
func (i Import) metadata(w *gguf.Writer, f *folder, c *published, list []*imported) error {
	arch, err := c.arch()
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(i.Dir)
	if err != nil {
		return err
	}
	own, err := c.metadata()
	if err != nil {
		return err
	}
	all := append([]pair{
		{"general.architecture", arch}, {"general.type", "model"}, {"general.name", filepath.Base(dir)},
		{"general.quantization_version", uint32(2)},
	}, own...)
	all = append(all, fileType(list)...)
	if arch == "llama" {
		all = append(all, pair{"llama.vocab_size", uint32(rowsOf(list, "token_embd.weight"))})
	}
	pooling, err := readPooling(f, c)
	if err != nil {
		return err
	}
	if pooling != 0 {
		all = append(all, pair{arch + ".pooling_type", pooling})
	} else if arch == "bert" {
		i.Log.say("the folder does not say how embeddings are pooled: whoever serves the model must")
	}
	if n := rowsOf(list, "cls.output.weight"); n > 1 {
		labels := make([]string, n)
		for k := range labels {
			if labels[k] = c.Labels[strconv.Itoa(k)]; labels[k] == "" {
				return fmt.Errorf("config.json: id2label names no class %d of %d", k, n)
			}
		}
		all = append(all, pair{arch + ".classifier.output_labels", labels})
	}
	return setAll(w, all)
}

// fileType returns the number of llama.cpp for the type that most matrices have.
func fileType(list []*imported) []pair {
	count := map[gguf.Type]int{}
	most := gguf.F32
	for _, t := range list {
		if len(t.shape) == 2 {
			if count[t.to]++; count[t.to] > count[most] {
				most = t.to
			}
		}
	}
	number, ok := map[gguf.Type]uint32{
		gguf.F32: 0, gguf.F16: 1, gguf.Q4_0: 2, gguf.Q4_1: 3, gguf.Q8_0: 7, gguf.Q5_0: 8, gguf.Q5_1: 9,
		gguf.Q4_K: 14, gguf.Q5_K: 16, gguf.Q6_K: 18, gguf.BF16: 32,
	}[most]
	if !ok {
		return nil
	}
	return []pair{{"general.file_type", number}}
}

func rowsOf(list []*imported, name string) int {
	for _, t := range list {
		if t.name == name && len(t.shape) == 2 {
			return int(t.shape[1])
		}
	}
	return 0
}

// readPooling returns the number under which GGUF knows the pooling, 0 when nothing is said.
func readPooling(f *folder, c *published) (uint32, error) {
	const mean, cls, last, rank = 1, 2, 3, 4
	if c.ModelType == "bert" && c.ranks() {
		return rank, nil
	}
	var modules []struct {
		Type string `json:"type"`
		Path string `json:"path"`
	}
	if err := f.optional("modules.json", &modules); err != nil {
		return 0, err
	}
	path := "1_Pooling"
	for _, m := range modules {
		if strings.HasSuffix(m.Type, "Pooling") {
			path = m.Path
		}
	}
	var p struct {
		Mean bool   `json:"pooling_mode_mean_tokens"`
		CLS  bool   `json:"pooling_mode_cls_token"`
		Last bool   `json:"pooling_mode_lasttoken"`
		Max  bool   `json:"pooling_mode_max_tokens"`
		Mode string `json:"pooling_mode"`
	}
	if err := f.optional(path+"/config.json", &p); err != nil {
		return 0, err
	}
	switch {
	case p.Mean && !p.CLS && !p.Last && !p.Max, p.Mode == "mean":
		return mean, nil
	case p.CLS && !p.Mean && !p.Last && !p.Max, p.Mode == "cls":
		return cls, nil
	case p.Last && !p.Mean && !p.CLS && !p.Max, p.Mode == "lasttoken":
		return last, nil
	case p.Mean || p.CLS || p.Last || p.Max || p.Mode != "":
		return 0, fmt.Errorf("%s/config.json: a pooling that is not just one of mean, cls and lasttoken", path)
	}
	return 0, nil
}

// typeNamed returns the storage type of a name.
func typeNamed(name string) (gguf.Type, error) {
	for _, t := range tensor.Types() {
		if strings.EqualFold(t.String(), name) {
			return gguf.Type(t), nil
		}
	}
	var all []string
	for _, t := range tensor.Types() {
		all = append(all, t.String())
	}
	return 0, fmt.Errorf("type %q is not one of %s", name, strings.Join(all, ", "))
}

// imported is one tensor on its way from a published file.
type imported struct {
	name        string
	from        weight
	to          gguf.Type
	shape       []uint64 // contiguous extent first
	rows, width int
	head        int     // rows whose order changes among themselves; 0 for none
	add         float32 // to each weight
}

// tensors lists what the file will hold, in the order of the published files.
func (i Import) tensors(f *folder, c *published, arch string) ([]*imported, error) {
	if _, ok := f.weights["lm_head.weight"]; !ok && c.Tied == nil {
		tied := true
		c.Tied = &tied
	}
	var list []*imported
	seen, others := map[string]bool{}, 0
	for _, name := range f.names {
		to, what, err := c.rename(arch, name)
		if err != nil {
			return nil, err
		}
		switch {
		case what == aside:
			others++
			continue
		case what == drop:
			continue
		case seen[to]:
			return nil, fmt.Errorf("tensor %q has a place that another has taken (%s)", name, to)
		}
		seen[to] = true
		t, err := i.tensor(to, f.weights[name], what, c)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	for _, name := range c.required(arch) {
		if !seen[name] {
			return nil, fmt.Errorf("the weights lack what GGUF calls %s", name)
		}
	}
	if others > 0 {
		i.Log.say("%d tensors for images are left out: convert_hf_to_gguf.py --mmproj makes a projector of them", others)
	}
	return list, nil
}

// tensor plans one tensor.
func (i Import) tensor(name string, from weight, what int, c *published) (*imported, error) {
	kind, ok := from.kind()
	if !ok {
		return nil, fmt.Errorf("tensor %q: weights of %s cannot be converted", from.name, from.dtype)
	}
	t := &imported{name: name, from: from, to: gguf.F32, rows: 1}
	for _, d := range from.shape {
		if d < 1 || d > math.MaxInt32 {
			return nil, fmt.Errorf("tensor %q has the shape %v", from.name, from.shape)
		}
		t.shape = append([]uint64{uint64(d)}, t.shape...)
	}
	if len(t.shape) < 1 || len(t.shape) > 2 {
		return nil, fmt.Errorf("tensor %q has %d dimensions", from.name, len(t.shape))
	}
	t.width = int(t.shape[0])
	if len(t.shape) == 2 {
		t.rows = int(t.shape[1])
		var err error
		if t.to, err = i.matrixType(name, gguf.Type(kind), t.width); err != nil {
			return nil, err
		}
	}
	switch what {
	case shift:
		t.add = 1
	case turn:
		if len(t.shape) == 1 {
			t.rows, t.width = t.width, 1
		}
		if t.head = c.headDim(); t.rows%t.head != 0 || t.head%2 != 0 {
			return nil, fmt.Errorf("tensor %q: %d rows are not whole heads of %d", from.name, t.rows, t.head)
		}
	}
	return t, nil
}

// matrixType returns the type in which a matrix is stored.
func (i Import) matrixType(name string, published gguf.Type, width int) (gguf.Type, error) {
	switch name {
	case "position_embd.weight", "token_types.weight":
		return gguf.F32, nil
	}
	if i.Type == "" {
		return published, nil
	}
	to, err := typeNamed(i.Type)
	if err != nil {
		return 0, err
	}
	elems, size, _ := to.Block()
	if elems > 1 && size*8 < 8*elems && fine.MatchString(name) {
		to = gguf.Q8_0 // the vocabulary suffers most
		elems, _, _ = to.Block()
	}
	if width%elems != 0 || strings.HasPrefix(name, "cls.") && elems > 1 {
		return gguf.F16, nil
	}
	return to, nil
}

// write writes the tensor's bytes, some rows at a time.
func (t *imported) write(out io.Writer) error {
	step := max(1, piece/t.width)
	if t.head > 0 {
		step = (step + t.head - 1) / t.head * t.head
	}
	elems, size, _ := t.to.Block()
	for row := 0; row < t.rows; row += step {
		n := min(step, t.rows-row)
		v, err := t.from.rows(row, n, t.width)
		if err != nil {
			return err
		}
		if t.head > 0 {
			v = interleave(v, t.head, t.width)
		}
		if err := t.finish(v); err != nil {
			return err
		}
		b := make([]byte, len(v)/elems*size)
		if err := tensor.Quantize(tensor.Type(t.to), v, b); err != nil {
			return err
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// finish adds what is to be added and refuses what cannot be stored.
func (t *imported) finish(v []float32) error {
	const largest = 65504 // of F16
	limit := float32(math.MaxFloat32)
	if t.to != gguf.F32 && t.to != gguf.BF16 {
		limit = largest
	}
	for k := range v {
		v[k] += t.add
		if !(v[k] <= limit && v[k] >= -limit) {
			if v[k]-v[k] != 0 {
				return errors.New("it holds a weight that is no number")
			}
			return fmt.Errorf("its weight %g does not fit %v: import as F32 or BF16", v[k], t.to)
		}
	}
	return nil
}

// interleave changes the order of the rows of each head: the published order keeps the two values that rotate together
// half a head apart, GGUF's llama keeps them side by side.
func interleave(v []float32, head, width int) []float32 {
	out := make([]float32, len(v))
	half := head / 2
	for from := 0; from < len(v); from += head * width {
		for r := range head {
			source := r%2*half + r/2
			copy(out[from+r*width:][:width], v[from+source*width:][:width])
		}
	}
	return out
}
