package extract

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/xuri/excelize/v2"
)

// readSheets reads XLSX: each sheet a page, with its name as heading and its
// rows as they are shown.
func readSheets(ctx context.Context, b *builder, content []byte) error {
	z, err := b.unpack(content) // counts parts and looks for bombs before the library unpacks
	if err != nil {
		return err
	}
	for name := range z.files {
		if strings.HasSuffix(name, ".xml") {
			part, err := z.read(name)
			if err != nil {
				return err
			}
			if bytes.Contains(part, []byte("<!DOCTYPE")) {
				return refuse("", "its XML declares a document type, which is not read")
			}
		}
	}
	f, err := excelize.OpenReader(bytes.NewReader(content), excelize.Options{
		// the same, so that nothing is written to a temporary file
		UnzipSizeLimit: b.budget.Expanded, UnzipXMLSizeLimit: b.budget.Expanded,
	})
	if err != nil {
		if errors.Is(err, excelize.ErrWorkbookPassword) || errors.Is(err, excelize.ErrWorkbookFileFormat) {
			return refuse(unlock, "it is locked or no workbook: %v", err)
		}
		return refuse(saveIt, "it cannot be read: %v", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	sheets := f.GetSheetList()
	b.doc.Pages = len(sheets)
	for i, name := range sheets {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.sheet(f, name, i+1); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) sheet(f *excelize.File, name string, number int) error {
	if visible, err := f.GetSheetVisible(name); err == nil && !visible {
		return nil
	}
	rows, err := f.Rows(name)
	if err != nil {
		return refuse(saveIt, "its sheet %q cannot be read: %v", name, err)
	}
	defer rows.Close() //nolint:errcheck // nothing was written
	var t strings.Builder
	for rows.Next() {
		cells, err := rows.Columns()
		if err != nil {
			return refuse(saveIt, "its sheet %q cannot be read: %v", name, err)
		}
		if r := row(cells); r != "" {
			t.WriteString(r + "\n")
		}
		if int64(t.Len()) > b.budget.Text {
			return refuse(splitIt, "it holds more than %d MiB of text", b.budget.Text>>20)
		}
	}
	if err := rows.Error(); err != nil {
		return refuse(saveIt, "its sheet %q cannot be read: %v", name, err)
	}
	if t.Len() == 0 {
		return nil
	}
	if err := b.add(Heading, 1, name, number); err != nil {
		return err
	}
	return b.add(Table, 0, t.String(), number)
}
