// Package guest holds what a module is written with: for each language the SDK, which is one file, and the files of a first
// module that uses it.
package guest

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

//go:embed go c rust assemblyscript shared
var files embed.FS

// language says where things are.
type language struct {
	folder string
	sdk    string // in folder, and where it goes in a module
	at     string
	source string // the first source of a module
}

var languages = map[string]language{
	"go":             {"go", "laya.go", "laya/laya.go", "main.go"},
	"c":              {"c", "laya.h", "laya.h", "policy.c"},
	"rust":           {"rust", "laya.rs", "laya.rs", "policy.rs"},
	"assemblyscript": {"assemblyscript", "laya.ts", "laya.ts", "policy.ts"},
}

// Languages returns the names of the languages, sorted.
func Languages() []string { return slices.Sorted(maps.Keys(languages)) }

// Files returns a first module of a name: its files by their path, with slashes.
func Files(lang, name string) (map[string][]byte, error) {
	l, ok := languages[lang]
	if !ok {
		return nil, fmt.Errorf("there is no SDK for %q: choose one of %s", lang, strings.Join(Languages(), ", "))
	}
	sdk, err := files.ReadFile(path.Join(l.folder, l.sdk))
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{l.at: sdk}
	fill := strings.NewReplacer("{{name}}", name, "{{source}}", l.source)
	for _, dir := range []string{"shared", path.Join(l.folder, "template")} {
		list, err := fs.ReadDir(files, dir)
		if err != nil {
			return nil, err
		}
		for _, f := range list {
			b, err := files.ReadFile(path.Join(dir, f.Name()))
			if err != nil {
				return nil, err
			}
			to := fill.Replace(strings.ReplaceAll(strings.TrimSuffix(f.Name(), ".tmpl"), "NAME", name))
			out[to] = append(out[to], fill.Replace(string(b))...)
		}
	}
	return out, nil
}
