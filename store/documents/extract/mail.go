package extract

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"strings"

	"golang.org/x/net/html/charset"
)

const (
	mostMailDepth = 8   // parts inside parts
	mostMailParts = 500 // in one message
)

// readMail reads a message: its header, its text (plain rather than HTML), and
// attached files that can be read.
func readMail(ctx context.Context, b *builder, content []byte) error {
	m := &message{builder: b, ctx: ctx, words: mime.WordDecoder{CharsetReader: charset.NewReaderLabel}}
	return m.read(content, 0)
}

type message struct {
	*builder
	ctx   context.Context //nolint:containedctx // of the one call of Read
	words mime.WordDecoder
	parts int
}

func (m *message) read(content []byte, depth int) error {
	msg, err := mail.ReadMessage(bytes.NewReader(content))
	if err != nil {
		return refuse("", "it is no e-mail: %v", err)
	}
	subject := m.header(msg.Header.Get("Subject"))
	if m.doc.Title == "" {
		m.doc.Title = clean(cut(subject, 1000), false)
	}
	if err := m.add(Heading, 1+min(depth, 5), subject, 0); err != nil {
		return err
	}
	var head []string
	for _, name := range []string{"From", "To", "Cc", "Date"} {
		if v := m.header(msg.Header.Get(name)); v != "" {
			head = append(head, name+": "+strings.Join(strings.Fields(v), " "))
		}
	}
	if err := m.add(List, 0, strings.Join(head, "\n"), 0); err != nil {
		return err
	}
	return m.part(part{msg.Header.Get("Content-Type"), msg.Header.Get("Content-Transfer-Encoding"), msg.Header.Get("Content-Disposition"), msg.Body}, depth)
}

func (m *message) header(v string) string {
	if s, err := m.words.DecodeHeader(v); err == nil {
		return s
	}
	return v
}

type part struct {
	media, encoding, disposition string
	body                         io.Reader
}

func (m *message) part(p part, depth int) error {
	if m.parts++; m.parts > mostMailParts || depth > mostMailDepth {
		return refuse("", "it has more than %d parts, or parts inside parts deeper than %d", mostMailParts, mostMailDepth)
	}
	media, params, err := mime.ParseMediaType(p.media)
	if err != nil {
		media = mediaText
	}
	if boundary := params["boundary"]; strings.HasPrefix(media, "multipart/") && boundary != "" {
		return m.several(multipart.NewReader(p.body, boundary), media == "multipart/alternative", depth)
	}
	content, err := io.ReadAll(io.LimitReader(decoded(p), m.budget.Expanded))
	if err != nil && len(content) == 0 {
		return refuse("", "a part of it is damaged: %v", err)
	}
	return m.leaf(media, params, p.disposition, content, depth)
}

func decoded(p part) io.Reader {
	switch strings.ToLower(strings.TrimSpace(p.encoding)) {
	case "base64":
		return base64.NewDecoder(base64.StdEncoding, p.body)
	case "quoted-printable":
		return quotedprintable.NewReader(p.body)
	}
	return p.body
}

// several reads the parts of a part. Of alternatives, which say the same, the
// plain text is taken, else the last one that can be read.
func (m *message) several(r *multipart.Reader, alternatives bool, depth int) error {
	var kept []part
	for len(kept) < mostMailParts {
		q, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if len(kept) > 0 {
				break // the end is cut off: what is there counts
			}
			return refuse("", "its parts are damaged: %v", err)
		}
		body, err := io.ReadAll(io.LimitReader(q, m.budget.Input))
		if err != nil && len(body) == 0 {
			continue
		}
		kept = append(kept, part{q.Header.Get("Content-Type"), q.Header.Get("Content-Transfer-Encoding"), q.Header.Get("Content-Disposition"), bytes.NewReader(body)})
	}
	if alternatives && len(kept) > 1 {
		kept = []part{choose(kept)}
	}
	for _, q := range kept {
		if err := m.part(q, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func choose(parts []part) part {
	for _, p := range parts {
		if media, _, err := mime.ParseMediaType(p.media); err != nil || media == mediaText {
			return p
		}
	}
	return parts[len(parts)-1]
}

func (m *message) leaf(media string, params map[string]string, disposition string, content []byte, depth int) error {
	kind, file, _ := mime.ParseMediaType(disposition)
	name := m.header(file["filename"])
	if name == "" {
		name = m.header(params["name"])
	}
	if media == mediaMail {
		return m.read(content, depth+1)
	}
	if kind == "attachment" || name != "" || !strings.HasPrefix(media, "text/") {
		return m.attached(name, content)
	}
	if r, err := charset.NewReader(bytes.NewReader(content), p8(media, params)); err == nil && media != mediaHTML {
		if b, err := io.ReadAll(r); err == nil {
			content = b
		}
	}
	if media == mediaHTML {
		return m.builder.read(m.ctx, mediaHTML, content)
	}
	return m.builder.read(m.ctx, mediaText, content)
}

// p8 names the character set of a text as a whole media type, plain UTF-8 where
// nothing is said.
func p8(media string, params map[string]string) string {
	set := params["charset"]
	if set == "" {
		set = "utf-8"
	}
	return media + "; charset=" + set
}

// attached reads an attached file under a heading of its name. One that cannot
// be read is named, and does not spoil the message.
func (m *message) attached(name string, content []byte) error {
	if err := m.add(Heading, 2, name, 0); err != nil {
		return err
	}
	d, err := Read(m.ctx, content, name, m.budget)
	var refused *Error
	if errors.As(err, &refused) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, b := range d.Blocks {
		level := b.Level
		if b.Kind == Heading {
			level = min(level+2, 9)
		}
		if err := m.add(b.Kind, level, b.Text, 0); err != nil {
			return err
		}
	}
	return nil
}
