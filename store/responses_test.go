package store_test

import (
	"bytes"
	"testing"
	"time"

	"onebit/store"
)

// TestResponses: what a key has made is its own, and its person's without a key; it goes with its time and its person.
func TestResponses(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	ada, bea := f.person("Ada", store.RoleMember), f.person("Bea", store.RoleMember)
	one, other := ada, ada
	one.Key, other.Key = "k1", "k2"
	f.must(f.PutResponse(ctx, one, "resp_1", []byte("first")))
	f.must(f.PutResponse(ctx, store.Actor{}, "resp_console", []byte("of the console")))
	for name, c := range map[string]struct {
		who  store.Actor
		want error
	}{"its key": {one, nil}, "its person": {ada, nil}, "another key": {other, store.ErrNotFound}, "somebody else": {bea, store.ErrNotFound}, "the console": {store.Actor{}, store.ErrNotFound}} {
		body, err := f.Response(ctx, c.who, "resp_1")
		wantErr(t, err, c.want)
		if err == nil && string(body) != "first" {
			t.Errorf("%s reads %q", name, body)
		}
	}
	_, err := f.Response(ctx, ada, "resp_console")
	wantErr(t, err, store.ErrNotFound)
	wantErr(t, f.DeleteResponse(ctx, other, "resp_1"), store.ErrNotFound)
	wantErr(t, f.PutResponse(ctx, ada, "resp_large", bytes.Repeat([]byte("x"), store.MaxResponse+1)), store.ErrInvalid)

	f.clock.add(31 * 24 * time.Hour)
	_, err = f.Response(ctx, one, "resp_1")
	wantErr(t, err, store.ErrNotFound)

	f.must(f.PutResponse(ctx, one, "resp_2", []byte("second")))
	f.must(f.DeletePerson(ctx, store.System(), ada.Person))
	_, err = f.Response(ctx, one, "resp_2")
	wantErr(t, err, store.ErrNotFound)
}
