package store_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"onebit/store"
)

// belongings are the ids of everything that one person has.
type belongings struct{ person, key, login, passkey, request, blob, invite, response string }

func (f *fixture) furnish(name string) (store.Actor, belongings) {
	f.t.Helper()
	ctx, a := f.t.Context(), f.person(name, store.RoleMember)
	b := belongings{person: a.Person, passkey: "pk-" + name, request: "rq-" + name}
	k, err := f.CreateKey(ctx, a, store.Key{Name: name}, hashOf("key "+name))
	f.must(err)
	b.key = k.ID
	l, err := f.CreateLogin(ctx, hashOf("login "+name), store.Login{Person: a.Person, Expires: f.clock.Now().Add(time.Hour)})
	f.must(err)
	b.login = l.ID
	f.must(f.AddPasskey(ctx, a, store.Passkey{ID: b.passkey, Person: a.Person, Credential: json.RawMessage(`{}`)}))
	f.must(f.SetPassword(ctx, a, a.Person, "$phc "+name))
	f.AddUsage(store.UsageRow{Key: b.key, Person: a.Person, Requests: 1})
	f.AddRequest(store.RequestRow{ID: b.request, Key: b.key, Person: a.Person, Privacy: store.PrivacyMetadata})
	f.must(f.Flush(ctx))
	b.blob, _, err = f.PutBlob(ctx, a, strings.NewReader("blob of "+name))
	f.must(err)
	i, err := f.CreateInvite(ctx, store.System(), hashOf("invite "+name), store.Invite{Role: store.RoleGuest, Expires: f.clock.Now().Add(time.Hour)})
	f.must(err)
	b.invite, b.response = i.ID, "resp_"+name
	f.must(f.PutResponse(ctx, a, b.response, []byte("{}")))
	return a, b
}

// intrusions are the calls that name a record, as a stranger makes them with somebody else's id. A call with the key's
// name answers for it.
func (f *fixture) intrusions(b store.Actor, of belongings) map[string]func() error {
	ctx := f.t.Context()
	drop := func(_ any, err error) error { return err }
	return map[string]func() error{
		"Person":       func() error { return drop(f.Person(ctx, b, of.person)) },
		"PersonByName": func() error { return drop(f.PersonByName(ctx, b, "A")) },
		"UpdatePerson": func() error {
			return f.UpdatePerson(ctx, b, store.Person{ID: of.person, Name: "x", Role: store.RoleMember})
		},
		"DeletePerson": func() error { return f.DeletePerson(ctx, b, of.person) },
		"SetPassword":  func() error { return f.SetPassword(ctx, b, of.person, "$mine") },
		"SetRecovery":  func() error { return f.SetRecovery(ctx, b, of.person, hashOf("mine")) },
		"AddPasskey": func() error {
			return f.AddPasskey(ctx, b, store.Passkey{ID: "n", Person: of.person, Credential: []byte(`{}`)})
		},
		"Passkeys": func() error { return drop(f.Passkeys(ctx, b, of.person)) },
		"UpdatePasskey": func() error {
			return f.UpdatePasskey(ctx, b, store.Passkey{ID: of.passkey, Person: b.Person, Credential: []byte(`{}`)})
		},
		"DeletePasskey":  func() error { return f.DeletePasskey(ctx, b, of.passkey) },
		"Logins":         func() error { return drop(f.Logins(ctx, b, of.person)) },
		"DeleteLogin":    func() error { return f.DeleteLogin(ctx, b, of.login) },
		"DeleteLoginsOf": func() error { return f.DeleteLoginsOf(ctx, b, of.person) },
		"CreateKey":      func() error { return drop(f.CreateKey(ctx, b, store.Key{Owner: of.person}, hashOf("n"))) },
		"Key":            func() error { return drop(f.Key(ctx, b, of.key)) },
		"UpdateKey": func() error {
			return f.UpdateKey(ctx, b, store.Key{ID: of.key, Owner: b.Person, Privacy: store.PrivacyFull})
		},
		"RevokeKey":    func() error { return f.RevokeKey(ctx, b, of.key) },
		"DeleteKey":    func() error { return f.DeleteKey(ctx, b, of.key) },
		"Request":      func() error { return drop(f.Request(ctx, b, of.request)) },
		"Blob":         func() error { return drop(f.Blob(ctx, b, of.blob, io.Discard)) },
		"DeleteBlob":   func() error { return f.DeleteBlob(ctx, b, of.blob) },
		"DeleteInvite": func() error { return f.DeleteInvite(ctx, b, of.invite) },
		"Response":     func() error { return drop(f.Response(ctx, b, of.response)) },
		"DeleteResponse": func() error {
			return f.DeleteResponse(ctx, b, of.response)
		},
	}
}

// lists are the calls that return many: a stranger gets none of somebody else's.
func (f *fixture) lists(b store.Actor, of belongings) map[string]func() (any, error) {
	ctx := f.t.Context()
	return map[string]func() (any, error){
		"People":      func() (any, error) { return f.People(ctx, b) },
		"Keys":        func() (any, error) { return f.Keys(ctx, b) },
		"UsageTotals": func() (any, error) { return f.UsageTotals(ctx, b, store.UsageFilter{Key: of.key, ByPerson: true}) },
		"Requests":    func() (any, error) { return f.Requests(ctx, b, store.RequestFilter{Person: of.person}) },
		"DeleteRequests": func() (any, error) {
			n, err := f.DeleteRequests(ctx, b, store.RequestFilter{Key: of.key})
			return make([]int, n), err
		},
	}
}

// adminOnly are the calls that no member may make at all.
func (f *fixture) adminOnly(b store.Actor) map[string]func() error {
	ctx := f.t.Context()
	drop := func(_ any, err error) error { return err }
	return map[string]func() error{
		"CreatePerson": func() error { return drop(f.CreatePerson(ctx, b, store.Person{Name: "n", Role: store.RoleMember})) },
		"CreateInvite": func() error { return drop(f.CreateInvite(ctx, b, hashOf("n"), store.Invite{Role: store.RoleMember})) },
		"Invites":      func() error { return drop(f.Invites(ctx, b)) },
		"AuditLog":     func() error { return drop(f.AuditLog(ctx, b, 0, 1)) },
		"SetSetting":   func() error { return f.SetSetting(ctx, b, "n", json.RawMessage(`1`)) },
		"PutModel":     func() error { return f.PutModel(ctx, b, store.ModelRecord{ID: "n"}) },
		"DeleteModel":  func() error { return f.DeleteModel(ctx, b, "n") },
		"Backup": func() error {
			return drop(f.Backup(ctx, b, io.Discard, store.BackupOptions{Passphrase: "long enough"}))
		},
		"BackupFile": func() error {
			return drop(f.BackupFile(ctx, b, f.dir+"/b", store.BackupOptions{Passphrase: "long enough"}))
		},
		"PutExtension": func() error {
			return f.PutExtension(ctx, b, store.Extension{SHA256: strings.Repeat("a", 64), Name: "n", Detail: []byte(`{}`)}, store.ExtensionEvent{})
		},
		"DeleteExtension":     func() error { return f.DeleteExtension(ctx, b, store.Extension{}, true, store.ExtensionEvent{}) },
		"PutExtensionBinding": func() error { return f.PutExtensionBinding(ctx, b, "n", nil, store.ExtensionEvent{}) },
		"LogExtension":        func() error { return f.LogExtension(ctx, b, store.ExtensionEvent{}) },
		"ExtensionLog":        func() error { return drop(f.ExtensionLog(ctx, b, 0, 1)) },
		"ClearDegraded":       func() error { return f.ClearDegraded(ctx, b) },
		"DeleteConversations": func() error { return drop(f.DeleteConversations(ctx, b, store.Actor{})) },
	}
}

// harmless are the calls that take an actor and name nobody's record.
var harmless = []string{
	"PutResponse", // under an id that nobody has yet
	"Audit", "PutBlob"}

// TestMatrix shows that every call which takes an actor keeps a stranger out: person B with each of A's ids, and nobody.
func TestMatrix(t *testing.T) {
	f := open(t, t.TempDir())
	a, of := f.furnish("A")
	b, _ := f.furnish("B")
	before := f.dump(a, of)
	for who, actor := range map[string]store.Actor{"B": b, "B by key": {Person: b.Person, Key: "x"}, "nobody": {}, "a false system": {Person: "system"}} {
		for name, call := range f.intrusions(actor, of) {
			if err := call(); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s as %s: %v, want ErrNotFound", name, who, err)
			}
		}
		for name, call := range f.lists(actor, of) {
			got, err := call()
			if err != nil {
				t.Errorf("%s as %s: %v", name, who, err)
			}
			if s := jsonOf(t, got); strings.Contains(s, of.person) || strings.Contains(s, of.key) || name == "DeleteRequests" && s != "[]" {
				t.Errorf("%s as %s returned %s", name, who, s)
			}
		}
		for name, call := range f.adminOnly(actor) {
			if err := call(); !errors.Is(err, store.ErrForbidden) {
				t.Errorf("%s as %s: %v, want ErrForbidden", name, who, err)
			}
		}
	}
	same(t, f.dump(a, of), before) // and nothing has changed
	// the same calls by A itself work, or the test would prove nothing
	own := f.intrusions(a, of)
	for _, name := range []string{"Person", "PersonByName", "SetPassword", "Passkeys", "Logins", "Key", "RevokeKey", "Request", "Blob", "DeleteBlob", "DeletePasskey", "DeleteLogin"} {
		if err := own[name](); err != nil {
			t.Errorf("%s as A itself: %v", name, err)
		}
	}
}

// TestMatrixIsComplete fails when a method that takes an actor is in none of the lists.
func TestMatrixIsComplete(t *testing.T) {
	f := &fixture{t: t}
	known := slices.Clone(harmless)
	for name := range f.intrusions(store.Actor{}, belongings{}) {
		known = append(known, name)
	}
	for name := range f.lists(store.Actor{}, belongings{}) {
		known = append(known, name)
	}
	for name := range f.adminOnly(store.Actor{}) {
		known = append(known, name)
	}
	methods, actor := reflect.TypeFor[*store.Store](), reflect.TypeFor[store.Actor]()
	for i := range methods.NumMethod() {
		m := methods.Method(i)
		takes := false
		for j := range m.Type.NumIn() {
			takes = takes || m.Type.In(j) == actor
		}
		if takes && !slices.Contains(known, m.Name) {
			t.Errorf("%s takes an actor and is not in the matrix", m.Name)
		}
	}
}

func (f *fixture) dump(a store.Actor, of belongings) string {
	f.t.Helper()
	ctx, boss := f.t.Context(), store.System()
	var all []any
	add := func(v any, err error) {
		f.t.Helper()
		f.must(err)
		all = append(all, v)
	}
	add(f.Person(ctx, boss, of.person))
	add(f.Keys(ctx, a))
	add(f.Passkeys(ctx, a, of.person))
	add(f.Logins(ctx, a, of.person))
	add(f.Requests(ctx, a, store.RequestFilter{}))
	phc, _, err := f.Password(ctx, "A")
	add(phc, err)
	add(f.Blob(ctx, a, of.blob, io.Discard))
	add(f.Invites(ctx, boss))
	return jsonOf(f.t, all)
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestStatementsAreConstant reads the package's source: whatever is handed to the database is a constant text.
func TestStatementsAreConstant(t *testing.T) {
	found, bad := 0, []string{}
	set := token.NewFileSet()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]bool{}
	var files []*ast.File
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		collectConstants(file, constants)
	}
	position := map[string]int{"Exec": 1, "Insert": 1, "One": 1, "Once": 1, "Query": 1, "Row": 1, "Scan": 1, "ExecContext": 1, "QueryContext": 1, "QueryRowContext": 1,
		"PrepareContext": 1, "QueryRow": 0, "Prepare": 0}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			at, ok := position[sel.Sel.Name]
			if !ok || len(call.Args) <= at {
				return true
			}
			if first, ok := call.Args[0].(*ast.Ident); sel.Sel.Name == "Scan" && (!ok || first.Name != "ctx") {
				return true // of a row
			}
			found++
			if !constant(call.Args[at], constants) {
				bad = append(bad, set.Position(call.Pos()).String())
			}
			return true
		})
	}
	if found < 60 {
		t.Fatalf("only %d statements were found: the search is broken", found)
	}
	if len(bad) > 0 {
		t.Errorf("these statements are not constant: %v", bad)
	}
}

func collectConstants(file *ast.File, into map[string]bool) {
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, s := range g.Specs {
			for _, n := range s.(*ast.ValueSpec).Names {
				into[n.Name] = true
			}
		}
	}
}

func constant(e ast.Expr, constants map[string]bool) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return constants[e.Name]
	case *ast.BinaryExpr:
		return constant(e.X, constants) && constant(e.Y, constants)
	}
	return false
}
