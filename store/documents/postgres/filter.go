package postgres

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"onebit/store/documents"
)

// query is SQL in the making: its values never stand in its text.
type query struct{ args []any }

// arg adds a value and returns its place.
func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	return fmt.Sprint("$", len(q.args))
}

// matches is what Filter.Match says of the attachment a. A text with the character 0 is never in the database.
func (q *query) matches(f *documents.Filter) string {
	if f == nil {
		return "true"
	}
	if f.Type == "and" || f.Type == "or" {
		parts := make([]string, len(f.Filters))
		for i := range f.Filters {
			parts[i] = q.matches(&f.Filters[i])
		}
		return "(" + strings.Join(parts, " "+f.Type+" ") + ")"
	}
	var value any
	_ = json.Unmarshal(f.Value, &value) // it was when the filter was made
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	no := f.Type == "ne" || f.Type == "nin"
	_, truth := value.(bool)
	order := map[string]string{"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}[f.Type]
	if strings.Contains(f.Key, "\x00") || order != "" && truth {
		return strconv.FormatBool(no) // no attribute is called so, and truths have no order
	}
	is := "(a.attributes -> " + q.arg(f.Key) + "::text)"
	if order == "" {
		is += " in (select jsonb_array_elements(" + q.arg(without(list)) + "::jsonb))"
	} else if text, ok := value.(string); ok {
		text, _, cut := strings.Cut(text, "\x00")
		if cut { // the next after text, which none here is
			order = map[bool]string{true: ">", false: "<="}[order[0] == '>']
		}
		is = "jsonb_typeof" + is + " = 'string' and (" + is + " #>> '{}') collate \"C\" " + order + " " + q.arg(text) + "::text"
	} else {
		is = "jsonb_typeof" + is + " = 'number' and " + is + " " + order + " " + q.arg(toJSON(value)) + "::jsonb"
	}
	if is = "coalesce(" + is + ", false)"; no {
		return "not " + is
	}
	return is
}

// without is a list as JSON, but for what is never in the database.
func without(list []any) string {
	some := []any{}
	for _, v := range list {
		if text, ok := v.(string); !ok || !strings.Contains(text, "\x00") {
			some = append(some, v)
		}
	}
	return toJSON(some)
}
