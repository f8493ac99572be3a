package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"onebit/engine"
	"onebit/engine/wire"
)

// message is one turn of a talk.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// talk is a conversation with a model.
type talk struct {
	backend  engine.Backend
	name     string // of the model; may be empty
	out      io.Writer
	terminal bool // decorate, and take away what could control the terminal
	system   string
	history  []message
}

// errStopped says that the user stopped an answer.
var errStopped = errors.New("stopped")

// converse holds the talk: with a person at a terminal, else for one question.
func (p program) converse(ctx context.Context, b engine.Backend, name string, terminal bool) error {
	t := &talk{backend: b, name: name, out: p.stdout, terminal: terminal}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupts)
	if err := stoppable(ctx, interrupts, b.Ready); err != nil {
		return err
	}
	if terminal {
		return t.session(ctx, p.stdin, interrupts)
	}
	return stoppable(ctx, interrupts, func(ctx context.Context) error {
		question, err := readAll(ctx, p.stdin)
		if err != nil {
			return fmt.Errorf("reading the question: %w", err)
		}
		if question == "" {
			return errors.New("there is no question on standard input")
		}
		return t.ask(ctx, question)
	})
}

// readAll reads to the end, or until ctx ends; then the reader is left alone.
func readAll(ctx context.Context, r io.Reader) (string, error) {
	type result struct {
		b   []byte
		err error
	}
	done := make(chan result, 1)
	go func() { // reading cannot be interrupted: it ends with the program
		b, err := io.ReadAll(r)
		done <- result{b, err}
	}()
	select {
	case got := <-done:
		return strings.TrimSpace(string(got.b)), got.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// stoppable runs f with a context that an interrupt ends.
func stoppable(ctx context.Context, interrupts <-chan os.Signal, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-interrupts:
			cancel(errStopped)
		case <-done:
		}
	}()
	err := f(ctx)
	close(done)
	<-watched
	return err
}

// session reads line by line until the end, /quit, or an interrupt at the prompt.
func (t *talk) session(ctx context.Context, in io.Reader, interrupts <-chan os.Signal) error {
	lines := make(chan string)
	go func() { // reading cannot be interrupted: it ends with the program
		defer close(lines)
		r := bufio.NewReader(in)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	fmt.Fprintln(t.out, "Ask something. /help shows what else there is.")
	for {
		fmt.Fprint(t.out, "\n> ")
		select {
		case line, ok := <-lines:
			line = strings.TrimSpace(line)
			switch {
			case !ok:
				fmt.Fprintln(t.out)
				return nil
			case strings.HasPrefix(line, "/"):
				if !t.command(line) {
					return nil
				}
			case line != "":
				t.answer(ctx, interrupts, line)
			}
		case <-interrupts:
			fmt.Fprintln(t.out)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// answer asks and shows what went wrong, if anything: the talk goes on.
func (t *talk) answer(ctx context.Context, interrupts <-chan os.Signal, line string) {
	err := stoppable(ctx, interrupts, func(ctx context.Context) error {
		// a child that has died comes back
		if err := t.backend.Ready(ctx); err != nil {
			return err
		}
		return t.ask(ctx, line)
	})
	switch {
	case errors.Is(err, errStopped):
		fmt.Fprintln(t.out, "[stopped]")
	case err != nil:
		fmt.Fprintf(t.out, "[%s]\n", printable(reasonOf(err)))
	}
}

// reasonOf returns what a person should read of an error.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*engine.StatusError](err); ok {
		return wire.FromBackend(e).Message
	}
	return err.Error()
}

// command does what a line with a slash says. It reports whether the talk goes on.
func (t *talk) command(line string) bool {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "/quit", "/exit":
		return false
	case "/reset":
		t.history = nil
		fmt.Fprintln(t.out, "[forgotten]")
	case "/system":
		t.system = strings.TrimSpace(rest)
		fmt.Fprintf(t.out, "[system message: %q]\n", t.system)
	case "/help":
		fmt.Fprintln(t.out, "/system TEXT  set the system message; without TEXT take it away\n/reset        forget the talk so far\n/quit         end (Ctrl-D too)\nCtrl-C        stop the answer")
	default:
		fmt.Fprintf(t.out, "[there is no %s; /help shows what there is]\n", word)
	}
	return true
}

// ask puts one question and writes the answer as it comes. The turn is remembered when there was an answer, also one
// that was stopped.
func (t *talk) ask(ctx context.Context, question string) error {
	req, err := t.request(question)
	if err != nil {
		return err
	}
	var said strings.Builder
	show := shower{out: t.out, terminal: t.terminal}
	_, err = t.backend.Generate(ctx, req, func(c engine.Chunk) error {
		d, err := wire.ReadDelta(c.Raw)
		if err != nil {
			return err
		}
		said.WriteString(d.Content)
		return show.delta(d)
	})
	if said.Len() > 0 {
		t.history = append(t.history, message{"user", question}, message{"assistant", said.String()})
	}
	return errors.Join(err, show.end())
}

// request builds the request for the next turn.
func (t *talk) request(question string) (*engine.Request, error) {
	var messages []message
	if t.system != "" {
		messages = append(messages, message{"system", t.system})
	}
	messages = append(append(messages, t.history...), message{"user", question})
	body, err := json.Marshal(struct {
		Model    string    `json:"model,omitempty"`
		Messages []message `json:"messages"`
		Stream   bool      `json:"stream"`
	}{t.name, messages, true})
	if err != nil {
		return nil, err
	}
	return wire.ParseChat(body)
}

// shower writes an answer: on a terminal hidden reasoning is dim, elsewhere it is left out.
type shower struct {
	out      io.Writer
	terminal bool
	dim      bool
	last     byte
}

func (s *shower) delta(d wire.Delta) error {
	if s.terminal && d.Reasoning != "" {
		if err := s.write("\x1b[2m", printable(d.Reasoning)); err != nil {
			return err
		}
		s.dim = true
	}
	if d.Content == "" {
		return nil
	}
	text := d.Content
	if s.terminal {
		text = printable(text)
	}
	if s.dim {
		s.dim = false
		text = "\x1b[0m\n\n" + text
	}
	return s.write("", text)
}

func (s *shower) write(before, text string) error {
	if text != "" {
		s.last = text[len(text)-1]
	}
	_, err := io.WriteString(s.out, before+text)
	return err
}

// end closes the line.
func (s *shower) end() error {
	if s.dim {
		s.dim = false
		return s.write("", "\x1b[0m\n")
	}
	if s.last == 0 || s.last == '\n' {
		return nil
	}
	return s.write("", "\n")
}

// printable takes out what could control a terminal: a model's words are not to be trusted with that.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}
