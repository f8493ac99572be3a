// Package wire speaks the dialects of clients and of backends: OpenAI's chat and completions today. Requests come in as
// an engine.Request that keeps the body as it was received; answers go out as objects or as server-sent events; every
// failure is the one error object that clients know. The package does no I/O of its own beyond the reader and the
// response writer it is given.
package wire
