package store

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"
)

var errStub = errors.ErrUnsupported

// People.

func (s *Store) CreatePerson(ctx context.Context, a Actor, p Person) (Person, error) {
	return p, errStub
}
func (s *Store) Person(ctx context.Context, a Actor, id string) (Person, error) {
	return Person{}, errStub
}
func (s *Store) PersonByName(ctx context.Context, a Actor, name string) (Person, error) {
	return Person{}, errStub
}
func (s *Store) People(ctx context.Context, a Actor) ([]Person, error) { return nil, errStub } // non-admin: only themself
// UpdatePerson: everything but ID and Created by an admin; the person itself may change only Name. The last active admin
// can be neither demoted, disabled, given an expiry nor deleted: ErrConflict.
func (s *Store) UpdatePerson(ctx context.Context, a Actor, p Person) error  { return errStub }
func (s *Store) DeletePerson(ctx context.Context, a Actor, id string) error { return errStub }

// Credentials.

func (s *Store) SetPassword(ctx context.Context, a Actor, person, phc string) error { return errStub } // "" removes
func (s *Store) Password(ctx context.Context, name string) (phc string, p Person, err error) {
	return "", Person{}, errStub
}
func (s *Store) AddPasskey(ctx context.Context, a Actor, k Passkey) error { return errStub }
func (s *Store) Passkeys(ctx context.Context, a Actor, person string) ([]Passkey, error) {
	return nil, errStub
}
func (s *Store) UpdatePasskey(ctx context.Context, a Actor, k Passkey) error { return errStub } // Credential, Name, Used
func (s *Store) DeletePasskey(ctx context.Context, a Actor, id string) error { return errStub }
func (s *Store) SetRecovery(ctx context.Context, a Actor, person string, hash [32]byte) error {
	return errStub
}
func (s *Store) Recovery(ctx context.Context, hash [32]byte) (Person, error) {
	return Person{}, errStub
}

// Logins.

func (s *Store) CreateLogin(ctx context.Context, hash [32]byte, l Login) (Login, error) {
	return l, errStub
}

// LoginByHash returns a login that has not expired, and its person whatever state that is in.
func (s *Store) LoginByHash(ctx context.Context, hash [32]byte) (Login, Person, error) {
	return Login{}, Person{}, errStub
}
func (s *Store) Logins(ctx context.Context, a Actor, person string) ([]Login, error) {
	return nil, errStub
}
func (s *Store) DeleteLogin(ctx context.Context, a Actor, id string) error        { return errStub }
func (s *Store) DeleteLoginsOf(ctx context.Context, a Actor, person string) error { return errStub }

// Invites.

func (s *Store) CreateInvite(ctx context.Context, a Actor, hash [32]byte, i Invite) (Invite, error) {
	return i, errStub
}
func (s *Store) Invites(ctx context.Context, a Actor) ([]Invite, error) { return nil, errStub }
func (s *Store) InviteByHash(ctx context.Context, hash [32]byte) (Invite, error) {
	return Invite{}, errStub
}

// TakeInvite uses an invite up and makes its person with all credentials, in one step.
func (s *Store) TakeInvite(ctx context.Context, hash [32]byte, n Newcomer) (Person, error) {
	return Person{}, errStub
}
func (s *Store) DeleteInvite(ctx context.Context, a Actor, id string) error { return errStub }

// Claim.

func (s *Store) Claimed(ctx context.Context) (bool, error) { return false, errStub }

// Claim makes the first admin; a second call is ErrConflict.
func (s *Store) Claim(ctx context.Context, r ClaimRequest) (Person, error) { return Person{}, errStub }

// Keys.

// CreateKey: Owner empty means the actor. Only admins make keys for others or admin keys.
func (s *Store) CreateKey(ctx context.Context, a Actor, k Key, hash [32]byte) (Key, error) {
	return k, errStub
}

// KeyByHash returns the key whatever state it is in, and its owner: ask Key.Active and Person.Active.
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (Key, Person, error) {
	return Key{}, Person{}, errStub
}
func (s *Store) Keys(ctx context.Context, a Actor) ([]Key, error)         { return nil, errStub }
func (s *Store) Key(ctx context.Context, a Actor, id string) (Key, error) { return Key{}, errStub }
func (s *Store) UpdateKey(ctx context.Context, a Actor, k Key) error      { return errStub }
func (s *Store) RevokeKey(ctx context.Context, a Actor, id string) error  { return errStub }
func (s *Store) DeleteKey(ctx context.Context, a Actor, id string) error  { return errStub }
func (s *Store) TouchKey(id string)                                       {} // queued

// Usage and the request log: queued, never block on the disk.

func (s *Store) AddUsage(u UsageRow) {}
func (s *Store) UsageTotals(ctx context.Context, a Actor, f UsageFilter) ([]UsageRow, error) {
	return nil, errStub
}
func (s *Store) TokensToday(ctx context.Context, key string) (int64, error) { return 0, errStub } // includes what is queued
func (s *Store) AddRequest(r RequestRow)                                    {}
func (s *Store) Requests(ctx context.Context, a Actor, f RequestFilter) ([]RequestRow, error) {
	return nil, errStub
} // without texts
func (s *Store) Request(ctx context.Context, a Actor, id string) (RequestRow, error) {
	return RequestRow{}, errStub
} // with texts
func (s *Store) DeleteRequests(ctx context.Context, a Actor, f RequestFilter) (int64, error) {
	return 0, errStub
}

// Audit.

func (s *Store) Audit(ctx context.Context, a Actor, action, target, detail string) error {
	return errStub
}
func (s *Store) AuditLog(ctx context.Context, a Actor, after int64, limit int) ([]AuditEntry, error) {
	return nil, errStub
}
func (s *Store) VerifyAudit(ctx context.Context) (entries int64, err error) { return 0, errStub }

// Settings.

func (s *Store) Setting(ctx context.Context, name string) (json.RawMessage, error) {
	return nil, errStub
}
func (s *Store) SetSetting(ctx context.Context, a Actor, name string, value json.RawMessage) error {
	return errStub
}

// Models. Everybody reads, admins write.

func (s *Store) PutModel(ctx context.Context, a Actor, m ModelRecord) error { return errStub }
func (s *Store) Model(ctx context.Context, name string) (ModelRecord, error) {
	return ModelRecord{}, errStub
}
func (s *Store) Models(ctx context.Context) ([]ModelRecord, error)           { return nil, errStub }
func (s *Store) DeleteModel(ctx context.Context, a Actor, name string) error { return errStub }

// Blobs.

func (s *Store) PutBlob(ctx context.Context, a Actor, r io.Reader) (hash string, size int64, err error) {
	return "", 0, errStub
}
func (s *Store) Blob(ctx context.Context, a Actor, hash string, w io.Writer) (int64, error) {
	return 0, errStub
}
func (s *Store) DeleteBlob(ctx context.Context, a Actor, hash string) error { return errStub }
func (s *Store) Scrub(ctx context.Context) (ScrubReport, error)             { return ScrubReport{}, errStub }
func (s *Store) LastScrub(ctx context.Context) (ScrubReport, error)         { return ScrubReport{}, errStub }

// Certificates.

func (s *Store) TLS() *TLS                                               { return &TLS{s: s} }
func (t *TLS) Store(ctx context.Context, key string, value []byte) error { return errStub }
func (t *TLS) Load(ctx context.Context, key string) ([]byte, error)      { return nil, errStub } // wraps fs.ErrNotExist
func (t *TLS) Delete(ctx context.Context, key string) error              { return errStub }
func (t *TLS) Exists(ctx context.Context, key string) bool               { return false }
func (t *TLS) List(ctx context.Context, prefix string, recursive bool) ([]string, error) {
	return nil, errStub
}
func (t *TLS) Stat(ctx context.Context, key string) (KeyInfo, error)  { return KeyInfo{}, errStub }
func (t *TLS) Lock(ctx context.Context, name string) error            { return errStub }
func (t *TLS) TryLock(ctx context.Context, name string) (bool, error) { return false, errStub }
func (t *TLS) Unlock(ctx context.Context, name string) error          { return errStub }
func (t *TLS) RenewLockLease(ctx context.Context, name string, lease time.Duration) error {
	return errStub
}

// Backups.

func (s *Store) Backup(ctx context.Context, a Actor, w io.Writer, o BackupOptions) (Manifest, error) {
	return Manifest{}, errStub
}

// BackupFile writes to a new file, reads it back, and only then gives it its name.
func (s *Store) BackupFile(ctx context.Context, a Actor, path string, o BackupOptions) (Manifest, error) {
	return Manifest{}, errStub
}
func (s *Store) ScheduleBackup(sch *Schedule) error { return errStub } // nil: none; Run does it
func (s *Store) BackupStatus() BackupStatus         { return BackupStatus{} }

// Restore writes the database of a backup into dir, which no store may have open.
func Restore(ctx context.Context, dir string, r io.Reader, o RestoreOptions) (Restored, error) {
	return Restored{}, errStub
}

// VerifyBackup reads a whole backup and checks every hash and the database; dir is where it may put a temporary copy.
func VerifyBackup(ctx context.Context, dir string, r io.Reader, o RestoreOptions) (Manifest, error) {
	return Manifest{}, errStub
}
