// Package oci writes container images: the program alone on an empty file system, as an OCI image layout in a tar file.
// The same input gives the same bytes.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Image is one program for one or more processors.
type Image struct {
	Version string
	Created time.Time // what every file and the image say
	Roots   []byte    // certificates of authorities in PEM, for what the program fetches
	Arches  []Arch
}

// Arch is the program for one processor.
type Arch struct {
	Name    string // as Go names it
	Program []byte
}

// User is the number of the user that the program runs as.
const User = 10001

// descriptor points to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// list is an index or a manifest.
type list struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

type settings struct {
	User         string              `json:"User"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts"`
	Env          []string            `json:"Env"`
	Entrypoint   []string            `json:"Entrypoint"`
	Cmd          []string            `json:"Cmd"`
	Volumes      map[string]struct{} `json:"Volumes"`
	WorkingDir   string              `json:"WorkingDir"`
	Labels       map[string]string   `json:"Labels"`
	StopSignal   string              `json:"StopSignal"`
}

type config struct {
	Created      string   `json:"created"`
	Architecture string   `json:"architecture"`
	OS           string   `json:"os"`
	Config       settings `json:"config"`
	RootFS       struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []struct {
		Created   string `json:"created"`
		CreatedBy string `json:"created_by"`
	} `json:"history"`
}

// The kinds of blobs.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// writer collects the blobs of a layout.
type writer struct {
	image Image
	tar   *tar.Writer
	known map[string]bool
}

// Write writes an image.
func Write(to io.Writer, image Image) error {
	if len(image.Arches) == 0 {
		return fmt.Errorf("an image needs a program")
	}
	w := &writer{image: image, tar: tar.NewWriter(to), known: map[string]bool{}}
	if err := w.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	index := list{SchemaVersion: 2, MediaType: typeIndex}
	for _, a := range image.Arches {
		d, err := w.arch(a)
		if err != nil {
			return fmt.Errorf("writing the image for %s: %w", a.Name, err)
		}
		index.Manifests = append(index.Manifests, d)
	}
	all, err := w.json(typeIndex, index)
	if err != nil {
		return err
	}
	all.Annotations = map[string]string{"org.opencontainers.image.ref.name": image.Version}
	top, err := json.Marshal(list{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{all}})
	if err != nil {
		return err
	}
	if err := w.file("index.json", top); err != nil {
		return err
	}
	return w.tar.Close()
}

// arch writes the image for one processor.
func (w *writer) arch(a Arch) (descriptor, error) {
	plain, err := w.layer(a)
	if err != nil {
		return descriptor{}, err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return descriptor{}, err
	}
	if _, err := z.Write(plain); err != nil {
		return descriptor{}, err
	}
	if err := z.Close(); err != nil {
		return descriptor{}, err
	}
	layer, err := w.blob(typeLayer, packed.Bytes())
	if err != nil {
		return descriptor{}, err
	}
	c, err := w.json(typeConfig, w.config(a.Name, digest(plain)))
	if err != nil {
		return descriptor{}, err
	}
	d, err := w.json(typeManifest, list{SchemaVersion: 2, MediaType: typeManifest, Config: &c, Layers: []descriptor{layer}})
	d.Platform = &platform{Architecture: a.Name, OS: "linux"}
	return d, err
}

// config is how the image runs.
func (w *writer) config(arch, diff string) config {
	at := w.image.Created.UTC().Format(time.RFC3339)
	c := config{Created: at, Architecture: arch, OS: "linux", Config: settings{
		User:         fmt.Sprintf("%d:%d", User, User),
		ExposedPorts: map[string]struct{}{"443/tcp": {}, "443/udp": {}, "80/tcp": {}},
		Env:          []string{"PATH=/usr/bin", "HOME=/state", "STATE_DIRECTORY=/state"},
		Entrypoint:   []string{"/usr/bin/1bit"}, Cmd: []string{"appliance"},
		Volumes: map[string]struct{}{"/state": {}}, WorkingDir: "/state", StopSignal: "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title":       "1bit",
			"org.opencontainers.image.description": "box that serves language models",
			"org.opencontainers.image.version":     w.image.Version,
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}}
	c.RootFS.Type, c.RootFS.DiffIDs = "layers", []string{diff}
	c.History = append(c.History, struct {
		Created   string `json:"created"`
		CreatedBy string `json:"created_by"`
	}{at, "make dist"})
	return c
}

// layer is the file system.
func (w *writer) layer(a Arch) ([]byte, error) {
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, f := range []struct {
		name  string
		mode  int64
		owner int
		text  []byte
	}{
		{"etc/", 0o755, 0, nil},
		{"etc/group", 0o644, 0, fmt.Appendf(nil, "root:x:0:\nonebit:x:%d:\n", User)},
		{"etc/passwd", 0o644, 0, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nonebit:x:%d:%d:1bit:/state:/sbin/nologin\n", User, User)},
		{"etc/ssl/", 0o755, 0, nil},
		{"etc/ssl/certs/", 0o755, 0, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, append([]byte{}, w.image.Roots...)},
		{"state/", 0o700, User, nil},
		{"tmp/", 0o1777, 0, nil},
		{"usr/", 0o755, 0, nil},
		{"usr/bin/", 0o755, 0, nil},
		{"usr/bin/1bit", 0o755, 0, a.Program},
	} {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.owner, Gid: f.owner, ModTime: w.image.Created, Typeflag: tar.TypeReg, Size: int64(len(f.text)), Format: tar.FormatUSTAR}
		if f.text == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := out.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// json writes a value as a blob.
func (w *writer) json(kind string, v any) (descriptor, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return w.blob(kind, b)
}

// blob writes bytes under their hash, once.
func (w *writer) blob(kind string, b []byte) (descriptor, error) {
	d := descriptor{MediaType: kind, Digest: digest(b), Size: len(b)}
	if w.known[d.Digest] {
		return d, nil
	}
	w.known[d.Digest] = true
	return d, w.file("blobs/sha256/"+d.Digest[len("sha256:"):], b)
}

// file writes a file of the layout.
func (w *writer) file(name string, b []byte) error {
	h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(b)), ModTime: w.image.Created, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
	if err := w.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	_, err := w.tar.Write(b)
	return err
}
