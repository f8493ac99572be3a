package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"onebit/engine"
	"onebit/engine/wire"
)

// server is one backend and what is counted about it.
type server struct {
	Model
	label  string // distinct among a gateway's servers
	quoted []byte // the served name as a JSON string

	held  int // requests that have a place now; places.mu guards it
	taken int // requests that ever had one; places.mu guards it
}

func newServer(m Model, others []*server) *server {
	name := strings.ReplaceAll(m.Backend.Name(), " ", "-") // it is part of a path
	s := &server{Model: m, label: name, quoted: wire.Quote(m.Name)}
	for n := 2; taken(others, s.label); n++ {
		s.label = name + "-" + strconv.Itoa(n)
	}
	return s
}

func taken(servers []*server, label string) bool {
	for _, s := range servers {
		if s.label == label {
			return true
		}
	}
	return false
}

// outgoing returns the request as the backend wants it: under the name that it knows its model by.
func (s *server) outgoing(req *engine.Request) *engine.Request {
	out := *req
	if translated(req.Kind, s.Device) {
		req = asSystemOne(req)
		out = *req
	}
	switch {
	case s.ModelID != "":
		out.Raw = wire.AppendModel(make([]byte, 0, len(req.Raw)+len(s.ModelID)+16), req.Raw, wire.Quote(s.ModelID))
	case s.DropModel || s.Role != Chat:
		out.Raw = wire.AppendWithoutModel(make([]byte, 0, len(req.Raw)), req.Raw)
	}
	return &out
}

// places are the reservations on all servers. One lock guards choosing and reserving, so that no two requests take the
// same place.
type places struct {
	mu    sync.Mutex
	homes *table[*server] // where conversations are, for Sticky
}

// lease is one reserved place. It is held until the answer is complete.
type lease struct {
	places *places
	choose func() *server // called with the lock held
	server *server
	asked  bool // a backend has been asked

	giveBack func() // called at the release; nil for a model of the gateway's own
}

// reserve chooses a server and takes a place on it, in one step.
func (p *places) reserve(choose func() *server) *lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &lease{places: p, choose: choose, server: choose()}
	l.server.held++
	l.server.taken++
	return l
}

// again gives the place up and chooses anew, in one step.
func (l *lease) again() {
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.server.held--
	next := l.choose()
	if next != l.server {
		next.taken++
	}
	next.held++
	l.server = next
}

// release gives the place up.
func (l *lease) release() {
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.server.held--
	if l.giveBack != nil {
		l.giveBack()
	}
}

// answering answers a request where it has a place, and gives that up.
type answering func(ctx context.Context, l *lease, req *engine.Request) error

// onModel runs a request on one of the model's backends. In the modes LongModel and Classified it says in a header what it chose.
func (g *Gateway) onModel(ctx context.Context, w *reply, r *http.Request, req *engine.Request, answer answering) error {
	only, err := g.only(req.Kind)
	if err != nil {
		return err
	}
	if err := g.known(only, req.Model); err != nil {
		return err
	}
	if g.classified(req.Kind) {
		return g.byClass(ctx, w, r, req, answer)
	}
	l, err := g.place(ctx, w, only, req)
	if err != nil {
		return err
	}
	return answer(ctx, l, req)
}

// place reserves a place for a request, on only or on the second server.
func (g *Gateway) place(ctx context.Context, w *reply, only *server, req *engine.Request) (*lease, error) {
	switch {
	case only != g.first || g.second == nil:
	case g.cfg.Mode == Adaptive:
		return g.adaptive(req), nil
	case req.Kind == engine.Chat || req.Kind == engine.Completion:
		return g.byLength(ctx, w, req)
	}
	return g.places.reserve(func() *server { return only }), nil
}

// only returns the server that has an operation, the first of two.
func (g *Gateway) only(kind engine.Kind) (*server, error) {
	role := Chat
	switch kind {
	case engine.Embedding:
		role = Embedding
	case engine.Rerank:
		role = Reranking
	case engine.Response:
		if len(g.having(kind)) == 0 {
			return nil, errors.ErrUnsupported
		}
	}
	if role == Chat {
		return g.first, nil
	}
	for _, s := range g.servers {
		if s.Role == role {
			return s, nil
		}
	}
	return nil, errors.ErrUnsupported
}

// known refuses a name that is not served, when that is wished.
func (g *Gateway) known(s *server, name string) error {
	if !g.cfg.Strict || name == "" || name == s.Name {
		return nil
	}
	return &wire.Error{
		Status: http.StatusNotFound, Type: wire.TypeInvalid, Param: "model", Code: "model_not_found",
		Message: fmt.Sprintf("the model %s does not exist here; %s does", short(name), s.Name),
	}
}

// short is a client's word as a message holds it: its beginning, when it is long.
func short(word string) string {
	if r := []rune(word); len(r) > 100 {
		return string(r[:100]) + "..."
	}
	return word
}

// adaptive chooses the first server while it holds fewer requests than it should, else the second.
func (g *Gateway) adaptive(req *engine.Request) *lease {
	var who conversation
	if g.cfg.Sticky {
		who = identity(req)
	}
	return g.places.reserve(func() *server {
		room := func(s *server) bool {
			return s == g.first && s.held < g.cfg.AdaptiveAt || s == g.second && s.held < s.Backend.Slots()
		}
		wanted := g.second
		if room(g.first) {
			wanted = g.first
		}
		if !g.cfg.Sticky {
			return g.standing(wanted)
		}
		if home, ok := g.places.homes.get(who); ok && room(home) {
			wanted = home
		}
		wanted = g.standing(wanted)
		g.places.homes.set(who, wanted)
		return wanted
	})
}

// standing returns the server that is wanted, or the other one while that serves and the wanted one does not.
func (g *Gateway) standing(wanted *server) *server {
	other := g.second
	if wanted == g.second {
		other = g.first
	}
	if wanted.Backend.State() != engine.Ready && other.Backend.State() == engine.Ready {
		return other
	}
	return wanted
}

// Count is how many requests a backend has taken.
type Count struct {
	Name     string
	Device   engine.Device
	Requests int
}

// Counts tells what each of the model's backends has taken, then those beside it.
func (g *Gateway) Counts() []Count {
	g.places.mu.Lock()
	defer g.places.mu.Unlock()
	all := make([]Count, len(g.servers))
	for i, s := range g.servers {
		all[i] = Count{Name: s.label, Device: s.Device, Requests: s.taken}
	}
	return all
}
