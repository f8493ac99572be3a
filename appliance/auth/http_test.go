package auth_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"onebit/appliance/auth"
	"onebit/store"
)

const (
	asPage = "Accept: text/html,application/xhtml+xml"
	asForm = "Content-Type: application/x-www-form-urlencoded"
	asJSON = "Content-Type: application/json"
)

// cookieOf returns the header line that sends a login back.
func cookieOf(t *testing.T, answer *http.Response) string {
	t.Helper()
	for _, c := range answer.Cookies() {
		if c.Name == auth.Cookie && c.Value != "" {
			if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
				t.Errorf("the login cookie is %+v", c)
			}
			return "Cookie: " + c.Name + "=" + c.Value
		}
	}
	t.Fatalf("there is no login cookie in %v", answer.Header)
	return ""
}

// The whole way of a person without script: claim, invite, log in, log out, recover, all by forms.
func TestForms(t *testing.T) {
	b := newBox(t)
	s := b.serve(t, nil)
	armed, err := b.Arm(t.Context())
	must(t, err)
	root, _ := b.Root()
	if got, page := send(t, s, "GET", "/claim", "", asPage); got.StatusCode != 200 || !strings.Contains(page, root.String()) || !strings.Contains(page, "words of") || strings.Contains(page, armed.Code.Expose()) {
		t.Errorf("the claim's page: %d\n%s", got.StatusCode, page)
	}
	if got, _ := send(t, s, "GET", "/login", "", asPage); got.StatusCode != 303 || got.Header.Get("Location") != "/claim" {
		t.Errorf("logging in before the claim: %d to %q", got.StatusCode, got.Header.Get("Location"))
	}
	form := url.Values{"code": {armed.Code.Expose()}, "name": {"anna"}, "password": {good}, "box_name": {""}, "tls_mode": {""}}
	got, page := send(t, s, "POST", "/claim", form.Encode(), asPage, asForm, "Sec-Fetch-Site: same-origin")
	key := secrets.FindString(page)
	if got.StatusCode != 200 || key == "" {
		t.Fatalf("the claim: %d\n%s", got.StatusCode, page)
	}
	boss := b.identify(t, auth.NewSecret(strings.TrimPrefix(cookieOf(t, got), "Cookie: "+auth.Cookie+"=")))
	if got, page := send(t, s, "GET", "/claim", "", asPage); got.StatusCode != 410 || !strings.Contains(page, "has been claimed") || !strings.Contains(page, `href="/login"`) {
		t.Errorf("the claim's page afterwards: %d\n%s", got.StatusCode, page)
	}
	i, err := b.Invite(t.Context(), boss, store.Invite{Role: store.RoleMember})
	must(t, err)
	form = url.Values{"code": {i.Code.Expose()}, "name": {"<b>bob</b>"}, "password": {good}}
	got, _ = send(t, s, "POST", "/invite", form.Encode(), asPage, asForm)
	if got.StatusCode != 303 || got.Header.Get("Location") != "/" {
		t.Errorf("coming in: %d to %q", got.StatusCode, got.Header.Get("Location"))
	}
	member := cookieOf(t, got)
	form = url.Values{"name": {"anna"}, "password": {good}}
	got, _ = send(t, s, "POST", "/login", form.Encode(), asPage, asForm)
	if got.StatusCode != 303 {
		t.Fatalf("logging in: %d", got.StatusCode)
	}
	cookie := cookieOf(t, got)
	got, page = send(t, s, "GET", "/login", "", asPage, cookie)
	if got.StatusCode != 200 || !strings.Contains(page, "logged in as anna, an admin") || !strings.Contains(page, "https:"+s.URL[strings.Index(s.URL, "//"):]+"/v1") ||
		!strings.Contains(page, `action="/logout"`) || strings.Contains(page, "<script") || !strings.Contains(got.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("the page of somebody who is in: %d %v\n%s", got.StatusCode, got.Header, page)
	}
	if got, page := send(t, s, "GET", "/login", "", asPage, member); got.StatusCode != 200 || !strings.Contains(page, "&lt;b&gt;bob&lt;/b&gt;.") || strings.Contains(page, "<b>") || strings.Contains(page, "an admin.") {
		t.Errorf("the page of a member: %d\n%s", got.StatusCode, page)
	}
	if _, page := send(t, s, "GET", "/login", "", asPage, cookie+"x"); !strings.Contains(page, `name="password"`) {
		t.Errorf("the page of somebody with a wrong cookie:\n%s", page)
	}
	got, _ = send(t, s, "POST", "/logout", "", asPage, asForm, cookie)
	if got.StatusCode != 303 || len(got.Cookies()) != 1 || got.Cookies()[0].MaxAge >= 0 {
		t.Errorf("logging out: %d with %v", got.StatusCode, got.Cookies())
	}
	if got, _ := send(t, s, "GET", "/login", "", cookie); got.StatusCode != 401 {
		t.Errorf("the login afterwards: %d", got.StatusCode)
	}
	form = url.Values{"code": {key}, "name": {""}, "password": {"another good password"}}
	got, page = send(t, s, "POST", "/recover", form.Encode(), asPage, asForm)
	if next := secrets.FindString(page); got.StatusCode != 200 || next == "" || next == key {
		t.Errorf("recovering: %d\n%s", got.StatusCode, page)
	}
	form = url.Values{"name": {"<i>eve</i>"}, "password": {"wrong"}}
	if got, page := send(t, s, "POST", "/login", form.Encode(), asPage, asForm); got.StatusCode != 401 || !strings.Contains(page, `role="alert"`) || strings.Contains(page, "eve") {
		t.Errorf("a wrong login: %d\n%s", got.StatusCode, page)
	}
}

// The same for programs.
func TestJSON(t *testing.T) {
	b := newBox(t)
	s := b.serve(t, nil)
	armed, err := b.Arm(t.Context())
	must(t, err)
	c, err := auth.ParseCode(armed.Code.Expose())
	must(t, err)
	root, _ := b.Root()
	nonce := []byte("0123456789abcdef")
	var state struct {
		Claimed, Armed bool
		Root           string
		Proof          []byte
	}
	_, text := send(t, s, "GET", "/claim?nonce="+hex.EncodeToString(nonce), "")
	must(t, json.Unmarshal([]byte(text), &state))
	if state.Claimed || !state.Armed || !bytes.Equal(state.Proof, c.Proof(auth.BoxSide, root, nonce)) || !strings.Contains(state.Root, "BEGIN CERTIFICATE") {
		t.Errorf("the claim stands at %s", text)
	}
	if got, _ := send(t, s, "GET", "/claim?nonce=00", ""); got.StatusCode != 400 {
		t.Errorf("a short nonce: %d", got.StatusCode)
	}
	body, err := json.Marshal(map[string]any{"proof": c.Proof(auth.ClientSide, root, nil), "name": "anna", "password": good})
	must(t, err)
	got, text := send(t, s, "POST", "/claim", string(body), asJSON)
	var came struct{ Person, Name, Role, Recovery_key string }
	must(t, json.Unmarshal([]byte(text), &came))
	if got.StatusCode != 200 || came.Name != "anna" || came.Role != "admin" || came.Recovery_key == "" {
		t.Fatalf("the claim: %d %s", got.StatusCode, text)
	}
	cookie := cookieOf(t, got)
	if strings.Contains(text, strings.TrimPrefix(cookie, "Cookie: "+auth.Cookie+"=")) {
		t.Error("the login is in the body, where a script can read it")
	}
	if got, text := send(t, s, "GET", "/login", "", cookie); got.StatusCode != 200 || !strings.Contains(text, `"anna"`) {
		t.Errorf("who is logged in: %d %s", got.StatusCode, text)
	}
	if got, text := send(t, s, "GET", "/claim", ""); got.StatusCode != 200 || strings.Contains(text, "proof") || !strings.Contains(text, `"claimed":true`) {
		t.Errorf("the claim stands at %d %s", got.StatusCode, text)
	}
	if got, _ := send(t, s, "POST", "/account/password", `{"old_password":"`+good+`","password":"another good password"}`, asJSON, cookie); got.StatusCode != 204 {
		t.Errorf("changing the password: %d", got.StatusCode)
	}
	if got, text := send(t, s, "POST", "/login", `{"name":"anna","password":"another good password"}`, asJSON); got.StatusCode != 200 || !strings.Contains(text, came.Person) {
		t.Errorf("logging in: %d %s", got.StatusCode, text)
	}
	if got, _ := send(t, s, "POST", "/logout", "", asJSON, cookie); got.StatusCode != 204 {
		t.Errorf("logging out: %d", got.StatusCode)
	}
	if got, _ := send(t, s, "POST", "/logout", "", asJSON); got.StatusCode != 204 {
		t.Errorf("logging out twice: %d", got.StatusCode)
	}
}

func TestBadRequests(t *testing.T) {
	b := newBox(t)
	b.claim(t)
	s := b.serve(t, nil)
	big := `{"name":"` + strings.Repeat("x", 70<<10) + `"}`
	tests := []struct {
		name, method, path, body string
		lines                    []string
		status                   int
		code                     string
	}{
		{"no body", "POST", "/login", "", []string{asJSON}, 400, "invalid_json"},
		{"half", "POST", "/login", `{"name":"anna"`, []string{asJSON}, 400, "invalid_json"},
		{"two objects", "POST", "/login", `{"name":"anna"}{}`, []string{asJSON}, 400, "invalid_json"},
		{"unknown member", "POST", "/login", `{"user":"anna"}`, []string{asJSON}, 400, "invalid_json"},
		{"wrong type", "POST", "/login", `{"password":{"$ne":""}}`, []string{asJSON}, 400, "invalid_json"},
		{"a list", "POST", "/login", `[]`, []string{asJSON}, 400, "invalid_json"},
		{"text that says it is JSON to no browser", "POST", "/login", `{"name":"anna"}`, []string{"Content-Type: text/plain"}, 415, "unsupported_media_type"},
		{"no type", "POST", "/login", `{"name":"anna"}`, nil, 415, "unsupported_media_type"},
		{"endless", "POST", "/login", big, []string{asJSON}, 413, "request_too_large"},
		{"endless form", "POST", "/login", "name=" + strings.Repeat("x", 70<<10), []string{asForm}, 413, "request_too_large"},
		{"another site's form", "POST", "/login", "name=anna&password=x", []string{asForm, "Sec-Fetch-Site: cross-site"}, 403, "cross_site_request"},
		{"another site's form to log out", "POST", "/logout", "", []string{asForm, "Origin: https://evil.test"}, 403, "cross_site_request"},
		{"another site's claim", "POST", "/claim", "code=x", []string{asForm, "Origin: null"}, 403, "cross_site_request"},
		{"credentials in the query", "POST", "/login?name=anna&password=" + url.QueryEscape(good), "", []string{asForm}, 401, "wrong_login"},
		{"restore that is no form", "POST", "/claim/restore", "x", []string{asForm}, 415, "unsupported_media_type"},
		{"password without a login", "POST", "/account/password", "{}", []string{asJSON}, 401, "missing_api_key"},
		{"passkey without a login", "POST", "/account/passkey", "{}", []string{asJSON}, 401, "missing_api_key"},
		{"passkey's answer without a login", "POST", "/account/passkey/answer", "{}", []string{asJSON}, 401, "missing_api_key"},
		{"passkey to claim what is claimed", "POST", "/claim/passkey", `{"code":"x"}`, []string{asJSON}, 410, "already_claimed"},
		{"passkey for no invite", "POST", "/invite/passkey", `{"code":"x"}`, []string{asJSON}, 400, "malformed_code"},
		{"passkey by address", "POST", "/login/passkey", `{}`, []string{asJSON}, 400, "no_passkeys_here"},
		{"passkey that is none", "POST", "/login/passkey/answer", `{"passkey":null}`, []string{asJSON}, 403, "wrong_passkey"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, text := send(t, s, tt.method, tt.path, tt.body, tt.lines...)
			if got.StatusCode != tt.status || !strings.Contains(text, `"code":"`+tt.code+`"`) {
				t.Errorf("got %d %s, want %d %s", got.StatusCode, text, tt.status, tt.code)
			}
		})
	}
}

func TestTriesOverHTTP(t *testing.T) {
	b := newBox(t)
	b.claim(t)
	s := b.serve(t, nil)
	for range 5 {
		send(t, s, "POST", "/login", `{"name":"anna","password":"wrong"}`, asJSON)
	}
	got, text := send(t, s, "POST", "/login", `{"name":"anna","password":"`+good+`"}`, asJSON)
	if after := got.Header.Get("Retry-After"); got.StatusCode != 429 || after == "" || after == "0" || !strings.Contains(text, "too_many_tries") {
		t.Errorf("got %d, Retry-After %q, %s", got.StatusCode, after, text)
	}
	got, text = send(t, s, "POST", "/login", "name=anna&password=x", asForm, asPage)
	if after := got.Header.Get("Retry-After"); got.StatusCode != 429 || after == "" || !strings.Contains(text, "<main>") {
		t.Errorf("as a page: %d, Retry-After %q, %s", got.StatusCode, after, text)
	}
}

// Every answer of the door, whatever it is, forbids browsers all but what the door needs.
func TestDoorHeaders(t *testing.T) {
	b := newBox(t)
	s := b.serve(t, nil)
	for _, r := range b.Routes() {
		for _, lines := range [][]string{{asPage, asForm}, {asJSON}} {
			got, _ := send(t, s, r.Method, r.Path, "", lines...)
			h := got.Header
			if csp := h.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "require-trusted-types-for 'script'") {
				t.Errorf("%s %s: the policy is %q", r.Method, r.Path, csp)
			}
			if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cache-Control") == "" {
				t.Errorf("%s %s: the headers are %v", r.Method, r.Path, h)
			}
			if got.StatusCode == 500 || got.StatusCode == 404 || got.StatusCode == 405 {
				t.Errorf("%s %s: %d", r.Method, r.Path, got.StatusCode)
			}
		}
	}
	for _, path := range []string{"/claim/", "/login/other.js", "/accounts", "/login/../../etc/passwd"} {
		if got, _ := send(t, s, "GET", path, ""); got.StatusCode != 404 && got.StatusCode != 307 && got.StatusCode != 301 {
			t.Errorf("%s: %d", path, got.StatusCode)
		}
	}
}

// The pages hold no script and no style of their own, and every field has a label.
func TestPagesAreBare(t *testing.T) {
	inline := regexp.MustCompile(`(?i)<style|<script(\s+type="module")?\s*>|\son[a-z]+\s*=|\sstyle\s*=|javascript:|https?://`)
	field := regexp.MustCompile(`<(?:input|select)[^>]*\bid="([a-z_]+)"`)
	seen := 0
	must(t, fs.WalkDir(os.DirFS("pages"), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile("pages/" + name)
		must(t, err)
		text := string(b)
		switch {
		case strings.HasSuffix(name, ".tmpl"):
			seen++
			if bad := inline.FindString(text); bad != "" {
				t.Errorf("%s has %q", name, bad)
			}
			for _, m := range field.FindAllStringSubmatch(text, -1) {
				if !strings.Contains(text, `for="`+m[1]+`"`) {
					t.Errorf("%s: the field %s has no label", name, m[1])
				}
			}
		case strings.HasSuffix(name, ".js"):
			if bad := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|import\(`).FindString(text); bad != "" {
				t.Errorf("%s has %q", name, bad)
			}
		}
		return nil
	}))
	if seen < 6 {
		t.Errorf("only %d pages were read", seen)
	}
}

func TestRestoreForm(t *testing.T) {
	var got string
	b := newBox(t, func(c *auth.Config) {
		c.Restore = func(_ context.Context, r io.Reader, p auth.Secret) error {
			all, err := io.ReadAll(r)
			got = string(all)
			if p.Expose() != "open" {
				err = errors.Join(err, store.ErrPassword)
			}
			return err
		}
	})
	s := b.serve(t, nil)
	armed, err := b.Arm(t.Context())
	must(t, err)
	post := func(fields ...string) (*http.Response, string) {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		for i := 0; i < len(fields); i += 2 {
			if fields[i] == "backup" {
				part, err := w.CreateFormFile("backup", "box.backup")
				must(t, err)
				_, err = io.WriteString(part, fields[i+1])
				must(t, err)
				continue
			}
			must(t, w.WriteField(fields[i], fields[i+1]))
		}
		must(t, w.Close())
		return send(t, s, "POST", "/claim/restore", body.String(), asPage, "Content-Type: "+w.FormDataContentType())
	}
	backup := strings.Repeat("backup ", 100_000)
	if answer, page := post("code", armed.Code.Expose(), "passphrase", "shut", "backup", backup); answer.StatusCode != 400 || !strings.Contains(page, `href="/claim"`) {
		t.Errorf("with another passphrase: %d\n%s", answer.StatusCode, page)
	}
	if answer, _ := post("backup", backup, "code", armed.Code.Expose(), "passphrase", "open"); answer.StatusCode != 400 {
		t.Errorf("the backup first: %d", answer.StatusCode)
	}
	if answer, _ := post("code", armed.Code.Expose(), "passphrase", strings.Repeat("x", 5000), "backup", backup); answer.StatusCode != 400 {
		t.Errorf("an endless passphrase: %d", answer.StatusCode)
	}
	answer, _ := post("code", armed.Code.Expose(), "passphrase", "open", "backup", backup)
	if answer.StatusCode != 303 || answer.Header.Get("Location") != "/login" || got != backup {
		t.Errorf("restored with %d, %d of %d bytes", answer.StatusCode, len(got), len(backup))
	}
}
