package extract

import (
	"fmt"
	"strings"
)

// Budget bounds what reading one document may take.
type Budget struct {
	Input    int64 // bytes of the file
	Parts    int   // files in a packed file
	Expanded int64 // bytes of all parts that are read, unpacked
	Ratio    int64 // bytes unpacked for a packed one, in parts over 1 MiB
	Depth    int   // elements inside elements
	Text     int64 // bytes of text taken out
	Pages    int
}

// Default returns the budget for a document of a stranger.
func Default() Budget {
	return Budget{Input: 64 << 20, Parts: 5000, Expanded: 256 << 20, Ratio: 200, Depth: 256, Text: 32 << 20, Pages: 10_000}
}

// Error says why a document cannot be read, and what whoever sent it can do.
type Error struct {
	Reason string `json:"reason"`
	Remedy string `json:"remedy,omitempty"`
}

func (e *Error) Error() string {
	if e.Remedy == "" {
		return e.Reason
	}
	return e.Reason + "; " + e.Remedy
}

// maxReason is the longest reason, in bytes.
const maxReason = 300

// refuse says why a file is not read, on one line: what a reader says when it breaks may go on with its stack.
func refuse(remedy, format string, args ...any) *Error {
	reason, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n")
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	return &Error{Reason: strings.TrimSuffix(reason, " (recovered by wazero)"), Remedy: remedy}
}

// Remedies that several formats share.
const (
	splitIt = "split it into smaller files"
	saveIt  = "open it in the program that made it and save it again"
	unlock  = "save it without a password"
)
