package template

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

func (r *run) rangeOf(a args, _ keywords) (jinja.Value, error) {
	if len(a) < 1 || len(a) > 3 || slices.ContainsFunc(a, func(v jinja.Value) bool { return !v.IsInt() }) {
		return fail("range needs one to three whole numbers")
	}
	start, stop, step := int64(0), a[0].AsInt(), int64(1)
	if len(a) > 1 {
		start, stop = stop, a[1].AsInt()
	}
	if len(a) > 2 {
		step = a[2].AsInt()
	}
	if step == 0 {
		return fail("range step is zero")
	}
	n := math.Ceil((float64(stop) - float64(start)) / float64(step))
	if err := r.alloc(int(min(max(n, 0), math.MaxInt32)) * valueSize); err != nil {
		return undefined, err
	}
	items := make([]jinja.Value, 0, int(max(n, 0)))
	for i := range int64(cap(items)) {
		items = append(items, jinja.NewInt(start+i*step))
	}
	return jinja.NewList(items), nil
}

// namespace makes an object whose attributes the template may set.
func (r *run) namespace(a args, kw keywords) (jinja.Value, error) {
	v, err := r.namespaceless(a, kw)
	if err == nil {
		r.spaces[v.AsDict()] = true
	}
	return v, err
}

// namespaceless is dict() of another object and keywords, the latter in alphabetical order.
func (r *run) namespaceless(a args, kw keywords) (jinja.Value, error) {
	d := jinja.NewDict()
	if len(a) > 0 && a[0].IsDict() {
		if err := r.alloc(shallow(a[0])); err != nil {
			return undefined, err
		}
		for _, k := range a[0].AsDict().Keys {
			d.AsDict().Set(k, a[0].AsDict().Data[k])
		}
	}
	names := make([]string, 0, len(kw))
	for k := range kw {
		names = append(names, k)
	}
	slices.Sort(names)
	for _, k := range names {
		d.AsDict().Set(k, kw[k])
	}
	return d, r.alloc(pairSize * (len(kw) + 1))
}

// joiner is a function that returns nothing once and then its separator.
func (r *run) joiner(a args, kw keywords) (jinja.Value, error) {
	sep, used := arg(a, 0, kw, "sep", jinja.NewString(", ")), false
	return call(func(args, keywords) (jinja.Value, error) {
		if !used {
			used = true
			return nothing, nil
		}
		return sep, r.step(0)
	}), r.alloc(pairSize)
}

// cycler goes round its arguments.
func (r *run) cycler(a args, _ keywords) (jinja.Value, error) {
	if len(a) == 0 {
		return fail("cycler needs at least one item")
	}
	items, at, d := slices.Clone(a), 0, jinja.NewDict()
	move := func(to int) jinja.Value {
		was := items[at]
		at = to % len(items)
		d.AsDict().Set("current", items[at])
		return was
	}
	d.AsDict().Set("current", items[0])
	d.AsDict().Set("next", call(func(args, keywords) (jinja.Value, error) { return move(at + 1), r.step(0) }))
	d.AsDict().Set("reset", call(func(args, keywords) (jinja.Value, error) { move(0); return nothing, r.step(0) }))
	return d, r.alloc(pairSize * (len(a) + 4))
}

func (r *run) raise(a args, _ keywords) (jinja.Value, error) {
	message := "the chat template refuses the conversation"
	if len(a) > 0 {
		s, err := r.str(a[0])
		if err != nil {
			return undefined, err
		}
		message = strings.ToValidUTF8(s[:min(len(s), 4096)], "")
	}
	return undefined, &RefusedError{Message: message}
}

func (r *run) strftime(a args, _ keywords) (jinja.Value, error) {
	format := "%Y-%m-%d"
	if len(a) > 0 && a[0].IsString() {
		format = a[0].AsString()
	}
	if err := r.alloc(10 * len(format)); err != nil {
		return undefined, err
	}
	return jinja.NewString(strftime(r.now, format)), nil
}

// strftime formats t with C's directives; an unknown one stays as it is.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		plain := format[i] == '-' && i+1 < len(format) // no leading zero
		if plain {
			i++
		}
		layout, ok := directives[format[i]]
		switch {
		case format[i] == '%':
			b.WriteByte('%')
		case format[i] == 'j':
			fmt.Fprintf(&b, "%03d", t.YearDay())
		case !ok:
			b.WriteString("%" + format[i:i+1])
		case plain:
			b.WriteString(strings.TrimLeft(t.Format(layout), "0"))
		default:
			b.WriteString(t.Format(layout))
		}
	}
	return b.String()
}

var directives = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'e': "_2", 'H': "15", 'I': "03", 'M': "04", 'S': "05",
	'B': "January", 'b': "Jan", 'h': "Jan", 'A': "Monday", 'a': "Mon", 'p': "PM", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04",
}
