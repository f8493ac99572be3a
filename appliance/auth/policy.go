package auth

import (
	"net/http"
	"slices"
	"strings"
)

// Use is what a request wants to do.
type Use struct {
	Endpoint    string   // the path of the API, such as /v1/chat/completions; with or without /v1
	Model       string   // the name under which the box knows the model, aliases resolved; empty where no model is named
	Collections []string // of documents
}

// scope is what a key may do. An empty list allows all.
type scope struct {
	endpoints, models, collections []string
}

// check returns the refusal of a use that is outside the scope, or nil.
func (s scope) check(u Use) error {
	if len(s.endpoints) > 0 && !slices.ContainsFunc(s.endpoints, func(p string) bool { return MatchEndpoint(p, u.Endpoint) }) {
		return forbidden("endpoint_not_allowed", "the key is not for "+Endpoint(u.Endpoint))
	}
	if u.Model != "" && !within(s.models, u.Model) {
		return forbidden("model_not_allowed", "the key is not for the model "+printable(u.Model))
	}
	for _, c := range u.Collections {
		if !within(s.collections, c) {
			return &Error{Status: http.StatusNotFound, Code: "collection_not_found", Message: "there is no collection " + printable(c)}
		}
	}
	return nil
}

func within(patterns []string, name string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return Match(p, name) })
}

// MatchEndpoint reports whether a path of the API fits a pattern, each in any of the ways in which clients write it.
func MatchEndpoint(pattern, path string) bool { return Match(Endpoint(pattern), Endpoint(path)) }

// Endpoint writes the path of an endpoint in one way: with a leading slash, without /v1 and closing slashes.
func Endpoint(path string) string {
	path = "/" + strings.Trim(path, "/")
	for strings.HasPrefix(path, "/v1/") {
		path = path[len("/v1"):]
	}
	return path
}

// Match reports whether all of name fits a pattern, in which * stands for any text, slashes and none included, and ? for
// one byte. Everything else stands for itself: names are compared as they are, letter case included.
func Match(pattern, name string) bool {
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0: // the last star takes one byte more
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// printable returns a client's word in a form that can stand in a message: short, and without control characters.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
