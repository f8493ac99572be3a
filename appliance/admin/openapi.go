package admin

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// object is a JSON object whose members keep no order of their own: encoding/json sorts them, so that the same table
// always makes the same text.
type object = map[string]any

// OpenAPI describes the API (OpenAPI 3.1), made from the table and the Go types of what operations take and give.
func (a *Admin) OpenAPI() ([]byte, error) {
	d := describer{schemas: object{}, types: map[string]reflect.Type{}}
	paths := object{}
	for _, r := range a.routes {
		p, ok := paths[Prefix+r.path].(object)
		if !ok {
			p = object{}
			paths[Prefix+r.path] = p
		}
		p[strings.ToLower(r.method)] = d.operation(r)
	}
	d.schemas["Error"] = object{
		"type": "object", "required": []string{"error"},
		"properties": object{"error": object{
			"type": "object", "required": []string{"message", "type", "param", "code"},
			"properties": object{
				"message": object{"type": "string"}, "type": object{"type": "string"},
				"param": object{"type": []string{"string", "null"}}, "code": object{"type": []string{"string", "null"}},
			},
		}},
	}
	doc := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "1bit box: control plane", "version": "1",
			"description": "Runs a box: its models, people, keys, logs and copies. A login, an admin key or the box's own socket lets in.",
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers": []object{{"url": "/"}},
		"security": []object{
			{"bearer": []string{}}, {"apiKey": []string{}}, {"login": []string{}},
		},
		"paths": paths,
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer"},
				"apiKey": object{"type": "apiKey", "in": "header", "name": "x-api-key"},
				"login":  object{"type": "apiKey", "in": "cookie", "name": "__Host-1bit"},
			},
			"responses": object{"Refused": object{
				"description": "the request was refused; the error says why, and what to do",
				"content":     object{"application/json": object{"schema": reference("Error")}},
			}},
		},
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	return append(b, '\n'), err
}

// describer collects the schemas of named types.
type describer struct {
	schemas object
	types   map[string]reflect.Type // by the name of the schema
}

func reference(name string) object { return object{"$ref": "#/components/schemas/" + name} }

// operation describes one route.
func (d *describer) operation(r route) object {
	success := object{"description": "done"}
	switch {
	case r.raw:
		success["content"] = object{r.media: object{}}
	case r.out != nil:
		success["content"] = object{"application/json": object{"schema": d.schema(r.out)}}
	}
	o := object{
		"operationId": operationID(r), "summary": r.summary, "x-who": r.who.String(),
		"responses": object{statusText(r.status): success, "default": object{"$ref": "#/components/responses/Refused"}},
	}
	var parameters []object
	for _, f := range visible(r.in) {
		if name := f.Tag.Get("path"); name != "" {
			parameters = append(parameters, object{"name": name, "in": "path", "required": true, "schema": d.schema(f.Type)})
		}
		for _, in := range []string{"query", "header"} {
			if name := f.Tag.Get(in); name != "" {
				p := object{"name": name, "in": in, "schema": d.schema(f.Type)}
				if about := f.Tag.Get("about"); about != "" {
					p["description"] = about
				}
				parameters = append(parameters, p)
			}
		}
	}
	if parameters != nil {
		o["parameters"] = parameters
	}
	if r.hasBody() {
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": d.inline(r.in)}}}
	}
	if len(r.takes) > 0 {
		content := object{}
		for _, media := range r.takes {
			content[media] = object{}
		}
		o["requestBody"] = object{"required": true, "content": content}
	}
	return o
}

// operationID makes a name of method and path: get_keys_id.
func operationID(r route) string {
	words := strings.FieldsFunc(r.path, func(c rune) bool { return c < 'a' || c > 'z' })
	return strings.ToLower(r.method) + "_" + strings.Join(words, "_")
}

func statusText(n int) string {
	b, err := json.Marshal(n)
	if err != nil {
		return "default"
	}
	return string(b)
}

// schema describes a type; a struct of ours is described once, by its name.
func (d *describer) schema(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		if t.Name() == "" {
			return d.inline(t)
		}
		name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if other, ok := d.types[name]; ok && other != t {
			panic(fmt.Sprintf("two types are described as %s: %v and %v", name, other, t))
		}
		d.types[name] = t
		if _, ok := d.schemas[name]; !ok {
			d.schemas[name] = object{} // a type that holds itself ends here
			d.schemas[name] = d.inline(t)
		}
		return reference(name)
	}
	return object{"type": "string"}
}

// inline describes the members that a struct has in JSON.
func (d *describer) inline(t reflect.Type) object {
	properties, required := object{}, []string{}
	d.fields(t, properties, &required)
	o := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		slices.Sort(required)
		o["required"] = required
	}
	return o
}

func (d *describer) fields(t reflect.Type, properties object, required *[]string) {
	for _, f := range visible(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		s := d.schema(f.Type)
		if about := f.Tag.Get("about"); about != "" {
			if s["$ref"] != nil { // a reference says nothing else
				s = object{"allOf": []object{s}}
			}
			s["description"] = about
		}
		properties[name] = s
		if !strings.Contains(options, "omit") {
			*required = append(*required, name)
		}
	}
}
