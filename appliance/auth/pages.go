package auth

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
)

//go:embed pages
var files embed.FS

// view is what a page shows. Recovery is the one secret among it: it is shown once.
type view struct {
	Title, Name, Problem, Back string
	Root, Words                string // of the box, to compare with the console
	Recovery                   string
	Restore                    bool // whether a backup can be restored
	Settings                   bool // whether a claim chooses the box's name and its TLS mode
	Armed                      bool // whether a claim code is good
	Admin                      bool
	API                        string // where programs reach the box
	Still                      bool   // the page needs no script
}

// pages are parsed when the program is built into a test or started: a mistake in one cannot wait for its first reader.
var pages = template.Must(template.ParseFS(files, "pages/*.tmpl"))

// page writes one.
func (a *Auth) page(w http.ResponseWriter, status int, name string, v view) error {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name+".tmpl", v); err != nil {
		return fmt.Errorf("rendering the page %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a browser that is gone needs no page
	return nil
}

// asset answers with one of the files beside the pages.
func asset(name, kind string) func(w http.ResponseWriter, r *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		b, err := files.ReadFile("pages/" + name)
		if err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		w.Header().Set("Content-Type", kind)
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(b)
		return nil
	}
}
