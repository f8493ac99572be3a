package admin_test

import (
	"context"
	"strings"
	"testing"

	"onebit/appliance/admin"
	"onebit/store"
)

// shelf is documents with one collection.
type shelf struct {
	did []string
	ada string // a person's id
}

func (s *shelf) Forget(_ context.Context, person string) error {
	s.did = append(s.did, "forget "+person)
	return nil
}

// Resolve knows the collection House, which ada alone sees.
func (s *shelf) Resolve(_ context.Context, person, word string) (string, []string, error) {
	s.did = append(s.did, "resolve "+word)
	switch {
	case person != s.ada:
		return "", nil, nil
	case word == "House" || word == "vs_1":
		return "vs_1", nil, nil
	}
	return "", []string{`"House" (vs_1)`}, nil
}

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

// TestDocumentsGoWithTheirPerson: whoever is removed leaves no documents, and a removal that is refused takes none.
func TestDocumentsGoWithTheirPerson(t *testing.T) {
	w := newWorld(t)
	root := w.key("root", store.RoleAdmin, store.Key{Admin: true})
	w.key("ann", store.RoleMember, store.Key{})
	for name, want := range map[string]int{"ann": 204, "root": 409} {
		p, err := w.store.PersonByName(t.Context(), store.System(), name)
		if err != nil {
			t.Fatal(err)
		}
		w.shelf.did = nil
		if res := w.do(root, "DELETE", admin.Prefix+"/people/"+p.ID, ""); res.Code != want {
			t.Errorf("%s: %d %s", name, res.Code, res.Body)
		}
		if did := strings.Join(w.shelf.did, ","); (did == "forget "+p.ID) != (want == 204) {
			t.Errorf("%s: %q", name, did)
		}
	}
}
