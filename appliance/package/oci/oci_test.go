package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"onebit/appliance/package/oci"
)

var image = oci.Image{
	Version: "v1.2.3", Roots: []byte("roots"), Created: time.Unix(1800000000, 0),
	Arches: []oci.Arch{{Name: "amd64", Program: []byte("one program")}, {Name: "arm64", Program: []byte("another program")}},
}

func write(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := oci.Write(&b, image); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// untar reads a tar file whole.
func untar(t *testing.T, r io.Reader) (files map[string][]byte, heads map[string]*tar.Header) {
	t.Helper()
	files, heads = map[string][]byte{}, map[string]*tar.Header{}
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, heads
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := files[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		files[h.Name], heads[h.Name] = b, h
	}
}

type descriptor struct {
	MediaType, Digest string
	Size              int
	Platform          struct{ Architecture, OS string }
	Annotations       map[string]string
}

// blob reads what a descriptor points to and holds it to its word.
func blob(t *testing.T, files map[string][]byte, d descriptor, into any) []byte {
	t.Helper()
	hash, ok := strings.CutPrefix(d.Digest, "sha256:")
	b, there := files["blobs/sha256/"+hash]
	sum := sha256.Sum256(b)
	if !ok || !there || len(b) != d.Size || hex.EncodeToString(sum[:]) != hash {
		t.Fatalf("%s: %d bytes of %d, there %v", d.Digest, len(b), d.Size, there)
	}
	if into != nil {
		if err := json.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestImageReadsBack(t *testing.T) {
	files, _ := untar(t, bytes.NewReader(write(t)))
	if got := string(files["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("the layout is %s", got)
	}
	var top, all struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1.2.3" {
		t.Fatalf("%+v, %v", top, err)
	}
	blob(t, files, top.Manifests[0], &all)
	if len(all.Manifests) != len(image.Arches) {
		t.Fatalf("%d images", len(all.Manifests))
	}
	used := 3 // oci-layout, index.json, the index
	for i, m := range all.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		blob(t, files, m, &manifest)
		var config struct {
			Architecture, OS string
			Config           struct {
				User            string
				Entrypoint, Cmd []string
				Volumes         map[string]struct{}
				ExposedPorts    map[string]struct{}
				Labels          map[string]string
			}
			RootFS struct {
				DiffIDs []string `json:"diff_ids"`
			}
		}
		blob(t, files, manifest.Config, &config)
		a := image.Arches[i]
		if m.Platform.Architecture != a.Name || config.Architecture != a.Name || config.OS != "linux" || config.Config.User != "10001:10001" || len(config.Config.Volumes) != 1 || len(config.Config.ExposedPorts) != 3 || config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" {
			t.Errorf("%s: %+v", a.Name, config)
		}
		z, err := gzip.NewReader(bytes.NewReader(blob(t, files, manifest.Layers[0], nil)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(plain)
		if len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
			t.Errorf("the layer is not %v", config.RootFS.DiffIDs)
		}
		root, heads := untar(t, bytes.NewReader(plain))
		if !bytes.Equal(root["usr/bin/1bit"], a.Program) || heads["usr/bin/1bit"].Mode != 0o755 || !strings.Contains(string(root["etc/passwd"]), "onebit:x:10001:") {
			t.Errorf("%s: the program is %q", a.Name, root["usr/bin/1bit"])
		}
		if string(root["etc/ssl/certs/ca-certificates.crt"]) != "roots" {
			t.Error("the authorities are missing")
		}
		if s := heads["state/"]; s == nil || s.Uid != oci.User || s.Mode != 0o700 {
			t.Errorf("the state: %+v", s)
		}
		used += 3
	}
	if len(files) != used {
		t.Errorf("%d files, %d are used", len(files), used)
	}
}

func TestImageIsTheSameAgain(t *testing.T) {
	if !bytes.Equal(write(t), write(t)) {
		t.Error("two images of the same input differ")
	}
	if err := oci.Write(io.Discard, oci.Image{}); err == nil {
		t.Error("an image without a program was written")
	}
}
