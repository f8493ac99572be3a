package extract_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/xuri/excelize/v2"
)

// zipOf packs parts, given as name and content in turn.
func zipOf(t testing.TB, parts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		method := zip.Deflate
		if parts[i] == "mimetype" {
			method = zip.Store
		}
		w, err := z.CreateHeader(&zip.FileHeader{Name: parts[i], Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(parts[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const wordTypes = `<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="xml" ContentType="application/xml"/></Types>`

func wordFile(t testing.TB, body string) []byte {
	return zipOf(t, "[Content_Types].xml", wordTypes, "_rels/.rels", "<Relationships/>",
		"docProps/core.xml", `<cp:coreProperties xmlns:cp="c" xmlns:dc="d"><dc:title>The garden</dc:title></cp:coreProperties>`,
		"word/styles.xml", `<w:styles xmlns:w="w"><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style><w:style w:styleId="x"><w:name w:val="Mine"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style></w:styles>`,
		"word/document.xml", `<?xml version="1.0" encoding="UTF-8"?><w:document xmlns:w="w"><w:body>`+body+`</w:body></w:document>`)
}

func wp(style, text string) string {
	if style != "" {
		style = `<w:pPr><w:pStyle w:val="` + style + `"/></w:pPr>`
	}
	return `<w:p>` + style + `<w:r><w:t xml:space="preserve">` + text + `</w:t></w:r></w:p>`
}

const wordBody = `<w:p><w:pPr><w:pStyle w:val="berschrift1"/></w:pPr><w:r><w:t>Roses</w:t></w:r></w:p>` +
	`<w:p><w:r><w:t xml:space="preserve">Cut them </w:t></w:r><w:del><w:r><w:delText>late</w:delText><w:t>late</w:t></w:r></w:del><w:r><w:t>in March.</w:t></w:r></w:p>` +
	`<w:p><w:pPr><w:pStyle w:val="x"/></w:pPr><w:r><w:t>Tools</w:t></w:r></w:p>` +
	`<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/></w:numPr></w:pPr><w:r><w:t>shears</w:t></w:r></w:p>` +
	`<w:p><w:pPr><w:numPr><w:ilvl w:val="1"/></w:numPr></w:pPr><w:r><w:t>sharp ones</w:t></w:r></w:p>` +
	`<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Kind</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>Height</w:t></w:r></w:p></w:tc></w:tr>` +
	`<w:tr><w:tc><w:p><w:r><w:t>Dog rose</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>3 m</w:t></w:r></w:p></w:tc></w:tr></w:tbl>`

func slidesFile(t testing.TB) []byte {
	rel := func(id, kind, target string) string {
		return `<Relationship Id="` + id + `" Type="http://x/` + kind + `" Target="` + target + `"/>`
	}
	shape := func(kind string, lines ...string) string {
		s := `<p:sp><p:nvPr><p:ph type="` + kind + `"/></p:nvPr><p:txBody>`
		for _, l := range lines {
			s += `<a:p><a:r><a:t>` + l + `</a:t></a:r></a:p>`
		}
		return s + `</p:txBody></p:sp>`
	}
	return zipOf(t, "[Content_Types].xml", wordTypes,
		"ppt/presentation.xml", `<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst><p:sldId id="256" r:id="rId2"/><p:sldId id="257" r:id="rId1"/></p:sldIdLst></p:presentation>`,
		"ppt/_rels/presentation.xml.rels", "<Relationships>"+rel("rId1", "slide", "slides/slide1.xml")+rel("rId2", "slide", "slides/slide2.xml")+"</Relationships>",
		"ppt/slides/slide1.xml", `<p:sld xmlns:p="p" xmlns:a="a">`+shape("title", "Second")+shape("body", "one", "two")+shape("sldNum", "2")+`</p:sld>`,
		"ppt/slides/slide2.xml", `<p:sld xmlns:p="p" xmlns:a="a">`+shape("ctrTitle", "First")+shape("body", "alone")+`</p:sld>`,
		"ppt/slides/_rels/slide2.xml.rels", "<Relationships>"+rel("rId1", "notesSlide", "../notesSlides/notesSlide1.xml")+"</Relationships>",
		"ppt/notesSlides/notesSlide1.xml", `<p:notes xmlns:p="p" xmlns:a="a">`+shape("body", "say hello")+`</p:notes>`)
}

func openFile(t testing.TB, media, body string) []byte {
	return zipOf(t, "mimetype", media, "content.xml",
		`<?xml version="1.0" encoding="UTF-8"?><office:document-content xmlns:office="o" xmlns:text="t" xmlns:table="b" xmlns:draw="d"><office:body>`+body+`</office:body></office:document-content>`)
}

const openBody = `<office:text><text:h text:outline-level="2">Oaks</text:h><text:p>Leave<text:s/>them<text:line-break/>alone.</text:p>` +
	`<text:list><text:list-item><text:p>old</text:p><text:list><text:list-item><text:p>very old</text:p></text:list-item></text:list></text:list-item></text:list>` +
	`<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell table:number-columns-repeated="2"><text:p>b</text:p></table:table-cell></table:table-row></table:table></office:text>`

func bookFile(t testing.TB) []byte {
	return zipOf(t, "mimetype", "application/epub+zip",
		"META-INF/container.xml", `<container><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>`,
		"OPS/book.opf", `<package xmlns:dc="d"><metadata><dc:title>A book</dc:title></metadata><manifest><item id="b" href="two.xhtml"/><item id="a" href="one%20.xhtml"/></manifest><spine><itemref idref="a"/><itemref idref="b"/></spine></package>`,
		"OPS/one .xhtml", `<html><body><h1>One</h1><p>It begins.</p></body></html>`,
		"OPS/two.xhtml", `<html><body><h1>Two</h1><p>It ends.</p></body></html>`)
}

func sheetFile(t testing.TB) []byte {
	t.Helper()
	f := excelize.NewFile()
	for cell, v := range map[string]any{"A1": "Name", "B1": "Price", "A2": "Rose", "B2": 4.5, "A3": "Oak", "B3": 120} {
		if err := f.SetCellValue("Sheet1", cell, v); err != nil {
			t.Fatal(err)
		}
	}
	b, err := f.WriteToBuffer()
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pdfText is a line of a PDF: a size in points, a height on the page, a text.
type pdfText struct {
	page int
	size float64
	y    float64
	text string
}

// pdfFile writes a PDF of the simplest kind. extra is put into its catalogue.
func pdfFile(pages int, extra string, texts ...pdfText) []byte {
	var b bytes.Buffer
	var at []int
	object := func(format string, args ...any) {
		at = append(at, b.Len())
		fmt.Fprintf(&b, "%d 0 obj\n", len(at))
		fmt.Fprintf(&b, format, args...)
		b.WriteString("\nendobj\n")
	}
	b.WriteString("%PDF-1.4\n")
	object("<< /Type /Catalog /Pages 2 0 R %s >>", extra)
	var kids strings.Builder
	for i := range pages {
		fmt.Fprintf(&kids, "%d 0 R ", 4+2*i)
	}
	object("<< /Type /Pages /Count %d /Kids [ %s] >>", pages, kids.String())
	object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
	for i := range pages {
		var s strings.Builder
		for _, t := range texts {
			if t.page == i+1 {
				fmt.Fprintf(&s, "BT /F1 %g Tf 72 %g Td (%s) Tj ET\n", t.size, t.y, t.text)
			}
		}
		object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Resources << /Font << /F1 3 0 R >> >> >>", 5+2*i)
		object("<< /Length %d >>\nstream\n%s\nendstream", s.Len(), s.String())
	}
	start := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(at)+1)
	for _, o := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", o)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", len(at)+1, start)
	return b.Bytes()
}

func gardenPDF() []byte {
	return pdfFile(2, "", pdfText{1, 24, 700, "The garden"}, pdfText{1, 16, 660, "Roses"},
		pdfText{1, 11, 640, "Cut the roses in March, when the frost is over, and water them for some"},
		pdfText{1, 11, 626, "weeks so that they grow well. They like a place in the sun and do not mind the win-"},
		pdfText{1, 11, 612, "ter at all."},
		pdfText{1, 11, 580, "A second paragraph about roses begins here and goes on until the page ends without a"},
		pdfText{2, 11, 720, "full stop, so it goes on here."},
		pdfText{2, 16, 680, "Oaks"}, pdfText{2, 11, 660, "Leave them alone."})
}

const mailFile = "From: Ann <ann@example.org>\r\nTo: Ben <ben@example.org>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nDate: Mon, 2 Nov 2026 10:00:00 +0100\r\n" +
	"MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=xx\r\n\r\n--xx\r\nContent-Type: multipart/alternative; boundary=yy\r\n\r\n" +
	"--yy\r\nContent-Type: text/html\r\n\r\n<p>html</p>\r\n--yy\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=DFe aus Ulm.\r\n--yy--\r\n" +
	"--xx\r\nContent-Type: text/csv\r\nContent-Disposition: attachment; filename=\"list.csv\"\r\nContent-Transfer-Encoding: base64\r\n\r\nYSxiCjEsMgo=\r\n" +
	"--xx\r\nContent-Type: image/png\r\nContent-Disposition: attachment; filename=\"x.png\"\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=\r\n--xx--\r\n"
