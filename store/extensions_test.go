package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"onebit/store"
)

func TestExtensions(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a := f.person("A", store.RoleAdmin)
	e := store.Extension{SHA256: strings.Repeat("ab", 32), Name: "size", Version: "1.0", Kind: "policy", Size: 7, Detail: json.RawMessage(`{"x":1}`)}
	f.must(f.PutExtension(ctx, a, e, store.ExtensionEvent{Action: "upload", Module: e.SHA256, Detail: "size 1.0"}))
	added := f.clock.Now()
	f.clock.add(time.Hour)
	e.Detail = json.RawMessage(`{"x":2}`)
	f.must(f.PutExtension(ctx, store.System(), e, store.ExtensionEvent{Action: "check", Module: e.SHA256}))
	f.must(f.PutExtensionBinding(ctx, a, "policy", json.RawMessage(`{"active":1}`), store.ExtensionEvent{Action: "activate", Module: e.SHA256, Binding: "policy"}))
	f.must(f.LogExtension(ctx, a, store.ExtensionEvent{Action: "refuse", Detail: "not WebAssembly"}))
	f.must(f.Close())
	f.reopen(nil)

	all, err := f.Extensions(ctx)
	f.must(err)
	e.By, e.Added = a.Person, added
	same(t, all, []store.Extension{e})
	bound, err := f.ExtensionBindings(ctx)
	f.must(err)
	same(t, string(bound["policy"]), `{"active":1}`)
	log, err := f.ExtensionLog(ctx, a, 1, 10)
	f.must(err)
	same(t, len(log), 3)
	same(t, log[1], store.ExtensionEvent{ID: 3, Time: f.clock.Now(), Person: a.Person, Action: "activate", Module: e.SHA256, Binding: "policy"})

	f.must(f.PutExtensionBinding(ctx, a, "policy", nil, store.ExtensionEvent{Action: "remove", Binding: "policy"}))
	wantErr(t, f.PutExtensionBinding(ctx, a, "policy", nil, store.ExtensionEvent{}), store.ErrNotFound)
	f.must(f.DeleteExtension(ctx, a, e, true, store.ExtensionEvent{Action: "delete", Module: e.SHA256}))
	wantErr(t, f.DeleteExtension(ctx, a, e, true, store.ExtensionEvent{}), store.ErrNotFound)
	for _, q := range []string{"update extension_log set detail = 'x'", "delete from extension_log"} {
		if err := store.Exec(ctx, f.Store, q); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", q, err)
		}
	}
	// each line of the log has its entry in the chain; what failed has neither
	log, err = f.ExtensionLog(ctx, a, 0, 100)
	f.must(err)
	audit, err := f.AuditLog(ctx, a, 0, 100)
	f.must(err)
	n := 0
	for _, entry := range audit {
		if strings.HasPrefix(entry.Action, "extension.") {
			n++
		}
	}
	same(t, n, len(log))
	same(t, n, 6)
	_, err = f.VerifyAudit(ctx)
	f.must(err)
}

func TestExtensionValues(t *testing.T) {
	f, ctx := open(t, t.TempDir()), t.Context()
	a, b := f.person("A", store.RoleMember), f.person("B", store.RoleMember)
	soon := f.clock.Now().Add(time.Minute)
	put := func(values ...store.ExtensionValue) { t.Helper(); f.must(f.PutExtensionValues(ctx, values)) }
	names := func(module, tenant string) string {
		t.Helper()
		all, err := f.ExtensionValues(ctx, module, tenant)
		f.must(err)
		var out []string
		for _, v := range all {
			out = append(out, v.Name+"="+string(v.Value))
		}
		return strings.Join(out, " ")
	}
	put(store.ExtensionValue{Module: "m", Tenant: a.Person, Name: "x", Value: []byte("1")},
		store.ExtensionValue{Module: "m", Tenant: a.Person, Name: "y", Value: []byte("2"), Expires: soon},
		store.ExtensionValue{Module: "m", Tenant: b.Person, Name: "x", Value: []byte("3")},
		store.ExtensionValue{Module: "n", Tenant: a.Person, Name: "x", Value: []byte("4")})
	same(t, names("m", a.Person), "x=1 y=2")
	put(store.ExtensionValue{Module: "m", Tenant: a.Person, Name: "x"}, store.ExtensionValue{Module: "m", Tenant: a.Person, Name: "z", Value: []byte{}})
	same(t, names("m", a.Person), "y=2 z=")
	f.clock.add(2 * time.Minute)
	same(t, names("m", a.Person), "z=")
	f.must(f.DeletePerson(ctx, store.System(), a.Person))
	same(t, names("m", a.Person)+names("n", a.Person), "")
	same(t, names("m", b.Person), "x=3")
}
