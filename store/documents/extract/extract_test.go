package extract_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"onebit/store/documents/extract"
)

// brief writes a document so that a person can compare it.
func brief(d *extract.Document) string {
	var t strings.Builder
	if d.Title != "" {
		fmt.Fprintf(&t, "title %s\n", d.Title)
	}
	for _, b := range d.Blocks {
		fmt.Fprintf(&t, "%s", b.Kind)
		if b.Level > 0 {
			fmt.Fprintf(&t, " %d", b.Level)
		}
		if b.Page > 0 {
			fmt.Fprintf(&t, " p%d", b.Page)
		}
		fmt.Fprintf(&t, ": %s\n", strings.ReplaceAll(b.Text, "\n", "⏎"))
	}
	return t.String()
}

func TestFormats(t *testing.T) {
	tests := []struct {
		name, media string
		content     []byte
		want        string
	}{
		{"a.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", wordFile(t, wordBody),
			"title The garden\nheading 1: Roses\nparagraph: Cut them in March.\nheading 2: Tools\nlist: - shears⏎  - sharp ones\ntable: Kind | Height⏎Dog rose | 3 m\n"},
		{"a.pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation", slidesFile(t),
			"heading 1 p1: First\nparagraph p1: alone\nparagraph p1: say hello\nheading 1 p2: Second\nlist p2: - one⏎- two\n"},
		{"a.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", sheetFile(t),
			"heading 1 p1: Sheet1\ntable p1: Name | Price⏎Rose | 4.5⏎Oak | 120\n"},
		{"a.odt", "application/vnd.oasis.opendocument.text", openFile(t, "application/vnd.oasis.opendocument.text", openBody),
			"heading 2: Oaks\nparagraph: Leave them alone.\nlist: - old⏎  - very old\ntable: a | b | b\n"},
		{"a.epub", "application/epub+zip", bookFile(t),
			"title A book\nheading 1: One\nparagraph: It begins.\nheading 1: Two\nparagraph: It ends.\n"},
		{"a.pdf", "application/pdf", gardenPDF(),
			"heading 1 p1: The garden\nheading 2 p1: Roses\nparagraph p1: Cut the roses in March, when the frost is over, and water them for some weeks so that they grow well. " +
				"They like a place in the sun and do not mind the winter at all.\n" +
				"paragraph p1: A second paragraph about roses begins here and goes on until the page ends without a full stop, so it goes on here.\n" +
				"heading 2 p2: Oaks\nparagraph p2: Leave them alone.\n"},
		{"a.html", "text/html", []byte(`<!doctype html><html><head><title>T</title><style>x</style></head><body><nav>menu</nav><h2>Oaks &amp; elms</h2>loose <b>text</b><p>Par<!-- no -->a</p>
			<ul><li>one<ul><li>two</li></ul></li></ul><table><tr><th>a<th>b<tr><td>1<td>2</table><pre>x
  y</pre><script>alert(1)</script><p hidden>no</p><p style="display: none">no</p></body></html>`),
			"title T\nheading 2: Oaks & elms\nparagraph: loose text\nparagraph: Para\nlist: - one⏎  - two\ntable: a | b⏎1 | 2\ncode: x⏎  y\n"},
		{"a.md", "text/markdown", []byte("---\ntitle: \"T\"\n---\n# One *two*\n\nText [link](http://x) `code`\nmore\n\n- a\n  - b\n1. c\n\n```go\nfunc a() {\n}\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\n"),
			"title T\nheading 1: One two\nparagraph: Text link code more\nlist: - a⏎  - b\nlist: - c\ncode: func a() {⏎}\ntable: a | b⏎1 | 2\nparagraph: quote\n"},
		{"a.csv", "text/csv", []byte("name;price\nrose;\"4,5\"\n"), "table: name | price⏎rose | 4,5\n"},
		{"a.tsv", "text/tab-separated-values", []byte("a\tb\n1\t2\n"), "table: a | b⏎1 | 2\n"},
		{"a.json", "application/json", []byte(`[{"b":1,"a":"x"},{"a":"y|z"}]`), "table: a | b⏎x | 1⏎y/z\n"},
		{"b.json", "application/json", []byte(`{"a":{"b":[1]}}`), "code: {⏎ \"a\": {⏎  \"b\": [⏎   1⏎  ]⏎ }⏎}\n"},
		{"a.ipynb", "application/json", []byte(`{"nbformat":4,"cells":[{"cell_type":"markdown","source":["# A\n","b"]},{"cell_type":"code","source":"x=1"}]}`),
			"title A\nheading 1: A\nparagraph: b\ncode: x=1\n"},
		{"a.jsonl", "application/x-ndjson", []byte("{\"a\":1}\n{\"a\":2}\n"), "table: a⏎1⏎2\n"},
		{"a.eml", "message/rfc822", []byte(mailFile),
			"title Grüße\nheading 1: Grüße\nlist: From: Ann <ann@example.org>⏎To: Ben <ben@example.org>⏎Date: Mon, 2 Nov 2026 10:00:00 +0100\nparagraph: Grüße aus Ulm.\nheading 2: list.csv\ntable: a | b⏎1 | 2\nheading 2: x.png\n"},
		{"a.go", "text/x-source", []byte("package a\n\nfunc b() {\n\tc()\n\n}\n\nfunc d() {}\n"), "code: package a\ncode: func b() {⏎\tc()⏎⏎}\ncode: func d() {}\n"},
		{"a.txt", "text/plain", []byte("One\nline.\n\nTwo\u00AD\u200B\u202E.\fThree \ufb01ne.\n"), "paragraph p1: One line.\nparagraph p1: Two.\nparagraph p2: Three fine.\n"},
		{"latin", "text/plain", []byte("Gr\xfc\xdfe aus K\xf6ln, mit vielen Gr\xfc\xdfen und noch mehr Worten danach."), "paragraph: Grüße aus Köln, mit vielen Grüßen und noch mehr Worten danach.\n"},
		{"utf16", "text/plain", []byte("\xff\xfeA\x00b\x00"), "paragraph: Ab\n"},
	}
	seen := map[string]bool{}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			seen[test.media] = true
			if got := extract.Sniff(test.content, test.name); got != test.media {
				t.Errorf("sniffed as %q, want %q", got, test.media)
			}
			d, err := extract.Read(compiled(t), test.content, test.name, extract.Default())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, brief(d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if d.Media != test.media {
				t.Errorf("media %q", d.Media)
			}
		})
	}
	for _, m := range extract.Media() {
		if !seen[m] && !strings.Contains(m, "opendocument") {
			t.Errorf("no test reads %s", m)
		}
	}
}

func TestOpenSlidesAndSheets(t *testing.T) {
	const slides = "application/vnd.oasis.opendocument.presentation"
	const sheets = "application/vnd.oasis.opendocument.spreadsheet"
	for _, test := range []struct{ media, body, want string }{
		{slides, `<office:presentation><draw:page><text:p>One</text:p></draw:page><draw:page><text:p>Two</text:p></draw:page></office:presentation>`, "paragraph p1: One\nparagraph p2: Two\n"},
		{sheets, `<office:spreadsheet><table:table table:name="Costs"><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell></table:table-row><table:table-row table:number-rows-repeated="1048576"><table:table-cell table:number-columns-repeated="16384"/></table:table-row></table:table></office:spreadsheet>`,
			"heading 1 p1: Costs\ntable p1: a\n"},
	} {
		d, err := extract.Read(t.Context(), openFile(t, test.media, test.body), "x", extract.Default())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, brief(d)); diff != "" || d.Media != test.media {
			t.Errorf("%s (-want +got):\n%s", d.Media, diff)
		}
	}
}

// TestTheNameDoesNotDecide: what a file is, is in its bytes.
func TestTheNameDoesNotDecide(t *testing.T) {
	d, err := extract.Read(compiled(t), gardenPDF(), "photo.md", extract.Default())
	if err != nil || d.Media != "application/pdf" {
		t.Errorf("a PDF named .md: %v, %v", d, err)
	}
	for _, b := range [][]byte{[]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"), []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00"), {0, 1, 2, 3}} {
		_, err := extract.Read(t.Context(), b, "notes.md", extract.Default())
		var refused *extract.Error
		if !errors.As(err, &refused) || refused.Remedy == "" {
			t.Errorf("%q named .md: %v", b[:4], err)
		}
	}
}

// TestHostileFiles: each is refused with words that say why, within the budget.
func TestHostileFiles(t *testing.T) {
	deepXML := strings.Repeat("<a>", 300) + strings.Repeat("</a>", 300)
	huge := wordFile(t, strings.Repeat(" ", 100<<20))
	locked := bytes.Replace(wordFile(t, wordBody), []byte("PK\x03\x04\x14\x00\x08\x00"), []byte("PK\x03\x04\x14\x00\x09\x00"), 1)
	locked = bytes.Replace(locked, []byte("PK\x01\x02\x14\x00\x14\x00\x08\x00"), []byte("PK\x01\x02\x14\x00\x14\x00\x09\x00"), 1)
	many := []string{"word/document.xml", "<a/>"}
	for i := range 5001 {
		many = append(many, fmt.Sprint("word/x", i), "")
	}
	tests := []struct {
		name, file string
		content    []byte
		want       string
	}{
		{"nothing", "a.pdf", nil, "empty"},
		{"too large", "a.txt", bytes.Repeat([]byte("a "), 33<<20), "MiB"},
		{"no text", "a.txt", []byte("\n \n"), "no text"},
		{"bomb", "a.docx", huge, "times its size"},
		{"nested XML", "a.docx", wordFile(t, deepXML), "nested deeper"},
		{"external entity", "a.docx", zipOf(t, "[Content_Types].xml", wordTypes, "word/document.xml", `<?xml version="1.0"?><!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>`), "document type"},
		{"laughing entities", "a.docx", zipOf(t, "[Content_Types].xml", wordTypes, "word/document.xml", `<!DOCTYPE a [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><a>&b;</a>`), "document type"},
		{"entity in a sheet", "a.xlsx", sheetWithEntity(t), "document type"},
		{"many parts", "a.docx", zipOf(t, many...), "parts"},
		{"password", "a.docx", locked, "password"},
		{"long run of text", "a.docx", wordFile(t, wp("", noise(1100<<10))), "run of text"},
		{"missing part", "a.docx", zipOf(t, "[Content_Types].xml", wordTypes, "word/other.xml", "<a/>"), ""},
		{"cut off", "a.docx", wordFile(t, wordBody)[:300], ""},
		{"nested JSON", "a.json", []byte(strings.Repeat("[", 5000) + strings.Repeat("]", 5000)), "nested deeper"},
		{"nested HTML", "a.html", []byte("<!doctype html><body>" + strings.Repeat("<div>", 400) + "x"), "nested deeper"},
		{"nested quotes", "a.md", []byte(strings.Repeat("> ", 3000) + "x"), "nested deeper"},
		{"nested lists", "a.md", []byte(nestedList(600)), "nested deeper"},
		{"too many pages", "a.pdf", pdfFile(101, ""), "101 pages"},
		{"damaged PDF", "a.pdf", []byte("%PDF-1.7\n1 0 obj\n<<"), "PDF"},
		{"parts without end", "a.eml", []byte("From: a@b\nDate: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=a\n\n" + strings.Repeat("--a\n\nx\n", 600)), "more than 500 parts"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			budget := extract.Default()
			budget.Pages = 100
			d, err := extract.Read(compiled(t), test.content, test.file, budget)
			var refused *extract.Error
			if !errors.As(err, &refused) {
				t.Fatalf("read as %v, %v; want a refusal", d, err)
			}
			if !strings.Contains(refused.Error(), test.want) {
				t.Errorf("refused with %q, want a word of %q", refused, test.want)
			}
		})
	}
}

func sheetWithEntity(t *testing.T) []byte {
	return zipOf(t, "[Content_Types].xml", wordTypes, "xl/workbook.xml", `<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><workbook/>`, "xl/worksheets/sheet1.xml", "<a/>")
}

func nestedList(n int) string {
	var t strings.Builder
	for i := range n {
		t.WriteString(strings.Repeat("  ", i) + "- x\n")
	}
	return t.String()
}

// noise does not pack well.
func noise(n int) string {
	r := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + r.IntN(26))
	}
	return string(b)
}

// TestScriptsInPDFsDoNothing: what a viewer would run is not even looked at.
func TestScriptsInPDFsDoNothing(t *testing.T) {
	b := pdfFile(1, `/OpenAction << /S /JavaScript /JS (app.alert\(1\)) >> /AA << /WC << /S /Launch /F (calc.exe) >> >>`, pdfText{1, 11, 700, "Harmless words."})
	d, err := extract.Read(compiled(t), b, "a.pdf", extract.Default())
	if err != nil || brief(d) != "paragraph p1: Harmless words.\n" {
		t.Errorf("%v, %v", d, err)
	}
}

// TestNamesInsidePackedFilesAreNoPaths: a part that climbs out is only a name.
func TestNamesInsidePackedFilesAreNoPaths(t *testing.T) {
	b := zipOf(t, "[Content_Types].xml", wordTypes, "word/document.xml", `<w:document xmlns:w="w">`+wp("", "text")+`</w:document>`,
		"../../../../etc/cron.d/x", "* * * * * root true")
	d, err := extract.Read(t.Context(), b, "../../a.docx", extract.Default())
	if err != nil || brief(d) != "paragraph: text\n" {
		t.Errorf("%v, %v", d, err)
	}
}

func FuzzRead(f *testing.F) {
	for _, b := range [][]byte{wordFile(f, wordBody), slidesFile(f), openFile(f, "application/vnd.oasis.opendocument.text", openBody),
		bookFile(f), sheetFile(f), []byte(mailFile), []byte("<!doctype html><p>x<table><td>y"), []byte("# a\n- b\n|c|\n|-|\n")} {
		f.Add(b, "a.md")
	}
	f.Add([]byte("a,b\n1,2"), "a.csv")
	f.Add([]byte(`[{"a":1}]`), "a.json")
	f.Fuzz(func(t *testing.T, b []byte, name string) {
		if bytes.HasPrefix(bytes.TrimSpace(b), []byte("%PDF")) {
			return // seconds each; TestDamagedPDFs has those
		}
		budget := extract.Default()
		budget.Text, budget.Expanded = 1<<20, 8<<20
		d, err := extract.Read(t.Context(), b, name, budget)
		var refused *extract.Error
		if err != nil && !errors.As(err, &refused) {
			t.Fatalf("an error that is no refusal: %v", err)
		}
		if err == nil && int64(len(d.Text())) > budget.Text {
			t.Errorf("%d bytes of text", len(d.Text()))
		}
	})
}
