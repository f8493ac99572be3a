package documents

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

const (
	filterDepth  = 8
	filterParts  = 100
	filterValues = 10_000 // of all lists together
	filterBytes  = 256 << 10
)

// Filter selects attachments by their attributes, as the API writes it: a comparison, or several joined. Nil selects all.
// ParseFilter makes one.
type Filter struct {
	Type    string          `json:"type"`
	Key     string          `json:"key"`
	Value   json.RawMessage `json:"value"`
	Filters []Filter        `json:"filters"`

	value any
	set   map[any]bool
}

// ParseFilter reads a filter over attributes:
//
//	{"type": "eq|ne|gt|gte|lt|lte|in|nin", "key": K, "value": V}
//	{"type": "and|or", "filters": [...]}
//
// Nothing, or null, is no filter.
func ParseFilter(b []byte) (*Filter, error) {
	if len(b) == 0 || string(b) == "null" {
		return nil, nil
	}
	if len(b) > filterBytes {
		return nil, fmt.Errorf("%w: the filter is longer than %d bytes", ErrInvalid, filterBytes)
	}
	var n Filter
	if err := json.Unmarshal(b, &n); err != nil {
		return nil, fmt.Errorf("%w: the filter: %w", ErrInvalid, err)
	}
	if err := n.check(0, &size{}); err != nil {
		return nil, fmt.Errorf("%w: the filter: %w", ErrInvalid, err)
	}
	return &n, nil
}

// size is what was seen of a filter: each file of a collection is held against it.
type size struct{ parts, values int }

func (n *Filter) check(depth int, seen *size) error {
	if seen.parts++; depth > filterDepth || seen.parts > filterParts {
		return fmt.Errorf("it has more than %d parts, or is deeper than %d", filterParts, filterDepth)
	}
	switch n.Type {
	case "and", "or":
		if len(n.Filters) == 0 {
			return fmt.Errorf("%q joins no filters", n.Type)
		}
		for i := range n.Filters {
			if err := n.Filters[i].check(depth+1, seen); err != nil {
				return err
			}
		}
		return nil
	case "eq", "ne", "gt", "gte", "lt", "lte":
		if err := json.Unmarshal(n.Value, &n.value); err != nil || !scalar(n.value) {
			return fmt.Errorf("the value for %q is no text, number or boolean", n.Key)
		}
	case "in", "nin":
		var list []any
		if err := json.Unmarshal(n.Value, &list); err != nil || slices.ContainsFunc(list, func(v any) bool { return !scalar(v) }) {
			return fmt.Errorf("the value for %q is no list of texts, numbers or booleans", n.Key)
		}
		if seen.values += len(list); seen.values > filterValues {
			return fmt.Errorf("its lists have more than %d values", filterValues)
		}
		n.set = make(map[any]bool, len(list))
		for _, v := range list {
			n.set[v] = true
		}
	default:
		return fmt.Errorf("its type is %q; eq, ne, gt, gte, lt, lte, in, nin, and, or are known", n.Type)
	}
	if n.Key == "" {
		return errors.New("a comparison needs a key")
	}
	return nil
}

func scalar(v any) bool {
	switch v.(type) {
	case string, float64, bool:
		return true
	}
	return false
}

// Match tells whether an attachment's attributes fit. A missing one is unequal to everything
// and neither larger nor smaller.
func (n *Filter) Match(a map[string]any) bool {
	switch n.Type {
	case "and":
		return !slices.ContainsFunc(n.Filters, func(f Filter) bool { return !f.Match(a) })
	case "or":
		return slices.ContainsFunc(n.Filters, func(f Filter) bool { return f.Match(a) })
	}
	v, there := a[n.Key]
	switch n.Type {
	case "eq":
		return there && v == n.value
	case "ne":
		return !there || v != n.value
	case "in":
		return there && n.set[v]
	case "nin":
		return !there || !n.set[v]
	}
	order, comparable := compare(v, n.value)
	if !there || !comparable {
		return false
	}
	switch n.Type {
	case "gt":
		return order > 0
	case "gte":
		return order >= 0
	case "lt":
		return order < 0
	}
	return order <= 0
}

// compare orders numbers, and texts, among themselves.
func compare(a, b any) (order int, ok bool) {
	switch a := a.(type) {
	case float64:
		if b, ok := b.(float64); ok {
			return sign(a < b, a > b), true
		}
	case string:
		if b, ok := b.(string); ok {
			return sign(a < b, a > b), true
		}
	}
	return 0, false
}

func sign(less, more bool) int {
	switch {
	case less:
		return -1
	case more:
		return 1
	}
	return 0
}
