package template

import (
	"fmt"
	"slices"
	"strings"
)

// What a template's source may hold, far above what model authors write.
const (
	maxSource = 1 << 20 // bytes
	maxPieces = 8000    // tags and texts
	maxTokens = 4000    // in one tag
	maxDepth  = 200     // of brackets, operators, filters
	maxBlocks = 60      // nesting of blocks
)

// translator turns a template's pieces into source for the evaluating library. The result means what Jinja2 means
// by the template and does the work that needs watching through host functions: see code. It holds no text
// between tags (a string in an output tag instead), so that whitespace control is decided here alone.
type translator struct {
	pieces []piece
	pos    int
	out    strings.Builder
	temps  int
	level  int
	frames []*frame
}

// frame is a scope of the template: the file, a macro, a loop.
type frame struct {
	loop   bool     // break and continue mean something
	names  []string // assigned within, loops only
	target []string // loop variables
}

// translate returns the library's source for a template; errors are *SyntaxError.
func translate(source string) (string, error) {
	if len(source) > maxSource {
		return "", &SyntaxError{Reason: fmt.Sprintf("%d bytes, the limit is %d", len(source), maxSource)}
	}
	pieces, err := lex(source)
	if err != nil {
		return "", err
	}
	t := &translator{pieces: pieces, frames: []*frame{{}}}
	if _, err := t.block(0); err != nil {
		return "", err
	}
	return t.out.String(), nil
}

func (t *translator) write(format string, args ...any) { fmt.Fprintf(&t.out, format, args...) }

// temp is a new variable name that the template cannot use.
func (t *translator) temp() string {
	t.temps++
	return fmt.Sprintf("__t%d", t.temps)
}

// block translates pieces up to one of the stop statements, which it consumes and returns; opened is the line of
// the statement that needs one, 0 for the whole template.
func (t *translator) block(opened int, stops ...string) (*statement, error) {
	if t.level++; t.level > maxBlocks {
		return nil, &SyntaxError{Line: opened, Reason: fmt.Sprintf("blocks nest deeper than %d", maxBlocks)}
	}
	defer func() { t.level-- }()
	for t.pos < len(t.pieces) {
		p := t.pieces[t.pos]
		t.pos++
		switch p.kind {
		case textPiece:
			t.write("{{ __write(%s) }}", quote(p.text).src)
		case outputPiece:
			e := &exprParser{tokens: p.tokens}
			c := e.tuple(e.condition)
			if err := e.finish(p.line); err != nil {
				return nil, err
			}
			t.write("{{ __write(%s) }}", c.src)
		case stmtPiece:
			s := &statement{exprParser: exprParser{tokens: p.tokens}, line: p.line}
			s.keyword = s.take().val
			if slices.Contains(stops, s.keyword) {
				return s, nil
			}
			if err := t.statement(s); err != nil {
				return nil, err
			}
		}
	}
	if opened > 0 {
		return nil, &SyntaxError{Line: opened, Reason: "block is not closed, expected " + strings.Join(stops, " or ")}
	}
	return nil, nil
}

// statement is a {% %} tag behind its keyword.
type statement struct {
	exprParser
	keyword string
	line    int
}

// finish reports the parse's error, or tokens left over, with their line.
func (p *exprParser) finish(line int) error {
	p.done()
	if p.err != nil {
		return &SyntaxError{Line: line, Reason: p.err.Error()}
	}
	return nil
}

func (t *translator) statement(s *statement) error {
	switch s.keyword {
	case "if":
		return t.ifBlock(s)
	case "for":
		return t.forLoop(s)
	case "set":
		return t.set(s)
	case "macro":
		return t.macro(s)
	case "call":
		return t.callBlock(s)
	case "filter":
		return t.filterBlock(s)
	case "do":
		c := s.tuple(s.condition)
		t.write("{%% set __ = %s %%}", c.src)
		return s.finish(s.line)
	case "generation":
		// Marks the model's own turns for training; it renders what it holds.
		if err := s.finish(s.line); err != nil {
			return err
		}
		return t.until(s.line, "endgeneration")
	case "break", "continue":
		if !t.frames[len(t.frames)-1].loop {
			return &SyntaxError{Line: s.line, Reason: s.keyword + " outside a loop"}
		}
		t.write("{%% %s %%}", s.keyword)
		return s.finish(s.line)
	}
	return &SyntaxError{Line: s.line, Reason: fmt.Sprintf("the statement %q is not supported", s.keyword)}
}

// until translates a block whose end tag takes nothing.
func (t *translator) until(line int, stop string) error {
	end, err := t.block(line, stop)
	if err != nil {
		return err
	}
	if stop == "endset" || stop == "endmacro" {
		end.skipName()
	}
	return end.finish(end.line)
}

func (p *exprParser) skipName() {
	if p.peek().kind == nameToken {
		p.pos++
	}
}

func (t *translator) ifBlock(s *statement) error {
	line := s.line
	for {
		switch s.keyword {
		case "if", "elif":
			c := s.tuple(s.condition)
			t.write("{%% %s %s %%}", s.keyword, c.src)
		case "else":
			t.write("{%% else %%}")
		case "endif":
			t.write("{%% endif %%}")
			return s.finish(s.line)
		}
		if err := s.finish(s.line); err != nil {
			return err
		}
		stops := []string{"elif", "else", "endif"}
		if s.keyword == "else" {
			stops = []string{"endif"}
		}
		var err error
		if s, err = t.block(line, stops...); err != nil {
			return err
		}
	}
}

// forLoop translates a loop. Jinja2 gives each round a fresh scope, the library keeps one for all rounds: what the
// body assigns is saved before the loop and restored at the start of each round.
func (t *translator) forLoop(s *statement) error {
	targets := s.targets()
	if !s.skipWord("in") {
		s.fail("expected \"in\", found %s", s.peek().describe())
	}
	items := s.call("__each", s.tuple(s.or))
	item := targets[0]
	if len(targets) > 1 {
		item = t.temp()
		s.names = map[string]code{}
		for i, name := range targets {
			s.names[name] = code{fmt.Sprintf("__item(%s, %d)", item, i), 1}
		}
	}
	var only code
	if s.skipWord("if") {
		only = s.build(" if (%s)", s.condition())
	}
	if err := s.finish(s.line); err != nil {
		return err
	}
	head := fmt.Sprintf("{%% for %s in %s%s %%}{{ __round() }}", item, items.src, only.src)
	for i, name := range targets {
		if len(targets) > 1 {
			head += fmt.Sprintf("{%% set %s = __item(%s, %d) %%}", name, item, i)
		}
	}
	outer := t.out
	t.out = strings.Builder{}
	f := &frame{loop: true, target: targets}
	t.frames = append(t.frames, f)
	end, err := t.block(s.line, "else", "endfor")
	t.frames = t.frames[:len(t.frames)-1]
	body := t.out.String()
	t.out = outer
	if err != nil {
		return err
	}
	for _, name := range f.names {
		saved := t.temp()
		t.write("{%% set %s = %s %%}", saved, name)
		head += fmt.Sprintf("{%% set %s = %s %%}", name, saved)
	}
	t.out.WriteString(head + body)
	if end.keyword == "else" {
		t.write("{%% else %%}")
		if err := end.finish(end.line); err != nil {
			return err
		}
		if end, err = t.block(s.line, "endfor"); err != nil {
			return err
		}
	}
	t.write("{%% endfor %%}")
	return end.finish(end.line)
}

// targets reads the names before "in" or "=", with or without parentheses.
func (p *exprParser) targets() []string {
	parenthesis := p.skip("(")
	names := []string{p.name()}
	for p.skip(",") {
		names = append(names, p.name())
	}
	if parenthesis {
		p.expect(")")
	}
	return names
}

// assigned notes that the template binds name in the innermost loop.
func (t *translator) assigned(name string) {
	f := t.frames[len(t.frames)-1]
	if f.loop && !slices.Contains(f.names, name) && !slices.Contains(f.target, name) {
		f.names = append(f.names, name)
	}
}

// set translates an assignment to names, to a namespace's attribute, or of a block.
func (t *translator) set(s *statement) error {
	if s.pos+1 < len(s.tokens) && s.tokens[s.pos+1].is(".") {
		object := s.name()
		s.expect(".")
		attr := s.take()
		if attr.kind != nameToken || strings.HasPrefix(attr.val, "__") {
			s.fail("expected an attribute, found %s", attr.describe())
		}
		return t.assign(s, []string{object + "." + attr.val})
	}
	names := s.targets()
	for _, n := range names {
		t.assigned(n)
	}
	return t.assign(s, names)
}

// assign translates what follows the targets of a set statement.
func (t *translator) assign(s *statement, targets []string) error {
	var value code
	if s.skip("=") {
		value = s.tuple(s.condition)
		if err := s.finish(s.line); err != nil {
			return err
		}
	} else {
		saved := t.temp()
		value = s.filters(code{saved, 0})
		if err := s.finish(s.line); err != nil {
			return err
		}
		t.write("{%% set %s %%}", saved)
		if err := t.until(s.line, "endset"); err != nil {
			return err
		}
		t.write("{%% endset %%}")
	}
	if len(targets) == 1 {
		t.write("{%% set %s = %s %%}", targets[0], value.src)
		return nil
	}
	whole := t.temp()
	t.write("{%% set %s = __unpack(%s, %d) %%}", whole, value.src, len(targets))
	for i, name := range targets {
		t.write("{%% set %s = __item(%s, %d) %%}", name, whole, i)
	}
	return nil
}

// macro translates a definition; defaults become assignments in the body, as the library's own splits at any comma.
func (t *translator) macro(s *statement) error {
	name := s.name()
	t.assigned(name)
	s.expect("(")
	var params []string
	var defaults strings.Builder
	for !s.skip(")") && s.err == nil {
		if len(params) > 0 {
			s.expect(",")
		}
		param := s.name()
		params = append(params, param)
		if s.skip("=") {
			fmt.Fprintf(&defaults, "{%% if %s is undefined %%}{%% set %s = %s %%}{%% endif %%}", param, param, s.condition().src)
		}
	}
	if err := s.finish(s.line); err != nil {
		return err
	}
	t.write("{%% macro %s(%s) %%}{{ __enter() }}%s", name, strings.Join(params, ", "), defaults.String())
	t.frames = append(t.frames, &frame{})
	err := t.until(s.line, "endmacro")
	t.frames = t.frames[:len(t.frames)-1]
	t.write("{{ __leave() }}{%% endmacro %%}")
	return err
}

// callBlock translates a call whose body the callee may render as caller().
func (t *translator) callBlock(s *statement) error {
	params := ""
	if s.skip("(") && !s.skip(")") {
		s.pos--
		params = "(" + strings.Join(s.targets(), ", ") + ")"
	}
	callee := s.primary()
	for s.skip(".") {
		callee = s.build("%s."+s.name(), callee)
	}
	s.expect("(")
	args := s.args()
	c := s.build("__printer(%s)"+holes(len(args)), append([]code{callee}, args...)...)
	if err := s.finish(s.line); err != nil {
		return err
	}
	t.write("{%% call%s %s %%}{{ __enter() }}", params, c.src)
	t.frames = append(t.frames, &frame{})
	err := t.until(s.line, "endcall")
	t.frames = t.frames[:len(t.frames)-1]
	t.write("{{ __leave() }}{%% endcall %%}")
	return err
}

// filterBlock translates a block whose text goes through filters.
func (t *translator) filterBlock(s *statement) error {
	saved := t.temp()
	s.tokens = slices.Insert(slices.Clone(s.tokens), s.pos, token{opToken, "|"})
	c := s.filters(code{saved, 0})
	if err := s.finish(s.line); err != nil {
		return err
	}
	t.write("{%% set %s %%}", saved)
	if err := t.until(s.line, "endfilter"); err != nil {
		return err
	}
	t.write("{%% endset %%}{{ __write(%s) }}", c.src)
	return nil
}
