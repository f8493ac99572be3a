package worker

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"onebit/extensions/host"
)

// Files of modules below one directory:
//
//	modules/<sha256>.wasm                what was uploaded; the name is its hash
//	compiled/<sha256>/metered-N.wasm     the rewritten module, by the version of the rewrite
//	compiled/<sha256>/code/…             machine code: see host.CacheDir
//
// A child that prepares a module may write to the module's own folder below compiled and to nothing else; a worker reads
// there alone. So what a hostile module could do to its compiler stays with that module.
const (
	modulesDir  = "modules"
	compiledDir = "compiled"
	codeDir     = "code"
	unfinished  = "unfinished-*"
)

// rewriteVersion counts the changes of what package meter writes. A test notices them.
const rewriteVersion = 1

// ErrTooLarge says that an upload has more bytes than it may.
var ErrTooLarge = errors.New("the file is too large")

// ErrHash says that an upload is not what its hash says.
var ErrHash = errors.New("the file does not have the SHA-256 that was named")

// Add copies a module into dir and returns its hash. want is the hash that it must have; empty for any. A file that is
// there already is kept. What is over most bytes is ErrTooLarge.
func Add(dir string, r io.Reader, most int64, want string) (hash string, err error) {
	folder := filepath.Join(dir, modulesDir)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", fmt.Errorf("keeping a module: %w", err)
	}
	f, err := os.CreateTemp(folder, unfinished)
	if err != nil {
		return "", fmt.Errorf("keeping a module: %w", err)
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), io.LimitReader(r, most+1))
	if err != nil {
		return "", fmt.Errorf("receiving a module: %w", err)
	}
	if n > most {
		return "", fmt.Errorf("%w: at most %d bytes", ErrTooLarge, most)
	}
	hash = hex.EncodeToString(h.Sum(nil))
	if want != "" && want != hash {
		return "", fmt.Errorf("%w: it has %s", ErrHash, hash)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return "", fmt.Errorf("keeping a module: %w", err)
	}
	if err := os.Rename(f.Name(), ModulePath(dir, hash)); err != nil {
		return "", fmt.Errorf("keeping a module: %w", err)
	}
	return hash, nil
}

// Remove removes a module and all that was made of it. No worker of it may run.
func Remove(dir, hash string) error {
	if err := checkHash(hash); err != nil {
		return err
	}
	err := os.Remove(ModulePath(dir, hash))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err := errors.Join(err, os.RemoveAll(compiledPath(dir, hash))); err != nil {
		return fmt.Errorf("removing a module: %w", err)
	}
	return nil
}

// ModulePath is where the module of a hash lies.
func ModulePath(dir, hash string) string { return filepath.Join(dir, modulesDir, hash+".wasm") }

func compiledPath(dir, hash string) string { return filepath.Join(dir, compiledDir, hash) }

func meteredPath(dir, hash string) string {
	return filepath.Join(compiledPath(dir, hash), "metered-"+strconv.Itoa(rewriteVersion)+".wasm")
}

// tidy makes a module's folder and removes what an earlier child left unfinished.
func tidy(dir, hash string) error {
	folder := compiledPath(dir, hash)
	if err := os.MkdirAll(filepath.Join(folder, codeDir), 0o700); err != nil {
		return err
	}
	left, err := filepath.Glob(filepath.Join(folder, unfinished))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// sweep removes what other versions of the program, or other machines, made of a module.
func sweep(dir, hash string) error {
	old, err := filepath.Glob(filepath.Join(compiledPath(dir, hash), "metered-*.wasm"))
	for _, path := range old {
		if path != meteredPath(dir, hash) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return errors.Join(err, host.Sweep(filepath.Join(compiledPath(dir, hash), codeDir)))
}

// checkHash keeps names of files from being anything else.
func checkHash(hash string) error {
	b, err := hex.DecodeString(hash)
	if err != nil || len(b) != sha256.Size || hex.EncodeToString(b) != hash {
		return fmt.Errorf("%q is not a SHA-256 in hexadecimal digits", cut(hash, 80))
	}
	return nil
}

// readFile reads a file of at most most bytes.
func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%w: at most %d bytes", ErrTooLarge, most)
	}
	return b, err
}
