package admin_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http/httptest"
	"strings"
	"testing"

	"onebit/appliance/admin"
	"onebit/appliance/auth"
	"onebit/extensions"
	"onebit/store"
)

// nothing keeps the last event, and no module.
type nothing struct{ last extensions.Event }

func (*nothing) Load(context.Context) ([]extensions.Module, []extensions.Binding, error) {
	return nil, nil, nil
}
func (n *nothing) Change(_ context.Context, who extensions.Who, c extensions.Change) error {
	n.last = c.Event
	n.last.Person, n.last.Key = who.Person, who.Key
	return nil
}
func (n *nothing) Events(_ context.Context, after int64, limit int) ([]extensions.Event, error) {
	return []extensions.Event{{ID: after + 1, Action: "upload"}}, nil
}
func (*nothing) Values(context.Context, string, string) ([]extensions.Value, error) { return nil, nil }
func (*nothing) PutValues(context.Context, []extensions.Value) error                { return nil }

// nobody runs no module.
type nobody struct{}

func (nobody) Prepare(context.Context, extensions.Job) error {
	return errors.New("there is no compiler here")
}
func (nobody) Start(context.Context, extensions.Job) (extensions.Worker, error) {
	return nil, errors.New("nobody runs it")
}
func (nobody) Forget(string) error { return nil }

func manager(t *testing.T, records *nothing) *extensions.Manager {
	t.Helper()
	m, err := extensions.New(extensions.Config{
		Dir: t.TempDir(), Records: records, Runner: nobody{}, Policy: func() extensions.Policy { return extensions.Policy{} }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// push sends an upload.
func (w *world) push(who, media, hash string, body io.Reader) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequest("POST", admin.Prefix+"/extensions", body)
	r.Header.Set("Content-Type", media)
	if hash != "" {
		r.Header.Set("X-1bit-Sha256", hash)
	}
	if who == socket {
		r = r.WithContext(auth.With(r.Context(), auth.Local()))
	} else {
		r.Header.Set("Authorization", "Bearer "+who)
	}
	out := httptest.NewRecorder()
	w.admin.ServeHTTP(out, r)
	return out
}

func form(parts ...[2]string) (media string, body *bytes.Buffer) {
	body = &bytes.Buffer{}
	f := multipart.NewWriter(body)
	for _, p := range parts {
		var part io.Writer
		if name, ok := strings.CutPrefix(p[0], "asset:"); ok {
			part, _ = f.CreateFormFile("asset", name)
		} else {
			part, _ = f.CreateFormField(p[0])
		}
		io.WriteString(part, p[1])
	}
	f.Close()
	return f.FormDataContentType(), body
}

// TestPush: an upload is read to the place where it is wrong, and what is wrong is said with a code.
func TestPush(t *testing.T) {
	w := newWorld(t)
	sum := sha256.Sum256([]byte("not wasm"))
	hash := hex.EncodeToString(sum[:])
	const manifest = `{"name":"m","version":"1","abi":1,"kind":"policy"}`
	whole, body := form([2]string{"asset:weights", "1"}, [2]string{"manifest", manifest}, [2]string{"module", "not wasm"}, [2]string{"config", `{}`})
	for name, tt := range map[string]struct {
		media, hash string
		body        io.Reader
		status      int
		code        string
	}{
		"JSON":                 {"application/json", hash, strings.NewReader(`{}`), 400, "media_type"},
		"no hash":              {"application/wasm", "", strings.NewReader("not wasm"), 422, "hash_missing"},
		"another hash":         {"application/wasm", strings.Repeat("0", 64), strings.NewReader("not wasm"), 422, "hash_wrong"},
		"no manifest":          {"application/wasm", hash, strings.NewReader("not wasm"), 422, "manifest_missing"},
		"too large":            {"application/wasm", hash, bytes.NewReader(make([]byte, 9<<20)), 422, "too_large"},
		"all parts":            {whole, hash, body, 422, "too_large"}, // a policy brings no assets
		"a part of the module": {"multipart/form-data; boundary=x", hash, strings.NewReader("--x\r\nContent-Disposition: form-data; name=\"module\"\r\n\r\nnot w"), 400, "body_not_read"},
	} {
		res := w.push(socket, tt.media, tt.hash, tt.body)
		if res.Code != tt.status || !strings.Contains(res.Body.String(), `"code":"`+tt.code+`"`) {
			t.Errorf("%s: %d %s", name, res.Code, res.Body)
		}
	}
	for _, parts := range [][2]string{{"colour", "red"}, {"manifest", strings.Repeat(" ", 65<<10)}, {"asset:../x", "1"}} {
		media, body := form(parts)
		if res := w.push(socket, media, hash, body); res.Code < 400 || res.Code >= 500 {
			t.Errorf("%s: %d %s", parts[0], res.Code, res.Body)
		}
	}
	media, body := form([2]string{"manifest", manifest}, [2]string{"module", "not wasm"})
	res := w.push(socket, media, hash, body)
	if res.Code != 422 || !strings.Contains(res.Body.String(), "not WebAssembly") || w.records.last.Action != "refuse" || w.records.last.Module != hash {
		t.Errorf("%d %s, %+v", res.Code, res.Body, w.records.last)
	}
	member := w.key("mia", store.RoleMember, store.Key{})
	if res := w.push(member, "application/wasm", hash, strings.NewReader("not wasm")); res.Code != 403 {
		t.Errorf("by a member: %d", res.Code)
	}
}

// TestBindings: what is not there is said, and what is wrong too.
func TestBindings(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct {
		method, path, body string
		status             int
		says               string
	}{
		"all":             {"GET", "/extensions", "", 200, `"modules": []`},
		"the log":         {"GET", "/extensions/log?after=7", "", 200, `"id": 8`},
		"differences":     {"GET", "/extensions/differences", "", 200, `"differences": []`},
		"delete":          {"DELETE", "/extensions/abcdef", "", 404, "not_found"},
		"activate":        {"POST", "/bindings/policy/activate", `{"module":"x"}`, 404, "not_found"},
		"activate none":   {"POST", "/bindings/policy/activate", `{}`, 422, "module_missing"},
		"too many":        {"POST", "/bindings/policy/activate", `{"module":"x","percent":101}`, 422, "percent"},
		"shadow":          {"POST", "/bindings/policy/shadow", `{"module":"x"}`, 404, "not_found"},
		"rollback":        {"POST", "/bindings/policy/rollback", ``, 404, "not_found"},
		"unbind":          {"DELETE", "/bindings/policy", ``, 404, "not_found"},
		"what is unknown": {"POST", "/bindings/policy/activate", `{"modul":"x"}`, 400, "unknown_parameter"},
	} {
		if res := w.do(socket, tt.method, admin.Prefix+tt.path, tt.body); res.Code != tt.status || !strings.Contains(res.Body.String(), tt.says) {
			t.Errorf("%s: %d %s", name, res.Code, res.Body)
		}
	}
}
