package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"onebit/store"
)

const passphrase = "correct horse battery"

// box is a store with a bit of everything in it, and secrets to look for.
func box(t *testing.T) (*fixture, string) {
	t.Helper()
	f, ctx := open(t, t.TempDir()), t.Context()
	f.claim()
	a, _ := f.furnish("A")
	f.must(f.SetSetting(ctx, store.System(), "box.name", json.RawMessage(`"den"`)))
	f.must(f.PutModel(ctx, store.System(), store.ModelRecord{ID: "qwen", Path: "/models/qwen.gguf", Digest: "sha256:aa", Size: 7, Source: "hub"}))
	f.must(f.TLS().Store(ctx, store.PrivateCAPrefix+"root.key", []byte("canary-of-the-root")))
	f.must(f.TLS().Store(ctx, "certificates/leaf.key", []byte("canary-of-a-leaf")))
	return f, a.Person
}

func (f *fixture) backup(o store.BackupOptions) ([]byte, store.Manifest) {
	f.t.Helper()
	var b bytes.Buffer
	m, err := f.Backup(f.t.Context(), store.System(), &b, o)
	f.must(err)
	return b.Bytes(), m
}

func TestBackupAndRestore(t *testing.T) {
	f, person := box(t)
	ctx := t.Context()
	blob, m := f.backup(store.BackupOptions{Passphrase: passphrase, Files: map[string][]byte{"box.yaml": []byte("name: den\n")}})
	if m.Schema != 1005 || m.Audit == 0 || len(m.AuditHash) != 64 || m.IncludesCA || !m.Created.Equal(f.clock.Now()) {
		t.Errorf("%+v", m)
	}
	same(t, len(m.Models), 1)
	same(t, m.Models[0].Digest, "sha256:aa")
	for _, secret := range []string{"canary", "$phc", "SQLite format 3", "den"} {
		if bytes.Contains(blob, []byte(secret)) {
			t.Errorf("%q can be read in the backup", secret)
		}
	}
	f.clock.add(time.Hour)
	f.person("Late", store.RoleMember)

	dir := filepath.Join(t.TempDir(), "new")
	got, err := store.Restore(ctx, dir, bytes.NewReader(blob), store.RestoreOptions{Passphrase: passphrase})
	f.must(err)
	same(t, got.Manifest, m)
	same(t, got.Files, map[string][]byte{"box.yaml": []byte("name: den\n")})
	same(t, got.SetAside, "")

	g := open(t, dir)
	if g.Degraded() != nil {
		t.Error("a restored box is not a degraded one")
	}
	same(t, len(g.all()), 2) // not Late
	k, p, err := g.KeyByHash(ctx, hashOf("key A"))
	g.must(err)
	same(t, []string{k.Name, p.ID}, []string{"A", person})
	phc, _, err := g.Password(ctx, "a")
	g.must(err)
	same(t, phc, "$phc A")
	_, _, err = g.LoginByHash(ctx, hashOf("login A"))
	wantErr(t, err, store.ErrNotFound) // a backup holds no logins
	v, err := g.TLS().Load(ctx, "certificates/leaf.key")
	g.must(err)
	same(t, string(v), "canary-of-a-leaf")
	same(t, g.TLS().Exists(ctx, store.PrivateCAPrefix+"root.key"), false)
	n, err := g.VerifyAudit(ctx)
	g.must(err)
	same(t, n, m.Audit)
	g.must(g.Close())
	for name, b := range readAll(t, dir) {
		if bytes.Contains(b, []byte("canary-of-the-root")) {
			t.Errorf("%s holds the root key", name)
		}
	}
}

func TestBackupWithRootKeyForARecipient(t *testing.T) {
	f, _ := box(t)
	ctx := t.Context()
	id, err := age.GenerateX25519Identity()
	f.must(err)
	blob, m := f.backup(store.BackupOptions{Recipients: []string{id.Recipient().String()}, IncludeCA: true})
	same(t, m.IncludesCA, true)
	dir := t.TempDir()
	_, err = store.Restore(ctx, dir, bytes.NewReader(blob), store.RestoreOptions{Identities: []string{id.String()}})
	f.must(err)
	v, err := open(t, dir).TLS().Load(ctx, store.PrivateCAPrefix+"root.key")
	f.must(err)
	same(t, string(v), "canary-of-the-root")
}

func TestBackupOptions(t *testing.T) {
	f, _ := box(t)
	for name, o := range map[string]store.BackupOptions{
		"no lock":       {},
		"two locks":     {Passphrase: passphrase, Recipients: []string{"age1"}},
		"short":         {Passphrase: "1234567"},
		"bad recipient": {Recipients: []string{"age1nonsense"}},
		"bad name":      {Passphrase: passphrase, Files: map[string][]byte{"../x": nil}},
		"big file":      {Passphrase: passphrase, Files: map[string][]byte{"x": make([]byte, 5<<20)}},
	} {
		var b bytes.Buffer
		if _, err := f.Backup(t.Context(), store.System(), &b, o); !errors.Is(err, store.ErrInvalid) || b.Len() > 0 {
			t.Errorf("%s: %v, and %d bytes were written", name, err, b.Len())
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	f, _ := box(t)
	ctx := t.Context()
	blob, _ := f.backup(store.BackupOptions{Passphrase: passphrase})
	right := store.RestoreOptions{Passphrase: passphrase}
	other, err := age.GenerateX25519Identity()
	f.must(err)

	_, err = store.Restore(ctx, f.dir, bytes.NewReader(blob), right)
	wantErr(t, err, store.ErrLocked)

	dir := t.TempDir()
	for name, tt := range map[string]struct {
		data []byte
		o    store.RestoreOptions
		want error
	}{
		"wrong passphrase":  {blob, store.RestoreOptions{Passphrase: "wrong horse battery"}, store.ErrPassword},
		"wrong identity":    {blob, store.RestoreOptions{Identities: []string{other.String()}}, store.ErrPassword},
		"no key":            {blob, store.RestoreOptions{}, store.ErrPassword},
		"nonsense identity": {blob, store.RestoreOptions{Identities: []string{"AGE-SECRET-KEY-1X"}}, store.ErrInvalid},
		"not a backup":      {[]byte("hello"), right, store.ErrCorrupt},
		"nothing":           {nil, right, store.ErrCorrupt},
		"cut off":           {blob[:len(blob)-100], right, store.ErrCorrupt},
		"cut in half":       {blob[:len(blob)/2], right, store.ErrCorrupt},
		"cut after a chunk": {blob[:len(blob)/65552*65552], right, store.ErrCorrupt},
		"a bit flipped":     {flip(blob, len(blob)*2/3), right, store.ErrCorrupt},
		"the last bit":      {flip(blob, len(blob)-1), right, store.ErrCorrupt},
		"more behind":       {append(bytes.Clone(blob), 'x'), right, store.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := store.Restore(ctx, dir, bytes.NewReader(tt.data), tt.o)
			wantErr(t, err, tt.want)
			if strings.Contains(err.Error(), "1X") {
				t.Errorf("the error repeats a secret: %v", err)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) != 1 || left[0].Name() != "1bit.lock" {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

func TestRestoreInPlaceOfAnother(t *testing.T) {
	f, _ := box(t)
	ctx := t.Context()
	blob, _ := f.backup(store.BackupOptions{Passphrase: passphrase})
	g := open(t, t.TempDir())
	g.claim()
	g.person("Other", store.RoleMember)
	g.must(g.Snapshot(ctx))
	g.must(g.Close())
	o := store.RestoreOptions{Passphrase: passphrase}
	_, err := store.Restore(ctx, g.dir, bytes.NewReader(blob), o)
	wantErr(t, err, store.ErrConflict)
	o.Replace = true
	res, err := store.Restore(ctx, g.dir, bytes.NewReader(blob), o)
	g.must(err)
	if st, err := os.Stat(res.SetAside); err != nil || st.Size() == 0 {
		t.Errorf("%q: %v", res.SetAside, err)
	}
	// the other box's snapshot must not come back when this database is damaged
	ruin(t, g.dir)
	_, err = store.Open(ctx, store.Config{Dir: g.dir})
	wantErr(t, err, store.ErrCorrupt)
}

func TestBackupFile(t *testing.T) {
	f, _ := box(t)
	ctx := t.Context()
	dir := t.TempDir()
	path := filepath.Join(dir, "b.backup")
	m, err := f.BackupFile(ctx, store.System(), path, store.BackupOptions{Passphrase: passphrase})
	f.must(err)
	_, err = f.BackupFile(ctx, store.System(), path, store.BackupOptions{Passphrase: passphrase})
	wantErr(t, err, store.ErrConflict)
	_, err = f.BackupFile(ctx, store.System(), filepath.Join(dir, "none", "b"), store.BackupOptions{Passphrase: passphrase})
	wantErr(t, err, os.ErrNotExist)
	r, err := os.Open(path)
	f.must(err)
	defer r.Close()
	got, err := store.VerifyBackup(ctx, t.TempDir(), r, store.RestoreOptions{Passphrase: passphrase})
	f.must(err)
	same(t, got, m)
	// for a recipient, whose key the box does not have
	id, err := age.GenerateX25519Identity()
	f.must(err)
	sealed := filepath.Join(dir, "sealed.backup")
	_, err = f.BackupFile(ctx, store.System(), sealed, store.BackupOptions{Recipients: []string{id.Recipient().String()}})
	f.must(err)
	r2, err := os.Open(sealed)
	f.must(err)
	defer r2.Close()
	_, err = store.VerifyBackup(ctx, t.TempDir(), r2, store.RestoreOptions{Identities: []string{id.String()}})
	f.must(err)
	left, err := os.ReadDir(dir)
	f.must(err)
	same(t, len(left), 2)
}

func TestSchedule(t *testing.T) {
	f, _ := box(t)
	ctx := t.Context()
	drive := t.TempDir()
	f.must(os.WriteFile(filepath.Join(drive, "holiday.jpg"), nil, 0o600))
	plan := &store.Schedule{Folder: drive, Every: 24 * time.Hour, Keep: 2, Options: store.BackupOptions{Passphrase: passphrase}}
	f.must(f.ScheduleBackup(plan))
	f.must(os.WriteFile(filepath.Join(drive, ".partial-1bit-20270101T000000.000Z.backup"), nil, 0o600))
	for range 4 {
		store.Tend(ctx, f.Store)
		store.Tend(ctx, f.Store)
		f.clock.add(24 * time.Hour)
	}
	names, err := filepath.Glob(filepath.Join(drive, ".*"))
	f.must(err)
	same(t, len(names), 0) // what a crash had left is gone
	names, err = filepath.Glob(filepath.Join(drive, "*"))
	f.must(err)
	last := f.clock.Now().Add(-24 * time.Hour)
	stamp := func(at time.Time) string {
		return filepath.Join(drive, "1bit-"+at.Format("20060102T150405.000Z")+".backup")
	}
	same(t, names, []string{stamp(last.Add(-24 * time.Hour)), stamp(last), filepath.Join(drive, "holiday.jpg")})
	st := f.BackupStatus()
	same(t, []string{st.Path, st.Problem}, []string{stamp(last), ""})

	// the drive is pulled out, and comes back
	f.must(os.Rename(drive, drive+"-gone"))
	store.Tend(ctx, f.Store)
	if st = f.BackupStatus(); st.Problem == "" || !st.Last.Equal(last) {
		t.Errorf("%+v", st)
	}
	f.must(os.Rename(drive+"-gone", drive))
	f.clock.add(time.Hour)
	store.Tend(ctx, f.Store)
	if st = f.BackupStatus(); st.Problem != "" || !st.Last.Equal(f.clock.Now()) {
		t.Errorf("%+v", st)
	}

	// a corrupt database without snapshots comes back from the drive
	f.must(f.Close())
	ruin(t, f.dir)
	f.must(os.RemoveAll(filepath.Join(f.dir, "snapshots")))
	f.reopen(plan)
	if d := f.Degraded(); d == nil || !d.DataFrom.Equal(st.Last) || d.Source != st.Path {
		t.Errorf("%+v", d)
	}
	same(t, len(f.all()), 2)

	for name, bad := range map[string]*store.Schedule{
		"no folder": {Every: time.Hour, Options: plan.Options},
		"too often": {Folder: drive, Every: time.Minute, Options: plan.Options},
		"no lock":   {Folder: drive, Every: time.Hour},
	} {
		if err := f.ScheduleBackup(bad); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPassphrasesAreNotPrinted(t *testing.T) {
	o := store.BackupOptions{Passphrase: "canary-phrase"}
	r := store.RestoreOptions{Passphrase: "canary-phrase", Identities: []string{"canary-identity"}}
	var b bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&b, nil))
	log.Info("x", "o", o, "r", r, "s", store.Schedule{Options: o}, "p", &store.Schedule{Options: o})
	fmt.Fprintf(&b, "%v %+v %#v %s %v %+v %#v %v %+v", o, o, o, o, r, r, r, store.Schedule{Options: o}, store.Config{Schedule: &store.Schedule{Options: o}})
	fmt.Fprintf(&b, "%+v %#v", store.Schedule{Options: o}, store.Schedule{Options: o})
	if strings.Contains(b.String(), "canary") {
		t.Error(b.String())
	}
}
