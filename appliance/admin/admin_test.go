package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/auth"
	"onebit/engine"
	"onebit/extensions"
	"onebit/store"
)

var update = flag.Bool("update", false, "write the golden files anew")

// box is a box that does nothing but remember what it was asked.
type box struct {
	asked   []string
	models  []admin.Model
	loading chan struct{} // is closed when the model slow is asked for
}

func (b *box) ask(what string) { b.asked = append(b.asked, what) }

func (b *box) Status(context.Context) admin.Status {
	return admin.Status{Name: "attic", Ready: true, Problems: []string{}, Models: b.models}
}
func (b *box) Models() []admin.Model { return b.models }
func (b *box) Endpoints() []string   { return []string{"/chat/completions", "/responses", "/models"} }
func (b *box) AddModel(_ context.Context, _ store.Actor, m admin.NewModel) (admin.Model, error) {
	b.ask("add " + m.Name + " " + m.File)
	return admin.Model{Name: m.Name}, nil
}
func (b *box) ChangeModel(_ context.Context, _ store.Actor, name string, c admin.ModelChange) (admin.Model, error) {
	b.ask("change " + name)
	if c.Pinned != nil && *c.Pinned {
		b.ask("pinned")
	}
	return admin.Model{Name: name}, nil
}
func (b *box) RemoveModel(_ context.Context, _ store.Actor, name string, file bool) error {
	b.ask("remove " + name)
	if file {
		b.ask("with its file")
	}
	return nil
}
func (b *box) LoadModel(ctx context.Context, name string) error {
	if name == "slow" {
		close(b.loading)
		<-ctx.Done()
		return ctx.Err()
	}
	return &engine.UnavailableError{Reason: "no memory", RetryAfter: time.Second}
}
func (b *box) UnloadModel(_ context.Context, name string) error { b.ask("unload " + name); return nil }
func (b *box) Catalog(context.Context) []admin.CatalogEntry {
	return []admin.CatalogEntry{{Name: "smollm2"}}
}
func (b *box) Pulls() []admin.Pull                      { return []admin.Pull{} }
func (b *box) CancelPull(context.Context, string) error { return store.ErrNotFound }
func (b *box) PromptCache() admin.PromptCache {
	return admin.PromptCache{Bytes: 7, Models: []admin.PromptCacheModel{}}
}

func (b *box) ClearPromptCache(context.Context, store.Actor) error { return nil }

func (b *box) Backends(context.Context) []admin.Backend { return []admin.Backend{} }
func (b *box) RollbackBackend(_ context.Context, _ store.Actor, d string) error {
	b.ask("rollback " + d)
	return nil
}
func (b *box) Settings() []admin.Setting { return []admin.Setting{{Name: "name", Value: "attic"}} }
func (b *box) BackupFiles() map[string][]byte {
	return map[string][]byte{"1bit.yaml": []byte("name: attic")}
}
func (b *box) Reload(context.Context) error               { b.ask("reload"); return nil }
func (b *box) Routes() []admin.RouteInfo                  { return []admin.RouteInfo{} }
func (b *box) Certificate() admin.Certificate             { return admin.Certificate{Mode: "local"} }
func (b *box) Log(after int64, limit int) []admin.LogLine { return []admin.LogLine{{ID: after + 1}} }
func (b *box) StartPull(_ context.Context, _ store.Actor, p admin.NewPull) (admin.Pull, error) {
	b.ask("pull " + p.Model)
	return admin.Pull{ID: "p"}, nil
}
func (b *box) ChangeSettings(_ context.Context, _ store.Actor, values map[string]string) error {
	for name := range values {
		b.ask("set " + name)
	}
	return nil
}

// world is a control plane over a real store, with people.
type world struct {
	shelf *shelf
	t     *testing.T
	admin *admin.Admin
	auth  *auth.Auth
	store *store.Store
	box   *box

	records *nothing
	manager *extensions.Manager
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s, err := store.Open(t.Context(), store.Config{Dir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	au, err := auth.New(auth.Config{Store: s, Log: log, Console: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, auth: au, store: s, box: &box{models: []admin.Model{{Name: "small"}, {Name: "large"}}}}
	w.records = &nothing{}
	w.manager = manager(t, w.records)
	w.shelf = &shelf{}
	if w.admin, err = admin.New(admin.Config{Store: s, Auth: au, Box: w.box, Log: log, Extensions: w.manager, Documents: w.shelf}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Claim(t.Context(), store.ClaimRequest{Admin: store.Newcomer{Name: "root"}}); err != nil {
		t.Fatal(err)
	}
	return w
}

// person makes a person and returns a principal's key for it.
func (w *world) key(name string, role store.Role, k store.Key) string {
	w.t.Helper()
	p, err := w.store.PersonByName(w.t.Context(), store.System(), name)
	if err != nil {
		if p, err = w.store.CreatePerson(w.t.Context(), store.System(), store.Person{Name: name, Role: role}); err != nil {
			w.t.Fatal(err)
		}
	}
	k.Name, k.Owner = "k", p.ID
	_, secret, err := w.auth.CreateKey(w.t.Context(), auth.Local(), k)
	if err != nil {
		w.t.Fatal(err)
	}
	return secret.Expose()
}

// socket marks a request as one of the box's own socket.
const socket = "socket"

func (w *world) do(who, method, path, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	switch who {
	case "":
	case socket:
		r = r.WithContext(auth.With(r.Context(), auth.Local()))
	default:
		r.Header.Set("Authorization", "Bearer "+who)
	}
	out := httptest.NewRecorder()
	w.admin.ServeHTTP(out, r)
	return out
}

// get decodes a good answer.
func get[T any](w *world, who, method, path, body string) T {
	w.t.Helper()
	res := w.do(who, method, path, body)
	var v T
	if res.Code >= 300 {
		w.t.Fatalf("%s %s: %d %s", method, path, res.Code, res.Body)
	}
	if err := json.Unmarshal(res.Body.Bytes(), &v); err != nil {
		w.t.Fatalf("%s %s: %v in %s", method, path, err, res.Body)
	}
	return v
}

// filled puts something into the parameters of a path.
func filled(path string) string {
	for strings.Contains(path, "{") {
		i, j := strings.Index(path, "{"), strings.Index(path, "}")
		path = path[:i] + "x" + path[j+1:]
	}
	return path
}

func TestNoRouteAnswersStrangers(t *testing.T) {
	w := newWorld(t)
	member := w.key("mia", store.RoleMember, store.Key{})
	for _, r := range w.admin.Routes() {
		for who, want := range map[string]int{"": 401, "1b_nonsense": 401, member: 403} {
			res := w.do(who, r.Method, filled(r.Path), `{}`)
			if res.Code != want || !strings.HasPrefix(res.Body.String(), `{"error":{`) {
				t.Errorf("%s %s by %q: %d %s, want %d", r.Method, r.Path, who, res.Code, res.Body, want)
			}
		}
	}
	if n := len(w.admin.Routes()); n < 40 {
		t.Errorf("the walk found %d routes only", n)
	}
	if len(w.box.asked) > 0 {
		t.Errorf("strangers did %v", w.box.asked)
	}
}

func TestOperations(t *testing.T) {
	w := newWorld(t)
	root := w.key("root", store.RoleAdmin, store.Key{Admin: true})
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		want, asked              string
	}{
		{"status", "GET", "/status", "", 200, `"name": "attic"`, ""},
		{"who", "GET", "/whoami", "", 200, `"by": "key"`, ""},
		{"models", "GET", "/models", "", 200, `"large"`, ""},
		{"add a model", "POST", "/models", `{"name":" m ","file":"smollm2"}`, 201, `"name": "m"`, "add m smollm2"},
		{"a program's path", "POST", "/models", `{"file":"smollm2","llama_server":"/bin/sh"}`, 400, "llama_server", ""},
		{"arguments", "POST", "/models", `{"file":"smollm2","args":["-x"]}`, 400, "args", ""},
		{"change a model", "PATCH", "/models/m%2Fn", `{"pinned":true}`, 200, `"m/n"`, "change m/n,pinned"},
		{"remove with the file", "DELETE", "/models/m?file=true", "", 204, "", "remove m,with its file"},
		{"a parameter that is not there", "DELETE", "/models/m?files=true", "", 400, "unknown_parameter", ""},
		{"unload", "POST", "/models/m/unload", "", 204, "", "unload m"},
		{"a load that fails", "POST", "/models/m/load", "", 503, "no memory", ""},
		{"pull", "POST", "/pulls", `{"model":"smollm2"}`, 201, `"id": "p"`, "pull smollm2"},
		{"no such pull", "DELETE", "/pulls/q", "", 404, "not_found", ""},
		{"settings", "PATCH", "/settings", `{"values":{"name":"attic"}}`, 200, "attic", "set name"},
		{"no settings", "PATCH", "/settings", `{}`, 400, "missing_required_parameter", ""},
		{"reload", "POST", "/reload", "", 204, "", "reload"},
		{"the console's own", "POST", "/claim-code", "", 403, "console_only", ""},
		{"not JSON", "POST", "/models", `{"file":`, 400, "invalid_json", ""},
		{"two values", "POST", "/models", `{"file":"a"} {}`, 400, "more than one JSON value", ""},
		{"a wrong type", "POST", "/models", `{"file":7}`, 400, `"param":"file"`, ""},
		{"unknown path", "GET", "/nothing", "", 404, "unknown_path", ""},
		{"wrong method", "DELETE", "/status", "", 405, "method_not_allowed", ""},
		{"a copy without a lock", "POST", "/backup", `{}`, 400, "encrypted", ""},
		{"a copy with a weak lock", "POST", "/backup", `{"passphrase":"short"}`, 400, "12 characters", ""},
		{"a copy for nobody", "POST", "/backup", `{"recipient":"bob"}`, 400, "age public key", ""},
		{"usage by what", "GET", "/usage?by=colour", "", 400, "not by", ""},
		{"a limit that is none", "GET", "/requests?limit=-1", "", 400, "whole number", ""},
		{"audit", "GET", "/audit", "", 200, `"entries"`, ""},
		{"audit check", "GET", "/audit/check", "", 200, `"whole": true`, ""},
	} {
		w.box.asked = nil
		res := w.do(root, c.method, admin.Prefix+c.path, c.body)
		if res.Code != c.status || !strings.Contains(res.Body.String(), c.want) {
			t.Errorf("%s: %d %s", c.name, res.Code, res.Body)
		}
		if got := strings.Join(w.box.asked, ","); got != c.asked {
			t.Errorf("%s: the box was asked %q, want %q", c.name, got, c.asked)
		}
	}
	form := httptest.NewRequest("POST", admin.Prefix+"/models", strings.NewReader(`{"file":"a"}`))
	form.Header.Set("Content-Type", "text/plain")
	form.Header.Set("Authorization", "Bearer "+root)
	out := httptest.NewRecorder()
	w.admin.ServeHTTP(out, form)
	if out.Code != 400 || !strings.Contains(out.Body.String(), "application/json") {
		t.Errorf("a form: %d %s", out.Code, out.Body)
	}
}

func TestBackup(t *testing.T) {
	w := newWorld(t)
	const phrase = "correct horse battery"
	res := w.do(socket, "POST", admin.Prefix+"/backup", `{"passphrase":"`+phrase+`"}`)
	if res.Code != 200 || res.Header().Get("Content-Type") != "application/octet-stream" {
		t.Fatalf("%d %s", res.Code, res.Body)
	}
	m, err := store.VerifyBackup(t.Context(), t.TempDir(), bytes.NewReader(res.Body.Bytes()), store.RestoreOptions{Passphrase: phrase})
	if err != nil || m.IncludesCA || !strings.Contains(fmt.Sprint(m.Files), "1bit.yaml") {
		t.Errorf("%+v, %v", m, err)
	}
}

type keyAnswer struct{ ID, Secret, Name, Owner string }

func TestKeys(t *testing.T) {
	w := newWorld(t)
	made := get[keyAnswer](w, socket, "POST", admin.Prefix+"/keys", `{"name":"tablet","models":["small*"],"tokens_per_day":1000,"guest":false}`)
	if made.Secret == "" || made.ID == "" {
		t.Fatalf("made %+v", made)
	}
	if all := w.do(socket, "GET", admin.Prefix+"/keys", "").Body.String(); strings.Contains(all, made.Secret) || !strings.Contains(all, made.ID) {
		t.Errorf("the list is %s", all)
	}
	changed := get[keyAnswer](w, socket, "PATCH", admin.Prefix+"/keys/"+made.ID, `{"name":"phone"}`)
	if changed.Name != "phone" {
		t.Errorf("changed %+v", changed)
	}
	if res := w.do(socket, "PATCH", admin.Prefix+"/keys/"+made.ID, `{"concurrency":-1}`); res.Code != 400 {
		t.Errorf("a negative limit: %d %s", res.Code, res.Body)
	}
	for _, bad := range []string{`{"priority":"urgent"}`, `{"priority":""}`, `{"weight":0}`, `{"weight":101}`} {
		if res := w.do(socket, "PATCH", admin.Prefix+"/keys/"+made.ID, bad); res.Code != 400 || !strings.Contains(res.Body.String(), "interactive, normal or background") && !strings.Contains(res.Body.String(), "1 to 100") {
			t.Errorf("%s: %d %s", bad, res.Code, res.Body)
		}
	}
	bound := get[struct {
		Priority string
		Weight   int
	}](w, socket, "PATCH", admin.Prefix+"/keys/"+made.ID, `{"priority":"background","weight":3}`)
	if bound.Priority != "background" || bound.Weight != 3 {
		t.Errorf("%+v", bound)
	}
	for guest, want := range map[string]string{`"guest":true`: "normal", `"guest":true,"priority":"background"`: "background", `"guest":false`: "interactive"} {
		if k := get[struct{ Priority string }](w, socket, "POST", admin.Prefix+"/keys", `{"name":"x",`+guest+`}`); k.Priority != want {
			t.Errorf("%s: %q", guest, k.Priority)
		}
	}
	if res := w.do(socket, "DELETE", admin.Prefix+"/keys/"+made.ID, ""); res.Code != 204 {
		t.Errorf("revoking: %d %s", res.Code, res.Body)
	}
	if p, err := w.auth.Identify(t.Context(), request(made.Secret)); err == nil {
		t.Errorf("a revoked key opens the box for %+v", p)
	}
}

// TestKeysNameWhatThereIs: a key for a collection that its owner does not see is refused, one for a model that is not here is made
// with a warning, and what a key named before is not looked at again.
func TestKeysNameWhatThereIs(t *testing.T) {
	w := newWorld(t)
	ada, err := w.store.CreatePerson(t.Context(), store.System(), store.Person{Name: "ada", Role: store.RoleMember})
	if err != nil {
		t.Fatal(err)
	}
	w.shelf.ada = ada.ID
	as := func(p *auth.Principal, method, path, body string) (int, string) {
		r := httptest.NewRequest(method, admin.Prefix+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		out := httptest.NewRecorder()
		w.admin.ServeAs(out, r, p)
		return out.Code, out.Body.String()
	}
	her := &auth.Principal{Kind: auth.Login, Actor: store.Actor{Person: ada.ID}, Name: "ada", Role: store.RoleMember}
	var made admin.MadeKey
	for _, c := range []struct {
		name   string
		by     *auth.Principal
		body   string
		status int
		want   string // in the answer
		says   string // is not
	}{
		{"a collection by its name", her, `{"name":"k","collections":["House","vs_1"],"bind":true}`, 201, "\"collections\": [\n    \"vs_1\"\n  ]", "warnings"},
		{"none of that name", her, `{"name":"k","collections":["Hosue"],"bind":true}`, 400, `no collection that has the id \"Hosue\", or alone this name; there are \"House\" (vs_1)`, ""},
		{"for her, by the console", auth.Local(), `{"name":"k","owner":"` + ada.ID + `","collections":["House"]}`, 201, `"vs_1"`, ""},
		{"for the admin, who does not see it", auth.Local(), `{"name":"k","collections":["vs_1"]}`, 400, "there is none", ""},
		{"for somebody else, by her", her, `{"name":"k","owner":"nobody","collections":["Hosue"]}`, 404, "", "House"},
		{"by a key, which makes none", &auth.Principal{Kind: auth.KeyHolder, Actor: her.Actor, Role: her.Role, Key: &store.Key{}}, `{"name":"k","collections":["Hosue"]}`, 403, "key_not_allowed", "House"},
		{"a model", her, `{"name":"k","models":["small","l*"]}`, 201, `"small"`, "warnings"},
		{"a model that is not here", her, `{"name":"k","models":["samll","huge*","large"]}`, 201, `"no model is called \"samll\" at the moment; there are small, large"`, `\"large\" at`},
		{"endpoints, however they are written", her, `{"name":"k","endpoints":["/chat/completions","v1/responses/","/v1/chat/*","*"]}`, 201, `"v1/responses/"`, "warnings"},
		{"an endpoint nearly", her, `{"name":"k","endpoints":["/v1/chat/completion"]}`, 400, `there is no endpoint \"/v1/chat/completion\" in the API; did you mean /chat/completions?`, ""},
		{"an endpoint that is none", her, `{"name":"k","guest":true,"endpoints":["/images/generations"]}`, 400, `in the API; there are /chat/completions, /responses, /models`, ""},
		{"an endpoint by a key, which makes none", &auth.Principal{Kind: auth.KeyHolder, Actor: her.Actor, Role: her.Role, Key: &store.Key{}}, `{"name":"k","endpoints":["/nothing"]}`, 403, "key_not_allowed", "/nothing"},
		{"the last", her, `{"name":"k","models":["samll","huge*","large"]}`, 201, "", ""},
	} {
		status, text := as(c.by, "POST", "/keys", c.body)
		if status != c.status || !strings.Contains(text, c.want) || c.says != "" && strings.Contains(text, c.says) {
			t.Errorf("%s: %d %s", c.name, status, text)
		}
		if c.status == 201 {
			made = admin.MadeKey{}
			if err := json.Unmarshal([]byte(text), &made); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(made.Warnings) != 2 {
		t.Errorf("warned %q", made.Warnings)
	}
	if status, text := as(her, "PATCH", "/keys/"+made.ID, `{"collections":["vs_9"]}`); status != 400 || !strings.Contains(text, "collection_not_found") {
		t.Errorf("a change: %d %s", status, text)
	}
	if status, text := as(her, "PATCH", "/keys/"+made.ID, `{"collections":["house"],"models":["samll","tiny"]}`); status != 400 {
		t.Errorf("a change: %d %s", status, text)
	}
	if status, text := as(her, "PATCH", "/keys/"+made.ID, `{"collections":["House"],"models":["samll","tiny"]}`); status != 200 || strings.Count(text, "at the moment") != 1 || !strings.Contains(text, `"vs_1"`) {
		t.Errorf("a change: %d %s", status, text)
	}
	if status, text := as(her, "PATCH", "/keys/"+made.ID, `{"endpoints":["/responses2"]}`); status != 400 || !strings.Contains(text, "did you mean /responses?") {
		t.Errorf("a change: %d %s", status, text)
	}
	old, err := w.store.Key(t.Context(), store.System(), made.ID) // of a time when anything was taken
	if err != nil {
		t.Fatal(err)
	}
	old.Endpoints = []string{"/gone"}
	if err := w.store.UpdateKey(t.Context(), store.System(), old); err != nil {
		t.Fatal(err)
	}
	if status, text := as(her, "PATCH", "/keys/"+made.ID, `{"endpoints":["/models","/gone"]}`); status != 200 {
		t.Errorf("an endpoint that it named before: %d %s", status, text)
	}
	w.shelf.ada, w.shelf.did = "", nil // the collection has gone
	if status, text := as(her, "PATCH", "/keys/"+made.ID, `{"collections":["vs_1"],"name":"other"}`); status != 200 || len(w.shelf.did) > 0 {
		t.Errorf("what it named before: %d %s, %v", status, text, w.shelf.did)
	}
}

func request(key string) *http.Request {
	r := httptest.NewRequest("GET", "/v1/models", nil)
	r.Header.Set("Authorization", "Bearer "+key)
	return r
}

// TestOthersDoNotExist has Ben, who has logged in, try what is Ada's.
func TestOthersDoNotExist(t *testing.T) {
	w := newWorld(t)
	ada, err := w.store.CreatePerson(t.Context(), store.System(), store.Person{Name: "ada", Role: store.RoleMember})
	if err != nil {
		t.Fatal(err)
	}
	ben, err := w.store.CreatePerson(t.Context(), store.System(), store.Person{Name: "ben", Role: store.RoleMember})
	if err != nil {
		t.Fatal(err)
	}
	as := func(p store.Person, method, path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, admin.Prefix+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		login := &auth.Principal{Kind: auth.Login, Actor: store.Actor{Person: p.ID}, Name: p.Name, Role: p.Role}
		out := httptest.NewRecorder()
		w.admin.ServeAs(out, r, login)
		return out
	}
	if res := as(ada, "POST", "/keys", `{"name":"most","weight":9}`); res.Code != 403 || !strings.Contains(res.Body.String(), "only an admin") {
		t.Errorf("a member helps herself to others' shares: %d %s", res.Code, res.Body)
	}
	var made keyAnswer
	if err := json.Unmarshal(as(ada, "POST", "/keys", `{"name":"mine"}`).Body.Bytes(), &made); err != nil || made.Owner != ada.ID {
		t.Fatalf("made %+v, %v", made, err)
	}
	w.store.AddRequest(store.RequestRow{ID: "req1", Person: ada.ID, Model: "small", Status: 200, Privacy: store.PrivacyMetadata})
	if err := w.store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/keys/" + made.ID, ""}, {"PATCH", "/keys/" + made.ID, `{"name":"his"}`}, {"DELETE", "/keys/" + made.ID, ""},
		{"GET", "/people/" + ada.ID, ""}, {"PATCH", "/people/" + ada.ID, `{"name":"eve"}`},
		{"GET", "/people/" + ada.ID + "/logins", ""}, {"DELETE", "/people/" + ada.ID + "/logins", ""},
		{"GET", "/requests/req1", ""},
	} {
		if res := as(ben, c.method, c.path, c.body); res.Code != 404 {
			t.Errorf("%s %s by ben: %d %s", c.method, c.path, res.Code, res.Body)
		}
	}
	for _, path := range []string{"/keys", "/requests", "/people", "/usage?by=person"} {
		if body := as(ben, "GET", path, "").Body.String(); strings.Contains(body, ada.ID) || strings.Contains(body, made.ID) {
			t.Errorf("ben's %s shows ada's: %s", path, body)
		}
	}
	for _, c := range []struct{ method, path string }{{"GET", "/status"}, {"GET", "/settings"}, {"GET", "/audit"}, {"POST", "/invites"}, {"GET", "/logs"}, {"POST", "/backup"}} {
		if res := as(ben, c.method, c.path, `{}`); res.Code != 403 {
			t.Errorf("%s %s by a member: %d %s", c.method, c.path, res.Code, res.Body)
		}
	}
	w.box.models[0].Problem = "stat /home/ada/small.gguf: no such file or directory"
	if body := as(ben, "GET", "/models", "").Body.String(); strings.Contains(body, "/home") || !strings.Contains(body, "an admin sees why") {
		t.Errorf("a member sees %s", body)
	}
	if res := as(ben, "PATCH", "/people/"+ben.ID, `{"role":"admin"}`); res.Code != 403 {
		t.Errorf("ben made himself an admin: %d %s", res.Code, res.Body)
	}
}

// TestOpenAPI holds the description to the one that is published beside the code.
func TestOpenAPI(t *testing.T) {
	w := newWorld(t)
	got, err := w.admin.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	const golden = "openapi.json"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the API and appliance/admin/openapi.json differ; run `go test ./appliance/admin -update` and look at the change")
	}
	if strings.Contains(string(got), "executable") || strings.Contains(string(got), "arguments") {
		t.Error("an operation takes a program or its arguments")
	}
	served := w.do(socket, "GET", admin.Prefix+"/openapi.json", "")
	if !bytes.Equal(served.Body.Bytes(), got) {
		t.Error("what is served differs")
	}
}

// TestRevokedAdmin takes the access of an admin away whose request runs: it ends, and says why.
func TestRevokedAdmin(t *testing.T) {
	w := newWorld(t)
	w.box.loading = make(chan struct{})
	root := w.key("root", store.RoleAdmin, store.Key{Admin: true, Endpoints: []string{"/chat/completions"}})
	var watching sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	watching.Go(func() { _ = w.auth.Run(ctx) })
	defer watching.Wait()
	defer stop()
	got := make(chan *httptest.ResponseRecorder, 1)
	go func() { got <- w.do(root, "POST", admin.Prefix+"/models/slow/load", "") }()
	<-w.box.loading
	keys, err := w.store.Keys(ctx, store.System())
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	if err := w.store.RevokeKey(ctx, store.System(), keys[0].ID); err != nil {
		t.Fatal(err)
	}
	select {
	case res := <-got:
		if res.Code != 401 || !strings.Contains(res.Body.String(), "revoked_api_key") {
			t.Errorf("%d %s", res.Code, res.Body)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the request of a revoked key goes on")
	}
}

// TestGuestsStayWithinTheirKeys has a guest who may log in try to widen the key that an admin has given them.
func TestGuestsStayWithinTheirKeys(t *testing.T) {
	w := newWorld(t)
	w.key("gus", store.RoleGuest, store.Key{Models: []string{"small"}, TokensPerDay: 10})
	gus, err := w.store.PersonByName(t.Context(), store.System(), "gus")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := w.store.Keys(t.Context(), store.System())
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	for _, body := range []string{`{"models":[]}`, `{"tokens_per_day":0}`, `{"expires":"2099-01-01T00:00:00Z"}`} {
		r := httptest.NewRequest("PATCH", admin.Prefix+"/keys/"+keys[0].ID, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		out := httptest.NewRecorder()
		w.admin.ServeAs(out, r, &auth.Principal{Kind: auth.Login, Actor: store.Actor{Person: gus.ID}, Name: "gus", Role: store.RoleGuest})
		if out.Code != 403 || !strings.Contains(out.Body.String(), "member_needed") {
			t.Errorf("%s: %d %s", body, out.Code, out.Body)
		}
	}
}
