package conversion

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"onebit/engine/tokenizer"
)

const (
	maxIDs     = 1 << 22 // in one list
	maxIDBytes = 64 << 20
)

// ReadIDs reads a list of token ids: one whole number a line, empty lines and what follows a # do not count, and the
// whole may be compressed with gzip. Ids keep their order. An id that comes again is dropped, and again is how many
// were. An id outside of 0 to vocabulary-1 is an error that names the line.
func ReadIDs(r io.Reader, vocabulary int) (ids []int32, again int, err error) {
	in := bufio.NewReader(r)
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, 0, fmt.Errorf("unpacking: %w", err)
		}
		in = bufio.NewReader(z)
	}
	lines := bufio.NewScanner(io.LimitReader(in, maxIDBytes))
	lines.Buffer(make([]byte, 4096), 1<<16)
	seen := map[int32]bool{}
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "\ufeff"), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		id, err := strconv.ParseInt(text, 10, 32)
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("line %d: %.40q is not a token id", n, text)
		case id < 0 || id >= int64(vocabulary):
			return nil, 0, fmt.Errorf("line %d: token %d is outside of the vocabulary of %d", n, id, vocabulary)
		case seen[int32(id)]:
			again++
			continue
		case len(ids) == maxIDs:
			return nil, 0, fmt.Errorf("line %d: more than %d ids", n, maxIDs)
		}
		seen[int32(id)] = true
		ids = append(ids, int32(id))
	}
	if err := lines.Err(); err != nil {
		return nil, 0, err
	}
	if len(ids) == 0 {
		return nil, 0, errors.New("no token ids")
	}
	return ids, again, nil
}

// readIDs is ReadIDs on a file.
func readIDs(path string, vocabulary int) ([]int32, int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer leave(f)
	ids, again, err := ReadIDs(f, vocabulary)
	if err != nil {
		return nil, 0, fmt.Errorf("reading ids from %q: %w", path, err)
	}
	return ids, again, nil
}

// Count says how an id list is made from texts.
type Count struct {
	Target string   // GGUF file or folder with the tokenizer
	Texts  []string // files, in UTF-8
	Size   int      // ids at most
	Out    string   // the list
	Log    Log
}

// CountTokens writes the ids of the tokens that occur most often in some texts, the most frequent first. The tokens
// that end an answer are always among them, whatever the texts hold: a draft that cannot propose them runs on.
func CountTokens(c Count) error {
	if c.Size < 1 || len(c.Texts) == 0 {
		return errors.New("an id list needs a size and at least one text")
	}
	if err := distinct(c.Out, append(slices.Clone(c.Texts), c.Target)...); err != nil {
		return err
	}
	f, err := open(c.Target)
	if err != nil {
		return err
	}
	defer leave(f)
	t, err := tokenizer.New(f)
	if err != nil {
		return fmt.Errorf("reading the vocabulary of %q: %w", c.Target, err)
	}
	counts := make([]int64, t.Size())
	for _, path := range c.Texts {
		if err := countFile(t, path, counts); err != nil {
			return fmt.Errorf("counting tokens of %q: %w", path, err)
		}
	}
	ids, total, covered := frequent(t, counts, c.Size)
	if total == 0 {
		return errors.New("the texts hold no tokens")
	}
	share := float64(covered) / float64(total) * 100
	var out bytes.Buffer
	fmt.Fprintf(&out, "# %d of %d token ids, the most frequent first; they make up %.2f%% of %d tokens in %d texts\n",
		len(ids), t.Size(), share, total, len(c.Texts))
	for _, id := range ids {
		fmt.Fprintln(&out, id)
	}
	if len(ids) < c.Size {
		c.Log.say("the texts hold %d different tokens only, fewer than the %d asked for", len(ids), c.Size)
	}
	c.Log.say("%d ids make up %.2f%% of the %d tokens", len(ids), share, total)
	return os.WriteFile(c.Out, out.Bytes(), 0o666)
}

// countFile adds the tokens of a text, which is cut at line ends into pieces of some size.
func countFile(t *tokenizer.Tokenizer, path string, counts []int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer leave(f)
	in := bufio.NewReaderSize(f, 1<<16)
	for {
		var piece []byte
		for len(piece) < 1<<16 && err == nil {
			var line []byte
			line, err = in.ReadSlice('\n')
			piece = append(piece, line...)
			if errors.Is(err, bufio.ErrBufferFull) {
				err = nil
			}
		}
		for _, id := range t.Encode(string(piece), tokenizer.Options{}) {
			counts[id]++
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// frequent returns the size most frequent ids, those that end an answer first of all, how many tokens were counted and
// how many of them the ids stand for.
func frequent(t *tokenizer.Tokenizer, counts []int64, size int) (ids []int32, total, covered int64) {
	for id, n := range counts {
		total += n
		if n > 0 || t.IsEOG(int32(id)) {
			ids = append(ids, int32(id))
		}
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		if ea, eb := t.IsEOG(a), t.IsEOG(b); ea != eb {
			if ea {
				return -1
			}
			return 1
		}
		return cmp.Compare(counts[b], counts[a])
	})
	ids = ids[:min(size, len(ids))]
	for _, id := range ids {
		covered += counts[id]
	}
	return ids, total, covered
}
