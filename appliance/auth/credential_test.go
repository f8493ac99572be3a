package auth_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"onebit/appliance/auth"
)

// request returns a GET with header lines "Name: value".
func request(t testing.TB, lines ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequest("GET", "https://box.local/v1/models", nil)
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ": ")
		if !ok {
			t.Fatalf("%q is no header line", l)
		}
		r.Header.Add(name, value)
	}
	return r
}

func TestExtract(t *testing.T) {
	tests := []struct {
		name  string
		lines []string
		key   string
		login string
		code  string // of the refusal
	}{
		{name: "nothing"},
		{name: "bearer", lines: []string{"Authorization: Bearer k1"}, key: "k1"},
		{name: "bearer in another case", lines: []string{"authorization: bEARER   k1  "}, key: "k1"},
		{name: "x-api-key", lines: []string{"x-api-key: k1"}, key: "k1"},
		{name: "api-key", lines: []string{"api-key: k1"}, key: "k1"},
		{name: "subprotocol", lines: []string{"Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.k1, v1"}, key: "k1"},
		{name: "subprotocols without a key", lines: []string{"Sec-WebSocket-Protocol: realtime"}},
		{name: "login", lines: []string{"Cookie: a=b; __Host-1bit=l1"}, login: "l1"},
		{name: "other cookies", lines: []string{"Cookie: 1bit=l1; session=x"}},
		{name: "a key goes before a login", lines: []string{"Cookie: __Host-1bit=l1", "x-api-key: k1"}, key: "k1"},
		{name: "the same key in all places", lines: []string{"Authorization: Bearer k1", "x-api-key: k1", "api-key: k1", "Sec-WebSocket-Protocol: openai-insecure-api-key.k1"}, key: "k1"},
		{name: "basic is the proxy's", lines: []string{"Authorization: Basic dTpw", "x-api-key: k1"}, key: "k1"},
		{name: "basic alone", lines: []string{"Authorization: Basic dTpw"}},
		{name: "a bare key", lines: []string{"Authorization: k1"}},
		{name: "bearer of nothing", lines: []string{"Authorization: Bearer "}},
		{name: "bearer and another x-api-key", lines: []string{"Authorization: Bearer k1", "x-api-key: k2"}, code: "ambiguous_api_key"},
		{name: "two bearers", lines: []string{"Authorization: Bearer k1", "Authorization: Bearer k2"}, code: "ambiguous_api_key"},
		{name: "two x-api-keys", lines: []string{"x-api-key: k1", "x-api-key: k2"}, code: "ambiguous_api_key"},
		{name: "x-api-key and another subprotocol", lines: []string{"x-api-key: k1", "Sec-WebSocket-Protocol: openai-insecure-api-key.k2"}, code: "ambiguous_api_key"},
		{name: "endless", lines: []string{"x-api-key: " + strings.Repeat("k", 5000)}, code: "invalid_api_key"},
		{name: "two logins", lines: []string{"Cookie: __Host-1bit=l1; __Host-1bit=l2"}, code: "invalid_login"},
		{name: "one login twice", lines: []string{"Cookie: __Host-1bit=l1; __Host-1bit=l1"}, login: "l1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := auth.Extract(request(t, tt.lines...))
			if got := code(err); got != tt.code {
				t.Fatalf("refused with %q (%v), want %q", got, err, tt.code)
			}
			if c.Key.Expose() != tt.key || c.Login.Expose() != tt.login {
				t.Errorf("got key %q and login %q, want %q and %q", c.Key.Expose(), c.Login.Expose(), tt.key, tt.login)
			}
		})
	}
	t.Run("never the query", func(t *testing.T) {
		r := httptest.NewRequest("GET", "https://box.local/v1/models?api_key=k1&key=k1&x-api-key=k1&access_token=k1", nil)
		if c, err := auth.Extract(r); err != nil || !c.Empty() {
			t.Errorf("got %q, %v", c.Key.Expose(), err)
		}
	})
}

// code returns the code of a refusal, and "" of no error.
func code(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*auth.Error](err); ok {
		return e.Code
	}
	return "not a refusal: " + err.Error()
}

func FuzzExtract(f *testing.F) {
	f.Add("Bearer 1b_abc", "", "", "", "")
	f.Add("Basic x", "k", "k", "realtime, openai-insecure-api-key.k", "__Host-1bit=x")
	f.Add("bearer\tx", "' or 1=1 --", "\x00", ",,,openai-insecure-api-key.", "__Host-1bit=\"a b\"; ;=")
	f.Fuzz(func(t *testing.T, authorization, x, api, protocol, cookie string) {
		r := httptest.NewRequest("GET", "https://box.local/", nil)
		for name, value := range map[string]string{"Authorization": authorization, "X-Api-Key": x, "Api-Key": api, "Sec-Websocket-Protocol": protocol, "Cookie": cookie} {
			r.Header[name] = []string{value}
		}
		c, err := auth.Extract(r)
		if err != nil {
			if !c.Empty() {
				t.Error("a refused request shows something all the same")
			}
			if _, ok := errors.AsType[*auth.Error](err); !ok {
				t.Errorf("the error is no refusal: %v", err)
			}
			return
		}
		if !c.Key.Empty() && !c.Login.Empty() {
			t.Error("both a key and a login count")
		}
		if k := c.Key.Expose(); k != "" {
			shown := authorization + "\n" + x + "\n" + api + "\n" + protocol
			if !strings.Contains(shown, k) || k != strings.TrimSpace(k) || len(k) > 256 {
				t.Errorf("the key %q was not shown so", k)
			}
		}
		if l := c.Login.Expose(); l != "" && !strings.Contains(cookie, l) {
			t.Errorf("the login %q is not in the cookie", l)
		}
	})
}
