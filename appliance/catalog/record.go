package catalog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"onebit/appliance/record"
)

// recordFile lies beside a pulled model and describes it.
const recordFile = "model.json"

// maxRecord bounds a record, in bytes.
const maxRecord = 1 << 20

// formats are those of a model's record:
//
//	1  without a number
//	2  with its number
var formats = record.Ladder{record.Same}

// readRecord reads and checks the description of a model.
func readRecord(path string) (Model, error) {
	b, err := readSmall(path)
	if err != nil {
		return Model{}, err
	}
	return ParseRecord(b)
}

// readSmall reads a file as far as its reader will look at it.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxRecord+1))
}

// ParseRecord reads the description of a model. Its files stay in its folder, or are whole paths.
func ParseRecord(b []byte) (Model, error) {
	var m Model
	if len(b) > maxRecord {
		return m, errors.New("it is too long")
	}
	if err := formats.Read(b, &m); err != nil {
		return m, err
	}
	if err := CheckName(m.Name); err != nil {
		return m, err
	}
	if len(m.Files) == 0 {
		return m, errors.New("it names no file")
	}
	for _, f := range m.Files {
		if filepath.IsAbs(f.Path) != filepath.IsAbs(m.Files[0].Path) {
			return m, errors.New("some of its files are elsewhere")
		}
		if !filepath.IsAbs(f.Path) {
			if err := local(f.Path); err != nil {
				return m, err
			}
		}
		if f.Size < 0 || (f.SHA256 != "" && !sha256Hex.MatchString(f.SHA256)) {
			return m, fmt.Errorf("size and hash of %q make no sense", f.Path)
		}
	}
	return m, nil
}

// writeRecord writes the description of a model into its folder. One of a newer program stays as it is.
func writeRecord(dir string, m Model) error {
	if err := tooNew(dir); err != nil {
		return err
	}
	b, err := formats.Write(m)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, recordFile), b)
}

// tooNew returns record.ErrNewer for a folder whose record a newer program has written.
func tooNew(dir string) error {
	path := filepath.Join(dir, recordFile)
	if _, err := readRecord(path); errors.Is(err, record.ErrNewer) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
