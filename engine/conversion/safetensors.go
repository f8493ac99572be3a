package conversion

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"

	"onebit/engine/tensor"
)

// Limits of a safetensors header.
const (
	maxHeader     = 100 << 20 // bytes, as the format says
	maxDimensions = 8
	maxEntries    = 1 << 18
)

// entry is one tensor of a safetensors file.
type entry struct {
	name   string
	dtype  string
	shape  []int64 // the contiguous extent last
	offset int64   // from the start of the file
	size   int64   // bytes
}

// dtypes gives the bytes of one element. Those that Type knows can be converted.
var dtypes = map[string]int64{
	"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "U16": 2, "U32": 4, "U64": 8,
	"BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}

// kind returns the element type as we compute with it.
func (e *entry) kind() (tensor.Type, bool) {
	switch e.dtype {
	case "F32":
		return tensor.F32, true
	case "F16":
		return tensor.F16, true
	case "BF16":
		return tensor.BF16, true
	}
	return 0, false
}

// parseSafetensors reads the header of a file of size bytes and proves it sound: every tensor lies in the file, takes
// just the bytes that its shape asks for, and all of them cover the data without gap or overlap.
func parseSafetensors(r io.ReaderAt, size int64) ([]entry, error) {
	var head [8]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("reading the length of the header: %w", noEOF(err))
	}
	n := binary.LittleEndian.Uint64(head[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, fmt.Errorf("a header of %d bytes is over the limit or the end of the file", n)
	}
	text := make([]byte, n)
	if got, err := r.ReadAt(text, 8); got < len(text) { // at the end of the file all of it comes with an error
		return nil, fmt.Errorf("reading the header: %w", noEOF(err))
	}
	list, err := parseHeader(text)
	if err != nil {
		return nil, err
	}
	return list, place(list, 8+int64(n), size)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parseHeader reads the JSON object. Offsets count from the end of the header.
func parseHeader(text []byte) ([]entry, error) {
	in := json.NewDecoder(bytes.NewReader(text))
	if t, err := in.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("the header is no JSON object")
	}
	var list []entry
	seen := map[string]bool{}
	for in.More() {
		t, err := in.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, fmt.Errorf("the header is not sound JSON: %w", err)
		}
		if seen[name] {
			return nil, fmt.Errorf("tensor %.80q is listed twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			var notes map[string]string
			if err := in.Decode(&notes); err != nil {
				return nil, fmt.Errorf("the notes of the header: %w", err)
			}
			continue
		}
		if len(list) == maxEntries {
			return nil, fmt.Errorf("more than %d tensors", maxEntries)
		}
		e, err := parseEntry(in, name)
		if err != nil {
			return nil, fmt.Errorf("tensor %.80q: %w", name, err)
		}
		list = append(list, e)
	}
	if _, err := in.Token(); err != nil {
		return nil, fmt.Errorf("the header is not sound JSON: %w", err)
	}
	if rest := bytes.Trim(text[in.InputOffset():], " \x00\t\r\n"); len(rest) > 0 {
		return nil, errors.New("something follows the JSON object of the header")
	}
	return list, nil
}

func parseEntry(in *json.Decoder, name string) (entry, error) {
	var raw struct {
		DType   string  `json:"dtype"`
		Shape   []int64 `json:"shape"`
		Offsets []int64 `json:"data_offsets"`
	}
	if err := in.Decode(&raw); err != nil {
		return entry{}, err
	}
	width, ok := dtypes[raw.DType]
	switch {
	case !ok:
		return entry{}, fmt.Errorf("unknown element type %.20q", raw.DType)
	case len(raw.Shape) > maxDimensions:
		return entry{}, fmt.Errorf("%d dimensions are over the limit of %d", len(raw.Shape), maxDimensions)
	case len(raw.Offsets) != 2 || raw.Offsets[0] < 0 || raw.Offsets[1] < raw.Offsets[0]:
		return entry{}, fmt.Errorf("the offsets %v are not a range", raw.Offsets)
	}
	want := width
	for _, d := range raw.Shape {
		if d < 0 || d > 0 && want > math.MaxInt64/d {
			return entry{}, fmt.Errorf("the shape %v is not possible", raw.Shape)
		}
		want *= d
	}
	if size := raw.Offsets[1] - raw.Offsets[0]; size != want {
		return entry{}, fmt.Errorf("%s of shape %v takes %d bytes, not %d", raw.DType, raw.Shape, want, size)
	}
	return entry{name: name, dtype: raw.DType, shape: raw.Shape, offset: raw.Offsets[0], size: want}, nil
}

// place turns offsets in the data into offsets in the file.
func place(list []entry, data, size int64) error {
	order := slices.Clone(list)
	sort.SliceStable(order, func(i, j int) bool {
		if order[i].offset != order[j].offset {
			return order[i].offset < order[j].offset
		}
		return order[i].size < order[j].size // empty ones first
	})
	end := int64(0)
	for _, e := range order {
		if e.offset != end {
			return fmt.Errorf("tensor %.80q starts at byte %d of the data, where %d was expected", e.name, e.offset, end)
		}
		if end += e.size; end > size-data {
			return fmt.Errorf("tensor %.80q runs over the end of the file", e.name)
		}
	}
	if end != size-data {
		return fmt.Errorf("%d bytes follow the last tensor", size-data-end)
	}
	for i := range list {
		list[i].offset += data
	}
	return nil
}
