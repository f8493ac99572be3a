package gateway

import (
	"net/http"

	"onebit/engine"
	"onebit/engine/wire"
)

// isDecision reports whether a request asks typed questions.
func isDecision(kind engine.Kind) bool { return kind == engine.Decision || kind == engine.SystemOne }

// translated reports whether a request goes to a device in the form of System One though it came in OpenAI's: the
// built-in engine knows both, servers of native decision models that one.
func translated(kind engine.Kind, device engine.Device) bool {
	return kind == engine.Decision && device != engine.CPU
}

// asSystemOne returns a request of decisions in the form of System One.
func asSystemOne(req *engine.Request) *engine.Request {
	d, err := wire.ReadDecisions(req)
	if err != nil {
		return req // cannot be: it was read when it came
	}
	out := *req
	out.Kind, out.Raw = engine.SystemOne, d.AppendSystemOne(nil)
	return &out
}

// nativeMethod is the method of a model that was made for decisions.
const nativeMethod = "native decision model; temperatures of its file"

// decisions gives an answer the form of its request, and says in a header how it was made.
func decisions(w *reply, s *server, req *engine.Request, raw []byte) ([]byte, error) {
	method := wire.MethodOf(raw)
	if s.Device != engine.CPU && s.Device != engine.Elsewhere { // another box says it itself
		method = nativeMethod
	}
	if translated(req.Kind, s.Device) {
		d, err := wire.ReadDecisions(req)
		if err != nil {
			return nil, err
		}
		_, answers, usage, err := d.AnswersFromSystemOne(raw)
		if err != nil {
			return nil, err
		}
		d.Model = s.Name
		raw = d.AppendAnswers(nil, answers, usage, method)
	}
	if method != "" {
		w.Header().Set("X-1bit-Decision", method)
	}
	return raw, nil
}

// noDecisions says what can answer decisions where a backend cannot.
func noDecisions(refused *engine.StatusError) error {
	e := &wire.Error{
		Status: http.StatusNotImplemented, Type: wire.TypeUnsupported, Code: "not_implemented", NoRetry: true,
		Message: "this model answers no decisions here: the built-in engine (--device cpu) asks any chat model, and a llama-server answers from native decision models alone",
	}
	if refused != nil {
		e.Message += "; its server says: " + wire.FromBackend(refused).Message
	}
	return e
}
