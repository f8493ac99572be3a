package store

import "time"

// ScrubReport is what a scrub found.
type ScrubReport struct {
	Time     time.Time `json:"time"`
	Blobs    int       `json:"blobs"`
	Bytes    int64     `json:"bytes"`
	Damaged  []string  `json:"damaged"`  // hashes of the blobs whose content has changed
	Problems []string  `json:"problems"` // what the check of the file's structure and of the audit chain said
}
