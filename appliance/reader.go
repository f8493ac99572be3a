package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"onebit/engine/sandbox"
	"onebit/store/documents/extract"
)

// readerCommand is the hidden sub-command that reads one document from its standard input:
//
//	document-reader CACHE NAME    write what it holds to the standard output
//	document-reader CACHE         compile the reader of PDF into the folder CACHE, for those that come after
const readerCommand = "document-reader"

// readDocument is `1bit document-reader`. It gives its rights away before it looks at a byte: no sockets, no processes,
// no files but the compiled reader's.
func (p program) readDocument(ctx context.Context, args []string) int {
	if len(args) < 1 || len(args) > 2 {
		return 2
	}
	ctx = extract.WithCache(ctx, args[0])
	seal := sandbox.Seal{Read: []string{args[0]}}
	if len(args) == 1 {
		seal = sandbox.Seal{Write: []string{args[0]}}
	}
	limitReader()
	if err := seal.Close(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		fmt.Fprintln(p.stderr, "confining the reader:", err)
		return 1
	}
	var err error
	if len(args) == 1 {
		err = extract.Warm(ctx)
	} else {
		err = extract.Child(ctx, os.Stdin, p.stdout, extract.FileName(args[1]))
	}
	if err != nil {
		fmt.Fprintln(p.stderr, err)
		return 1
	}
	return 0
}
