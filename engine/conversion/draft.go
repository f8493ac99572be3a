package conversion

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"onebit/engine/gguf"
)

// DraftVocabularyKey marks a head that drafts from a part of the vocabulary only; its value is how many tokens.
const DraftVocabularyKey = "onebit.draft_vocab"

// DraftVocabulary says how a head is cut down.
type DraftVocabulary struct {
	Head   string // GGUF file of the multi-token prediction layer
	Target string // GGUF file or folder of the model that it drafts for
	IDs    string // list of token ids, see ReadIDs
	Out    string // the new head
	Log    Log
}

// Write writes the head with an output matrix of its own: the rows of the target's output matrix for the listed ids, as
// they are stored there. The tensor d2t gives the token id of each row, int64.
func (d DraftVocabulary) Write() error {
	if err := distinct(d.Out, d.Head, d.Target, d.IDs); err != nil {
		return err
	}
	head, err := open(d.Head)
	if err != nil {
		return err
	}
	defer leave(head)
	layer, err := draftLayer(head)
	if err != nil {
		return fmt.Errorf("the head %q: %w", d.Head, err)
	}
	target, err := open(d.Target)
	if err != nil {
		return err
	}
	defer leave(target)
	rows, err := d.outputRows(head, target)
	if err != nil {
		return fmt.Errorf("the target %q: %w", d.Target, err)
	}
	ids, again, err := readIDs(d.IDs, int(rows.Shape[1]))
	if err != nil {
		return err
	}
	if again > 0 {
		d.Log.say("%d ids are listed more than once: taken once", again)
	}
	w := gguf.NewWriter()
	if err := copyKeys(w, head); err != nil {
		return err
	}
	if err := w.Set(DraftVocabularyKey, uint32(len(ids))); err != nil {
		return err
	}
	for _, t := range head.Tensors() {
		if err := w.Add(t.Name, t.Type, t.Shape, t.Data()); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("blk.%d.nextn.shared_head_head.weight", layer)
	if err := addRows(w, name, rows, ids); err != nil {
		return err
	}
	if err := w.Add("d2t", gguf.I64, []uint64{uint64(len(ids))}, int64s(ids)); err != nil {
		return err
	}
	if err := write(w, d.Out, func(f *gguf.File) error { return checkDraft(f, name, rows, ids) }); err != nil {
		return err
	}
	d.Log.say("%s: %d of %d rows of %s, %v, %.0f MiB", d.Out, len(ids), rows.Shape[1], rows.Name, rows.Type,
		float64(rows.Size()/rows.Shape[1]*uint64(len(ids)))/(1<<20))
	return nil
}

var nextnName = regexp.MustCompile(`^blk\.(\d+)\.nextn\.`)

// draftLayer returns the number of the one layer that predicts, of a head without an output matrix.
func draftLayer(head *gguf.File) (int, error) {
	if _, ok := head.Value(DraftVocabularyKey); ok {
		return 0, fmt.Errorf("it is cut down already (%s): start from the full head", DraftVocabularyKey)
	}
	if n, ok := head.Uint(head.Architecture() + ".nextn_predict_layers"); ok && n > 1 {
		return 0, fmt.Errorf("it has %d prediction layers; only one can be cut down", n)
	}
	layer := -1
	for _, t := range head.Tensors() {
		parts := nextnName.FindStringSubmatch(t.Name)
		if t.Name == "output.weight" || parts != nil && t.Name == parts[0]+"shared_head_head.weight" {
			return 0, fmt.Errorf("it has an output matrix of its own, %s", t.Name)
		}
		if t.Name == "d2t" {
			return 0, fmt.Errorf("it drafts from a part of the vocabulary already (d2t)")
		}
		if !t.Type.Known() {
			return 0, fmt.Errorf("tensor %q has the unknown %v", t.Name, t.Type)
		}
		if parts == nil {
			continue
		}
		n, err := strconv.Atoi(parts[1])
		if err != nil || n > 1<<16 {
			return 0, fmt.Errorf("tensor %q names no layer", t.Name)
		}
		if layer >= 0 && layer != n {
			return 0, fmt.Errorf("it has more than one prediction layer (%d and %d); only one can be cut down", layer, n)
		}
		layer = n
	}
	if layer < 0 {
		return 0, fmt.Errorf("it has no prediction layer (no tensor blk.N.nextn.*): is this an MTP head?")
	}
	return layer, nil
}

// outputRows returns the target's output matrix and checks that it fits the head.
func (d DraftVocabulary) outputRows(head, target *gguf.File) (*gguf.Tensor, error) {
	rows := target.Tensor("output.weight")
	if rows == nil {
		if rows = target.Tensor("token_embd.weight"); rows != nil {
			d.Log.say("the target has no output matrix of its own: taking rows of its embedding, which serves as one")
		}
	}
	switch {
	case rows == nil:
		return nil, fmt.Errorf("it has no output.weight: give the whole model, all shards of it")
	case !rows.Type.Known():
		return nil, fmt.Errorf("%s has the unknown %v", rows.Name, rows.Type)
	case len(rows.Shape) != 2 || rows.Shape[1] == 0 || rows.Shape[1] > maxIDs:
		return nil, fmt.Errorf("%s has the shape %v, not that of a matrix", rows.Name, rows.Shape)
	}
	if n, ok := head.Uint(head.Architecture() + ".embedding_length"); ok && n != rows.Shape[0] {
		return nil, fmt.Errorf("its width is %d, the head's %d: they do not belong together", rows.Shape[0], n)
	}
	ours, okOurs := head.Strings("tokenizer.ggml.tokens")
	if okOurs && uint64(len(ours)) != rows.Shape[1] {
		return nil, fmt.Errorf("it has %d tokens, the head %d: they do not belong together", rows.Shape[1], len(ours))
	}
	return rows, nil
}

// addRows adds a matrix that is made of some rows of another.
func addRows(w *gguf.Writer, name string, rows *gguf.Tensor, ids []int32) error {
	data, size := rows.Data(), rows.Size()/rows.Shape[1]
	return w.AddFunc(name, rows.Type, []uint64{rows.Shape[0], uint64(len(ids))}, func(out io.Writer) error {
		for _, id := range ids {
			if _, err := out.Write(data[uint64(id)*size:][:size]); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkDraft compares what was written with what it was made of.
func checkDraft(f *gguf.File, name string, rows *gguf.Tensor, ids []int32) error {
	head, d2t := f.Tensor(name), f.Tensor("d2t")
	if head == nil || d2t == nil || !bytes.Equal(d2t.Data(), int64s(ids)) {
		return fmt.Errorf("the list of rows did not come back as it was written")
	}
	size := rows.Size() / rows.Shape[1]
	for i, id := range ids {
		if !bytes.Equal(head.Data()[uint64(i)*size:][:size], rows.Data()[uint64(id)*size:][:size]) {
			return fmt.Errorf("row %d did not come back as it was written", i)
		}
	}
	return nil
}

func int64s(ids []int32) []byte {
	b := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint64(b, uint64(id))
	}
	return b
}
