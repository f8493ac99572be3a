package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Place is a folder of another program, or any folder of model files. It is never written to.
type Place struct {
	Kind string // Ollama, LMStudio, HubCache or Folder
	Dir  string
}

// Kinds of places.
const (
	Ollama   = "ollama"    // manifests and blobs, named by their digests
	LMStudio = "lm-studio" // publisher/repository/file
	HubCache = "hub-cache" // snapshots that link to blobs, named by their digests
	Folder   = "folder"    // files
)

// PlacesFromEnv returns where other programs keep their models, as far as such folders are there: by the variables
// that they read, and else in the user's home.
func PlacesFromEnv(getenv func(string) string, home string) []Place {
	under := func(parts ...string) string {
		if home == "" {
			return ""
		}
		return filepath.Join(append([]string{home}, parts...)...)
	}
	hub := getenv("HF_HUB_CACHE")
	if hub == "" && getenv("HF_HOME") != "" {
		hub = filepath.Join(getenv("HF_HOME"), "hub")
	}
	var out []Place
	for _, p := range []Place{
		{Ollama, getenv("OLLAMA_MODELS")},
		{Ollama, under(".ollama", "models")},
		{Ollama, "/usr/share/ollama/.ollama/models"},
		{LMStudio, under(".lmstudio", "models")},
		{LMStudio, under(".cache", "lm-studio", "models")},
		{HubCache, hub},
		{HubCache, under(".cache", "huggingface", "hub")},
	} {
		info, err := os.Stat(p.Dir)
		if p.Dir != "" && err == nil && info.IsDir() && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// Bounds on what is looked at in a foreign folder.
const (
	maxFound  = 2000
	maxLevels = 8
)

// models lists the models of a place.
func (p Place) models() ([]Model, error) {
	var out []Model
	var err error
	switch p.Kind {
	case Ollama:
		out, err = p.ollama()
	case HubCache:
		out, err = p.files(filepath.Join("models--*", "snapshots", "*"))
	default:
		out, err = p.files("")
	}
	if err != nil {
		return out, fmt.Errorf("looking at the models of %s in %s: %w", p.Kind, p.Dir, err)
	}
	slices.SortStableFunc(out, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// files lists the GGUF files below the folders that a pattern names. Shards are one model; what belongs to a model but
// is none is left out.
func (p Place) files(pattern string) ([]Model, error) {
	roots := []string{p.Dir}
	if pattern != "" {
		var err error
		if roots, err = filepath.Glob(filepath.Join(escapeGlob(p.Dir), pattern)); err != nil {
			return nil, err
		}
	}
	found := map[string]Model{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil && path == root:
				return err
			case err != nil:
				return nil //nolint:nilerr // one folder that cannot be read does not hide the others
			case d.IsDir() && strings.Count(strings.TrimPrefix(path, root), string(filepath.Separator)) > maxLevels:
				return fs.SkipDir
			case len(found) >= maxFound:
				return fs.SkipAll
			}
			if !d.IsDir() && strings.HasSuffix(d.Name(), ".gguf") && !companion(d.Name()) {
				p.take(found, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	var out []Model
	for _, m := range found {
		slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
		if names, err := parts(m.Files[0].Path); err == nil && len(names) == len(m.Files) {
			out = append(out, m)
		}
	}
	return out, nil
}

// take adds one file to what was found.
func (p Place) take(found map[string]Model, path string) {
	info, err := os.Stat(path) // behind links
	if err != nil || !info.Mode().IsRegular() {
		return
	}
	key := filepath.Join(filepath.Dir(path), stem(path))
	m, ok := found[key]
	if !ok {
		m = Model{Name: stem(path), Kind: p.Kind, Added: info.ModTime()}
		if rel, err := filepath.Rel(p.Dir, path); err == nil {
			m.Source = source(p.Kind, filepath.ToSlash(rel))
		}
	}
	m.Files = append(m.Files, File{Path: path, Size: info.Size(), SHA256: digestOfLink(path)})
	found[key] = m
}

// source names the repository that a path of a place speaks of.
func source(kind, rel string) string {
	parts := strings.Split(rel, "/")
	switch {
	case kind == HubCache && len(parts) > 3:
		name := strings.ReplaceAll(strings.TrimPrefix(parts[0], "models--"), "--", "/")
		return name + "@" + parts[2]
	case kind == LMStudio && len(parts) > 2:
		return parts[0] + "/" + parts[1]
	}
	return ""
}

// digestOfLink returns the digest that a link's target is named by, "" when it is not.
func digestOfLink(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	if base := filepath.Base(target); sha256Hex.MatchString(base) {
		return base
	}
	return ""
}

var ollamaDigest = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)

// ollamaLayers are the media types of a model's own file and of its projector.
const (
	ollamaModel     = "application/vnd.ollama.image.model"
	ollamaProjector = "application/vnd.ollama.image.projector"
)

// ollama lists the models that manifests describe: manifests/HOST/NAMESPACE/NAME/TAG.
func (p Place) ollama() ([]Model, error) {
	root := filepath.Join(p.Dir, "manifests")
	if !exists(root) {
		return nil, nil
	}
	var out []Model
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && path == root:
			return err
		case err != nil || d.IsDir() || !d.Type().IsRegular():
			return nil //nolint:nilerr // one folder that cannot be read does not hide the others
		case len(out) >= maxFound:
			return fs.SkipAll
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil //nolint:nilerr // it is below root
		}
		if m, err := p.manifest(path, filepath.ToSlash(rel)); err == nil {
			out = append(out, m)
		}
		return nil
	})
	return out, err
}

// manifest reads the description of one model.
func (p Place) manifest(path, rel string) (Model, error) {
	b, err := readSmall(path)
	if err != nil {
		return Model{}, err
	}
	files, err := ParseManifest(b)
	if err != nil {
		return Model{}, err
	}
	parts := strings.Split(rel, "/")
	if len(parts) < 2 {
		return Model{}, errors.New("it lies in no model's folder")
	}
	m := Model{Name: strings.Join(parts[len(parts)-2:], ":"), Source: strings.TrimPrefix(rel, "registry.ollama.ai/"), Kind: Ollama}
	for _, one := range files {
		one.Path = filepath.Join(p.Dir, "blobs", "sha256-"+one.SHA256)
		info, err := os.Stat(one.Path)
		if err != nil || info.Size() != one.Size {
			return Model{}, fmt.Errorf("its blob %s is not whole", one.SHA256)
		}
		m.Added = info.ModTime()
		m.Files = append(m.Files, one)
	}
	return m, nil
}

// ParseManifest reads which blobs a model of Ollama's consists of: the model, and its projector where it has one. Paths
// are left empty.
func ParseManifest(b []byte) ([]File, error) {
	var in struct {
		Layers []struct {
			MediaType string `json:"mediaType"`
			Digest    string `json:"digest"`
			Size      int64  `json:"size"`
		} `json:"layers"`
	}
	if len(b) > maxRecord {
		return nil, errors.New("it is too long")
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, err
	}
	var out []File
	for _, want := range []string{ollamaModel, ollamaProjector} {
		for _, l := range in.Layers {
			if l.MediaType != want {
				continue
			}
			m := ollamaDigest.FindStringSubmatch(l.Digest)
			if m == nil || l.Size <= 0 || l.Size > maxFile {
				return nil, fmt.Errorf("digest %.80q and size %d make no sense", l.Digest, l.Size)
			}
			out = append(out, File{Size: l.Size, SHA256: m[1]})
		}
		if len(out) == 0 {
			return nil, errors.New("it has no model")
		}
	}
	return out, nil
}
