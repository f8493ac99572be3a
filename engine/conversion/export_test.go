package conversion

import (
	"bytes"
	"encoding/json"
)

// Turn is turnBlock.
var Turn = turnBlock

// ParseSafetensors reads a header and returns how many tensors there are and the bytes of their data.
func ParseSafetensors(b []byte) (count int, data int64, err error) {
	list, err := parseSafetensors(bytes.NewReader(b), int64(len(b)))
	for _, e := range list {
		if e.offset < 0 || e.size < 0 || e.offset+e.size > int64(len(b)) {
			panic("a tensor outside of the file")
		}
		data += e.size
	}
	return len(list), data, err
}

// ParseTokenizer reads a tokenizer.json for an embedding of some rows and returns how many tokens have a text.
func ParseTokenizer(b []byte, rows int) (int, error) {
	t := &tokens{texts: make([]string, rows), kinds: make([]int32, rows), ids: map[string]int{}}
	j := &tokenizerJSON{}
	if err := json.Unmarshal(b, j); err != nil {
		return 0, err
	}
	if err := t.readJSON(j, ""); err != nil {
		return 0, err
	}
	if t.model == "bert" {
		t.spellWords()
	}
	t.around(j.Post, map[string]int{}, nil)
	for _, kind := range t.kinds {
		if kind == 0 {
			panic("a token without a kind")
		}
		if len(t.scores) > 0 && len(t.scores) != rows {
			panic("scores do not match")
		}
	}
	return len(t.texts), nil
}
