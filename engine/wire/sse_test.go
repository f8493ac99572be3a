package wire_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"onebit/engine/wire"
)

// read returns the events of a stream as "name|data", and the error at its end.
func read(r io.Reader) (events []string, err error) {
	events = []string{}
	er := wire.NewEventReader(r)
	for {
		e, err := er.Next()
		if err != nil {
			return events, err
		}
		events = append(events, e.Name+"|"+string(e.Data))
	}
}

func TestEventReader(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for _, c := range []struct {
		name, stream string
		want         []string
		err          error
	}{
		{"empty", "", []string{}, io.EOF},
		{"one", "data: a\n\n", []string{"|a"}, io.EOF},
		{"no space", "data:a\n\n", []string{"|a"}, io.EOF},
		{"CR LF", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"|a", "|b"}, io.EOF},
		{"several lines", "data: {\ndata: }\n\n", []string{"|{\n}"}, io.EOF},
		{"comment", ": ping\n\ndata: a\n\n: ping\n\n", []string{"|a"}, io.EOF},
		{"no data", "event: x\n\ndata: a\n\n", []string{"|a"}, io.EOF},
		{"empty data", "data:\n\ndata: a\n\n", []string{"|a"}, io.EOF},
		{"named", "event: message_start\ndata: {}\nid: 4\nretry: 10\n\n", []string{"message_start|{}"}, io.EOF},
		{"error field", "error: {\"code\":500}\n\n", []string{"error|{\"code\":500}"}, io.EOF},
		{"error event", "event: error\ndata: {}\n\n", []string{"error|{}"}, io.EOF},
		{"long line", "data: " + long + "\n\ndata: b\n\n", []string{"|" + long, "|b"}, io.EOF},
		{"last blank line missing", "data: a\n", []string{"|a"}, io.EOF},
		{"done without line end", "data: a\n\ndata: [DONE]", []string{"|a", "|[DONE]"}, io.EOF},
		{"cut in a line", "data: a\n\ndata: {\"b", []string{"|a"}, io.ErrUnexpectedEOF},
		{"cut in the second line", "data: {\ndata: ", []string{}, io.ErrUnexpectedEOF},
	} {
		t.Run(c.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"at once":   strings.NewReader(c.stream),
				"in halves": iotest.HalfReader(strings.NewReader(c.stream)),
				"by bytes":  iotest.OneByteReader(strings.NewReader(c.stream)),
			} {
				got, err := read(r)
				if diff := cmp.Diff(c.want, got); diff != "" || !errors.Is(err, c.err) {
					t.Errorf("%s: end %v, want %v; events (-want +got):\n%s", how, err, c.err, diff)
				}
			}
		})
	}
}

func TestEventReaderPassesOnFailures(t *testing.T) {
	broken := errors.New("broken")
	got, err := read(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || len(got) != 1 {
		t.Errorf("got %q and %v, want one event and the reader's error", got, err)
	}
}

// endless repeats one piece for ever.
type endless struct {
	piece string
	at    int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		step := copy(p[n:], e.piece[e.at:])
		n, e.at = n+step, (e.at+step)%len(e.piece)
	}
	return n, nil
}

func TestEventReaderBoundsAnEvent(t *testing.T) {
	for name, piece := range map[string]string{"one line": "xxxxxxxx", "many lines": "data: " + strings.Repeat("x", 1000) + "\n"} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.NewEventReader(io.MultiReader(strings.NewReader("data: "), &endless{piece: piece})).Next()
			if !errors.Is(err, wire.ErrEventTooLong) {
				t.Errorf("got %v, want ErrEventTooLong", err)
			}
		})
	}
}

func TestEventReaderDoesNotAllocate(t *testing.T) {
	events := func(n int) float64 {
		stream := bytes.Repeat([]byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}`+"\n\n"), n)
		quoted := wire.Quote("served")
		out := make([]byte, 0, 1024)
		return testing.AllocsPerRun(10, func() {
			r := wire.NewEventReader(bytes.NewReader(stream))
			seen := 0
			for {
				e, err := r.Next()
				if err != nil {
					break
				}
				seen++
				out = wire.AppendEvent(wire.AppendRenamed(out[:0], e.Data, quoted), nil)
			}
			if seen != n {
				t.Fatalf("read %d events, want %d", seen, n)
			}
		})
	}
	// a burst takes a larger buffer once
	if few, some, many := events(10), events(1000), events(10000); some > few+1 || many > some {
		t.Errorf("10 events allocate %v times, 1000 events %v times, 10000 events %v times", few, some, many)
	}
}

func TestAppendEvent(t *testing.T) {
	got := string(wire.AppendEvent([]byte("x"), []byte("{\n \"a\":\r\n1}")))
	if want := "xdata: {  \"a\":  1}\n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzSSE holds that any stream is read to an end, whatever its cuts, and that what was read, written again, reads the
// same.
func FuzzSSE(f *testing.F) {
	f.Add([]byte("data: {\"a\":1}\n\ndata: [DONE]\n\n"))
	f.Add([]byte(": ping\r\n\r\nevent: error\r\ndata: x\r\ndata: y\r\n\r\n"))
	f.Add([]byte("error: {}\n\ndata"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		whole, errWhole := read(bytes.NewReader(stream))
		cut, errCut := read(iotest.OneByteReader(bytes.NewReader(stream)))
		if diff := cmp.Diff(whole, cut); diff != "" || !errors.Is(errWhole, errCut) {
			t.Fatalf("reading by bytes differs: %v and %v, (-whole +cut)\n%s", errWhole, errCut, diff)
		}
		var again []byte
		var want []string
		for _, e := range whole {
			_, data, _ := strings.Cut(e, "|")
			data = strings.NewReplacer("\n", " ", "\r", " ").Replace(data)
			want = append(want, "|"+data)
			again = wire.AppendEvent(again, []byte(data))
		}
		got, err := read(bytes.NewReader(again))
		if !errors.Is(err, io.EOF) || !cmp.Equal(got, append([]string{}, want...)) {
			t.Fatalf("written again it reads %q (%v), want %q", got, err, want)
		}
	})
}

// short reads a few bytes at a time.
type short struct {
	r io.Reader
	n int
}

func (s short) Read(p []byte) (int, error) { return s.r.Read(p[:min(len(p), s.n)]) }

// TestEventReaderCuts holds that long and short events are read whole however they come, also past the buffer's size.
func TestEventReaderCuts(t *testing.T) {
	var stream strings.Builder
	var want []string
	for i, n := range []int{1, 32760, 5, 32761, 32762, 100_000, 7, 20_000, 20_000, 3, 70_000} {
		data := string(rune('a'+i)) + strings.Repeat("x", n)
		want = append(want, "|"+data)
		stream.WriteString("data: " + data + "\n\n")
	}
	for _, n := range []int{1 << 20, 30_000, 4096, 999} {
		got, err := read(short{strings.NewReader(stream.String()), n})
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes at a time: %v, (-want +got)\n%.300s", n, err, diff)
		}
	}
}

// TestMore holds that only an event that lies there whole counts as one more.
func TestMore(t *testing.T) {
	for _, c := range []struct {
		rest string
		want bool
	}{
		{"", false},
		{"data: {\"b\":1}\n\n", true},
		{"data: {\"b\":1}\n\ndata: {\"c\"", true},
		{"event: x\ndata: {\"b\":1}\n\n", true},
		{"data: {\"b\":1}\n", false},
		{"data: {\"b\"", false},
		{": ping\n\n", false},
		{": ping\n\ndata: {\"b\":1}\n", false},
		{"data:\n\n", false},
		{"data: [DONE]\n\n", false},
		{"\n\n", false},
	} {
		r := wire.NewEventReader(strings.NewReader("data: {\"a\":1}\n\n" + c.rest))
		if r.More() {
			t.Errorf("%q: More before anything was read", c.rest)
		}
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if got := r.More(); got != c.want {
			t.Errorf("%q: More = %v, want %v", c.rest, got, c.want)
		}
		if got, want := r.Ends(), c.rest == "data: [DONE]\n\n"; got != want {
			t.Errorf("%q: Ends = %v", c.rest, got)
		}
	}
}
