package abi

import "encoding/json"

// Request is what Classify and Route are given, as JSON. Fields may be added within a major version; a guest ignores
// those that it does not know.
type Request struct {
	V            int                `json:"v"`
	ID           string             `json:"id"`           // of the request
	Conversation string             `json:"conversation"` // a hash; equal for all turns of one conversation
	Turn         int                `json:"turn"`         // 1 for the first
	API          string             `json:"api"`          // "chat", "messages", "responses", …
	Model        string             `json:"model"`        // as the client asked
	Tenant       string             `json:"tenant"`       // the key's owner, as an opaque id
	Key          string             `json:"key"`          // id of the API key; empty for none
	Hour         int                `json:"hour"`         // of the box's day, 0 to 23
	Tokens       int                `json:"tokens"`       // estimate for the whole prompt
	Bytes        int                `json:"bytes"`        // of the last user message
	Flags        Flags              `json:"flags"`
	Headers      map[string]string  `json:"headers,omitempty"` // those that the operator lists, names in lower case
	Head         string             `json:"head"`              // the first MaxHead bytes of the last user message
	Tail         string             `json:"tail,omitempty"`    // its last MaxTail bytes, when it is longer
	Class        string             `json:"class,omitempty"`   // what the classifier said, for Route
	Confidence   float64            `json:"confidence,omitempty"`
	Scores       map[string]float64 `json:"scores,omitempty"`
	Candidates   []Candidate        `json:"candidates,omitempty"` // for Route
}

// Flags say what a request needs.
type Flags struct {
	Stream bool `json:"stream"`
	Tools  bool `json:"tools"`
	Images bool `json:"images"`
	JSON   bool `json:"json"`
}

// Candidate is a place that may serve the request.
type Candidate struct {
	ID      string  `json:"id"`
	Backend string  `json:"backend"`
	Device  string  `json:"device"`
	Model   string  `json:"model"`
	Context int     `json:"ctx"` // tokens
	Healthy bool    `json:"healthy"`
	Queue   int     `json:"queue"`  // requests that wait
	Load    float64 `json:"load"`   // share of its slots that are busy, 0 to 1
	PromptS float64 `json:"pp_tps"` // prompt tokens a second, as measured; 0 while nobody knows
	DecodeS float64 `json:"tg_tps"` // generated tokens a second, as measured; 0 while nobody knows
	Cached  int     `json:"cached"` // tokens of this prompt that it would not have to compute again
	Sticky  bool    `json:"sticky"` // it served this conversation before
	Price   float64 `json:"price"`  // for a million tokens, in the operator's currency
}

// Action is what a guest wants.
type Action string

// The actions. Abstain, like an answer of length 0, leaves the decision to the default policy.
const (
	ActionRoute   Action = "route"
	ActionReject  Action = "reject"
	ActionAbstain Action = "abstain"
)

// Decision is what Classify and Route answer, as JSON. The host takes all of it or nothing.
type Decision struct {
	V          int                        `json:"v"`
	Action     Action                     `json:"action"`
	Class      string                     `json:"class,omitempty"`
	Confidence float64                    `json:"confidence,omitempty"` // 0 to 1
	Scores     map[string]float64         `json:"scores,omitempty"`
	Candidates []string                   `json:"candidates,omitempty"` // offered ids, the best first
	Params     map[string]json.RawMessage `json:"params,omitempty"`     // of the request; the operator clamps them
	Headers    map[string]string          `json:"headers,omitempty"`    // of the response; names begin with "x-laya-"
	RAG        *RAG                       `json:"rag,omitempty"`
	Reject     *Reject                    `json:"reject,omitempty"`
	Reason     string                     `json:"reason,omitempty"` // for people
	TTL        int                        `json:"ttl_s,omitempty"`  // seconds for which the conversation keeps it
}

// RAG asks for passages of a document collection.
type RAG struct {
	Collection string `json:"collection"`
	TopK       int    `json:"top_k"`
	Query      string `json:"query,omitempty"` // empty for the last user message
}

// Reject is the answer to a client that is turned away.
type Reject struct {
	Status  int    `json:"status"` // 400 to 499
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Manifest says what a module is and what it asks for. It stands beside the module or in its custom section
// ManifestSection.
type Manifest struct {
	Name         string          `json:"name"`
	Version      string          `json:"version"`
	ABI          int             `json:"abi"`
	Kind         Kind            `json:"kind"`
	Classes      []string        `json:"classes,omitempty"`
	Capabilities []Capability    `json:"capabilities,omitempty"`
	Metrics      []string        `json:"metrics,omitempty"` // the id that metric takes is the place in this list
	Pages        uint32          `json:"pages,omitempty"`   // linear memory asked for; 0 for the default
	Units        int64           `json:"units,omitempty"`   // budget asked for; 0 for the default
	ConfigSchema json.RawMessage `json:"config_schema,omitempty"`
	Samples      []Sample        `json:"samples,omitempty"` // run before a module may serve
}

// Sample is a request with the decision that the module must give.
type Sample struct {
	Request  Request  `json:"request"`
	Decision Decision `json:"decision"`
}
