package store

import "time"

// BackupOptions says how a backup is locked and what goes in. Exactly one of Passphrase and Recipients is given.
type BackupOptions struct {
	Passphrase string
	Recipients []string          // "age1..."
	IncludeCA  bool              // also the local authority's private keys
	Files      map[string][]byte // further small files, such as the configuration, by plain name
}

// RestoreOptions says how a backup is opened. One of Passphrase and Identities is given.
type RestoreOptions struct {
	Passphrase string
	Identities []string // "AGE-SECRET-KEY-1..."
	Replace    bool     // set a database that is there aside instead of refusing
}

// Manifest is the table of contents of a backup.
type Manifest struct {
	Format     int             `json:"format"`
	Created    time.Time       `json:"created"`
	Schema     int             `json:"schema"`
	IncludesCA bool            `json:"includes_ca"`
	Audit      int64           `json:"audit_entries"`
	AuditHash  string          `json:"audit_hash"` // hex
	Files      []ManifestFile  `json:"files"`
	Models     []ManifestModel `json:"models"` // not in the backup: what to obtain again
}

// ManifestFile is one file of a backup.
type ManifestFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
}

// ManifestModel names a model that the box had.
type ManifestModel struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
	Source string `json:"source"`
}

// Restored is what a backup held beside the database.
type Restored struct {
	Manifest Manifest
	Files    map[string][]byte
	SetAside string // where the database that was there is now; empty: there was none
}

// Schedule writes a backup to a folder every now and then.
type Schedule struct {
	Folder  string        // must exist: a drive that is not there is an error, not a new folder
	Every   time.Duration // at least an hour
	Keep    int           // the newest so many stay; 0: 7
	Options BackupOptions
}

// BackupStatus is how the schedule is doing.
type BackupStatus struct {
	Last    time.Time // of the last good backup in the folder; zero: none
	Path    string
	Tried   time.Time
	Problem string // why the last try failed; empty: it did not
}
