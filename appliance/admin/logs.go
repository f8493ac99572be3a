package admin

import (
	"encoding/hex"
	"time"

	"onebit/store"
)

// Usage is what was used, summed up as was asked for. Members that were summed over are empty.
type Usage struct {
	Day        string `json:"day"`
	Key        string `json:"key"`
	Person     string `json:"person"`
	Model      string `json:"model"`
	Endpoint   string `json:"endpoint"`
	Requests   int64  `json:"requests"`
	Errors     int64  `json:"errors"`
	Prompt     int64  `json:"prompt" about:"tokens, cached ones included"`
	Cached     int64  `json:"cached" about:"tokens"`
	Completion int64  `json:"completion" about:"tokens"`
}

type usageList struct {
	Usage []Usage `json:"usage"`
}

type usageQuery struct {
	From   string `json:"-" query:"from" about:"first day, such as 2026-11-30"`
	To     string `json:"-" query:"to" about:"last day"`
	Key    string `json:"-" query:"key"`
	Person string `json:"-" query:"person"`
	Model  string `json:"-" query:"model"`
	By     string `json:"-" query:"by" about:"what keeps its own row: day, key, person, model, endpoint, with commas between"`
}

// Request is one line of the request log.
type Request struct {
	ID           string     `json:"id"`
	Time         time.Time  `json:"time"`
	Key          string     `json:"key"`
	Person       string     `json:"person"`
	Endpoint     string     `json:"endpoint"`
	Model        string     `json:"model"`
	Backend      string     `json:"backend"`
	Route        string     `json:"route" about:"why this backend"`
	Status       int        `json:"status"`
	Milliseconds int64      `json:"milliseconds"`
	TTFT         int64      `json:"ttft" about:"milliseconds to the first byte of the answer"`
	Prompt       int64      `json:"prompt" about:"tokens"`
	Cached       int64      `json:"cached" about:"tokens"`
	Completion   int64      `json:"completion" about:"tokens"`
	Error        string     `json:"error"`
	Privacy      string     `json:"privacy"`
	Expires      *time.Time `json:"expires"`
	PromptText   string     `json:"prompt_text,omitempty" about:"only of one request, and only with privacy full"`
	AnswerText   string     `json:"answer_text,omitempty"`
}

type requestList struct {
	Requests []Request `json:"requests" about:"newest first"`
	Next     string    `json:"next" about:"give it as before to get the next page; empty at the end"`
}

type requestQuery struct {
	Key    string    `json:"-" query:"key"`
	Person string    `json:"-" query:"person"`
	Model  string    `json:"-" query:"model"`
	Since  time.Time `json:"-" query:"since"`
	Until  time.Time `json:"-" query:"until"`
	Failed bool      `json:"-" query:"failed" about:"only those with status 400 and above"`
	Before string    `json:"-" query:"before" about:"an id: only older ones"`
	Limit  int       `json:"-" query:"limit" about:"at most 1000; 100 unless it is given"`
}

func (q requestQuery) filter() store.RequestFilter {
	return store.RequestFilter{Key: q.Key, Person: q.Person, Model: q.Model, Since: q.Since, Until: q.Until, Failed: q.Failed, Before: q.Before, Limit: q.Limit}
}

// AuditEntry is one line of the audit trail.
type AuditEntry struct {
	ID     int64     `json:"id"`
	Time   time.Time `json:"time"`
	Person string    `json:"person"`
	Key    string    `json:"key"`
	Action string    `json:"action"`
	Target string    `json:"target"`
	Detail string    `json:"detail"`
	Hash   string    `json:"hash" about:"SHA-256 over this line and all before it"`
}

type auditList struct {
	Entries []AuditEntry `json:"entries" about:"oldest first"`
}

type auditCheck struct {
	Entries int64 `json:"entries"`
	Whole   bool  `json:"whole" about:"no line is missing or altered"`
}

type logList struct {
	Lines []LogLine `json:"lines"`
}

func shownRequest(r store.RequestRow) Request {
	return Request{
		ID: r.ID, Time: r.Time, Key: r.Key, Person: r.Person, Endpoint: r.Endpoint, Model: r.Model, Backend: r.Backend, Route: r.Route,
		Status: r.Status, Milliseconds: r.Milliseconds, TTFT: r.TTFT, Prompt: r.Prompt, Cached: r.Cached, Completion: r.Completion,
		Error: r.Error, Privacy: string(r.Privacy), Expires: moment(r.Expires), PromptText: string(r.PromptText), AnswerText: string(r.AnswerText),
	}
}

func (a *Admin) logRoutes() []route {
	s := a.cfg.Store
	return []route{
		op("GET", "/usage", everyone, "what was used; by you, unless you are an admin", a.usage),
		op("GET", "/requests", everyone, "the request log; your requests, unless you are an admin", a.requests),
		op("GET", "/requests/{id}", everyone, "one request, with its texts where they were kept", func(c *call, in identified) (Request, error) {
			r, err := s.Request(c.ctx(), c.actor(), in.ID)
			return shownRequest(r), err
		}),
		op("DELETE", "/requests", everyone, "forget requests: those that the parameters choose, of yours unless you are an admin", func(c *call, in requestQuery) (deleted, error) {
			n, err := s.DeleteRequests(c.ctx(), c.actor(), in.filter())
			return deleted{n}, err
		}),
		op("GET", "/audit", admins, "who did what", func(c *call, in struct {
			After int64 `json:"-" query:"after" about:"an id: only later ones"`
			Limit int   `json:"-" query:"limit" about:"100 unless it is given"`
		}) (auditList, error) {
			if in.Limit == 0 {
				in.Limit = 100
			}
			entries, err := s.AuditLog(c.ctx(), c.actor(), in.After, in.Limit)
			out := auditList{Entries: []AuditEntry{}}
			for _, e := range entries {
				out.Entries = append(out.Entries, AuditEntry{e.ID, e.Time, e.Person, e.Key, e.Action, e.Target, e.Detail, hex.EncodeToString(e.Hash[:])})
			}
			return out, err
		}),
		op("GET", "/audit/check", admins, "whether the audit trail is whole", func(c *call, _ struct{}) (auditCheck, error) {
			n, err := s.VerifyAudit(c.ctx())
			if broken(err) {
				return auditCheck{Entries: n}, nil
			}
			return auditCheck{Entries: n, Whole: err == nil}, err
		}),
		op("GET", "/logs", admins, "the program's own log", func(c *call, in struct {
			After int64 `json:"-" query:"after" about:"an id: only later lines"`
			Limit int   `json:"-" query:"limit" about:"200 unless it is given"`
		}) (logList, error) {
			if in.Limit == 0 {
				in.Limit = 200
			}
			return logList{a.cfg.Box.Log(in.After, in.Limit)}, nil
		}),
	}
}

type deleted struct {
	Deleted int64 `json:"deleted"`
}

func (a *Admin) usage(c *call, in usageQuery) (usageList, error) {
	f := store.UsageFilter{Key: in.Key, Person: in.Person, Model: in.Model, From: in.From, To: in.To}
	if err := grouped(&f, in.By); err != nil {
		return usageList{}, err
	}
	rows, err := a.cfg.Store.UsageTotals(c.ctx(), c.actor(), f)
	out := usageList{Usage: []Usage{}}
	for _, u := range rows {
		out.Usage = append(out.Usage, Usage{u.Day, u.Key, u.Person, u.Model, u.Endpoint, u.Requests, u.Errors, u.Prompt, u.Cached, u.Completion})
	}
	return out, err
}

func (a *Admin) requests(c *call, in requestQuery) (requestList, error) {
	f := in.filter()
	if f.Limit == 0 {
		f.Limit = 100
	}
	rows, err := a.cfg.Store.Requests(c.ctx(), c.actor(), f)
	out := requestList{Requests: []Request{}}
	for _, r := range rows {
		out.Requests = append(out.Requests, shownRequest(r))
	}
	if len(rows) == f.Limit {
		out.Next = rows[len(rows)-1].ID
	}
	return out, err
}
