package store

import "time"

// RequestRow is one line of the request log.
type RequestRow struct {
	ID           string // empty when added: a fresh one
	Time         time.Time
	Key, Person  string
	Endpoint     string
	Model        string
	Backend      string
	Route        string // why this backend: class, policy, affinity
	Status       int
	Milliseconds int64 // whole request
	TTFT         int64 // milliseconds to the first token
	Prompt       int64 // tokens
	Cached       int64
	Completion   int64
	Error        string
	Privacy      Privacy
	PromptText   []byte    // kept only with PrivacyFull
	AnswerText   []byte    // kept only with PrivacyFull
	Expires      time.Time // zero when added: 30 days, or 7 with the texts
}

// RequestFilter chooses rows of the request log, newest first. Empty fields choose all.
type RequestFilter struct {
	Key, Person, Model string
	Since, Until       time.Time
	Failed             bool   // only status 400 and above
	Before             string // id: rows older than this one, for paging
	Limit              int    // 0: 100; at most 1000
}
