package store

import (
	"context"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// how long rows of the request log stay
const (
	metadataDays = 30
	fullDays     = 7
)

// RequestRow is one line of the request log.
type RequestRow struct {
	ID           string // unique; empty when added: a fresh one
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
	Since, Until       time.Time // Until itself is not included
	Failed             bool      // only status 400 and above
	Before             string    // id: rows added before this one, for paging
	Limit              int       // 0: 100; at most 1000
}

const (
	requestColumns = `id, time, key, person, endpoint, model, backend, route, status, milliseconds, ttft, prompt, cached,
		completion, error, privacy, expires`
	requestWhere = ` where (?1 or person = ?2) and (?3 = '' or key = ?3) and (?4 = '' or person = ?4) and (?5 = '' or model = ?5)
		and time >= ?6 and (?7 = 0 or time < ?7) and (not ?8 or status >= 400)
		and (?9 = '' or seq < (select b.seq from requests b where b.id = ?9 and (?1 or b.person = ?2)))`
	requestList    = "select " + requestColumns + " from requests" + requestWhere + " order by seq desc limit ?10"
	requestByID    = "select " + requestColumns + ", prompt_text, answer_text from requests where id = ?1 and (?2 or person = ?3)"
	deleteRequests = "delete from requests" + requestWhere
)

func scanRequest(r sqlite.Row, more ...any) (q RequestRow, err error) {
	var at, expires int64
	err = r.Scan(append([]any{&q.ID, &at, &q.Key, &q.Person, &q.Endpoint, &q.Model, &q.Backend, &q.Route, &q.Status, &q.Milliseconds,
		&q.TTFT, &q.Prompt, &q.Cached, &q.Completion, &q.Error, &q.Privacy, &expires}, more...)...)
	q.Time, q.Expires = sqlite.Moment(at), sqlite.Moment(expires)
	return q, err
}

// args are what requestWhere needs.
func (f RequestFilter) args(a Actor) []any {
	return []any{a.Admin, a.who(), f.Key, f.Person, f.Model, sqlite.Stamp(f.Since), sqlite.Stamp(f.Until), f.Failed, f.Before}
}

// Requests returns rows without their texts, newest first. A full page may have more behind it: ask again with Before.
func (s *Store) Requests(ctx context.Context, a Actor, f RequestFilter) ([]RequestRow, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	rows, err := s.r.Query(ctx, requestList, append(f.args(a), min(f.Limit, 1000))...)
	all, err := sqlite.Collect(rows, err, func(r sqlite.Row) (RequestRow, error) { return scanRequest(r) })
	if err != nil {
		return nil, fmt.Errorf("reading the request log: %w", s.meaning(err))
	}
	return all, nil
}

// Request returns one row with its texts.
func (s *Store) Request(ctx context.Context, a Actor, id string) (RequestRow, error) {
	var prompt, answer []byte
	q, err := scanRequest(s.r.Row(ctx, requestByID, id, a.Admin, a.who()), &prompt, &answer)
	if err != nil {
		return RequestRow{}, fmt.Errorf("reading a request: %w", s.meaning(err))
	}
	q.PromptText, q.AnswerText = prompt, answer
	return q, nil
}

// DeleteRequests deletes the rows that the filter chooses, whatever its limit, and returns how many.
func (s *Store) DeleteRequests(ctx context.Context, a Actor, f RequestFilter) (int64, error) {
	var n int64
	err := s.write(ctx, func(t *txn) (err error) {
		if n, err = t.Exec(ctx, deleteRequests, f.args(a)...); err != nil {
			return err
		}
		return t.audit(ctx, a, "requests.delete", f.Person, fmt.Sprintf("%d rows", n))
	})
	if err != nil {
		return 0, fmt.Errorf("deleting requests: %w", err)
	}
	return n, nil
}
