package main_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	main "onebit/appliance"
	"onebit/engine/backendtest"
	"onebit/engine/gguf"
	"onebit/engine/gguf/synth"
	"onebit/engine/tensor"
)

// turn is one message of a request.
type turn struct{ Role, Content string }

// server is a stand-in that remembers what it was asked.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	asked [][]turn
	names []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{}
	standin := &backendtest.Standin{Model: "m"}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.URL.Path == "/v1/chat/completions" {
			var req struct {
				Model    string
				Messages []turn
				Stream   bool
			}
			if err := json.Unmarshal(body, &req); err != nil || !req.Stream {
				t.Errorf("request %s: %v", body, err)
			}
			s.mu.Lock()
			s.asked, s.names = append(s.asked, req.Messages), append(s.names, req.Model)
			s.mu.Unlock()
			// the last message tells the stand-in what to do
			if word, ok := strings.CutPrefix(req.Messages[len(req.Messages)-1].Content, "standin "); ok {
				body = bytes.Replace(body, []byte("{"), []byte(`{"standin":"`+word+`",`), 1)
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		standin.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestChatPiped(t *testing.T) {
	for _, c := range []struct {
		name, in, out, err string
		status             int
	}{
		{"a question", "What is the capital\nof France?\n", "The capital of France is Paris.\n", "", 0},
		{"nothing", " \n", "", "1bit chat: there is no question on standard input\n", 1},
		{"refused", "standin refuse", "", "1bit chat: no such thing\n", 1},
		{"broken off", "standin cut", "The capital\n", "1bit chat: the backend went away", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			var stdout, stderr bytes.Buffer
			status := main.Run(t.Context(), strings.NewReader(c.in), &stdout, &stderr, "chat", "--url", s.URL+"/v1", "--model", "x")
			if status != c.status || stdout.String() != c.out || !strings.HasPrefix(stderr.String(), c.err) {
				t.Errorf("status %d, stdout %q, stderr %q", status, stdout.String(), stderr.String())
			}
			if c.name == "a question" {
				want := [][]turn{{{"user", "What is the capital\nof France?"}}}
				if diff := cmp.Diff(want, s.asked); diff != "" || s.names[0] != "x" {
					t.Errorf("names %q (-want +got)\n%s", s.names, diff)
				}
			}
		})
	}
}

// TestKeyOfServer: the key is sent to the server that is named.
func TestKeyOfServer(t *testing.T) {
	s := newServer(t)
	var keys []string
	shut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/chat/completions" {
			keys = append(keys, r.Header.Get("Authorization"))
		}
		s.Config.Handler.ServeHTTP(w, r)
	}))
	defer shut.Close()
	t.Setenv("ONEBIT_KEY", "1b_canary")
	var stdout, stderr bytes.Buffer
	if status := main.Run(t.Context(), strings.NewReader("hi"), &stdout, &stderr, "chat", "--url", shut.URL); status != 0 || len(keys) != 1 || keys[0] != "Bearer 1b_canary" {
		t.Errorf("status %d, %q %q", status, keys, stderr.String())
	}
}

func TestChatWithAModel(t *testing.T) {
	for as, want := range map[string]string{"standin": "", "broken": "1bit chat: the cpu backend did not become ready: it ended: exit status 1\n"} {
		t.Run(as, func(t *testing.T) {
			t.Setenv(stage, as) // for the child
			var stdout, stderr bytes.Buffer
			status := main.Run(t.Context(), strings.NewReader("hi"), &stdout, &stderr, "chat", "-m", model(t))
			if as == "standin" {
				if status != 0 || stdout.String() != "The capital of France is Paris.\n" || stderr.Len() != 0 {
					t.Errorf("status %d, stdout %q, stderr %q", status, stdout.String(), stderr.String())
				}
				return
			}
			if status != 1 || !strings.HasPrefix(stderr.String(), want) || !strings.Contains(stderr.String(), "the model is damaged") {
				t.Errorf("status %d, stderr %q", status, stderr.String())
			}
		})
	}
}

// TestOtherModels: what a model cannot be asked is said in the options of the command that asks.
func TestOtherModels(t *testing.T) {
	embeds, err := synth.Encoder(synth.TinyEncoder("bert", tensor.F32))
	if err != nil {
		t.Fatal(err)
	}
	strange, err := synth.Model(synth.Tiny("mamba", tensor.Q8_0))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, w := range map[string]*gguf.Writer{"embeds.gguf": embeds, "strange.gguf": strange} {
		file := filepath.Join(dir, name)
		if err := w.WriteFile(file); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"chat", "-m", file}, {"decide", "-m", file, "--predicate", "x"}} {
			var stdout, stderr bytes.Buffer
			status := main.Run(t.Context(), strings.NewReader("hi"), &stdout, &stderr, args...)
			said := stderr.String()
			if status != 1 || stdout.Len() > 0 || !strings.HasSuffix(said, "; give a chat model that the built-in engine runs, or by --url a server that has one\n") {
				t.Errorf("%q: status %d, %q, %q", args, status, stdout.String(), said)
			}
			for _, other := range []string{"--embedding", "--rerank", "--llama-server", "--device"} {
				if strings.Contains(said, other) {
					t.Errorf("%s has no %s: %q", args[0], other, said)
				}
			}
		}
	}
}

// TestWrittenQuestions: questions and texts are read with the mark that some editors put before them, and UTF-16 is called so.
func TestWrittenQuestions(t *testing.T) {
	dir, questions := t.TempDir(), `[{"type":"predicate","instructions":"Is it raining?"}]`
	for name, text := range map[string]string{"q.json": questions, "marked.json": "\ufeff" + questions, "wide.json": "\xff\xfe[\x00]\x00", "text.txt": "\ufeffIt rains."} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asked := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/decisions" {
			b, _ := io.ReadAll(r.Body) // what is missing of it is missing below
			asked = string(b)
			_, _ = io.WriteString(w, `{"answers":[{"type":"predicate","probability":0.9}]}`)
			return
		}
		_, _ = io.WriteString(w, `{}`)
	}))
	defer s.Close()
	for _, tt := range []struct{ questions, text, want string }{
		{"marked.json", "text.txt", ""}, {"wide.json", "text.txt", "it is in UTF-16: save it as UTF-8"}, {"q.json", "wide.json", "it is in UTF-16: save it as UTF-8"},
	} {
		var stdout, stderr bytes.Buffer
		asked = ""
		status := main.Run(t.Context(), nil, &stdout, &stderr, "decide", "--url", s.URL, "--questions", filepath.Join(dir, tt.questions), "--file", filepath.Join(dir, tt.text))
		if (status == 0) != (tt.want == "") || !strings.Contains(stderr.String(), tt.want) || (asked == "") != (tt.want != "") || strings.Contains(asked, "\ufeff") {
			t.Errorf("%+v: status %d, %q, asked %s", tt, status, stderr.String(), asked)
		}
	}
}

// TestUnknownBox: whoever asks a box that this computer does not trust is told what helps, and nothing else.
func TestUnknownBox(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Setenv("ONEBIT_KEY", "1b_canary")
	for want, args := range map[string][]string{
		"--root":           {"docs", "list", "--box", s.URL},
		"`1bit trust`":     {"chat", "--url", s.URL},
		"in SSL_CERT_FILE": {"decide", "--url", s.URL, "--predicate", "x"},
	} {
		var stdout, stderr bytes.Buffer
		status := main.Run(t.Context(), strings.NewReader("hi"), &stdout, &stderr, args...)
		if status != 1 || stdout.Len() > 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: status %d, %q, %q", args, status, stdout.String(), stderr.String())
		}
	}
}
