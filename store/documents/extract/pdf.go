package extract

import (
	"cmp"
	"context"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/klippa-app/go-pdfium"
	pdferrors "github.com/klippa-app/go-pdfium/errors"
	"github.com/klippa-app/go-pdfium/references"
	"github.com/klippa-app/go-pdfium/requests"
	"github.com/klippa-app/go-pdfium/responses"
	"github.com/klippa-app/go-pdfium/webassembly"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// pdfPages is the memory that PDFium may take, in pages of 64 KiB: 512 MiB.
const pdfPages = 512 << 20 / (64 << 10)

type cacheKey struct{}

// WithCache returns a context in which a PDF reader keeps its compiled form in
// a folder. Without it each process compiles for seconds.
func WithCache(ctx context.Context, dir string) context.Context {
	return context.WithValue(ctx, cacheKey{}, dir)
}

// Warm compiles the PDF reader into the folder of WithCache.
func Warm(ctx context.Context) error {
	p, err := startPDF(ctx)
	if err != nil {
		return err
	}
	return p.Close()
}

// startPDF starts PDFium without files, clock or environment. Its memory is
// bounded, and the end of the context ends it.
func startPDF(ctx context.Context) (pdfium.Pool, error) {
	rc := wazero.NewRuntimeConfigCompiler().
		WithCoreFeatures(api.CoreFeaturesV2 | experimental.CoreFeaturesExceptionHandling).
		WithMemoryLimitPages(pdfPages).
		WithCloseOnContextDone(true)
	if dir, ok := ctx.Value(cacheKey{}).(string); ok && dir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(dir)
		if err != nil {
			return nil, err
		}
		rc = rc.WithCompilationCache(cache)
	}
	return webassembly.Init(webassembly.Config{Context: ctx, MinIdle: 1, MaxIdle: 1, MaxTotal: 1,
		FSConfig: wazero.NewFSConfig(), RuntimeConfig: rc, Stdout: io.Discard, Stderr: io.Discard})
}

// readPDF reads the lines of each page with their places and fonts, and makes
// paragraphs and headings of them: a PDF itself knows neither.
func readPDF(ctx context.Context, b *builder, content []byte) error {
	pool, err := startPDF(ctx)
	if err != nil {
		return err
	}
	defer pool.Close() //nolint:errcheck // nothing was written
	inst, err := pool.GetInstance(time.Minute)
	if err != nil {
		return err
	}
	defer inst.Close() //nolint:errcheck // nothing was written
	doc, err := inst.OpenDocument(&requests.OpenDocument{File: &content})
	if err != nil {
		if err == pdferrors.ErrPassword || err == pdferrors.ErrSecurity { //nolint:errorlint // the library compares so
			return refuse(unlock, "it is locked by a password")
		}
		return refuse(saveIt, "it is no whole PDF: %v", err)
	}
	count, err := inst.FPDF_GetPageCount(&requests.FPDF_GetPageCount{Document: doc.Document})
	if err != nil {
		return refuse(saveIt, "its pages cannot be counted: %v", err)
	}
	if count.PageCount > b.budget.Pages {
		return refuse(splitIt, "it has %d pages; %d are allowed", count.PageCount, b.budget.Pages)
	}
	b.doc.Pages = count.PageCount
	if title, err := inst.FPDF_GetMetaText(&requests.FPDF_GetMetaText{Document: doc.Document, Tag: "Title"}); err == nil {
		b.doc.Title = clean(cut(title.Value, 1000), false)
	}
	p := &pdf{builder: b, inst: inst, doc: doc.Document}
	for n := range count.PageCount {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.page(n); err != nil {
			return err
		}
	}
	return p.write()
}

type pdf struct {
	*builder
	inst  pdfium.Pdfium
	doc   references.FPDF_DOCUMENT
	lines []line
	chars int
}

// line is a line of print.
type line struct {
	text        string
	page        int
	size        float64 // of its largest font, in points
	top, bottom float64 // from the page's lower edge
	left        float64
}

func (p *pdf) page(n int) error {
	page := requests.Page{ByIndex: &requests.PageByIndex{Document: p.doc, Index: n}}
	text, err := p.inst.GetPageTextStructured(&requests.GetPageTextStructured{Page: page,
		Mode: requests.GetPageTextStructuredModeRects, CollectFontInformation: true})
	if err != nil {
		return refuse(saveIt, "its page %d cannot be read: %v", n+1, err)
	}
	from := len(p.lines)
	for _, r := range text.Rects {
		p.run(r, n+1, from)
		if p.chars += len(r.Text); int64(p.chars) > p.budget.Text {
			return refuse(splitIt, "it holds more than %d MiB of text", p.budget.Text>>20)
		}
	}
	return nil
}

// run adds words of one font to the line that they stand in.
func (p *pdf) run(r *responses.GetPageTextStructuredRect, page, from int) {
	text := strings.TrimRight(r.Text, "\r\n")
	if strings.TrimSpace(text) == "" {
		if len(p.lines) > from && text != "" {
			p.lines[len(p.lines)-1].text += " "
		}
		return
	}
	pos := r.PointPosition
	l := line{text: text, page: page, top: max(pos.Top, pos.Bottom), bottom: min(pos.Top, pos.Bottom), left: pos.Left}
	l.size = l.top - l.bottom
	if f := r.FontInformation; f != nil && cmp.Or(f.RenderedSize, f.Size) > 0 {
		l.size = cmp.Or(f.RenderedSize, f.Size)
	}
	if len(p.lines) > from {
		last := &p.lines[len(p.lines)-1]
		middle := (l.top + l.bottom) / 2
		if middle < last.top && middle > last.bottom && l.left >= last.left {
			if !strings.HasSuffix(last.text, " ") && !strings.HasPrefix(text, " ") && p.apart(*last, r) {
				last.text += " "
			}
			last.text += text
			last.size = max(last.size, l.size)
			last.top, last.bottom = max(last.top, l.top), min(last.bottom, l.bottom)
			return
		}
	}
	p.lines = append(p.lines, l)
}

// apart tells whether a run stands clearly right of the words before it. Where
// those end is not known, so it is taken from their number.
func (p *pdf) apart(last line, r *responses.GetPageTextStructuredRect) bool {
	width := float64(utf8.RuneCountInString(last.text)) * last.size * 0.45
	return r.PointPosition.Left > last.left+width
}

// write makes blocks of the lines.
func (p *pdf) write() error {
	sizes := p.headings()
	var held []line
	flush := func() error {
		if len(held) == 0 {
			return nil
		}
		kind, level := Paragraph, 0
		if l := sizes[rounded(held[0].size)]; l > 0 && letters(held) <= 200 {
			kind, level = Heading, l
		}
		err := p.add(kind, level, join(held), held[0].page)
		held = held[:0]
		return err
	}
	for _, l := range p.lines {
		if len(held) > 0 && border(held[len(held)-1], l) {
			if err := flush(); err != nil {
				return err
			}
		}
		held = append(held, l)
	}
	return flush()
}

func rounded(size float64) int { return int(math.Round(size * 2)) }

func letters(lines []line) int {
	n := 0
	for _, l := range lines {
		n += utf8.RuneCountInString(l.text)
	}
	return n
}

// headings returns the level of each font size that is clearly larger than that
// of most of the text: the four largest kinds.
func (p *pdf) headings() map[int]int {
	weight := map[int]int{}
	for _, l := range p.lines {
		weight[rounded(l.size)] += len(l.text)
	}
	body, most := 0, 0
	for size, n := range weight {
		if n > most || n == most && size < body {
			body, most = size, n
		}
	}
	var large []int
	for size, n := range weight {
		if float64(size) >= 1.15*float64(body) && n*3 < most+200 {
			large = append(large, size)
		}
	}
	slices.Sort(large)
	slices.Reverse(large)
	levels := map[int]int{}
	for i, size := range large {
		levels[size] = min(i+1, 4)
	}
	return levels
}

// border tells whether a new paragraph begins with b.
func border(a, b line) bool {
	if rounded(a.size) != rounded(b.size) {
		return true
	}
	height := max(a.size, 1)
	if a.page != b.page || b.top > a.top+height { // the next page or column
		return ended(a.text)
	}
	gap := a.bottom - b.top
	return gap > 0.75*height
}

// ended tells whether a line ends a sentence.
func ended(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimRight(s, " \"”’»)"))
	return strings.ContainsRune(".!?:。！？।", r)
}

// join puts lines together; a word that was divided at a line's end becomes one
// again.
func join(lines []line) string {
	var t strings.Builder
	for i, l := range lines {
		s := strings.TrimSpace(l.text)
		if word, divided := cutHyphen(s); divided && i+1 < len(lines) {
			next, _ := utf8.DecodeRuneInString(strings.TrimSpace(lines[i+1].text))
			if !unicode.IsLower(next) {
				word += "-"
			}
			t.WriteString(word)
			continue
		}
		t.WriteString(s + " ")
	}
	return t.String()
}

// cutHyphen takes a hyphen off a line's end; PDFium gives it as the control
// character 2.
func cutHyphen(s string) (string, bool) {
	for _, mark := range []string{"\x02", "-", "\u00AD", "\u2010"} {
		if word, ok := strings.CutSuffix(s, mark); ok {
			return word, true
		}
	}
	return s, false
}
