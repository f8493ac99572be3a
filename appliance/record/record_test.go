package record_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"onebit/appliance/record"

	"github.com/google/go-cmp/cmp"
)

// thing is a record as its fifth format has it.
type thing struct {
	Name  string   `json:"name"`
	Sizes []int    `json:"sizes"`
	Notes []string `json:"notes,omitempty"`
}

// TestText: the mark that some editors write is no part of a text, and UTF-16 is called so.
func TestText(t *testing.T) {
	for in, want := range map[string]string{"": "", "{}": "{}", "\ufeff{}": "{}", "{}\ufeff": "{}\ufeff"} {
		if got, err := record.Text([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"\xff\xfe{\x00}\x00", "\xfe\xff\x00{\x00}"} {
		if _, err := record.Text([]byte(in)); err == nil || !strings.Contains(err.Error(), "save it as UTF-8") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// things had one size, then a list of them; they were called title, then name; their note became several.
func things() record.Ladder {
	return record.Ladder{
		record.Same,
		func(m map[string]json.RawMessage) error {
			m["name"] = m["title"]
			delete(m, "title")
			return nil
		},
		func(m map[string]json.RawMessage) error {
			var size int
			if err := json.Unmarshal(m["size"], &size); err != nil {
				return err
			}
			m["sizes"] = fmt.Appendf(nil, "[%d]", size)
			delete(m, "size")
			return nil
		},
		func(m map[string]json.RawMessage) error {
			if note, ok := m["note"]; ok {
				m["notes"] = fmt.Appendf(nil, "[%s]", note)
				delete(m, "note")
			}
			return nil
		},
	}
}

func TestEachFormatIsRead(t *testing.T) {
	want := thing{"a", []int{7}, []string{"n"}}
	for _, text := range []string{
		`{"title":"a","size":7,"note":"n"}`,
		`{"format":2,"title":"a","size":7,"note":"n"}`,
		`{"format":3,"name":"a","size":7,"note":"n"}`,
		`{"format":4,"name":"a","sizes":[7],"note":"n"}`,
		`{"format":5,"name":"a","sizes":[7],"notes":["n"],"a member of a later 5":1}`,
	} {
		var got thing
		if err := things().Read([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", text, diff)
		}
	}
}

func TestWrittenIsRead(t *testing.T) {
	want := thing{Name: "a", Sizes: []int{1, 2}}
	b, err := things().Write(want)
	if err != nil || !strings.HasPrefix(string(b), "{\n  \"format\": 5,\n  \"name\": \"a\",") {
		t.Fatalf("%s, %v", b, err)
	}
	var got thing
	if err := things().Read(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if b, err := (record.Ladder{}).Write(struct{}{}); err != nil || string(b) != "{\n  \"format\": 1\n}\n" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := things().Write([]int{1}); err == nil {
		t.Errorf("a list became %s", b)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a newer one", `{"format":6,"name":"a"}`, "in format 6, and this one reads up to 5"},
		{"a number that is none", `{"format":"5"}`, "is no number"},
		{"a format before the first", `{"format":0}`, "is no number"},
		{"half a number", `{"format":4.5}`, "is no number"},
		{"nothing", `null`, "no record"},
		{"a list", `[]`, "cannot unmarshal"},
		{"half of one", `{"format":5,"name":"a`, "unexpected end"},
		{"what a step cannot read", `{"format":3,"size":"big"}`, "reading format 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := things().Read([]byte(c.text), &thing{})
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, record.ErrNewer) != (c.name == "a newer one") {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"title":"a","size":7,"note":"n"}`))
	f.Add([]byte(`{"format":3,"name":"a","size":7}`))
	f.Add([]byte(`{"format":6}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got thing
		if things().Read(b, &got) != nil {
			return
		}
		again, err := things().Write(got)
		if err != nil {
			t.Fatal(err)
		}
		var twice thing
		if err := things().Read(again, &twice); err != nil || twice.Name != got.Name || len(twice.Sizes) != len(got.Sizes) {
			t.Errorf("%+v became %+v, %v", got, twice, err)
		}
	})
}
