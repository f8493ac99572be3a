package admin_test

import (
	"context"
	"strings"
	"testing"

	"onebit/appliance/admin"
	"onebit/store"
)

// shelf is documents with one collection.
type shelf struct{ did []string }

func (s *shelf) Collections(_ context.Context, after string, limit int) ([]admin.Collection, error) {
	if after != "" {
		return nil, nil
	}
	return []admin.Collection{{ID: "vs_1", Owner: "p", Name: "House", Failed: 1, Failures: []admin.Failure{{File: "file-1", Why: "no text"}}}}[:min(1, limit)], nil
}

func (s *shelf) ShareCollection(_ context.Context, _ store.Actor, id string, to admin.Sharing) (admin.Collection, error) {
	if id != "vs_1" {
		return admin.Collection{}, store.ErrNotFound
	}
	s.did = append(s.did, "share "+id)
	return admin.Collection{ID: id, Sharing: to}, nil
}

func (s *shelf) DeleteCollection(_ context.Context, _ store.Actor, id string) error {
	if id != "vs_1" {
		return store.ErrNotFound
	}
	s.did = append(s.did, "delete "+id)
	return nil
}

// TestDocuments: admins see what collections there are, share and delete them.
func TestDocuments(t *testing.T) {
	w := newWorld(t)
	root := w.key("root", store.RoleAdmin, store.Key{Admin: true})
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/documents", "", 200, `"why": "no text"`},
		{"PATCH", "/documents/vs_1", `{"everyone":true}`, 200, `"everyone": true`},
		{"PATCH", "/documents/vs_2", `{}`, 404, "not_found"},
		{"DELETE", "/documents/vs_2", "", 404, "not_found"},
		{"DELETE", "/documents/vs_1", "", 204, ""},
	} {
		res := w.do(root, c.method, admin.Prefix+c.path, c.body)
		if res.Code != c.status || !strings.Contains(res.Body.String(), c.want) {
			t.Errorf("%s %s: %d %s", c.method, c.path, res.Code, res.Body)
		}
	}
}
