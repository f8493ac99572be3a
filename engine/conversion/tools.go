package conversion

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"onebit/engine/gguf"
	"onebit/engine/tensor"
)

// Tools is what driving llama.cpp's programs asks of the world.
type Tools struct {
	Getenv   func(string) string
	LookPath func(string) (string, error)              // as exec.LookPath
	Space    func(dir string) (free uint64, err error) // bytes free where dir is; may be nil
	Output   io.Writer                                 // of the programs
	Log      Log
}

// find returns a program: what an option names, else a variable, else what lies beside a llama-server that a variable
// names, else what PATH has.
func (t Tools) find(option, variable, name string) (string, error) {
	for _, named := range []struct{ path, from string }{{option, "the option"}, {t.Getenv(variable), variable}} {
		if named.path == "" {
			continue
		}
		if info, err := os.Stat(named.path); err != nil || info.IsDir() {
			return "", fmt.Errorf("%s names %q, which is no file", named.from, named.path)
		}
		return named.path, nil
	}
	if server := t.Getenv("ONEBIT_LLAMA_SERVER"); server != "" {
		beside := filepath.Join(filepath.Dir(server), name)
		if info, err := os.Stat(beside); err == nil && !info.IsDir() {
			return beside, nil
		}
	}
	path, err := t.LookPath(name)
	if err != nil {
		return "", &missingToolError{name, variable}
	}
	return path, nil
}

// missingToolError says that a program is nowhere.
type missingToolError struct{ name, variable string }

func (e *missingToolError) Error() string {
	return fmt.Sprintf("there is no %s on PATH and %s is not set: install llama.cpp, or name the file", e.name, e.variable)
}

// room refuses to start what the drive has no room for.
func (t Tools) room(out string, need uint64) error {
	if t.Space == nil {
		return nil
	}
	free, err := t.Space(filepath.Dir(out))
	if err != nil || free >= need {
		return nil //nolint:nilerr // where the room cannot be told, the writing will
	}
	return fmt.Errorf("%q takes about %.1f GB, and %.1f GB are free there", out, float64(need)/1e9, float64(free)/1e9)
}

// run runs a program to its end.
func (t Tools) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = t.Output, t.Output
	t.Log.say("running %s %s", program, strings.Join(args, " "))
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w", filepath.Base(program), err)
	}
	return nil
}

// Quantize says how a model is stored in another type.
type Quantize struct {
	In, Out string // GGUF files; In may be a folder with one model
	Type    string // as llama-quantize names it, such as Q4_K_M
	Program string // llama-quantize; "" looks for it
	Imatrix string // importance matrix, may be empty
	Threads int    // 0 leaves it to the program
	Again   bool   // allow a source that is quantised already
	Tools   Tools
}

// plain are the types that we can write ourselves where llama-quantize is absent.
var plain = []gguf.Type{gguf.Q8_0, gguf.Q4_0, gguf.F16, gguf.BF16, gguf.F32}

// Run quantises. The new file is read back, and deleted when it is not the source's tensors in the type asked for.
func (q Quantize) Run(ctx context.Context) error {
	if err := distinct(q.Out, q.In, q.Imatrix); err != nil {
		return err
	}
	path, err := Resolve(q.In)
	if err != nil {
		return err
	}
	in, err := open(path)
	if err != nil {
		return err
	}
	defer leave(in)
	if err := q.checkSource(in); err != nil {
		return fmt.Errorf("quantizing %q: %w", q.In, err)
	}
	program, err := q.Tools.find(q.Program, "ONEBIT_LLAMA_QUANTIZE", "llama-quantize")
	if err != nil {
		return q.ourselves(in, err)
	}
	if err := q.Tools.room(q.Out, estimate(in, q.Type)); err != nil {
		return err
	}
	tmp := q.Out + ".unchecked"
	var args []string
	if q.Again {
		args = append(args, "--allow-requantize")
	}
	if q.Imatrix != "" {
		args = append(args, "--imatrix", q.Imatrix)
	}
	args = append(args, path, tmp, strings.ToUpper(q.Type))
	if q.Threads > 0 {
		args = append(args, fmt.Sprint(q.Threads))
	}
	err = q.Tools.run(ctx, program, args...)
	if err == nil {
		err = inspect(tmp, func(f *gguf.File) error { return same(f, in, q.Type) })
	}
	if err == nil {
		err = os.Rename(tmp, q.Out)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%q was not written: %w", q.Out, err), remove(tmp))
	}
	q.Tools.Log.say("%s: %s", q.Out, q.Type)
	return nil
}

// checkSource refuses sources that lose too much.
func (q Quantize) checkSource(in *gguf.File) error {
	if _, ok := in.Value(HadamardKey); ok {
		return fmt.Errorf("its weights are rotated (%s): start from the file that it was made of", HadamardKey)
	}
	for _, t := range in.Tensors() {
		switch {
		case !t.Type.Known():
			return fmt.Errorf("tensor %q has the unknown %v", t.Name, t.Type)
		case q.Again || len(t.Shape) < 2 || t.Type == gguf.F32 || t.Type == gguf.F16 || t.Type == gguf.BF16 || t.Type == gguf.Q8_0:
		default:
			return fmt.Errorf("tensor %q is %v already: start from F32, F16, BF16 or Q8_0, or allow what a second rounding costs with --allow-requantize", t.Name, t.Type)
		}
	}
	return nil
}

// baseType returns the tensor type behind the name of a mixture: Q4_K for Q4_K_M.
func baseType(name string) (gguf.Type, bool) {
	name = strings.ToUpper(name)
	for _, cut := range []string{"", "_S", "_M", "_L", "_XL"} {
		base, ok := strings.CutSuffix(name, cut)
		if !ok {
			continue
		}
		for t := gguf.Type(0); t <= gguf.Q2_0; t++ {
			if t.Known() && t.String() == base {
				return t, true
			}
		}
	}
	return 0, false
}

// estimate returns about how many bytes the new file takes, 0 when it cannot be told.
func estimate(in *gguf.File, name string) uint64 {
	to, ok := baseType(name)
	if !ok {
		return 0
	}
	elems, size, _ := to.Block()
	sum := uint64(16 << 20) // metadata
	for _, t := range in.Tensors() {
		if len(t.Shape) < 2 {
			sum += t.Size()
		} else {
			sum += t.Elements() / uint64(elems) * uint64(size)
		}
	}
	return sum + sum/20
}

// same checks that f holds the tensors of in, at least one of them in the type asked for.
func same(f, in *gguf.File, name string) error {
	if f.Architecture() != in.Architecture() {
		return fmt.Errorf("its architecture is %q instead of %q", f.Architecture(), in.Architecture())
	}
	want, known := baseType(name)
	found := !known
	for _, t := range in.Tensors() {
		made := f.Tensor(t.Name)
		if made == nil || !slices.Equal(made.Shape, t.Shape) {
			return fmt.Errorf("it lacks tensor %q of shape %v", t.Name, t.Shape)
		}
		found = found || made.Type == want
	}
	if !found && !falls(in, want) {
		return fmt.Errorf("none of its tensors is %v", want)
	}
	return nil
}

// falls reports whether no matrix has rows that are whole blocks of the type, so that others stand in for it.
func falls(in *gguf.File, to gguf.Type) bool {
	elems, _, _ := to.Block()
	return !slices.ContainsFunc(in.Tensors(), func(t *gguf.Tensor) bool {
		return len(t.Shape) > 1 && t.Shape[0]%uint64(elems) == 0
	})
}

// ourselves quantises without llama.cpp, to plain types only.
func (q Quantize) ourselves(in *gguf.File, why error) error {
	var missing *missingToolError
	to, ok := baseType(q.Type)
	if !errors.As(why, &missing) || !ok || !slices.Contains(plain, to) || to.String() != strings.ToUpper(q.Type) {
		return why
	}
	if q.Imatrix != "" {
		return fmt.Errorf("an importance matrix needs llama-quantize: %w", why)
	}
	if err := q.Tools.room(q.Out, estimate(in, q.Type)); err != nil {
		return err
	}
	q.Tools.Log.say("no llama-quantize: rounding to %v without a search for the best scales", to)
	w := gguf.NewWriter()
	if err := copyKeys(w, in); err != nil {
		return err
	}
	if err := setAll(w, []pair{{"general.quantization_version", uint32(2)}}); err != nil {
		return err
	}
	if err := setAll(w, fileType([]*imported{{to: to, shape: []uint64{1, 1}}})); err != nil {
		return err
	}
	workers := Hadamard{}.workers()
	for _, t := range in.Tensors() {
		kind := plainType(t, to)
		if err := w.AddFunc(t.Name, kind, t.Shape, func(out io.Writer) error {
			defer in.Drop(t)
			if kind == t.Type {
				_, err := out.Write(t.Data())
				return err
			}
			return recode(out, t, kind, false, workers)
		}); err != nil {
			return err
		}
	}
	return write(w, q.Out, func(f *gguf.File) error { return same(f, in, q.Type) })
}

// plainType returns the type in which we store a tensor.
func plainType(t *gguf.Tensor, to gguf.Type) gguf.Type {
	elems, size, _ := to.Block()
	_, _, readable := tensor.Type(t.Type).Block()
	switch {
	case len(t.Shape) < 2 || !readable || strings.Contains(t.Name, "ffn_gate_inp") || strings.Contains(t.Name, "_norm"),
		t.Name == "position_embd.weight", t.Name == "token_types.weight":
		return t.Type
	case t.Shape[0]%uint64(elems) != 0:
		return gguf.F16
	case size < elems && fine.MatchString(t.Name):
		return gguf.Q8_0
	}
	return to
}

// Convert says how llama.cpp's converter is driven.
type Convert struct {
	Dir, Out string // folder with the published model, and the GGUF file
	Type     string // f32, f16, bf16, q8_0 or auto
	Program  string // convert_hf_to_gguf.py; "" looks for it
	Python   string // interpreter of a .py program; "" looks for python3
	Tools    Tools
}

// Run converts. The new file is opened, and deleted when it is not sound.
func (c Convert) Run(ctx context.Context) error {
	if err := distinct(c.Out); err != nil {
		return err
	}
	need, err := c.checkSource()
	if err != nil {
		return err
	}
	kind := strings.ToLower(c.Type)
	if kind == "" {
		kind = "auto"
	}
	if !slices.Contains([]string{"f32", "f16", "bf16", "q8_0", "auto"}, kind) {
		return fmt.Errorf("type %q is not one of f32, f16, bf16, q8_0 and auto: quantize the file afterwards", c.Type)
	}
	program, err := c.Tools.find(c.Program, "ONEBIT_CONVERT_HF", "convert_hf_to_gguf.py")
	if err != nil {
		return err
	}
	if err := c.Tools.room(c.Out, need); err != nil {
		return err
	}
	tmp := c.Out + ".unchecked"
	args := []string{program, c.Dir, "--outfile", tmp, "--outtype", kind}
	if strings.HasSuffix(program, ".py") {
		python := c.Python
		if python == "" {
			if python, err = c.Tools.LookPath("python3"); err != nil {
				return fmt.Errorf("%s needs python3, which is not on PATH: name it with --python", filepath.Base(program))
			}
		}
		args = append([]string{python}, args...)
	}
	err = c.Tools.run(ctx, args[0], args[1:]...)
	if err == nil {
		err = inspect(tmp, func(f *gguf.File) error {
			if len(f.Tensors()) == 0 || f.Architecture() == "" {
				return errors.New("it holds no model")
			}
			c.Tools.Log.say("%s: %s, %d tensors", c.Out, f.Architecture(), len(f.Tensors()))
			return nil
		})
	}
	if err == nil {
		err = os.Rename(tmp, c.Out)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%q was not written: %w", c.Out, err), remove(tmp))
	}
	return nil
}

// checkSource returns the bytes of the weights in the folder.
func (c Convert) checkSource() (uint64, error) {
	if info, err := os.Stat(filepath.Join(c.Dir, "config.json")); err != nil || info.IsDir() {
		return 0, fmt.Errorf("%q is no published model: it has no config.json", c.Dir)
	}
	all, err := os.ReadDir(c.Dir)
	if err != nil {
		return 0, err
	}
	sum := uint64(0)
	for _, e := range all {
		if info, err := os.Stat(filepath.Join(c.Dir, e.Name())); err == nil &&
			(strings.HasSuffix(e.Name(), ".safetensors") || strings.HasSuffix(e.Name(), ".bin")) {
			sum += uint64(info.Size())
		}
	}
	if sum == 0 {
		return 0, fmt.Errorf("%q holds no weights (.safetensors or .bin)", c.Dir)
	}
	return sum, nil
}
