//go:build unix

package e2e_test

import (
	"archive/zip"
	"bytes"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// packed is a zip file of parts, each with a text.
func packed(t *testing.T, parts map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(parts[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const wordTypes = `<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="xml" ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>`

// word is a DOCX with a body, and a document type before it.
func word(t *testing.T, doctype, body string) string {
	return packed(t, map[string]string{"[Content_Types].xml": wordTypes,
		"word/document.xml": `<?xml version="1.0"?>` + doctype + `<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>` + body + `</w:body></w:document>`})
}

// book is a PDF of so many pages, each with a text, and more in its catalogue.
func book(pages int, more, text string) string {
	var b bytes.Buffer
	var at []int
	object := func(body string) {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", len(at), body)
	}
	b.WriteString("%PDF-1.7\n")
	object("<< /Type /Catalog /Pages 2 0 R " + more + " >>")
	var kids strings.Builder
	for i := range pages {
		fmt.Fprintf(&kids, "%d 0 R ", 4+2*i)
	}
	object(fmt.Sprintf("<< /Type /Pages /Count %d /Kids [%s] >>", pages, kids.String()))
	object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
	for i := range pages {
		object(fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents %d 0 R >>", 5+2*i))
		content := fmt.Sprintf("BT /F1 12 Tf 72 700 Td (%s page %d) Tj ET", text, i+1)
		object(fmt.Sprintf("<< /Length %d >>\nstream\n%s\nendstream", len(content), content))
	}
	table := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, n := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", n)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, table)
	return b.String()
}

// streamBomb is a PDF whose page unpacks to very much.
func streamBomb() string {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	for range 2048 {
		_, _ = w.Write(bytes.Repeat([]byte("(A) Tj "), 1<<17))
	}
	_ = w.Close()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Type /Pages /Count 1 /Kids [3 0 R] >>\nendobj\n")
	fmt.Fprintf(&b, "3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>\nendobj\n4 0 obj\n<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream\nendobj\ntrailer\n<< /Root 1 0 R >>\n", z.Len(), z.String())
	return b.String()
}

// hostileDocument is one that is to hurt, and what becomes of it.
type hostileDocument struct {
	name, content string
	fails         bool
	leaves        string // a word that can be found when it does not fail
	never         string // what no passage may hold
}

func hostileDocuments(t *testing.T) []hostileDocument {
	const secret = "root:x:0:0"
	pages := 300
	if os.Getenv("ONEBIT_ALL") != "" {
		pages = 10_000
	}
	long := strings.Repeat("<w:p><w:r><w:t>A</w:t></w:r></w:p>", 20)
	return []hostileDocument{
		{name: "empty.txt", content: "", fails: true},
		{name: "empty.pdf", content: "", fails: true},
		{name: "broken.pdf", content: "%PDF-1.7\nnothing", fails: true},
		{name: "bomb.docx", content: word(t, "", strings.Repeat(long, 420_000)), fails: true},
		{name: "stream.pdf", content: streamBomb(), fails: true},
		{name: "deep.docx", content: word(t, "", strings.Repeat("<w:p>", 200_000)+strings.Repeat("</w:p>", 200_000)), fails: true},
		{name: "deep.html", content: strings.Repeat("<div>", 200_000) + "x" + strings.Repeat("</div>", 200_000), fails: true},
		{name: "deep.json", content: strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000)},
		{name: "laughs.docx", content: word(t, `<!DOCTYPE x [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;"><!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;">]>`, "<w:p><w:r><w:t>&d;</w:t></w:r></w:p>"), fails: true},
		{name: "outside.docx", content: word(t, `<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>`, "<w:p><w:r><w:t>&e;</w:t></w:r></w:p>"), fails: true, never: secret},
		{name: "outside.html", content: `<!DOCTYPE html [<!ENTITY e SYSTEM "file:///etc/passwd">]><p>shelterword &e; <iframe src="file:///etc/passwd"></iframe><script>wickedscript()</script></p>`, leaves: "shelterword", never: "wickedscript"},
		{name: "paths.docx", content: packed(t, map[string]string{"[Content_Types].xml": wordTypes, "_rels/../../../../tmp/evil": "x", "a:/etc/evil": "x",
			"word/document.xml": `<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>pathword</w:t></w:r></w:p></w:body></w:document>`}), leaves: "pathword"},
		{name: "script.pdf", content: book(1, `/OpenAction << /S /JavaScript /JS (app.alert\("wickedscript"\)) >>`, "scriptword"), leaves: "scriptword", never: "wickedscript"},
		{name: "launch.pdf", content: book(1, `/OpenAction << /S /Launch /F (/bin/sh) >>`, "launchword"), leaves: "launchword"},
		{name: "thousands.pdf", content: book(pages, "", "manypages")},
		{name: "really-a-pdf.txt", content: book(1, "", "wrongextension"), leaves: "wrongextension"},
		{name: "really-a-text.pdf", content: "this is text about wrongsuffix and nothing else"},
		{name: "program.docx", content: "\x7fELF\x02\x01\x01" + strings.Repeat("\x00\x01\x02", 4000), fails: true},
		{name: "../../etc/cron.d/evil.md", content: "# Title\n\nnameword stands here", leaves: "nameword"},
	}
}

// TestHostileDocuments brings in documents that are made to hurt. Each fails alone, with words for whoever sent it, or
// gives its text; chats and searches are answered all the while, and what is sound is found.
func TestHostileDocuments(t *testing.T) {
	b := startBox(t, documentBox(t))
	b.claim()
	key, _ := b.key("")
	_, text := b.do(key, "POST", "/v1/vector_stores", `{"name":"x"}`)
	store := member(t, text, "id")
	attach := func(name, content string) string {
		id := member(t, b.upload(key, name, content), "id")
		if status, text := b.do(key, "POST", "/v1/vector_stores/"+store+"/files", fmt.Sprintf(`{"file_id":%q}`, id)); status != 200 {
			t.Fatal(name, status, text)
		}
		return id
	}
	all, ids := hostileDocuments(t), map[string]string{}
	for _, h := range all {
		ids[h.name] = attach(h.name, h.content)
	}
	good := attach("good.md", "# Well\n\nThe well is eleven metres deep, as soundword says.")
	chats, slowest, begin := 0, time.Duration(0), time.Now()
	deadline := time.Now().Add(8 * time.Minute)
	for done := false; !done; {
		asked := time.Now()
		if status, text := b.do(key, "POST", "/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hi"}],"max_tokens":2}`); status != 200 {
			t.Fatalf("a chat: %d %s", status, text)
		}
		chats, slowest = chats+1, max(slowest, time.Since(asked))
		_, text := b.do(key, "GET", "/v1/vector_stores/"+store, "")
		done = strings.Contains(text, `"in_progress":0`)
		if time.Now().After(deadline) {
			t.Fatalf("it does not come to an end: %s\n%s", text, b.log)
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("%d documents in %s; %d chats meanwhile, the slowest %s", len(all)+1, time.Since(begin).Round(time.Second), chats, slowest.Round(time.Millisecond))
	if slowest > 30*time.Second {
		t.Errorf("a chat took %s", slowest)
	}
	state := func(id string) (status, message string) {
		var f struct {
			Status string
			Error  *struct{ Message string } `json:"last_error"`
		}
		_, text := b.do(key, "GET", "/v1/vector_stores/"+store+"/files/"+id, "")
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err, text)
		}
		if f.Error != nil {
			message = f.Error.Message
		}
		return f.Status, message
	}
	for _, h := range all {
		status, message := state(ids[h.name])
		t.Logf("%s: %s %s", h.name, status, message)
		if status == "failed" && (message == "" || strings.ContainsAny(message, "\n\t") || strings.Contains(message, "goroutine") || strings.Contains(message, "/tmp/")) {
			t.Errorf("%s: it failed with the words %q", h.name, message)
		}
		if h.fails && status != "failed" || h.leaves != "" && status != "completed" || status == "in_progress" {
			t.Errorf("%s: it is %s %s", h.name, status, message)
		}
		_, content := b.do(key, "GET", "/v1/vector_stores/"+store+"/files/"+ids[h.name]+"/content", "")
		if !strings.Contains(content, h.leaves) || h.never != "" && strings.Contains(content, h.never) {
			t.Errorf("%s: its text is %.300s", h.name, content)
		}
	}
	if status, message := state(good); status != "completed" {
		t.Errorf("the sound one is %s %s", status, message)
	}
	if _, text := b.do(key, "POST", "/v1/vector_stores/"+store+"/search", `{"query":"soundword"}`); !strings.Contains(text, "eleven metres") {
		t.Errorf("the sound one is not found: %s", text)
	}
}
