// Command write makes the container image of a release:
//
//	write -version V -epoch SECONDS -o FILE ARCH=PROGRAM...
package main

import (
	"encoding/pem"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"onebit/appliance/package/oci"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "write:", err)
		os.Exit(1)
	}
}

func run() error {
	version := flag.String("version", "dev", "what the image is called")
	epoch := flag.Int64("epoch", 0, "when it was made, in seconds")
	out := flag.String("o", "", "the file to write")
	flag.Parse()
	image := oci.Image{Version: *version, Created: time.Unix(*epoch, 0).UTC()}
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a plain file cannot say for what alone an authority is trusted
			image.Roots = append(image.Roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
		}
	}
	for _, word := range flag.Args() {
		arch, path, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=PROGRAM", word)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		image.Arches = append(image.Arches, oci.Arch{Name: arch, Program: b})
	}
	f, err := os.Create(*out)
	if err != nil {
		return err
	}
	if err := oci.Write(f, image); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
