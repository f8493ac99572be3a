package wire

import (
	"bytes"
	"encoding/json"
)

// HeadReader reads the heads of the events of one stream. The events of an answer differ mostly in one string, the text
// that was generated. So it remembers what stood before and after that string, and where that is the same again it
// knows the head without looking at each member.
type HeadReader struct {
	prefix []byte // up to the string's opening quote, included
	suffix []byte // from its closing quote
	head   Head   // of the remembered event; only its places and Finished count
	model  int    // length of the value of model
	inTail bool   // model stands after the string
	known  bool
	vain   int // how often something was remembered that did not come again
}

// textKeys are the members whose strings are the generated text.
var textKeys = [...]string{`"content":"`, `"reasoning_content":"`, `"text":"`, `"arguments":"`}

// tries is how often a HeadReader remembers in vain before it gives up.
const tries = 16

// Read returns what ReadHead returns, with Finished. It allocates nothing once the stream's pattern has been seen.
func (h *HeadReader) Read(raw []byte) (Head, error) {
	if head, ok := h.same(raw); ok {
		h.vain = 0
		return head, nil
	}
	head, err := ReadHead(raw)
	if err != nil {
		return Head{}, err
	}
	head.Finished = Finished(raw)
	if h.vain < tries {
		h.vain++
		h.learn(raw, head)
	}
	return head, nil
}

// same returns the head of an event that differs from the remembered one in the string alone.
func (h *HeadReader) same(raw []byte) (Head, bool) {
	if !h.known || !bytes.HasPrefix(raw, h.prefix) {
		return Head{}, false
	}
	closing := skipString(raw, len(h.prefix)-1) - 1
	if closing < 0 || !bytes.Equal(raw[closing:], h.suffix) {
		return Head{}, false
	}
	head := Head{modelAt: h.head.modelAt, Finished: h.head.Finished}
	if h.inTail {
		head.modelAt += closing
	}
	head.Model = raw[head.modelAt : head.modelAt+h.model]
	return head, true
}

// learn remembers an event: one that says nothing but a model and a string.
func (h *HeadReader) learn(raw []byte, head Head) {
	h.known = false
	if head.Model == nil || head.Usage != nil || head.Error != nil {
		return
	}
	for _, key := range textKeys {
		at := bytes.Index(raw, []byte(key))
		if at < 0 {
			continue
		}
		opening := at + len(key) - 1
		closing := skipString(raw, opening) - 1
		inside := head.modelAt <= closing && head.modelAt+len(head.Model) > opening
		if closing < 0 || inside || !json.Valid(raw) {
			return // in valid JSON the key cannot lie inside a string, and its quotes are what they seem
		}
		h.prefix = append(h.prefix[:0], raw[:opening+1]...)
		h.suffix = append(h.suffix[:0], raw[closing:]...)
		h.head, h.model, h.inTail, h.known = Head{modelAt: head.modelAt, Finished: head.Finished}, len(head.Model), head.modelAt > closing, true
		if h.inTail {
			h.head.modelAt -= closing
		}
		return
	}
}
