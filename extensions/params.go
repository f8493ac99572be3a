package extensions

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// bounds are the parameters of requests that a module may set at all, with the values that they may have.
func bounds() map[string][2]float64 {
	return map[string][2]float64{
		"temperature": {0, 2}, "top_p": {0, 1}, "top_k": {0, 1000}, "min_p": {0, 1}, "max_tokens": {1, 1 << 20},
		"presence_penalty": {-2, 2}, "frequency_penalty": {-2, 2}, "repeat_penalty": {0, 2}, "seed": {0, 1 << 31},
	}
}

// Params lists the parameters that an operator can let modules set.
func Params() []string { return slices.Sorted(maps.Keys(bounds())) }

// whole are those without a fraction.
func whole(name string) bool { return name == "top_k" || name == "max_tokens" || name == "seed" }

// clamp brings what a module wants to set within bounds. What the operator does not list is left out; the answer's length is
// never more than the client asked for.
func clamp(want map[string]json.RawMessage, allowed []string, body []byte) map[string]json.RawMessage {
	if len(want) == 0 {
		return nil
	}
	var out map[string]json.RawMessage
	known := bounds()
	for name, raw := range want {
		b, ok := known[name]
		var v float64
		if !ok || !slices.Contains(allowed, name) || json.Unmarshal(raw, &v) != nil {
			continue
		}
		v = min(max(v, b[0]), b[1])
		if name == "max_tokens" {
			if n := asked(body); n > 0 {
				v = min(v, n)
			}
		}
		if out == nil {
			out = map[string]json.RawMessage{}
		}
		if whole(name) {
			out[name] = strconv.AppendInt(nil, int64(v), 10)
		} else {
			out[name] = strconv.AppendFloat(nil, v, 'g', -1, 64)
		}
	}
	return out
}

// asked is the length that a client asked for; 0 for none.
func asked(body []byte) float64 {
	var b struct {
		New *float64 `json:"max_completion_tokens"`
		Old *float64 `json:"max_tokens"`
	}
	_ = json.Unmarshal(body, &b) // what is there was read as far as it could be
	if b.New != nil {
		return *b.New
	}
	if b.Old != nil {
		return *b.Old
	}
	return 0
}
