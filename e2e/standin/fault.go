package main

import (
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// fault is something done wrong. A request says so with the member standin, or with !words! in its text; else
// STANDIN_FAULT says so for every request but the ones that ask whether the server works. The words:
//
//	stall          nothing comes, until the client goes
//	stall-after:N  nothing comes after N events, until the client goes
//	slow:MS        MS milliseconds before each event
//	slow-headers:MS  MS milliseconds before the headers
//	endless        events without end, until the client goes
//	die-before     the process ends before the first byte
//	die-after:N    the process ends after N events
//	cut-after:N    the connection ends after N events
//	status:CODE    an error object with that status
//	overflow       400, the prompt is longer than the context, with counts
//	error-event    an error object among the events, after two
//	error-field    an error in the field "error", after two events
//	call           two calls of tools behind the words of a streamed chat, which is no fault
//	torn-utf8      bytes that are no UTF-8 in two events
//	unhealthy      every generation fails with 500, also the one that asks whether the server works
//	never-ready    it loads for ever
//	exit-at-start  it ends at once
type fault struct {
	kind string
	n    int
}

func readFault(word string) fault {
	kind, n, _ := strings.Cut(strings.TrimSpace(word), ":")
	f := fault{kind: kind}
	f.n, _ = strconv.Atoi(n)
	return f
}

// of returns the fault that holds for a request.
func (s *server) of(r *http.Request, a asked) fault {
	if a.Standin != "" {
		return readFault(a.Standin)
	}
	if _, rest, ok := strings.Cut(a.text(), "!"); ok {
		if word, _, ok := strings.Cut(rest, "!"); ok {
			return readFault(word)
		}
	}
	if r.Header.Get("X-Request-Id") == "readiness" && s.fault.kind != "unhealthy" {
		return fault{}
	}
	return s.fault
}

// before does what happens before the first byte. It reports whether an answer follows.
func (s *server) before(w http.ResponseWriter, r *http.Request, f fault) bool {
	switch f.kind {
	case "stall":
		hold(r, "stall")
		leave(r, "stall")
	case "slow-headers":
		select {
		case <-time.After(time.Duration(f.n) * time.Millisecond):
			return true
		case <-r.Context().Done():
			leave(r, "slow-headers")
		}
	case "die-before":
		os.Exit(3)
	case "unhealthy":
		refuse(w, http.StatusInternalServerError, "the memory did not suffice", "server_error")
	case "status":
		if f.n == http.StatusTooManyRequests || f.n == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "7")
		}
		refuse(w, f.n, "it was told to say so", "told_error")
	case "overflow":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		answer(w, map[string]any{"error": map[string]any{
			"code": 400, "message": "the request exceeds the available context size", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096,
		}})
	default:
		return true
	}
	return false
}

// hold notes that the request has come to where it stays until its client goes.
func hold(r *http.Request, where string) {
	note(map[string]any{"event": "hold", "where": where, "id": r.Header.Get("X-Request-Id")})
}

// leave waits until the client has gone and notes it.
func leave(r *http.Request, where string) {
	<-r.Context().Done()
	note(map[string]any{"event": "gone", "where": where, "id": r.Header.Get("X-Request-Id"), "at": time.Now().UnixMilli()})
}

// during does what happens when i events are out. It reports whether the stream goes on.
func (s *server) during(r *http.Request, f fault, i int, send func(string) bool) bool {
	if f.kind == "slow" {
		select {
		case <-time.After(time.Duration(f.n) * time.Millisecond):
		case <-r.Context().Done():
			leave(r, "slow")
			return false
		}
	}
	switch {
	case f.kind == "endless" && i == 2:
		hold(r, "endless")
		for r.Context().Err() == nil && send(`data: {"choices":[{"index":0,"delta":{"content":"x"},"text":"x","finish_reason":null}]}`+"\n\n") {
			time.Sleep(time.Millisecond)
		}
		leave(r, "endless")
		return false
	case f.kind == "stall-after" && i == f.n:
		hold(r, "stall-after")
		leave(r, "stall-after")
		return false
	case f.kind == "die-after" && i == f.n:
		os.Exit(3)
	case f.kind == "cut-after" && i == f.n:
		panic(http.ErrAbortHandler)
	case f.kind == "error-event" && i == 2:
		send(`data: {"error":{"code":500,"message":"it broke in the middle","type":"server_error"}}` + "\n\n")
		return false
	case f.kind == "error-field" && i == 2:
		send(`error: {"code":500,"message":"it broke in the middle","type":"server_error"}` + "\n\n")
		return false
	}
	return true
}
