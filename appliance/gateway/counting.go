package gateway

import (
	"bytes"
	"strconv"

	"onebit/engine"
	"onebit/engine/wire"
)

// counting finds out what a stream took, whether its client asked for that or not, and whether it stays to the end or
// not: quotas count all the same.
type counting struct {
	usage  engine.Usage // as the backend counted
	events int          // that brought something of the answer
}

// over returns a request and what takes its answer. Servers of llama-server's kind end a stream with timings, which say
// enough. Of others usage is asked for, and the chunk that carries it is kept from the client: many take the first of a
// chunk's choices unseen, and that one has none.
func (c *counting) over(req *engine.Request, device engine.Device, emit func(engine.Chunk) error) (*engine.Request, func(engine.Chunk) error) {
	switch {
	case req.Kind == engine.Response:
		return req, func(chunk engine.Chunk) error {
			if bytes.Contains(chunk.Raw, []byte(`"delta":`)) {
				c.events++
			}
			return emit(chunk)
		}
	case req.IncludeUsage || hasExtras(device):
		return req, func(chunk engine.Chunk) error {
			if u, ok := wire.TimingsUsage(chunk.Raw); ok {
				c.usage = u
			} else {
				c.events++
			}
			return emit(chunk)
		}
	}
	asking := *req
	asking.Raw, asking.IncludeUsage = wire.AppendAskingUsage(make([]byte, 0, len(req.Raw)+64), req.Raw), true
	return &asking, func(chunk engine.Chunk) error {
		if wire.OnlyUsage(chunk.Raw) {
			return nil
		}
		c.events++
		return emit(chunk)
	}
}

// took is what the answer to a request took. Where the backend could not say it any more, since the stream was cut or
// its client has gone, it is what was handed out, a token an event, and a guess at the prompt: whoever leaves before the
// end is not served for nothing.
func (c *counting) took(said engine.Usage, req *engine.Request) engine.Usage {
	switch {
	case said != engine.Usage{}:
		return said
	case c.usage != engine.Usage{}:
		return c.usage
	case c.events == 0:
		return engine.Usage{}
	}
	return engine.Usage{Prompt: wire.GuessTokens(req.Raw), Completion: c.events}
}

// native counts what an answer of llama-server's own /completion took, as it passes. Each object of such an answer says
// how many tokens there are so far, by its index.
type native struct {
	index int
	taken map[int]engine.Usage
	rest  []byte // the end of what has passed, which may hold the begin of a count
}

// maxNative is how many answers of one request are told apart, and longestCount how many bytes a count has at most.
const (
	maxNative    = 1024
	longestCount = 48
)

// take looks at the next bytes. A quote inside of a text is escaped, so no answer can write a count of its own.
func (n *native) take(b []byte) {
	b = append(n.rest, b...)
	for {
		at := bytes.IndexByte(b, '"')
		if at < 0 {
			b = nil
			break
		}
		b = b[at:]
		name, value, whole := count(b)
		if !whole {
			break
		}
		if name != "" {
			n.note(name, value)
		}
		b = b[1:]
	}
	n.rest = bytes.Clone(b[:min(len(b), longestCount)])
}

// count reads a member such as "index":3 at the beginning of b; an empty name says that there is none. It is not whole
// when b is too short to tell.
func count(b []byte) (name string, value int, whole bool) {
	for _, name := range []string{"index", "tokens_predicted", "tokens_evaluated"} {
		head := `"` + name + `":`
		if len(b) <= len(head) && len(b) < longestCount && bytes.HasPrefix([]byte(head), b) {
			return "", 0, false
		}
		if !bytes.HasPrefix(b, []byte(head)) {
			continue
		}
		digits := b[len(head):]
		end := bytes.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
		if end < 0 {
			return "", 0, len(b) >= longestCount
		}
		if v, err := strconv.Atoi(string(digits[:end])); err == nil && v < 1<<31 {
			return name, v, true
		}
	}
	return "", 0, true
}

func (n *native) note(name string, value int) {
	if name == "index" {
		n.index = min(value, maxNative)
		return
	}
	if n.taken == nil {
		n.taken = map[int]engine.Usage{}
	}
	u := n.taken[n.index]
	if name == "tokens_predicted" {
		u.Completion = max(u.Completion, value)
	} else {
		u.Prompt = max(u.Prompt, value)
	}
	n.taken[n.index] = u
}

// usage is the sum.
func (n *native) usage() engine.Usage {
	var all engine.Usage
	for _, u := range n.taken {
		all.Prompt, all.Completion = all.Prompt+u.Prompt, all.Completion+u.Completion
	}
	return all
}
