package store

// UsageRow is what was used: of one request when added, of many when read.
type UsageRow struct {
	Key, Person, Model, Endpoint string
	Day                          string // "2006-01-02" in the clock's zone; empty when added: today
	Requests, Errors             int64
	Prompt, Cached, Completion   int64 // tokens
}

// UsageFilter chooses rows, and what they are summed over. Empty strings choose all.
type UsageFilter struct {
	Key, Person, Model string
	From, To           string // days, both included
	// what keeps its own row; the others are summed up and come back empty
	ByDay, ByKey, ByPerson, ByModel, ByEndpoint bool
}
