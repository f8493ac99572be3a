package main_test

import (
	"fmt"
	"strings"
	"testing"

	main "onebit/appliance"
	"onebit/store/documents"
	"onebit/store/documents/local"
)

// TestForgetDocuments deletes a person's documents with them, and nobody else's.
func TestForgetDocuments(t *testing.T) {
	k, err := local.Open(t.Context(), local.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	ann, ben := documents.Reader{Person: "ann"}, documents.Reader{Person: "ben"}
	for i := range 120 {
		by := ann
		if i%40 == 0 {
			by = ben
		}
		f, err := k.AddFile(t.Context(), by, documents.File{Name: fmt.Sprint(i)}, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := k.AddCollection(t.Context(), by, documents.Collection{Name: fmt.Sprint(i), Sharing: documents.Sharing{Everyone: true}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Attach(t.Context(), by, documents.Attachment{Collection: c.ID, File: f.ID}); err != nil {
			t.Fatal(err)
		}
	}
	if err := main.Forget(t.Context(), k, "ann"); err != nil {
		t.Fatal(err)
	}
	files, _, err := k.Files(t.Context(), documents.System(), "", documents.Page{})
	if err != nil || len(files) != 3 {
		t.Errorf("%d files are left, %v", len(files), err)
	}
	collections, _, err := k.Collections(t.Context(), documents.System(), documents.Page{})
	if err != nil || len(collections) != 3 {
		t.Errorf("%d collections are left, %v", len(collections), err)
	}
	for _, c := range collections {
		if n, err := k.Counts(t.Context(), ben, c.ID, ""); err != nil || c.Owner != "ben" || n[documents.InProgress] != 1 {
			t.Errorf("%+v: %v, %v", c, n, err)
		}
	}
}
