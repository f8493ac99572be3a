package gateway

import (
	"onebit/engine"
	"onebit/engine/wire"
)

// counting finds out what a stream took whose client did not ask for it: quotas count all the same.
type counting struct{ usage engine.Usage }

// over returns a request and what takes its answer. Servers of llama-server's kind end a stream with timings, which say
// enough. Of others usage is asked for, and the chunk that carries it is kept from the client: many take the first of a
// chunk's choices unseen, and that one has none.
func (c *counting) over(req *engine.Request, device engine.Device, emit func(engine.Chunk) error) (*engine.Request, func(engine.Chunk) error) {
	switch {
	case req.IncludeUsage:
		return req, emit
	case hasExtras(device):
		return req, func(chunk engine.Chunk) error {
			if u, ok := wire.TimingsUsage(chunk.Raw); ok {
				c.usage = u
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
		return emit(chunk)
	}
}
