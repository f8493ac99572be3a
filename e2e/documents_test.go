//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// documentBox is a box with the small chat model and the default embedding model.
func documentBox(t *testing.T) string {
	t.Helper()
	return boxState(t, fmt.Sprintf("models:\n  - {name: small, file: %q, ctx_size: 2048}\n  - {name: all-minilm-l6-v2, file: %q, role: embedding}\n",
		smollm2(t), model(t, "all-minilm-l6-v2")))
}

// root writes the box's root certificate into a file.
func (b *appliance) rootFile() string {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "root.pem")
	if err := os.WriteFile(path, []byte(b.admin("GET", "/certificate", "")["root"].(string)), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// upload sends a file as a form, and returns the answer.
func (b *appliance) upload(key, name, content string) string {
	b.t.Helper()
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	if err := m.WriteField("purpose", "assistants"); err != nil {
		b.t.Fatal(err)
	}
	part, err := m.CreateFormFile("file", name)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := io.WriteString(part, content); err != nil {
		b.t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		b.t.Fatal(err)
	}
	r, err := http.NewRequest("POST", "https://127.0.0.1:"+b.port+"/v1/files", &form)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", m.FormDataContentType())
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		b.t.Fatalf("uploading %s: %d %s %v", name, res.StatusCode, text, err)
	}
	return string(text)
}

// member returns a text of a JSON object.
func member(t *testing.T, object, name string) string {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	s, ok := o[name].(string)
	if !ok {
		t.Fatalf("%s has no %s", object, name)
	}
	return s
}

// TestDocuments goes the way of code that knows OpenAI's files and vector stores.
func TestDocuments(t *testing.T) {
	py := os.Getenv("ONEBIT_E2E_PYTHON")
	if py == "" {
		t.Fatal(`ONEBIT_E2E_PYTHON is not set: run "make e2e", or eval "$(bash e2e/setup.sh clients)"`)
	}
	b := startBox(t, documentBox(t))
	b.claim()
	key, _ := b.key("")
	runTool(t, 5*time.Minute, py, "clients/openai_documents.py", "https://127.0.0.1:"+b.port+"/v1", b.rootFile(), key, "testdata/documents")
	for _, path := range []string{"/v1/files", "/v1/vector_stores", "/files/x", "/v1/vector_stores/x/search"} {
		if status, text := b.do("", "GET", path, ""); status != 401 {
			t.Errorf("%s without a key: %d %s", path, status, text)
		}
	}
	// a key for something else
	other, _ := b.key(`,"endpoints":["/v1/chat/completions"]`)
	if status, text := b.do(other, "GET", "/v1/files", ""); status != 403 {
		t.Errorf("files with a key for chats: %d %s", status, text)
	}
}

// TestAnswersWithCitations asks documents by the official client: Responses with file_search, and chats that are given
// passages. ONEBIT_ALL asks a larger model too.
func TestAnswersWithCitations(t *testing.T) {
	py := os.Getenv("ONEBIT_E2E_PYTHON")
	if py == "" {
		t.Fatal(`ONEBIT_E2E_PYTHON is not set: run "make e2e", or eval "$(bash e2e/setup.sh clients)"`)
	}
	config := fmt.Sprintf("models:\n  - {name: small, file: %q, ctx_size: 4096, parallel: 1}\n  - {name: all-minilm-l6-v2, file: %q, role: embedding}\n",
		smollm2(t), model(t, "all-minilm-l6-v2"))
	models := []string{"small"}
	if os.Getenv("ONEBIT_ALL") != "" {
		config += fmt.Sprintf("  - {name: larger, file: %q, ctx_size: 8192, parallel: 1}\n", model(t, "qwen2.5-coder-0.5b"))
		models = append(models, "larger")
	}
	b := startBox(t, boxState(t, config))
	b.claim()
	key, _ := b.key("")
	other := b.admin("POST", "/people", `{"name":"Bea","role":"member"}`)
	foreign, _ := b.key(fmt.Sprintf(`,"owner":%q`, other["id"]))
	for _, m := range models {
		runTool(t, 5*time.Minute, py, "clients/openai_responses.py", "https://127.0.0.1:"+b.port+"/v1", b.rootFile(), key, foreign, "testdata/documents", m)
	}
}

// TestDocumentsSurviveKills ends the box in the midst of bringing documents in. ONEBIT_ALL does it a hundred times.
func TestDocumentsSurviveKills(t *testing.T) {
	state := documentBox(t)
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	status, text := b.do(key, "POST", "/v1/vector_stores", `{"name":"x"}`)
	if status != 200 {
		t.Fatal(status, text)
	}
	store := member(t, text, "id")
	rounds := 4
	if os.Getenv("ONEBIT_ALL") != "" {
		rounds = 100
	}
	var files []string
	for round := range rounds {
		var doc strings.Builder
		for i := range 40 {
			fmt.Fprintf(&doc, "## Part %d of round %d\n\nWords about number %d and about marker%dx%d.\n\n", i, round, i*round, round, i)
		}
		id := member(t, b.upload(key, fmt.Sprintf("r%d.md", round), doc.String()), "id")
		if status, text := b.do(key, "POST", "/v1/vector_stores/"+store+"/files", fmt.Sprintf(`{"file_id":%q}`, id)); status != 200 {
			t.Fatal(status, text)
		}
		files = append(files, id)
		time.Sleep(time.Duration(round*37%900) * time.Millisecond)
		b.cmd.Process.Kill()
		<-b.done
		b = startBox(t, state)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		status, text := b.do(key, "GET", "/v1/vector_stores/"+store, "")
		if status != 200 {
			t.Fatal(status, text)
		}
		if strings.Contains(text, fmt.Sprintf(`"completed":%d,`, rounds)) && strings.Contains(text, `"in_progress":0`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to an end: %s\n%s", text, b.log)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for round, id := range files {
		_, text := b.do(key, "GET", "/v1/vector_stores/"+store+"/files/"+id+"/content", "")
		if n := strings.Count(text, `"type":"text"`); n != 40 {
			t.Errorf("file %d has %d chunks, want 40", round, n)
		}
		_, text = b.do(key, "POST", "/v1/vector_stores/"+store+"/search", fmt.Sprintf(`{"query":"marker%dx17","max_num_results":50}`, round))
		if n := strings.Count(text, fmt.Sprintf("marker%dx17.", round)); n != 1 {
			t.Errorf("the passage of round %d is found %d times", round, n)
		}
	}
	if status, text := b.do(key, "DELETE", "/v1/vector_stores/"+store, ""); status != 200 {
		t.Error(status, text)
	}
}

// TestDocumentsMove moves the documents of a box into PostgreSQL and back; the same key finds the same passage each time.
func TestDocumentsMove(t *testing.T) {
	dsn := os.Getenv("ONEBIT_POSTGRES")
	if dsn == "" {
		if os.Getenv("ONEBIT_ALL") != "" {
			t.Fatal(`ONEBIT_POSTGRES is not set: eval "$(bash e2e/postgres.sh start)"`)
		}
		t.Skip(`slow: make test-all, or eval "$(bash e2e/postgres.sh start)"`)
	}
	state := documentBox(t)
	b := startBox(t, state)
	b.claim()
	key, _ := b.key("")
	id := member(t, b.upload(key, "fox.md", "# The fox\n\nThe fox on the stairs was called Quillon.\n"), "id")
	_, text := b.do(key, "POST", "/v1/vector_stores", fmt.Sprintf(`{"name":"x","file_ids":[%q]}`, id))
	store := member(t, text, "id")
	found := func(b *appliance, step string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
			_, text := b.do(key, "POST", "/v1/vector_stores/"+store+"/search", `{"query":"What was the fox called?"}`)
			if strings.Contains(text, "Quillon") && strings.Contains(text, id) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %s\n%s", step, text, b.log)
			}
		}
	}
	found(b, "in the file")
	move := func(to string, set ...string) (string, error) {
		out, err := exec.Command(binary, append([]string{"docs", "migrate", "--to", to, "--state", state}, set...)...).CombinedOutput()
		return string(out), err
	}
	set := []string{"--set", "documents.postgres=" + dsn}
	if out, err := move("postgres", set...); err == nil || !strings.Contains(out, "state") {
		t.Errorf("of a running box: %v %s", err, out)
	}
	b.stop()
	if out, err := move("postgres", set...); err != nil || !strings.Contains(out, "1 files") {
		t.Fatalf("%v %s", err, out)
	}
	b = startBox(t, state, set...)
	found(b, "in PostgreSQL")
	second := member(t, b.upload(key, "hen.md", "# The hen\n\nThe hen in the yard was called Ottoline.\n"), "id")
	if status, text := b.do(key, "POST", "/v1/vector_stores/"+store+"/files", fmt.Sprintf(`{"file_id":%q}`, second)); status != 200 {
		t.Error(status, text)
	}
	b.stop()
	if out, err := move("file", set...); err != nil || !strings.Contains(out, "2 files") || strings.Contains(out, "password") {
		t.Fatalf("%v %s", err, out)
	}
	b = startBox(t, state)
	found(b, "back in the file")
}
