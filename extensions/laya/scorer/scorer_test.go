package scorer_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/laya/scorer"
)

var (
	_ scorer.Scorer = scorer.Module{}
	_ scorer.Scorer = (*scorer.Decisions)(nil)
	_ scorer.Scorer = (*scorer.Daemon)(nil)
)

// standIn is the argument by which this test's program becomes a daemon.
const standIn = "stand-in-daemon"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == standIn {
		daemon(os.Args[2], os.Args[3:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// daemon is a stand-in for the reference's: it answers by words of the text.
func daemon(manner string, args []string) {
	switch manner {
	case "mute":
		time.Sleep(time.Hour) // until it is killed
	case "unready":
		fmt.Println("cannot open the model")
		return
	}
	if strings.Join(args, " ") != "daemon model.gguf --family typed-decisions --device hrx" {
		fmt.Printf("{\"status\":\"called with %q\"}\n", args)
		return
	}
	fmt.Println(`{"status":"ready","pid":1}`)
	if manner == "brief" {
		bufio.NewScanner(os.Stdin).Scan()
		fmt.Println(`{"answers":{"cls":{"type":"choice","choice":"code","confidence":0.42,"probabilities":{"code":0.8,"prose":0.1,"short":0.1}}}}`)
		return
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var q struct{ State string }
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			fmt.Println(`{"error":"not JSON"}`)
			continue
		}
		switch {
		case strings.Contains(q.State, "late"):
			time.Sleep(2 * time.Second)
			fmt.Println(`{"answers":{"cls":{"choice":"prose","confidence":0.9}}}`)
		case strings.Contains(q.State, "die"):
			return
		case strings.Contains(q.State, "twice"):
			fmt.Println(`{"answers":{"cls":{"choice":"short","confidence":0.5}}}` + "\n" + `{"answers":{"cls":{"choice":"prose","confidence":0.5}}}`)
		case strings.Contains(q.State, "odd"):
			fmt.Println(`{"answers":{"cls":{"choice":"poem","confidence":0.5}}}`)
		default:
			fmt.Println(`{"answers":{"cls":{"type":"choice","choice":"code","confidence":0.42,"probabilities":{"code":0.8,"prose":0.1,"short":0.1}}}}`)
		}
	}
}

func newDaemon(t *testing.T, manner string, change func(*scorer.DaemonConfig)) *scorer.Daemon {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cfg := scorer.DaemonConfig{
		Program: []string{self, standIn, manner}, Model: "model.gguf", Device: "hrx", Log: slog.New(slog.DiscardHandler),
		Ready: 20 * time.Second, Ask: 20 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	d, err := scorer.NewDaemon(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// right fails unless the scorer answers as the stand-in does.
func right(t *testing.T, s scorer.Scorer) {
	t.Helper()
	a, err := s.Score(t.Context(), "write a parser")
	if err != nil || a.Class != "code" || a.Confidence != 0.42 || a.Scores["code"] != 0.8 {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestDaemon(t *testing.T) {
	d := newDaemon(t, "polite", nil)
	right(t, d)
	for _, text := range []string{"die", "odd"} {
		if a, err := d.Score(t.Context(), text); err == nil {
			t.Errorf("%s: %+v", text, a)
		}
		right(t, d) // another process
	}
	if a, err := d.Score(t.Context(), strings.Repeat("x", 1024)); err != nil || a.Class != "long_doc" || a.Confidence != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestDaemonLate: the answer that comes after its time is nobody's.
func TestDaemonLate(t *testing.T) {
	d := newDaemon(t, "polite", func(c *scorer.DaemonConfig) { c.Ask = 300 * time.Millisecond })
	for d := d; ; { // a busy machine may take longer than that for the first
		if _, err := d.Score(t.Context(), "write a parser"); err == nil {
			break
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if a, err := d.Score(t.Context(), "late"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%+v, %v", a, err)
	}
	for range 5 {
		if a, err := d.Score(t.Context(), "write a parser"); err == nil && a.Class != "code" {
			t.Fatalf("the late answer was taken: %+v", a)
		}
	}
}

// TestDaemonSpeaksUnasked: a line too many ends the process, so that it is not the next question's answer.
func TestDaemonSpeaksUnasked(t *testing.T) {
	d := newDaemon(t, "polite", nil)
	if a, err := d.Score(t.Context(), "twice"); err != nil || a.Class != "short" {
		t.Fatalf("%+v, %v", a, err)
	}
	wrong := 0
	for range 4 {
		if a, err := d.Score(t.Context(), "write a parser"); err == nil && a.Class != "code" {
			wrong++ // it came between the question and its answer, and lines have no numbers
		}
	}
	if a, err := d.Score(t.Context(), "write a parser"); wrong > 1 || err != nil || a.Class != "code" {
		t.Errorf("the stray line was taken %d times; the last answer is %+v, %v", wrong, a, err)
	}
}

// TestDaemonDies: one that ends between two questions is started again before the next, which is answered.
func TestDaemonDies(t *testing.T) {
	d := newDaemon(t, "brief", nil)
	for range 3 {
		right(t, d)
		time.Sleep(200 * time.Millisecond) // it ends after each answer
	}
}

func TestDaemonStart(t *testing.T) {
	if _, err := newDaemon(t, "unready", nil).Score(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "cannot open the model") {
		t.Errorf("unready: %v", err)
	}
	mute := newDaemon(t, "mute", func(c *scorer.DaemonConfig) { c.Ready = 100 * time.Millisecond })
	if _, err := mute.Score(t.Context(), "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("mute: %v", err)
	}
	none := newDaemon(t, "", func(c *scorer.DaemonConfig) { c.Program = []string{"/does/not/exist"} })
	if _, err := none.Score(t.Context(), "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
	closed := newDaemon(t, "polite", nil)
	right(t, closed)
	closed.Close()
	if _, err := closed.Score(t.Context(), "x"); !errors.Is(err, scorer.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := scorer.NewDaemon(scorer.DaemonConfig{}); err == nil {
		t.Error("an empty configuration is taken")
	}
}

// TestDaemonGivesUp: a caller that leaves while another's question runs does not wait for it.
func TestDaemonGivesUp(t *testing.T) {
	d := newDaemon(t, "polite", nil)
	right(t, d)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { _, err := d.Score(ctx, "late"); done <- err }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	right(t, d)
}

func TestDecisions(t *testing.T) {
	const good = `{"answers":{"cls":{"type":"choice","choice":"code","confidence":0.42,"probabilities":{"code":0.8,"prose":0.1,"short":0.1}}},"usage":{"output_tokens":0}}`
	var asked string
	status, body := 200, good
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = r.Method + " " + r.URL.Path + " " + string(b)
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	defer server.Close()
	d, err := scorer.NewDecisions(server.URL+"/", server.Client())
	if err != nil {
		t.Fatal(err)
	}
	right(t, d)
	if !strings.HasPrefix(asked, `POST /v1/systemone {"state":"write a parser","questions":{"cls":{"type":"choice","instructions":"`) ||
		strings.Index(asked, `"code":`) > strings.Index(asked, `"prose":`) || strings.Index(asked, `"prose":`) > strings.Index(asked, `"short":`) {
		t.Errorf("asked %s", asked)
	}
	if !json.Valid([]byte(strings.SplitN(asked, " ", 3)[2])) {
		t.Errorf("not JSON: %s", asked)
	}
	asked = ""
	if a, err := d.Score(t.Context(), strings.Repeat("x", 1024)); err != nil || a.Class != "long_doc" || asked != "" {
		t.Errorf("%+v, %v, asked %q", a, err, asked)
	}
	body = `{"cls":{"choice":"short","probabilities":{"code":0,"prose":0,"short":1}}}`
	if a, err := d.Score(t.Context(), "hi"); err != nil || a.Class != "short" || a.Confidence != 1 {
		t.Errorf("without a confidence: %+v, %v", a, err)
	}
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"no decision model": {501, ""}, "bad request": {400, good}, "not JSON": {200, "<html>"}, "no choice": {200, "{}"},
		"not offered": {200, `{"answers":{"cls":{"choice":"long_doc"}}}`}, "too sure": {200, `{"answers":{"cls":{"choice":"code","confidence":1.5}}}`},
		"a probability below zero": {200, `{"answers":{"cls":{"choice":"code","probabilities":{"code":-1}}}}`}, "too long": {200, good + strings.Repeat(" ", 1<<17)},
	} {
		status, body = c.status, c.body
		if a, err := d.Score(t.Context(), "hi"); err == nil || errors.Is(err, scorer.ErrNoDecisions) != (c.status == 501) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	for d.Wording = range scorer.Wordings {
		body, status = good, 200
		right(t, d)
		if !json.Valid([]byte(strings.SplitN(asked, " ", 3)[2])) {
			t.Errorf("wording %d: not JSON: %s", d.Wording, asked)
		}
	}
	if _, err := scorer.NewDecisions("localhost:80", nil); err == nil {
		t.Error("a base that is no URL is taken")
	}
}

func TestModule(t *testing.T) {
	var got abi.Request
	var d *abi.Decision
	var fail error
	m := scorer.Module{Ask: func(_ context.Context, r *abi.Request) (*abi.Decision, error) { got = *r; return d, fail }}
	d = &abi.Decision{Action: abi.ActionRoute, Class: "code", Confidence: 0.42, Scores: map[string]float64{"code": 0.8}}
	right(t, m)
	long := strings.Repeat("é", 4000)
	if _, err := m.Score(t.Context(), long); err != nil || got.Bytes != len(long) || len(got.Head) != abi.MaxHead || len(got.Tail) != abi.MaxTail {
		t.Errorf("bytes %d, head %d, tail %d, %v", got.Bytes, len(got.Head), len(got.Tail), err)
	}
	for _, d = range []*abi.Decision{nil, {Action: abi.ActionAbstain}, {Action: abi.ActionRoute}} {
		if _, err := m.Score(t.Context(), "x"); !errors.Is(err, scorer.ErrNoOpinion) {
			t.Errorf("%+v: %v", d, err)
		}
	}
	if fail = errors.New("down"); true {
		if _, err := m.Score(t.Context(), "x"); !errors.Is(err, fail) {
			t.Errorf("%v", err)
		}
	}
}

// FuzzAnswers: what a decision model answers is a class that was offered with numbers from 0 to 1, or an error.
func FuzzAnswers(f *testing.F) {
	for _, s := range []string{`{"answers":{"cls":{"choice":"code","confidence":0.42,"probabilities":{"code":0.8}}}}`, `{"cls":{"choice":"short"}}`, `{"answers":null}`, `[`, `{"answers":{"cls":{"choice":"prose","probabilities":{"a":0,"b":0}}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := scorer.ReadAnswers(b)
		if err == nil && (a.Class != "code" && a.Class != "short" && a.Class != "prose" || !(a.Confidence >= 0 && a.Confidence <= 1)) {
			t.Errorf("%s: %+v", b, a)
		}
	})
}
