package backendtest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

// Answer is what a Standin says to each request, a piece an event.
var answer = []string{"The", " capital", " of", " France", " is", " Paris", "."}

// Standin is a server in llama-server's dialect that has no model and misbehaves when told to. A request tells it by a
// member "standin", which holds one of these words:
//
//	refuse      400 with an error object
//	fail        500 with an error object
//	overflow    400, the prompt is longer than the context, with counts
//	die         the process ends before the first byte
//	die_after   the process ends after two events, or in the middle of an unstreamed answer
//	hang_up     the connection is closed before the first byte
//	cut         the connection is closed after two events, or in the middle of an unstreamed answer
//	cut_event   the connection is closed in the middle of an event
//	stall       nothing comes, until the client goes
//	stall_after nothing comes after two events, until the client goes
//	endless     events without end, until the client goes
//	torn        a rune is torn in two events
//	no_done     the stream ends without [DONE]
//	no_end      the stream ends without a finish reason and without [DONE]
//	error_event the stream brings an error object after two events
//	error_field the stream brings an error in the field "error" after two events
//	error_first the stream brings an error object at once
//	garbage     what comes is not JSON
//	empty       empty events, comments and other fields between the events
//
// Everything else is answered "The capital of France is Paris."
type Standin struct {
	Model string         // the name that answers carry
	Exit  func(code int) // ends the process; nil does as hang_up and cut do

	mu       sync.Mutex
	requests int
	gone     int           // requests whose client went before the end
	news     chan struct{} // closed when gone changes
}

// ServeHTTP serves the routes of a llama-server as far as our side uses them.
func (s *Standin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
		fmt.Fprint(w, `{"status":"ok"}`)
	case "/v1/models":
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","meta":{"n_ctx":512,"n_params":7}}]}`, s.Model)
	case "/v1/chat/completions", "/v1/completions":
		s.generate(w, r)
	case "/props":
		fmt.Fprintf(w, `{"pid":%d,"query":%q}`, os.Getpid(), r.URL.RawQuery)
	case "/tokenize":
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"tokens":[1,2],"got":%q,"type":%q}`, body, r.Header.Get("Content-Type"))
	case "/slots/0":
		w.WriteHeader(http.StatusNotImplemented)
		fmt.Fprint(w, `{"error":{"code":501,"message":"no slot save path","type":"not_supported_error"}}`)
	default:
		http.NotFound(w, r)
	}
}

// Requests returns how many generations were asked for.
func (s *Standin) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// Gone returns after n clients have gone before the end of their answer.
func (s *Standin) Gone(n int) {
	for {
		s.mu.Lock()
		if s.news == nil {
			s.news = make(chan struct{})
		}
		gone, news := s.gone, s.news
		s.mu.Unlock()
		if gone >= n {
			return
		}
		<-news
	}
}

// leave waits until the client has gone and counts it.
func (s *Standin) leave(r *http.Request) {
	<-r.Context().Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone++
	if s.news != nil {
		close(s.news)
	}
	s.news = make(chan struct{})
}

func (s *Standin) exit() {
	if s.Exit != nil {
		s.Exit(3)
	}
	panic(http.ErrAbortHandler)
}

type asked struct {
	Stream  bool `json:"stream"`
	Options struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Word string `json:"standin"`
}

func (s *Standin) generate(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var a asked
	if err != nil || json.Unmarshal(body, &a) != nil {
		http.Error(w, `{"error":{"code":400,"message":"bad body","type":"invalid_request_error"}}`, http.StatusBadRequest)
		return
	}
	refuse := func(status int, object string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error":`, object, `}`)
	}
	switch a.Word {
	case "refuse":
		refuse(400, `{"code":400,"message":"no such thing","type":"invalid_request_error"}`)
	case "fail":
		refuse(500, `{"code":500,"message":"it broke","type":"server_error"}`)
	case "overflow":
		refuse(400, `{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":900,"n_ctx":512}`)
	case "die":
		s.exit()
	case "hang_up":
		panic(http.ErrAbortHandler)
	case "stall":
		s.leave(r)
	default:
		if a.Stream {
			s.stream(w, r, a)
			return
		}
		s.whole(w, a)
	}
}

const usage = `{"prompt_tokens":12,"completion_tokens":7,"total_tokens":19,"prompt_tokens_details":{"cached_tokens":10}}`

func (s *Standin) whole(w http.ResponseWriter, a asked) {
	text := fmt.Sprintf(`{"id":"1","object":"chat.completion","model":%q,"choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],"usage":%s}`,
		s.Model, strings.Join(answer, ""), usage)
	w.Header().Set("Content-Type", "application/json")
	switch a.Word {
	case "garbage":
		text = "that is not JSON"
	case "torn":
		text = strings.Replace(text, "Paris", "\xe2\x82", 1)
	case "cut", "cut_event", "die_after":
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		fmt.Fprint(w, text[:20])
		_ = http.NewResponseController(w).Flush() // the connection ends here anyway
		if a.Word == "die_after" {
			s.exit()
		}
		panic(http.ErrAbortHandler)
	}
	fmt.Fprint(w, text)
}

func (s *Standin) stream(w http.ResponseWriter, r *http.Request, a asked) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	send := func(text string) bool {
		_, err := io.WriteString(w, text)
		return err == nil && flush.Flush() == nil
	}
	event := func(delta, reason string) bool {
		return send(fmt.Sprintf("data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":%q,\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", s.Model, delta, reason))
	}
	if a.Word == "error_first" {
		send("data: {\"error\":{\"code\":400,\"message\":\"no such thing\",\"type\":\"invalid_request_error\"}}\n\n")
		return
	}
	for i, piece := range answer {
		if i == 2 && !s.turn(w, r, a.Word, send) {
			return
		}
		if a.Word == "torn" {
			piece = "\xe2\x82"
		}
		if a.Word == "empty" {
			send(": ping\n\ndata:\n\nevent: nothing\nid: 7\n\n")
		}
		if !event(`{"content":"`+piece+`"}`, "null") {
			return
		}
	}
	if a.Word == "no_end" {
		return
	}
	event("{}", `"stop"`)
	if a.Options.IncludeUsage {
		send(fmt.Sprintf("data: {\"id\":\"1\",\"model\":%q,\"choices\":[],\"usage\":%s}\n\n", s.Model, usage))
	}
	if a.Word != "no_done" {
		send("data: [DONE]\n\n")
	}
}

// turn does what happens after two events. It reports whether the answer goes on.
func (s *Standin) turn(w http.ResponseWriter, r *http.Request, word string, send func(string) bool) bool {
	switch word {
	case "die_after":
		s.exit()
	case "cut":
		panic(http.ErrAbortHandler)
	case "cut_event":
		send(`data: {"id":"1","choi`)
		panic(http.ErrAbortHandler)
	case "stall_after":
		s.leave(r)
	case "endless":
		for r.Context().Err() == nil && send("data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n") {
		}
		s.leave(r)
	case "error_event":
		send("data: {\"error\":{\"code\":500,\"message\":\"it broke\",\"type\":\"server_error\"}}\n\n")
	case "error_field":
		send("error: {\"code\":500,\"message\":\"it broke\",\"type\":\"server_error\"}\n\n")
	case "garbage":
		send("data: that is not JSON\n\n")
	default:
		return true
	}
	return false
}
