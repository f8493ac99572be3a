//go:build unix

package e2e_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// times returns how often to do something: a few times in every run, all of them in the slow ones.
func times(few, all int) int {
	if os.Getenv("ONEBIT_ALL") != "" {
		return all
	}
	return few
}

// TestBoxKilledWhileWriting kills a box again and again while keys are made, and finds every key that was acknowledged.
func TestBoxKilledWhileWriting(t *testing.T) {
	state := boxState(t, "discovery: false\n")
	b := startBox(t, state)
	b.claim()
	type made struct{ id, secret string }
	var keys []made
	random := rand.New(rand.NewPCG(1, 2))
	for round := range times(5, 200) {
		var acknowledged []made
		var group sync.WaitGroup
		var mu sync.Mutex
		for range 3 {
			group.Go(func() {
				for i := range 1000 {
					r, err := http.NewRequest("POST", "http://box/admin/v1/keys", strings.NewReader(fmt.Sprintf(`{"name":"k%d"}`, i)))
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Content-Type", "application/json")
					res, err := b.socket.Do(r)
					if err != nil {
						return
					}
					var k struct{ ID, Secret string }
					err = decode(res.Body, &k)
					res.Body.Close()
					if err != nil || res.StatusCode != 201 {
						return
					}
					mu.Lock()
					acknowledged = append(acknowledged, made{k.ID, k.Secret})
					mu.Unlock()
				}
			})
		}
		time.Sleep(time.Duration(20+random.IntN(120)) * time.Millisecond)
		b.cmd.Process.Kill()
		<-b.done
		group.Wait()
		keys = append(keys, acknowledged...)
		b = startBox(t, state)
		for _, k := range acknowledged {
			if status, text := b.do(k.secret, "GET", "/v1/models", ""); status != 200 {
				t.Fatalf("round %d: the key %s that was acknowledged is lost: %d %s", round, k.id, status, text)
			}
		}
		if check := b.admin("GET", "/audit/check", ""); check["whole"] != true {
			t.Fatalf("round %d: the audit trail is broken: %v", round, check)
		}
		if d := b.admin("GET", "/status", "")["degraded"]; d != nil {
			t.Fatalf("round %d: the database was damaged: %v", round, d)
		}
	}
	if len(keys) < 20 {
		t.Errorf("only %d keys were made", len(keys))
	}
	t.Logf("%d keys, none lost", len(keys))
}

// decode reads one JSON value.
func decode(r io.Reader, v any) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// TestBoxReloadsUnderLoad reloads while streams run: none is dropped, and nothing grows.
func TestBoxReloadsUnderLoad(t *testing.T) {
	file := smollm2(t)
	text := func(n int) string {
		return fmt.Sprintf("models: [{name: small, file: %q, ctx_size: 8192, parallel: 4}]\nlog: {level: warn, keep: %dh}\nrequests: {write: %ds}\nweb: {origins: ['https://n%d.example.org']}\ntls: {names: [n%d.lan]}\n",
			file, 24+n, 60+n, n, n)
	}
	state := boxState(t, text(0))
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var whole, broken atomic.Int64
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			for ctx.Err() == nil {
				r, err := http.NewRequest("POST", "https://127.0.0.1:"+b.port+"/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"Count to ten."}],"max_tokens":24,"stream":true}`))
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("Authorization", "Bearer "+key)
				res, err := b.client.Do(r)
				if err != nil {
					t.Errorf("a request was dropped: %v", err)
					return
				}
				done, err := events(res.Body, func(map[string]any) bool { return true })
				res.Body.Close()
				if !done || err != nil || res.StatusCode != 200 {
					broken.Add(1)
				}
				whole.Add(1)
			}
		})
	}
	for whole.Load() < 3 { // the model is loaded now
		time.Sleep(20 * time.Millisecond)
	}
	n := times(25, 500)
	var before [2]int
	for i := range n {
		if i == n/5 {
			before = footprint(t, b.cmd.Process.Pid)
		}
		if err := os.WriteFile(filepath.Join(state, "1bit.yaml"), []byte(text(i)), 0o600); err != nil {
			t.Fatal(err)
		}
		b.admin("POST", "/reload", "")
	}
	after := footprint(t, b.cmd.Process.Pid)
	stop()
	group.Wait()
	if broken.Load() > 0 || whole.Load() < 5 {
		t.Errorf("%d of %d streams were not whole", broken.Load(), whole.Load())
	}
	if after[0] > before[0]+8 {
		t.Errorf("open files went from %d to %d", before[0], after[0])
	}
	if after[1] > before[1]+32<<10 {
		t.Errorf("resident memory went from %d KiB to %d KiB", before[1], after[1])
	}
	t.Logf("%d reloads, %d streams; open files %d -> %d, resident %d -> %d KiB", n, whole.Load(), before[0], after[0], before[1], after[1])
}

// footprint is what a process has: open files, and resident memory in KiB.
func footprint(t *testing.T, pid int) (n [2]int) {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	n[0] = len(files)
	if n[1], err = strconv.Atoi(strings.Fields(rest)[0]); err != nil {
		t.Fatal(err)
	}
	return n
}

// elsewhere is a collector and a webhook in one: it takes what is posted, and keeps it as it would be read.
type elsewhere struct {
	*httptest.Server
	mu   sync.Mutex
	kept map[string]string // by path
}

func startElsewhere(t *testing.T) *elsewhere {
	e := &elsewhere{kept: map[string]string{}}
	e.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
			body, err = unzipped(body)
		}
		if err != nil {
			t.Error(err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.kept[r.URL.Path] += r.Header.Get("X-1bit-Signature") + string(body)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *elsewhere) got(path string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.kept[path]
}

func unzipped(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// TestBoxKeepsSecrets runs with words that must appear nowhere: a key, a prompt, an answer's beginning, a password.
func TestBoxKeepsSecrets(t *testing.T) {
	const password, prompt, phrase = "canary-password-7f3a", "canary-prompt-9b1e", "canary-passphrase-5d2c"
	const signature, person = "canary-signature-8c4d", "Canary-Person-3e8d"
	away := startElsewhere(t)
	state := boxState(t, fmt.Sprintf(`models: [{name: small, file: %q, ctx_size: 2048}]
log: {level: debug}
telemetry: {otlp: %q, webhook: "%s/hook", secret: %s}
egress: {private: [%q]}
backup: {passphrase: %s}
`, smollm2(t), away.URL, away.URL, signature, strings.TrimPrefix(away.URL, "http://"), phrase))
	b := startBox(t, state)
	if status, text := b.do("", "POST", "/claim", fmt.Sprintf(`{"code":%q,"name":"root","password":%q}`, b.code, password)); status != 200 {
		t.Fatalf("claiming: %d %s", status, text)
	}
	os.WriteFile(filepath.Join(state, "claimed-by-test"), nil, 0o600)
	key, id := b.key("")
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"` + prompt + `"}],"max_tokens":4}`,
		`{"messages":[{"role":"user","content":"` + prompt + `"}],"max_tokens":4,"stream":true}`,
		`{"messages":[{"role":"` + prompt + `","content":"x"}]}`,
		`{"prompt":"` + prompt + `","max_tokens":-1}`,
		`{"messages":"` + prompt,
		`{"model":"small","messages":[{"role":"user","content":"` + strings.Repeat(prompt+" ", 1000) + `"}]}`,
	} {
		b.do(key, "POST", "/v1/chat/completions", body)
	}
	b.do("", "GET", "/v1/models?api_key="+key, "")
	b.do("", "POST", "/login", fmt.Sprintf(`{"name":"root","password":%q}`, password+"x"))
	b.admin("DELETE", "/keys/"+id, "")
	var row string
	for end := time.Now().Add(time.Minute); row == "" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if rows := b.admin("GET", "/requests", "")["requests"].([]any); len(rows) > 0 {
			row = rows[0].(map[string]any)["id"].(string)
		}
	}
	if row == "" || !b.log.says(" id="+row+" ", 1) {
		t.Errorf("the log does not know the request %q of the request log", row)
	}
	b.admin("POST", "/people", `{"name":"`+person+`","role":"member"}`)
	wrong, err := os.OpenFile(filepath.Join(state, "1bit.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(wrong, "bogus: "+phrase)
	wrong.Close()
	for end := time.Now().Add(time.Minute); !strings.Contains(away.got("/hook"), `"condition":"reload","severity":"warning","state":"firing"`); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no alert: %s\n%s", away.got("/hook"), b.log)
		}
	}
	if !strings.HasPrefix(away.got("/hook"), "t=") {
		t.Error("the alert is not signed")
	}
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	cmd := exec.Command(binary, "support", "--out", bundle, "--socket", filepath.Join(state, "admin.sock"))
	if said, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(said), "metrics.txt") {
		t.Fatalf("support: %v %s", err, said)
	}
	packed, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	support, err := unzipped(packed)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(support), person) {
		t.Error("the support bundle names a person")
	}
	var seen strings.Builder
	for _, path := range []string{"/status", "/logs", "/requests", "/keys", "/audit", "/usage?by=key", "/settings", "/models"} {
		fmt.Fprintln(&seen, b.admin("GET", path, ""))
	}
	adminKey, _ := b.key(`,"admin":true`)
	_, metrics := b.do(adminKey, "GET", "/metrics", "")
	if !strings.Contains(metrics, "onebit_requests_total") {
		t.Errorf("no metrics: %s", metrics)
	}
	r, _ := http.NewRequest("POST", "http://box/admin/v1/backup", strings.NewReader(fmt.Sprintf(`{"passphrase":%q}`, phrase)))
	r.Header.Set("Content-Type", "application/json")
	res, err := b.socket.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	backup, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || res.StatusCode != 200 || len(backup) < 1000 {
		t.Fatalf("the backup: %d, %d bytes, %v", res.StatusCode, len(backup), err)
	}
	b.cmd.Process.Signal(syscall.SIGTERM)
	<-b.done
	if spans := away.got("/v1/traces"); !strings.Contains(spans, "gen_ai.request.model") || !strings.Contains(spans, "chat small") {
		t.Errorf("spans: %q", spans)
	}
	if figures := away.got("/v1/metrics"); !strings.Contains(figures, "gen_ai.client.token.usage") {
		t.Errorf("exported metrics: %q", figures)
	}
	places := map[string]string{"the control plane": seen.String(), "the log": b.log.String(), "the metrics": metrics, "the backup": string(backup),
		"the support bundle": string(support), "the alerts": away.got("/hook"), "the spans": away.got("/v1/traces"), "the exported metrics": away.got("/v1/metrics")}
	err = filepath.WalkDir(state, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		raw, err := os.ReadFile(path)
		places[path] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(places, filepath.Join(state, "1bit.yaml")) // the operator has written them there
	for place, text := range places {
		for _, canary := range []string{password, prompt, phrase, key, adminKey, signature} {
			if i := strings.Index(text, canary); i >= 0 {
				t.Errorf("%s holds %s: ...%q", place, canary, text[max(0, i-80):min(len(text), i+40)])
			}
		}
	}
}
