package admin

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"onebit/engine"
	"onebit/extensions"
	"onebit/extensions/abi"
)

// pushed is a module on its way in: the bytes alone, with the rest in headers, or a form of several parts. Its hash is a
// header in both cases, which a page of another site cannot send.
type pushed struct {
	SHA256    string `json:"-" header:"X-1bit-Sha256" about:"of the module's bytes, in hexadecimal digits"`
	Manifest  string `json:"-" header:"X-1bit-Manifest" about:"the manifest in base64, where the module does not bring it and no part of a form is it"`
	Signature string `json:"-" header:"X-1bit-Signature" about:"minisign's signature in base64"`
}

// maxPart is the longest part of a form that is neither a module nor an asset, in bytes.
const maxPart = 64 << 10

// placement says how a module is bound.
type placement struct {
	Name         string            `json:"-" path:"name"`
	Module       string            `json:"module,omitempty" about:"SHA-256, its beginning, NAME@VERSION or NAME; empty: what is in canary or shadow there"`
	Percent      float64           `json:"percent,omitempty" about:"of conversations, for a canary; absent or 100 is all"`
	Config       json.RawMessage   `json:"config,omitempty" about:"for the module; absent: as it is"`
	Capabilities *[]string         `json:"capabilities,omitempty" about:"that it gets of those that it asks for; absent: all that the box allows"`
	OnError      string            `json:"on_error,omitempty" about:"open: the default policy decides; reject: the request is turned away"`
	EveryTurn    *bool             `json:"every_turn,omitempty" about:"ask in each turn of a conversation, not once"`
	Guard        *extensions.Guard `json:"guard,omitempty" about:"when the box goes back by itself"`
	Keys         *[]string         `json:"keys,omitempty" about:"ids of the keys that the binding is for"`
	Models       *[]string         `json:"models,omitempty" about:"patterns of the models asked for that the binding is for"`
}

func (p placement) placement() extensions.Placement {
	out := extensions.Placement{
		Module: p.Module, Percent: p.Percent, Config: p.Config, OnError: p.OnError, EveryTurn: p.EveryTurn, Guard: p.Guard, Keys: p.Keys, Models: p.Models,
	}
	if p.Capabilities != nil {
		out.Capabilities = []abi.Capability{}
		for _, c := range *p.Capabilities {
			out.Capabilities = append(out.Capabilities, abi.Capability(c))
		}
	}
	return out
}

// bound has the name of a binding in its path.
type bound struct {
	Name string `json:"-" path:"name"`
}

type differences struct {
	Differences []extensions.Difference `json:"differences"`
}

type extensionEvents struct {
	Events []extensions.Event `json:"events"`
}

func (c *call) by() extensions.Who {
	return extensions.Who{Person: c.who.Person, Key: c.who.Actor.Key}
}

func (a *Admin) extensionRoutes() []route {
	m := a.cfg.Extensions
	push := op("POST", "/extensions", admins, "upload a module; it is checked, compiled and tried before it is there", a.push)
	push.takes = []string{"application/wasm", "multipart/form-data"}
	return []route{
		op("GET", "/extensions", admins, "modules, where they are bound, and what they have done", func(*call, struct{}) (extensions.Listing, error) {
			return m.Status(), nil
		}),
		push,
		op("DELETE", "/extensions/{id}", admins, "delete a module; not one that is bound", func(c *call, in identified) (none, error) {
			return none{}, m.Delete(c.ctx(), c.by(), in.ID)
		}),
		op("GET", "/extensions/log", admins, "who did what with extensions, oldest first", func(c *call, in struct {
			After int64 `json:"-" query:"after" about:"only lines after this id"`
			Limit int   `json:"-" query:"limit" about:"100 unless it is given, at most 1000"`
		}) (extensionEvents, error) {
			if in.Limit == 0 {
				in.Limit = 100
			}
			events, err := m.Events(c.ctx(), in.After, min(in.Limit, 1000))
			return extensionEvents{append([]extensions.Event{}, events...)}, err
		}),
		op("GET", "/extensions/differences", admins, "what modules in shadow would have done otherwise", func(*call, struct{}) (differences, error) {
			return differences{m.Differences()}, nil
		}),
		op("POST", "/bindings/{name}/shadow", admins, "let a module see a binding's requests without being obeyed", func(c *call, in placement) (none, error) {
			return none{}, m.Shadow(c.ctx(), c.by(), in.Name, in.placement())
		}),
		op("POST", "/bindings/{name}/activate", admins, "let a module decide for a binding, or for a share of its conversations", func(c *call, in placement) (none, error) {
			return none{}, m.Activate(c.ctx(), c.by(), in.Name, in.placement())
		}),
		op("POST", "/bindings/{name}/rollback", admins, "end a canary, or return to the module before", func(c *call, in bound) (none, error) {
			return none{}, m.Rollback(c.ctx(), c.by(), in.Name, "by hand")
		}),
		op("DELETE", "/bindings/{name}", admins, "take a binding away", func(c *call, in bound) (none, error) {
			return none{}, m.Unbind(c.ctx(), c.by(), in.Name)
		}),
	}
}

// push takes a module in as it comes.
func (a *Admin) push(c *call, in pushed) (extensions.Shown, error) {
	u := a.cfg.Extensions.Receive()
	defer u.Close()
	for name, part := range map[string]struct {
		text string
		take func(b []byte)
	}{
		"X-1bit-Manifest":  {in.Manifest, u.Manifest},
		"X-1bit-Signature": {in.Signature, func(b []byte) { u.Signature(string(b)) }},
	} {
		if part.text == "" {
			continue
		}
		b, err := base64.StdEncoding.DecodeString(part.text)
		if err != nil {
			return extensions.Shown{}, &engine.InvalidError{Param: name, Code: "invalid_value", Message: name + " is no base64"}
		}
		part.take(b)
	}
	if err := c.receive(u, in.SHA256); err != nil {
		return extensions.Shown{}, err
	}
	m, err := a.cfg.Extensions.Add(c.ctx(), c.by(), u)
	if err != nil {
		return extensions.Shown{}, err
	}
	return m.Shown(), nil
}

// receive reads a module, or the parts of a form in any order.
func (c *call) receive(u *extensions.Upload, hash string) error {
	media, params, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	switch {
	case err == nil && (media == "application/wasm" || media == "application/octet-stream"):
		return interrupted(u.Module(c.r.Body, hash))
	case err != nil || media != "multipart/form-data":
		return &engine.InvalidError{Code: "media_type", Message: "send a module as Content-Type: application/wasm, or with its papers as multipart/form-data"}
	}
	form := multipart.NewReader(c.r.Body, params["boundary"])
	for {
		p, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &engine.InvalidError{Code: "body_not_read", Message: "the form could not be read: " + err.Error()}
		}
		if err := interrupted(part(u, p, hash)); err != nil {
			return err
		}
	}
}

// part takes one part of a form.
func part(u *extensions.Upload, p *multipart.Part, hash string) error {
	switch name := p.FormName(); name {
	case "module":
		return u.Module(p, hash)
	case "asset":
		return u.Asset(p.FileName(), p)
	case "manifest", "signature", "config":
		b, err := io.ReadAll(io.LimitReader(p, maxPart+1))
		if err != nil {
			return err
		}
		if len(b) > maxPart {
			return &engine.InvalidError{Param: name, Code: "too_large", Message: fmt.Sprintf("the part %s has more than %d bytes", name, maxPart)}
		}
		switch name {
		case "manifest":
			u.Manifest(b)
		case "signature":
			u.Signature(string(b))
		default:
			u.Config(b)
		}
		return nil
	default:
		return &engine.InvalidError{Param: name, Code: "unknown_parameter", Message: fmt.Sprintf("there is no part %q here; there are module, manifest, signature, config and asset", name)}
	}
}

// interrupted says of a body that broke off that it did; what was wrong with what came is said as it is.
func interrupted(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, http.ErrBodyReadAfterClose) {
		return &engine.InvalidError{Code: "body_not_read", Message: "the upload broke off; nothing of it is kept"}
	}
	return err
}
