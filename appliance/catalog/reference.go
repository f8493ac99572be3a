package catalog

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Reference says which model is wanted.
type Reference struct {
	Entry    *Entry // of the catalogue
	Repo     string // of a hub: owner/name
	Quant    string // such as Q4_K_M; picks one of the repository's models
	Revision string // branch, tag or commit; "" is the newest
	URL      string // of one file
}

var (
	repoName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
	quantName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	revisionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)
	modelName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// ParseReference reads what a user typed: a name of the catalogue, owner/name of a hub repository with :QUANT and
// @REVISION where wanted, or the URL of a file. Nothing of it is a path.
func ParseReference(s string) (Reference, error) {
	if e, ok := Find(s); ok {
		return Reference{Entry: &e}, nil
	}
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || path.Base(u.Path) == "." || path.Base(u.Path) == "/" {
			return Reference{}, fmt.Errorf("%q is no URL of a file", withoutQuery(s))
		}
		return Reference{URL: s}, nil
	}
	r := Reference{}
	rest := s
	if before, after, ok := strings.Cut(rest, "@"); ok {
		rest, r.Revision = before, after
		if !revisionName.MatchString(after) || strings.Contains(after, "..") {
			return Reference{}, fmt.Errorf("%q is no revision: a branch, a tag or a commit is wanted", after)
		}
	}
	if before, after, ok := strings.Cut(rest, ":"); ok {
		rest, r.Quant = before, after
		if !quantName.MatchString(after) {
			return Reference{}, fmt.Errorf("%q is no quantisation such as Q4_K_M", after)
		}
	}
	if !repoName.MatchString(rest) || strings.Contains(rest, "..") {
		return Reference{}, fmt.Errorf("no model is called %q; known are %s; or give owner/name of a hub repository, or the URL of a file", s, Names())
	}
	r.Repo = rest
	return r, nil
}

// withoutQuery cuts what may be secret from a URL.
func withoutQuery(s string) string {
	s, _, _ = strings.Cut(s, "?")
	return s
}

// CheckName returns an error when a name of a model is none: it stands for itself and never for a path.
func CheckName(s string) error {
	if !modelName.MatchString(s) || strings.Contains(s, "..") {
		return fmt.Errorf("%q is no name: letters, digits, points, dashes and underscores are wanted, at most 128", s)
	}
	return nil
}

// local returns an error when a path that somebody else named does not stay where it is put.
func local(p string) error {
	switch {
	case p == "" || len(p) > 512 || !filepath.IsLocal(filepath.FromSlash(p)) || path.Clean(p) != p:
		return fmt.Errorf("the path %q leads elsewhere", p)
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' || r == ':' }):
		return fmt.Errorf("the path %q has signs that no model's file has", p)
	case strings.HasSuffix(p, ".partial") || strings.HasSuffix(p, ".ok") || path.Base(p) == recordFile:
		return fmt.Errorf("the path %q is one of our own names", p)
	}
	return nil
}

// shardName takes the name of one part of a split model apart.
var shardName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// stem is the name that a model gets by its main file.
func stem(file string) string {
	base := path.Base(filepath.ToSlash(file))
	if m := shardName.FindStringSubmatch(base); m != nil {
		return m[1]
	}
	return strings.TrimSuffix(base, ".gguf")
}

// errNoFile says that there is nothing to choose from.
var errNoFile = errors.New("it has no GGUF file")
