package gateway

import (
	"net/http"
	"strings"

	"onebit/engine"
	"onebit/engine/wire"
)

// endpoint is one path of the API, or one pattern of them.
type endpoint struct {
	path    string   // canonical; a * stands for any text, slashes included
	name    string   // in the metrics
	methods []string // that it knows, the usual one first
	handler handler
}

// table is all that the gateway answers. Exact paths come before patterns.
func (g *Gateway) table() []endpoint {
	get, post := []string{http.MethodGet, http.MethodHead}, []string{http.MethodPost}
	rerank := g.generate(engine.Rerank, wire.ParseRerank)
	all := []endpoint{
		{"/chat/completions", "", post, g.generate(engine.Chat, wire.ParseChat)},
		{"/completions", "", post, g.generate(engine.Completion, wire.ParseCompletion)},
		{"/responses", "", post, g.respond},
		{"/messages", "", post, g.message},
		{"/messages/count_tokens", "", post, g.countMessage},
		{"/responses/*/input_items", "/responses/id/input_items", get, g.response},
		{"/responses/*", "/responses/id", []string{http.MethodGet, http.MethodDelete}, g.response},
		{"/embeddings", "", post, g.generate(engine.Embedding, wire.ParseEmbedding)},
		{"/decisions", "", post, g.generate(engine.Decision, wire.ParseDecision)},
		{"/systemone", "", post, g.generate(engine.SystemOne, wire.ParseSystemOne)},
		{"/rerank", "", post, rerank},
		{"/reranking", "/rerank", post, rerank},
		{"/models", "", get, g.models},
		{"/health", "", get, g.health},
		{"/metrics", "", get, g.exposition},
		{"/tokenize", "", post, g.extra},
		{"/detokenize", "", post, g.extra},
		{"/apply-template", "", post, g.extra},
		{"/completion", "", post, g.extra},
		{"/props", "", get, g.extra},
		{"/slots", "", get, g.extra},
		{"/slots/*", "/slots/id", post, g.slot},
		{"/models/*", "/models/name", get, g.model},
		{"/upstream/*/metrics", "/upstream/name/metrics", get, g.upstream},
	}
	for i := range all {
		if all[i].name == "" {
			all[i].name = all[i].path
		}
	}
	return all
}

// find returns what answers a canonical path; one without a handler when nothing does.
func (g *Gateway) find(path string) endpoint {
	for _, e := range g.endpoints {
		before, after, pattern := strings.Cut(e.path, "*")
		switch {
		case !pattern && path == e.path:
			return e
		case pattern && len(path) > len(before)+len(after) && strings.HasPrefix(path, before) && strings.HasSuffix(path, after):
			return e
		}
	}
	return endpoint{name: "other"}
}

// Endpoints lists what a scope may name: the paths that ask who it is, canonical. What is stored under an id goes by the
// path before that.
func (g *Gateway) Endpoints() []string {
	var all []string
	for _, e := range g.endpoints {
		if !strings.Contains(e.path, "*") && e.path != "/health" && (g.cfg.Fleet == nil || e.path != "/slots") {
			all = append(all, e.path)
		}
	}
	return all
}

// Route is one path of the API with the method that it is for.
type Route struct{ Method, Path string }

// Routes lists the API, each path as clients usually write it.
func (g *Gateway) Routes() []Route {
	var all []Route
	for _, e := range g.endpoints {
		path := e.path
		if path != "/health" && path != "/metrics" {
			path = "/v1" + path
		}
		all = append(all, Route{e.methods[0], strings.ReplaceAll(path, "*", "x")})
	}
	return all
}
