package conversion_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"onebit/engine/conversion"
)

// raw returns a file with a header as given and some data.
func raw(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestSafetensorsHeader(t *testing.T) {
	huge := make([]byte, 64)
	binary.LittleEndian.PutUint64(huge, 1<<60)
	tests := []struct {
		name  string
		file  []byte
		count int
		want  string
	}{
		{"one", raw(`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`, 24), 1, ""},
		{"padded", raw(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}      `, 4), 1, ""},
		{"scalar and empty", raw(`{"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},"b":{"dtype":"F32","shape":[0,4],"data_offsets":[2,2]}}`, 2), 2, ""},
		{"any order", raw(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2), 2, ""},
		{"none", raw(`{"__metadata__":{"format":"pt"}}`, 0), 0, ""},
		{"no file", nil, 0, "length of the header"},
		{"header over the end", raw(`{}`, 0)[:9], 0, "end of the file"},
		{"header of an exabyte", huge, 0, "over the limit"},
		{"no object", raw(`[]`, 0), 0, "no JSON object"},
		{"torn", raw(`{"a":`, 0), 0, "tensor"},
		{"twice", raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), 0, "listed twice"},
		{"type", raw(`{"a":{"dtype":"Q8","shape":[1],"data_offsets":[0,1]}}`, 1), 0, "unknown element type"},
		{"size", raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), 0, "takes 8 bytes, not 4"},
		{"negative", raw(`{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}`, 1), 0, "not possible"},
		{"overflow", raw(`{"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0), 0, "not possible"},
		{"backwards", raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}`, 1), 0, "not a range"},
		{"overlap", raw(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), 0, "where 2 was expected"},
		{"gap", raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), 0, "where 0 was expected"},
		{"over the end", raw(`{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 8), 0, "over the end"},
		{"rest", raw(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2), 0, "1 bytes follow"},
		{"two objects", raw(`{}{}`, 0), 0, "something follows"},
		{"dimensions", raw(`{"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}`, 1), 0, "dimensions"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, _, err := conversion.ParseSafetensors(tt.file)
			switch {
			case tt.want == "" && (err != nil || n != tt.count):
				t.Errorf("%d tensors, not %d; error %v", n, tt.count, err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func FuzzSafetensors(f *testing.F) {
	f.Add(raw(`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}`, 24))
	f.Add(raw(`{"__metadata__":{"a":"b"},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, data, err := conversion.ParseSafetensors(b)
		if err == nil && data > int64(len(b)) {
			t.Fatalf("%d bytes of data in a file of %d", data, len(b))
		}
	})
}

func FuzzTokenizerJSON(f *testing.F) {
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel"}}`))
	f.Add([]byte(`{"model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>","vocab":{"<unk>":0,"▁":1,"a":2,"▁a":3},"merges":[["▁","a"]]},"normalizer":{"type":"Replace","pattern":{"String":" "},"content":"▁"}}`))
	f.Add([]byte(`{"model":{"type":"WordPiece","continuing_subword_prefix":"##","vocab":{"[UNK]":0,"a":1,"##b":2}},"normalizer":{"type":"BertNormalizer"},"added_tokens":[{"id":0,"content":"[UNK]","special":true}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := conversion.ParseTokenizer(b, 16); err == nil && n != 16 {
			t.Fatalf("%d tokens", n)
		}
	})
}
