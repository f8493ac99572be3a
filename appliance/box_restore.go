package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"onebit/appliance/auth"
	"onebit/appliance/config"
	"onebit/engine"
	"onebit/store"
)

// errRestored says that a box has stopped to start again with the state of a backup.
var errRestored = errors.New("the state was restored")

// restoring is a backup that has been read and found whole, and waits for the box to stop.
type restoring struct {
	file       string
	passphrase string
}

// restored is how long the answer to a restore may take to arrive before the box stops.
const restored = time.Second

// restore takes a backup in place of a claim: all of it is read and checked before anything changes. Then the box stops,
// puts it in the place of its state, which is set aside, and starts again.
func (b *box) restore(ctx context.Context, backup io.Reader, passphrase auth.Secret) (err error) {
	file := filepath.Join(b.options.state, "restoring.backup")
	defer func() {
		if err != nil {
			_ = os.Remove(file) // what is left of it is of no use
		}
	}()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("keeping the backup: %w", err)
	}
	defer func() { _ = f.Close() }()
	if _, err := io.Copy(f, backup); err != nil {
		return fmt.Errorf("keeping the backup: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	o := store.RestoreOptions{Passphrase: passphrase.Expose()}
	if _, err := store.VerifyBackup(ctx, b.options.state, f, o); err != nil {
		return err
	}
	b.restoring.Store(&restoring{file: file, passphrase: o.Passphrase})
	time.AfterFunc(restored, b.halt)
	return nil
}

// finish puts the backup in place, once the store is closed. It returns errRestored.
func (r *restoring) finish(ctx context.Context, b *box) error {
	if err := b.store.Close(); err != nil {
		return err
	}
	f, err := os.Open(r.file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	done, err := store.Restore(ctx, b.options.state, f, store.RestoreOptions{Passphrase: r.passphrase, Replace: true})
	if err != nil {
		return fmt.Errorf("restoring the backup: %w", err)
	}
	if err := errors.Join(os.Remove(r.file), putConfig(b.options.state, done.Files)); err != nil {
		return err
	}
	b.log.Warn("restored a backup", "from", done.Manifest.Created, "set aside", done.SetAside)
	return errRestored
}

// BackupFiles is the configuration, where it is a file of reasonable length.
func (c control) BackupFiles() map[string][]byte {
	text, err := readUpTo(c.b.options.path(), config.MaxFile+1)
	if err != nil || len(text) > config.MaxFile {
		return nil
	}
	name := configNames[0]
	if config.IsTOML(c.b.options.path()) {
		name = configNames[1]
	}
	return map[string][]byte{name: text}
}

// putConfig puts the configuration of a copy into a state directory that has none. One that is there stays: it is this
// machine's.
func putConfig(state string, files map[string][]byte) error {
	i := slices.IndexFunc(configNames, func(name string) bool { return files[name] != nil })
	if i < 0 || slices.ContainsFunc(configNames, func(name string) bool { return exists(filepath.Join(state, name)) }) {
		return nil
	}
	text := files[configNames[i]]
	f, err := os.OpenFile(filepath.Join(state, configNames[i]), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("putting the configuration back: %w", err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// chosen is what to store when the first admin chooses values of the configuration with the claim.
func (b *box) chosen(ctx context.Context, values map[string]string) (map[string]json.RawMessage, error) {
	stored, err := b.stored(ctx)
	if err != nil {
		return nil, err
	}
	next := map[string]string{}
	maps.Copy(next, stored)
	maps.Copy(next, values)
	a := b.now.Load()
	for path := range values {
		if from, ok := a.origins[path]; ok && from != config.Settings {
			return nil, &engine.InvalidError{Param: path, Code: "set_elsewhere", Message: fmt.Sprintf("%s is set by %s; it cannot be chosen here", path, from)}
		}
	}
	if err := b.wouldTake(ctx, next); err != nil {
		return nil, &engine.InvalidError{Code: "invalid_value", Message: err.Error()}
	}
	raw, err := json.Marshal(next)
	return map[string]json.RawMessage{settingsName: raw}, err
}

// claimed takes on what was chosen with the claim, and tells the network of the box.
func (b *box) claimed() {
	if b.restoring.Load() != nil {
		return // it starts again in a moment
	}
	_ = b.reload(context.Background()) // it tells the log and the status
	b.edge.Advertise(true)
}
