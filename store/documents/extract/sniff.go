package extract

import (
	"bytes"
	"context"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/gabriel-vasile/mimetype"
)

// The formats that are read, by the media type that Sniff gives.
const (
	mediaPDF  = "application/pdf"
	mediaDOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
	mediaPPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
	mediaXLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
	mediaODT  = "application/vnd.oasis.opendocument.text"
	mediaODP  = "application/vnd.oasis.opendocument.presentation"
	mediaODS  = "application/vnd.oasis.opendocument.spreadsheet"
	mediaEPUB = "application/epub+zip"
	mediaHTML = "text/html"
	mediaMD   = "text/markdown"
	mediaCSV  = "text/csv"
	mediaTSV  = "text/tab-separated-values"
	mediaJSON = "application/json"
	mediaJSNL = "application/x-ndjson"
	mediaMail = "message/rfc822"
	mediaCode = "text/x-source"
	mediaText = "text/plain"
)

// Media lists the media types that are read.
func Media() []string {
	return []string{mediaPDF, mediaDOCX, mediaPPTX, mediaXLSX, mediaODT, mediaODP, mediaODS, mediaEPUB, mediaHTML,
		mediaMD, mediaCSV, mediaTSV, mediaJSON, mediaJSNL, mediaMail, mediaCode, mediaText}
}

// textual are names of text formats that have no mark in their content. The
// name decides among them only when the content is text.
var textual = map[string]string{
	".md": mediaMD, ".markdown": mediaMD, ".mdown": mediaMD, ".mkd": mediaMD,
	".csv": mediaCSV, ".tsv": mediaTSV, ".tab": mediaTSV,
	".json": mediaJSON, ".jsonl": mediaJSNL, ".ndjson": mediaJSNL, ".ipynb": mediaJSON,
	".eml": mediaMail, ".html": mediaHTML, ".htm": mediaHTML, ".xhtml": mediaHTML,
}

// sources are the name endings of program text and configuration.
var sources = strings.Fields(`.go .c .h .cc .cpp .cxx .hpp .hh .rs .py .pyi .js .mjs .cjs .ts .tsx .jsx .java .kt .kts .swift .scala .rb
	.php .pl .pm .lua .r .jl .m .mm .cs .fs .vb .hs .ml .mli .ex .exs .erl .clj .dart .zig .nim .sh .bash .zsh .fish .ps1 .bat .cmd .sql
	.yaml .yml .toml .ini .cfg .conf .xml .xsd .proto .graphql .css .scss .less .s .asm .v .vhd .tf .gradle .cmake .mk .diff .patch .tex`)

// Sniff returns the media type of a file by its content; its name decides only
// between formats that are all plain text. An empty string means that nothing
// here reads it.
func Sniff(b []byte, name string) string {
	if len(b) == 0 {
		return ""
	}
	m := mimetype.Detect(b)
	for _, media := range Media() {
		if media != mediaText && media != mediaHTML && m.Is(media) {
			return media
		}
	}
	if !isText(b) {
		return ""
	}
	ext := strings.ToLower(path.Ext(name))
	if media, ok := textual[ext]; ok {
		return media
	}
	for _, s := range sources {
		if s == ext {
			return mediaCode
		}
	}
	switch {
	case m.Is(mediaHTML):
		return mediaHTML
	case isMail(b):
		return mediaMail
	}
	return mediaText
}

// isText tells whether bytes are text in UTF-8, UTF-16 with a mark, or an old
// code page: hardly any control characters.
func isText(b []byte) bool {
	if bytes.HasPrefix(b, []byte{0xFF, 0xFE}) || bytes.HasPrefix(b, []byte{0xFE, 0xFF}) {
		return true
	}
	b = b[:min(len(b), 64<<10)]
	odd := 0
	for _, c := range b {
		if c == 0 {
			return false
		}
		if c < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f' && c != 0x1b {
			odd++
		}
	}
	return odd*100 <= len(b)
}

// isMail tells whether bytes begin with the header of a message.
func isMail(b []byte) bool {
	head, _, found := bytes.Cut(bytes.ReplaceAll(b[:min(len(b), 16<<10)], []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	if !found || !utf8.Valid(head) {
		return false
	}
	seen := 0
	for _, line := range strings.Split(string(head), "\n") {
		key, _, ok := strings.Cut(line, ":")
		switch strings.ToLower(key) {
		case "from", "date", "message-id", "received", "mime-version", "return-path":
			seen++
		default:
			if !ok && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
				return false
			}
		}
	}
	return seen >= 2
}

// readers hold how each format is read.
func readers() map[string]func(context.Context, *builder, []byte) error {
	return map[string]func(context.Context, *builder, []byte) error{
		mediaPDF: readPDF, mediaDOCX: readWord, mediaPPTX: readSlides, mediaXLSX: readSheets,
		mediaODT: readOpenDocument, mediaODP: readOpenDocument, mediaODS: readOpenDocument, mediaEPUB: readBook,
		mediaHTML: readHTML, mediaMD: readMarkdown, mediaCSV: readCSV, mediaTSV: readTSV, mediaJSON: readJSON,
		mediaJSNL: readJSONLines, mediaMail: readMail, mediaCode: readCode, mediaText: readText,
	}
}

// Read reads a file. Errors of its content are *Error.
func Read(ctx context.Context, b []byte, name string, budget Budget) (*Document, error) {
	switch {
	case len(b) == 0:
		return nil, refuse("", "it is empty")
	case int64(len(b)) > budget.Input:
		return nil, refuse(splitIt, "it has %d MiB; %d are allowed", len(b)>>20, budget.Input>>20)
	}
	media := Sniff(b, name)
	if media == "" {
		kind, _, _ := strings.Cut(mimetype.Detect(b).String(), ";")
		return nil, refuse("PDF, DOCX, PPTX, XLSX, ODT, EPUB, HTML, Markdown, CSV, JSON, e-mail and text are read",
			"its content is %s, which is not read here", kind)
	}
	d := &builder{budget: budget, doc: Document{Media: media}}
	if err := d.read(ctx, media, b); err != nil {
		return nil, err
	}
	if len(d.doc.Blocks) == 0 {
		return nil, refuse("if it is a scan, run a text recognition over it first", "it holds no text")
	}
	return &d.doc, nil
}

func (b *builder) read(ctx context.Context, media string, content []byte) error {
	return readers()[media](ctx, b, content)
}
