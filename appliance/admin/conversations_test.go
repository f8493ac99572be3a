package admin_test

import (
	"fmt"
	"strings"
	"testing"

	"onebit/appliance/admin"
	"onebit/extensions"
	"onebit/extensions/abi"
	"onebit/store"
)

// TestConversations: an admin forgets where conversations are, those of a key or a person or all, on the disk and in memory.
func TestConversations(t *testing.T) {
	w, ctx := newWorld(t), t.Context()
	root, member := w.key("root", store.RoleAdmin, store.Key{Admin: true}), w.key("ada", store.RoleMember, store.Key{})
	ada, err := w.store.PersonByName(ctx, store.System(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := w.store.Keys(ctx, store.Actor{Person: ada.ID})
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	for i, o := range []extensions.Owner{{Person: ada.ID, Key: keys[0].ID}, {Person: ada.ID}, {}} {
		w.manager.Decide(ctx, extensions.Input{
			Tenant: o.Person, Key: o.Key, Body: []byte(`{"messages":[{"role":"user","content":"a"}]}`),
			Candidates: []abi.Candidate{{ID: "small", Healthy: true}, {ID: "large", Healthy: true}},
		})
		c := store.Conversation{ID: fmt.Sprintf("%032x", i), Owner: store.Actor{Person: o.Person, Key: o.Key}, Place: "small", Detail: []byte(`{}`)}
		if err := w.store.PutConversation(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.store.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		who, query string
		status     int
		want       string
		left       int
	}{
		{member, "", 403, "", 3},
		{root, "?keys=x", 400, "unknown_parameter", 3},
		{root, "?key=" + keys[0].ID, 200, `"deleted": 1`, 2},
		{root, "?person=" + ada.ID, 200, `"deleted": 1`, 1},
		{root, "", 200, `"deleted": 1`, 0},
	} {
		res := w.do(tt.who, "DELETE", admin.Prefix+"/conversations"+tt.query, "")
		if res.Code != tt.status || !strings.Contains(res.Body.String(), tt.want) {
			t.Errorf("%s: %d %s", tt.query, res.Code, res.Body)
		}
		n, err := w.store.Conversations(ctx)
		if err != nil || int(n) != tt.left || w.manager.Status().Conversations != tt.left {
			t.Errorf("%s: %d are kept, %d remembered, want %d, %v", tt.query, n, w.manager.Status().Conversations, tt.left, err)
		}
	}
}
