package edge

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	plain "text/template"

	"rsc.io/qr"
)

//go:embed trust.html
var trustPage string

//go:embed trust.css
var trustStyle []byte

//go:embed trust.mobileconfig
var trustProfile string

// trustView is what the templates show.
type trustView struct {
	Name, Host, File string // the box: name with domain, host as the client calls it, name for files
	Words, Hex       string
	Secure           string // where to go on
	UUID, Profile    string
	DER              string // base64
}

// trustRoutes adds the page from which clients take the root, and its files. All may be read by anybody: trust comes
// from comparing the fingerprint, not from here.
func (b *Box) trustRoutes(mux *http.ServeMux) {
	page := template.Must(template.New("trust").Parse(trustPage))
	profile := plain.Must(plain.New("profile").Parse(trustProfile)) // all its values are letters, digits and such
	mux.HandleFunc("GET /trust", func(w http.ResponseWriter, r *http.Request) {
		var out bytes.Buffer
		if err := page.Execute(&out, b.trustView(r)); err != nil {
			http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		send(w, "text/html; charset=utf-8", out.Bytes())
	})
	mux.HandleFunc("GET /trust/root.mobileconfig", func(w http.ResponseWriter, r *http.Request) {
		var out bytes.Buffer
		if err := profile.Execute(&out, b.trustView(r)); err != nil {
			http.Error(w, "the profile cannot be made", http.StatusInternalServerError)
			return
		}
		send(w, "application/x-apple-aspen-config", out.Bytes())
	})
	mux.HandleFunc("GET /trust/qr.svg", func(w http.ResponseWriter, r *http.Request) {
		svg, err := drawSVG("http://" + r.Host + "/trust")
		if err != nil {
			http.Error(w, "the address is too long for a code", http.StatusInternalServerError)
			return
		}
		send(w, "image/svg+xml", svg)
	})
	mux.HandleFunc("GET /trust/style.css", func(w http.ResponseWriter, r *http.Request) { send(w, "text/css; charset=utf-8", trustStyle) })
	mux.HandleFunc("GET /trust/root.pem", func(w http.ResponseWriter, r *http.Request) {
		send(w, "application/x-pem-file", b.authority.rootPEM())
	})
	mux.HandleFunc("GET /trust/root.crt", func(w http.ResponseWriter, r *http.Request) {
		send(w, "application/x-x509-ca-cert", b.authority.root.Raw)
	})
	mux.HandleFunc("GET /trust/fingerprint", func(w http.ResponseWriter, r *http.Request) {
		_, f := b.Root()
		send(w, "text/plain; charset=utf-8", []byte(f+"\n"+Words(f)+"\n"))
	})
}

// send answers with something that is not kept by caches and is what it says it is.
func send(w http.ResponseWriter, kind string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	w.Write(body)
}

func (b *Box) trustView(r *http.Request) trustView {
	_, f := b.Root()
	return trustView{
		Name: b.Name(), Host: r.Host, File: b.names.Load().box + "-root",
		Words: Words(f), Hex: colons(f), Secure: "https://" + hostPort(hostname(r.Host), b.port(), "443") + "/",
		UUID: uuid("root", f), Profile: uuid("profile", f),
		DER: base64.StdEncoding.EncodeToString(b.authority.root.Raw),
	}
}

// colons separates the bytes of a hex number, as other programs show fingerprints.
func colons(digits string) string {
	var b strings.Builder
	for i := 0; i+2 <= len(digits); i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(strings.ToUpper(digits[i : i+2]))
	}
	return b.String()
}

// uuid derives a stable identifier, so that installing a profile again replaces it.
func uuid(what, fingerprint string) string {
	h := sha256.Sum256([]byte(what + " " + fingerprint))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8: made as its maker likes
	d := strings.ToUpper(hex.EncodeToString(h[:16]))
	return d[:8] + "-" + d[8:12] + "-" + d[12:16] + "-" + d[16:20] + "-" + d[20:]
}

// drawSVG returns text as a QR code. The margin of four is part of the code.
func drawSVG(text string) ([]byte, error) {
	code, err := qr.Encode(text, qr.M)
	if err != nil {
		return nil, fmt.Errorf("drawing a QR code: %w", err)
	}
	const margin = 4
	var b bytes.Buffer
	n := code.Size + 2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" shape-rendering="crispEdges"><path fill="#fff" d="M0 0h%dv%dH0z"/><path d="`, n, n, n, n)
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&b, "M%d %dh1v1h-1z", x+margin, y+margin)
			}
		}
	}
	b.WriteString(`"/></svg>`)
	return b.Bytes(), nil
}
