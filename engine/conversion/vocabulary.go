package conversion

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Kinds of tokens as GGUF numbers them.
const (
	kindNormal  int32 = 1
	kindUnknown int32 = 2
	kindControl int32 = 3
	kindUser    int32 = 4
	kindUnused  int32 = 5
	kindByte    int32 = 6
)

const (
	wordStart = "\u2581" // stands for a space in SentencePiece and WordPiece vocabularies
	prefix    = "tokenizer.ggml."
)

// tokenizerJSON is what we read of a tokenizer.json.
type tokenizerJSON struct {
	Added      []addedToken `json:"added_tokens"`
	Normalizer *node        `json:"normalizer"`
	Pre        *node        `json:"pre_tokenizer"`
	Post       *node        `json:"post_processor"`
	Model      struct {
		Type         string          `json:"type"`
		Vocab        json.RawMessage `json:"vocab"`
		Merges       json.RawMessage `json:"merges"`
		ByteFallback bool            `json:"byte_fallback"`
		IgnoreMerges bool            `json:"ignore_merges"`
		Unknown      string          `json:"unk_token"`
		Continuing   string          `json:"continuing_subword_prefix"`
		WordEnd      string          `json:"end_of_word_suffix"`
	} `json:"model"`
}

type addedToken struct {
	ID      int    `json:"id"`
	Content string `json:"content"`
	Special bool   `json:"special"`
}

// node is one part of a tokenizer's pipeline; which fields count depends on its type.
type node struct {
	Type        string  `json:"type"`
	Normalizers []*node `json:"normalizers"`
	Pres        []*node `json:"pretokenizers"`
	Processors  []*node `json:"processors"`

	Pattern struct {
		Regex  string `json:"Regex"`
		String string `json:"String"`
	} `json:"pattern"`
	Behavior       string          `json:"behavior"`
	Invert         bool            `json:"invert"`
	UseRegex       *bool           `json:"use_regex"`
	AddPrefixSpace *bool           `json:"add_prefix_space"`
	Individual     bool            `json:"individual_digits"`
	Content        string          `json:"content"`
	Prepend        string          `json:"prepend"`
	PrependScheme  string          `json:"prepend_scheme"`
	Lowercase      *bool           `json:"lowercase"`
	StripAccents   *bool           `json:"strip_accents"`
	Chinese        *bool           `json:"handle_chinese_chars"`
	Single         []templatePiece `json:"single"`
}

type templatePiece struct {
	Special *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
}

// flat returns the nodes of a pipeline one after another.
func (n *node) flat() []*node {
	if n == nil {
		return nil
	}
	if n.Type != "Sequence" {
		return []*node{n}
	}
	var list []*node
	for _, part := range [][]*node{n.Normalizers, n.Pres, n.Processors} {
		for _, p := range part {
			if p != nil && p.Type != "Sequence" { // nested sequences do not occur
				list = append(list, p)
			}
		}
	}
	return list
}

// tokens is a vocabulary in the making.
type tokens struct {
	model, pre string
	texts      []string
	kinds      []int32
	scores     []float32 // SentencePiece only
	merges     []string  // byte pairs only
	extra      []pair    // model's own keys
	ids        map[string]int
}

// readTokens returns the keys of the vocabulary, with as many tokens as the embedding has rows.
func readTokens(f *folder, c *published, rows int, pre string) ([]pair, error) {
	t := &tokens{texts: make([]string, rows), kinds: make([]int32, rows), ids: map[string]int{}}
	j := &tokenizerJSON{}
	err := f.json("tokenizer.json", j)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.ModelType == "bert":
		err = t.readList(f)
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("the folder lacks tokenizer.json; tokenizer.model alone is not read")
	case err == nil:
		if err = t.readJSON(j, pre); err != nil {
			err = fmt.Errorf("tokenizer.json: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	if t.model == "bert" {
		t.spellWords()
	}
	list := []pair{{prefix + "model", t.model}, {prefix + "pre", t.pre}, {prefix + "tokens", t.texts}, {prefix + "token_type", t.kinds}}
	if t.scores != nil {
		list = append(list, pair{prefix + "scores", t.scores})
	}
	if t.merges != nil {
		list = append(list, pair{prefix + "merges", t.merges})
	}
	if t.model == "bert" {
		list = append(list, pair{prefix + "token_type_count", uint32(max(c.Segments, 1))})
	}
	special, err := t.special(f, j.Post)
	if err != nil {
		return nil, err
	}
	return append(append(list, t.extra...), special...), nil
}

// put enters a token; two for one id, or one beyond the embedding, are errors.
func (t *tokens) put(text string, id int, kind int32) error {
	switch {
	case id < 0 || id >= len(t.texts):
		return fmt.Errorf("token %.40q has the id %d, but the embedding has %d rows", text, id, len(t.texts))
	case t.kinds[id] != 0 && t.texts[id] != text:
		return fmt.Errorf("tokens %.40q and %.40q share the id %d", t.texts[id], text, id)
	}
	t.texts[id], t.kinds[id] = text, kind
	t.ids[text] = id
	return nil
}

// fill gives rows of the embedding that no token belongs to a name.
func (t *tokens) fill() {
	for id, kind := range t.kinds {
		if kind == 0 {
			t.texts[id], t.kinds[id] = fmt.Sprintf("[PAD%d]", id), kindUnused
		}
	}
}

// readJSON reads a tokenizer.json.
func (t *tokens) readJSON(j *tokenizerJSON, pre string) error {
	if j.Model.Type != "BPE" && j.Model.Type != "WordPiece" {
		return fmt.Errorf("a model of type %q is not one of BPE and WordPiece", j.Model.Type)
	}
	var vocab map[string]int
	if err := json.Unmarshal(j.Model.Vocab, &vocab); err != nil {
		return fmt.Errorf("reading the vocabulary: %w", err)
	}
	for text, id := range vocab {
		if err := t.put(text, id, kindNormal); err != nil {
			return err
		}
	}
	for _, a := range j.Added {
		kind := kindUser
		if a.Special || looksSpecial(a.Content) {
			kind = kindControl
		}
		if err := t.put(a.Content, a.ID, kind); err != nil {
			return err
		}
	}
	switch {
	case j.Model.Type == "WordPiece":
		return t.wordPiece(j)
	case j.Model.WordEnd != "" || j.Model.Continuing != "":
		return errors.New("byte pairs with marks at words' ends are not supported")
	case j.Model.ByteFallback:
		return t.sentencePiece(j)
	}
	return t.bytePairs(j, pre)
}

// looksSpecial tells control tokens that some publishers do not mark as special.
func looksSpecial(text string) bool {
	switch text {
	case "<pad>", "<mask>", "[@BOS@]", "<2mass>":
		return true
	}
	between := func(head, tail string) bool { return strings.HasPrefix(text, head) && strings.HasSuffix(text, tail) }
	return between("<|", "|>") || between("<\uff5c", "\uff5c>") || between("<unused", ">")
}

// parseMerges returns the pairs in order, whichever way they are written.
func parseMerges(raw json.RawMessage) ([][2]string, error) {
	var pairs [][2]string
	if err := json.Unmarshal(raw, &pairs); err == nil {
		return pairs, nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return nil, errors.New("the merges are neither pairs nor lines")
	}
	pairs = make([][2]string, len(lines))
	for i, line := range lines {
		a, b, ok := strings.Cut(line, " ")
		if !ok || a == "" || b == "" || strings.Contains(b, " ") {
			return nil, fmt.Errorf("merge %d, %.40q, is not two tokens", i, line)
		}
		pairs[i] = [2]string{a, b}
	}
	return pairs, nil
}

// bytePairs finishes a vocabulary over bytes.
func (t *tokens) bytePairs(j *tokenizerJSON, pre string) error {
	for _, n := range j.Normalizer.flat() {
		if n.Type != "NFC" { // which changes rare texts only
			return fmt.Errorf("the normalizer %q is not supported with byte pairs", n.Type)
		}
	}
	if pre == "" {
		var err error
		if pre, err = preTokenizer(j); err != nil {
			return err
		}
	}
	merges, err := parseMerges(j.Model.Merges)
	if err != nil {
		return err
	}
	t.model, t.pre = "gpt2", pre
	t.merges = make([]string, len(merges))
	for i, m := range merges {
		if m[0] == "" || m[1] == "" || strings.Contains(m[0]+m[1], " ") {
			return fmt.Errorf("merge %d, %.40q, has no place in GGUF", i, m)
		}
		t.merges[i] = m[0] + " " + m[1]
	}
	t.fill()
	return nil
}

// sentencePiece finishes a vocabulary that was a SentencePiece model once. A token's score there falls with the rank at
// which it was learnt, which is that of the first merge that makes it.
func (t *tokens) sentencePiece(j *tokenizerJSON) error {
	space, err := addsSpace(j)
	if err != nil {
		return err
	}
	merges, err := parseMerges(j.Model.Merges)
	if err != nil {
		return err
	}
	t.model, t.pre = "llama", "default"
	t.scores = make([]float32, len(t.texts))
	for i := range t.scores {
		t.scores[i] = -float32(len(merges) + 1)
	}
	for rank := len(merges) - 1; rank >= 0; rank-- {
		if id, ok := t.ids[merges[rank][0]+merges[rank][1]]; ok {
			t.scores[id] = -float32(rank)
		}
	}
	for id, text := range t.texts {
		switch {
		case text == j.Model.Unknown && t.kinds[id] != 0 && text != "":
			t.kinds[id] = kindUnknown
		case t.kinds[id] == kindNormal && len(text) == 6 && strings.HasPrefix(text, "<0x") && text[5] == '>':
			t.kinds[id] = kindByte
		case t.kinds[id] == kindUser:
			t.texts[id] = strings.ReplaceAll(text, wordStart, " ")
		}
	}
	t.extra = append(t.extra, pair{prefix + "add_space_prefix", space})
	t.fill()
	return nil
}

// addsSpace tells whether a text is taken as if a space stood before it.
func addsSpace(j *tokenizerJSON) (bool, error) {
	space, replaced := false, false
	for _, n := range append(j.Normalizer.flat(), j.Pre.flat()...) {
		switch {
		case n.Type == "Prepend" && n.Prepend == wordStart:
			space = true
		case n.Type == "Replace" && n.Pattern.String == " " && n.Content == wordStart:
			replaced = true
		case n.Type == "Metaspace":
			replaced = true
			space = space || n.PrependScheme == "first" || n.PrependScheme == "always" ||
				n.PrependScheme == "" && (n.AddPrefixSpace == nil || *n.AddPrefixSpace)
		case n.Type == "Split" && n.Pattern.String == " ":
		default:
			return false, fmt.Errorf("the step %q is not one of a SentencePiece vocabulary", n.Type)
		}
	}
	if !replaced {
		return false, errors.New("nothing says how spaces are written")
	}
	return space, nil
}

// wordPiece finishes BERT's vocabulary.
func (t *tokens) wordPiece(j *tokenizerJSON) error {
	if j.Model.Continuing != "##" {
		return fmt.Errorf("continuing_subword_prefix %q is not ##", j.Model.Continuing)
	}
	lower := true
	for _, n := range j.Normalizer.flat() {
		switch n.Type {
		case "BertNormalizer":
			if n.Chinese != nil && !*n.Chinese {
				return errors.New("handle_chinese_chars false is not supported")
			}
			if n.Lowercase != nil {
				lower = *n.Lowercase
			}
			if n.StripAccents != nil {
				t.extra = append(t.extra, pair{prefix + "normalizer.strip_accents", *n.StripAccents})
			}
		default:
			return fmt.Errorf("the normalizer %q is not supported with WordPiece", n.Type)
		}
	}
	t.model, t.pre = "bert", "default"
	t.extra = append(t.extra, pair{prefix + "normalizer.lowercase", lower})
	t.fill()
	return nil
}

// readList reads a vocab.txt: one token a line.
func (t *tokens) readList(f *folder) error {
	b, err := f.bytes("vocab.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("the folder lacks tokenizer.json and vocab.txt")
	}
	if err != nil {
		return err
	}
	var config struct {
		Lower   *bool `json:"do_lower_case"`
		Accents *bool `json:"strip_accents"`
	}
	if err := f.optional("tokenizer_config.json", &config); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for id, text := range lines {
		text = strings.TrimSuffix(text, "\r")
		kind := kindNormal
		switch text {
		case "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]":
			kind = kindControl
		}
		if err := t.put(text, id, kind); err != nil {
			return fmt.Errorf("vocab.txt: %w", err)
		}
	}
	t.model, t.pre = "bert", "default"
	t.extra = append(t.extra, pair{prefix + "normalizer.lowercase", config.Lower == nil || *config.Lower})
	if config.Accents != nil {
		t.extra = append(t.extra, pair{prefix + "normalizer.strip_accents", *config.Accents})
	}
	t.fill()
	return nil
}

// spellWords writes WordPiece tokens as GGUF does: those that begin a word are marked, not those that continue one.
func (t *tokens) spellWords() {
	for id, text := range t.texts {
		if t.kinds[id] != kindNormal {
			continue
		}
		if rest, ok := strings.CutPrefix(text, "##"); ok {
			t.texts[id] = rest
		} else {
			t.texts[id] = wordStart + text
		}
	}
}
