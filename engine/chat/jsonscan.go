package chat

import (
	"encoding/json"
	"strings"
)

// scanState is what a jsonScanner expects next.
type scanState uint8

const (
	wantValue scanState = iota
	wantValueOrEnd
	wantKey
	wantKeyOrEnd
	wantColon
	wantCommaOrEnd
	inString
	inEscape
	inWord // a number, true, false or null
	scanDone
	scanBad
)

// jsonScanner checks one JSON object byte by byte as it arrives and notes where its own members lie.
type jsonScanner struct {
	text    []byte
	open    []byte // '{' or '[' of each level under way
	state   scanState
	isKey   bool // the string under way
	start   int  // of the string or word under way
	key     string
	members map[string]span

	inMember bool // a value of the object's own members is under way
	member   int  // where it starts
	last     int  // where the last one ended
}

// span is a part of a jsonScanner's text.
type span struct{ from, to int }

// maxScanDepth bounds the nesting of a call that a model writes.
const maxScanDepth = 200

func (s *jsonScanner) slice(x span) []byte { return s.text[x.from:x.to] }

// feed takes the next byte. It says false when the byte does not belong to the object: the state is scanDone after
// the object's last byte, scanBad when this byte makes it invalid.
func (s *jsonScanner) feed(c byte) bool {
	if s.state >= scanDone {
		return false
	}
	if s.state == inWord && !isWordByte(c) {
		if !json.Valid(s.text[s.start:]) {
			s.state = scanBad
			return false
		}
		s.valueEnds(len(s.text))
	}
	next := s.next(c)
	if next == scanBad {
		s.state = scanBad
		return false
	}
	s.state = next
	s.text = append(s.text, c)
	return true
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '+' || c == '-' || c == '.'
}

// next is the state after byte c.
func (s *jsonScanner) next(c byte) scanState {
	switch s.state {
	case inEscape:
		return inString
	case inString:
		return s.nextInString(c)
	case inWord:
		return inWord
	}
	if strings.IndexByte(" \t\r\n", c) >= 0 && len(s.open) > 0 {
		return s.state
	}
	switch {
	case c == '"' && (s.state == wantKey || s.state == wantKeyOrEnd):
		s.isKey, s.start = true, len(s.text)
		return inString
	case s.state == wantColon && c == ':':
		return wantValue
	case s.state == wantCommaOrEnd && c == ',':
		if s.open[len(s.open)-1] == '{' {
			return wantKey
		}
		return wantValue
	case c == '}' && (s.state == wantKeyOrEnd || s.state == wantCommaOrEnd), c == ']' && (s.state == wantValueOrEnd || s.state == wantCommaOrEnd):
		return s.closes(c)
	case s.state == wantValue || s.state == wantValueOrEnd:
		return s.valueStarts(c)
	}
	return scanBad
}

func (s *jsonScanner) nextInString(c byte) scanState {
	switch {
	case c == '\\':
		return inEscape
	case c < ' ':
		return scanBad
	case c != '"':
		return inString
	}
	raw := append(s.text[s.start:len(s.text):len(s.text)], c)
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return scanBad
	}
	if !s.isKey {
		s.valueEnds(len(s.text) + 1)
		return s.state
	}
	if len(s.open) == 1 {
		s.key = text
	}
	return wantColon
}

func (s *jsonScanner) valueStarts(c byte) scanState {
	if len(s.open) == 1 {
		s.inMember, s.member = true, len(s.text)
	}
	switch {
	case len(s.open) == 0 && c != '{' || len(s.open) >= maxScanDepth:
		return scanBad
	case c == '{':
		s.open = append(s.open, c)
		return wantKeyOrEnd
	case c == '[':
		s.open = append(s.open, c)
		return wantValueOrEnd
	case c == '"':
		s.isKey, s.start = false, len(s.text)
		return inString
	case isWordByte(c):
		s.start = len(s.text)
		return inWord
	}
	return scanBad
}

// closes ends the innermost object or array with c.
func (s *jsonScanner) closes(c byte) scanState {
	if last := len(s.open) - 1; s.open[last] == c-2 { // the code of '{' is two below that of '}', likewise brackets
		s.open = s.open[:last]
		s.valueEnds(len(s.text) + 1)
		return s.state
	}
	return scanBad
}

// valueEnds notes a value whose text ends at offset end.
func (s *jsonScanner) valueEnds(end int) {
	s.state = wantCommaOrEnd
	switch len(s.open) {
	case 0:
		s.state = scanDone
	case 1:
		if _, again := s.members[s.key]; again {
			s.state = scanBad
			return
		}
		if s.members == nil {
			s.members = map[string]span{}
		}
		s.members[s.key] = span{s.member, end}
		s.inMember, s.last = false, end
	}
}

// wantsBrace says whether the object would be complete with a closing brace.
func (s *jsonScanner) wantsBrace() bool {
	return len(s.open) == 1 && s.last > 0 && len(strings.TrimSpace(string(s.text[s.last:]))) == 0
}
