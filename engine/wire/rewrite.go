package wire

import "strconv"

// AppendModel appends the JSON object raw to dst with quoted, a JSON string, as the value of its member model, which is
// added at the end where it is missing. Every other byte stays.
func AppendModel(dst, raw, quoted []byte) []byte { return AppendMember(dst, raw, "model", quoted) }

// AppendMember does for any member what AppendModel does for model. The key needs no escapes.
func AppendMember(dst, raw []byte, key string, value []byte) []byte {
	m := newMembers(raw)
	for m.next() {
		if string(m.key) == key {
			dst = append(dst, raw[:m.start]...)
			dst = append(dst, value...)
			return append(dst, raw[m.off:]...)
		}
	}
	if m.bad {
		return append(dst, raw...)
	}
	dst = append(dst, raw[:m.at]...) // up to the closing brace
	if !m.first {
		dst = append(dst, ',')
	}
	dst = append(dst, '"')
	dst = append(dst, key...)
	dst = append(dst, `":`...)
	dst = append(dst, value...)
	return append(dst, raw[m.at:]...)
}

// AppendWithoutModel appends the JSON object raw to dst without its members model. Every other byte stays, but for the
// comma that held such a member.
func AppendWithoutModel(dst, raw []byte) []byte {
	m := newMembers(raw)
	from, kept := 0, false // what of raw is still to be copied, and whether a member was kept
	for m.next() {
		if string(m.key) != "model" {
			kept = true
			continue
		}
		next := skipSpace(raw, m.off)
		switch {
		case next < len(raw) && raw[next] == ',':
			dst = append(dst, raw[from:m.keyAt]...)
			from = skipSpace(raw, next+1)
		case kept:
			dst = append(dst, raw[from:m.keyAt]...)
			for dst[len(dst)-1] != ',' {
				dst = dst[:len(dst)-1] // spaces before the member
			}
			dst, from = dst[:len(dst)-1], m.off
		default:
			dst = append(dst, raw[from:m.keyAt]...)
			from = m.off
		}
	}
	return append(dst, raw[from:]...)
}

// edit is a piece of a body and what replaces it.
type edit struct {
	start, end int
	text       []byte
}

// Media returns the body of a chat or a response with the address of each image, sound and film in it replaced by what
// address returns for it; raw itself when nothing changes. The address's place is given as a path such as
// messages[0].content[1].image_url.url. An error of address ends it and is returned.
func Media(raw []byte, address func(path, url string) (string, error)) ([]byte, error) {
	w := mediaWalk{raw: raw, address: address}
	m := newMembers(raw)
	for w.err == nil && m.next() {
		if key := string(m.key); key == "messages" || key == "input" {
			w.list(key, m.start, m.off, w.message)
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	if len(w.edits) == 0 {
		return raw, nil
	}
	var out []byte
	from := 0
	for _, e := range w.edits {
		out = append(out, raw[from:e.start]...)
		out = append(out, e.text...)
		from = e.end
	}
	return append(out, raw[from:]...), nil
}

// mediaWalk finds addresses. Its places are in raw.
type mediaWalk struct {
	raw     []byte
	address func(path, url string) (string, error)
	edits   []edit
	err     error
}

// list calls f for each element of an array that is an object.
func (w *mediaWalk) list(path string, start, end int, f func(path string, start, end int)) {
	spans(w.raw[start:end], func(i, a, b int) bool {
		if w.raw[start+a] == '{' {
			f(path+"["+strconv.Itoa(i)+"]", start+a, start+b)
		}
		return w.err == nil
	})
}

// members calls f for each member of an object.
func (w *mediaWalk) members(start, end int, f func(key string, start, end int)) {
	m := newMembers(w.raw[start:end])
	for w.err == nil && m.next() {
		f(string(m.key), start+m.start, start+m.off)
	}
}

// message looks at one message or item.
func (w *mediaWalk) message(path string, start, end int) {
	w.members(start, end, func(key string, a, b int) {
		if key == "content" || key == "output" {
			w.list(path+"."+key, a, b, w.part)
		}
	})
}

// part looks at one part of a message.
func (w *mediaWalk) part(path string, start, end int) {
	w.members(start, end, func(key string, a, b int) {
		switch key {
		case "image_url", "input_audio", "audio_url", "input_video", "video_url", "file_url", "input_file":
		default:
			return
		}
		at := path + "." + key
		if w.raw[a] == '"' {
			w.visit(at, a, b)
			return
		}
		w.members(a, b, func(inner string, a, b int) {
			if (inner == "url" || inner == "data" || inner == "file_url") && w.raw[a] == '"' {
				w.visit(at+"."+inner, a, b)
			}
		})
	})
}

// visit asks for one address.
func (w *mediaWalk) visit(path string, start, end int) {
	if url, ok := text(w.raw[start:end]); ok {
		changed, err := w.address(path, url)
		if err != nil {
			w.err = err
		} else if changed != url {
			w.edits = append(w.edits, edit{start, end, Quote(changed)})
		}
	}
}

// Has reports whether the JSON object raw has a member.
func Has(raw []byte, key string) bool {
	m := newMembers(raw)
	for m.next() {
		if string(m.key) == key {
			return true
		}
	}
	return false
}

// Without returns the JSON object raw without the members that drop names, raw itself when there are none. The order stays.
func Without(raw []byte, drop func(name string) bool) []byte {
	found := false
	m := newMembers(raw)
	for m.next() {
		found = found || drop(string(m.key))
	}
	if !found || m.bad {
		return raw
	}
	out := append(make([]byte, 0, len(raw)), '{')
	for m = newMembers(raw); m.next(); {
		if drop(string(m.key)) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, Quote(string(m.key))...), ':'), m.value...)
	}
	return append(out, '}')
}
