package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/engine"
)

// route is one operation of the table.
type route struct {
	method, path string // the path below Prefix, parameters in braces
	summary      string
	who          access
	in, out      reflect.Type // nil: nothing
	status       int          // of success
	raw          bool         // run writes the answer itself
	media        string       // of a raw answer
	takes        []string     // media types of a body that run reads itself

	run func(c *call, in any) (any, error)
}

// none stands for nothing taken or given.
type none struct{}

// op makes a route of a function. In's fields come from the path (tag path), from the query (tag query), from headers (tag
// header), and the rest from a JSON body.
func op[In, Out any](method, path string, who access, summary string, f func(c *call, in In) (Out, error)) route {
	r := route{method: method, path: path, summary: summary, who: who, in: reflect.TypeFor[In](), out: reflect.TypeFor[Out](), status: http.StatusOK}
	if method == http.MethodPost && !strings.Contains(path[1:], "}/") {
		r.status = http.StatusCreated
	}
	if r.out == reflect.TypeFor[none]() {
		r.out, r.status = nil, http.StatusNoContent
	}
	r.run = func(c *call, in any) (any, error) {
		out, err := f(c, in.(In))
		if err != nil || r.out == nil {
			return nil, err
		}
		return out, nil
	}
	return r
}

// stream makes a route of a function that writes its answer itself.
func stream[In any](method, path string, who access, media, summary string, f func(c *call, in In) error) route {
	return route{
		method: method, path: path, summary: summary, who: who, in: reflect.TypeFor[In](), status: http.StatusOK, raw: true, media: media,
		run: func(c *call, in any) (any, error) { return nil, f(c, in.(In)) },
	}
}

// decode reads what an operation takes. Nothing that it does not know is passed over in silence.
func (o route) decode(w http.ResponseWriter, r *http.Request) (any, error) {
	in := reflect.New(o.in).Elem()
	if o.hasBody() {
		if err := body(w, r, in); err != nil {
			return nil, err
		}
	}
	query := r.URL.Query()
	for _, f := range visible(o.in) {
		v := in.FieldByIndex(f.Index)
		if name := f.Tag.Get("path"); name != "" {
			v.SetString(r.PathValue(name))
		}
		if name := f.Tag.Get("header"); name != "" {
			v.SetString(r.Header.Get(name))
		}
		if name := f.Tag.Get("query"); name != "" {
			if text := query.Get(name); text != "" {
				if err := fromText(v, name, text); err != nil {
					return nil, err
				}
			}
			query.Del(name)
		}
	}
	for name := range query {
		return nil, &engine.InvalidError{Param: name, Code: "unknown_parameter", Message: fmt.Sprintf("there is no parameter %q here", name)}
	}
	return in.Interface(), nil
}

// hasBody reports whether an operation takes a JSON body: it has a field that comes from there.
func (o route) hasBody() bool {
	return slices.ContainsFunc(visible(o.in), func(f reflect.StructField) bool { return f.Tag.Get("json") != "-" })
}

// visible lists the fields of a struct, those of embedded ones in their place.
func visible(t reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Anonymous })
}

// body reads the fields that come from a body of JSON. A form of another site cannot send that media type unasked.
func body(w http.ResponseWriter, r *http.Request, in reflect.Value) error {
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(media), "application/json") {
		return &engine.InvalidError{Code: "media_type", Message: "send the body as Content-Type: application/json"}
	}
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return large
		}
		return &engine.InvalidError{Code: "body_not_read", Message: "the request body could not be read"}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(in.Addr().Interface()); err != nil {
		return invalidJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return &engine.InvalidError{Code: "invalid_json", Message: "there is more than one JSON value in the request body"}
	}
	return nil
}

// invalidJSON says what is wrong with a body, by field where that is known.
func invalidJSON(err error) error {
	e := &engine.InvalidError{Code: "invalid_json", Message: "the request body is not what is expected: " + strings.TrimPrefix(err.Error(), "json: ")}
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		e.Param, e.Code, e.Message = kind.Field, "invalid_type", fmt.Sprintf("%q must be %s, not %s", kind.Field, kindName(kind.Type), kind.Value)
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		e.Param, e.Code = strings.Trim(field, `"`), "unknown_parameter"
		e.Message = "there is no field " + field + " here"
	}
	return e
}

// kindName says what JSON a Go type wants.
func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a number"
}

// fromText parses a parameter of the query.
func fromText(v reflect.Value, name, text string) error {
	bad := func(what string) error {
		return &engine.InvalidError{Param: name, Code: "invalid_type", Message: fmt.Sprintf("%q must be %s", name, what)}
	}
	switch v.Interface().(type) {
	case time.Time:
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return bad("a time such as 2026-11-30T08:00:00Z")
		}
		v.Set(reflect.ValueOf(t))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return bad("true or false")
		}
		v.SetBool(b)
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return bad("a whole number from 0")
		}
		v.SetInt(n)
	}
	return nil
}
