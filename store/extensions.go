package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// Extension is one uploaded module. The bytes lie in a file that is named after their hash; this is what is known of them.
type Extension struct {
	SHA256  string
	Name    string
	Version string
	Kind    string // "policy" or "classifier"
	Size    int64  // bytes of the module
	Detail  json.RawMessage
	By      string    // person, or "system"
	Added   time.Time // of the first PutExtension
}

// ExtensionEvent is one line of the log of who did what with extensions. It is only ever appended to, and the audit log has
// an entry for each line.
type ExtensionEvent struct {
	ID      int64 // 1, 2, 3 ...
	Time    time.Time
	Person  string // id, or "system"
	Key     string // id of the API key it came with
	Action  string // "upload", "activate" ...
	Module  string // SHA-256 in hex; may be empty
	Binding string // may be empty
	Detail  string
}

// ExtensionValue is a value that a module keeps for one tenant between its calls.
type ExtensionValue struct {
	Module  string // its name
	Tenant  string // person
	Name    string
	Value   []byte    // nil deletes it
	Expires time.Time // zero: never
}

const (
	extensionColumns = "sha256, name, version, kind, size, detail, by, added"
	allExtensions    = "select " + extensionColumns + " from extensions order by added, sha256"
	putExtension     = "insert into extensions(" + extensionColumns + `) values(?, ?, ?, ?, ?, ?, ?, ?)
		on conflict do update set name = excluded.name, version = excluded.version, kind = excluded.kind, size = excluded.size,
			detail = excluded.detail`
	deleteExtension = "delete from extensions where sha256 = ?"
	allBindings     = "select name, value from extension_bindings order by name"
	putBinding      = `insert into extension_bindings(name, value, changed) values(?, ?, ?)
		on conflict do update set value = excluded.value, changed = excluded.changed`
	deleteBinding        = "delete from extension_bindings where name = ?"
	insertExtensionEvent = "insert into extension_log(time, person, key, action, module, binding, detail) values(?, ?, ?, ?, ?, ?, ?)"
	readExtensionLog     = "select id, time, person, key, action, module, binding, detail from extension_log where id > ? order by id limit ?"
	readValues           = "select name, value, expires from extension_values where module = ? and tenant = ? and (expires = 0 or expires > ?) order by name"
	putValue             = `insert into extension_values(module, tenant, name, value, expires) values(?, ?, ?, ?, ?)
		on conflict do update set value = excluded.value, expires = excluded.expires`
	deleteValue         = "delete from extension_values where module = ? and tenant = ? and name = ?"
	deletePersonValues  = "delete from extension_values where tenant = ?"
	expireValues        = "delete from extension_values where expires > 0 and expires <= ?"
	deleteModulesValues = "delete from extension_values where module = ?"
)

// Extensions returns all modules, oldest first, to everybody.
func (s *Store) Extensions(ctx context.Context) ([]Extension, error) {
	rows, err := s.r.Query(ctx, allExtensions)
	all, err := sqlite.Collect(rows, err, func(r sqlite.Row) (e Extension, err error) {
		var detail string
		var added int64
		err = r.Scan(&e.SHA256, &e.Name, &e.Version, &e.Kind, &e.Size, &detail, &e.By, &added)
		e.Detail, e.Added = json.RawMessage(detail), sqlite.Moment(added)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the extensions: %w", s.meaning(err))
	}
	return all, nil
}

// PutExtension adds a module or changes what is known of it, and says so in both logs. Admins only.
func (s *Store) PutExtension(ctx context.Context, a Actor, e Extension, ev ExtensionEvent) error {
	return s.extend(ctx, a, ev, func(t *txn) error {
		if e.Name == "" || !json.Valid(e.Detail) {
			return fmt.Errorf("%w: an extension needs a name, and its detail is JSON", ErrInvalid)
		}
		_, err := t.Exec(ctx, putExtension, e.SHA256, e.Name, e.Version, e.Kind, e.Size, string(e.Detail), a.Person, sqlite.Stamp(t.now))
		return err
	})
}

// DeleteExtension forgets a module; its file is the caller's. With values, what modules of its name have kept goes too.
// Admins only.
func (s *Store) DeleteExtension(ctx context.Context, a Actor, e Extension, values bool, ev ExtensionEvent) error {
	return s.extend(ctx, a, ev, func(t *txn) error {
		if values {
			if _, err := t.Exec(ctx, deleteModulesValues, e.Name); err != nil {
				return err
			}
		}
		return t.One(ctx, deleteExtension, e.SHA256)
	})
}

// ExtensionBindings returns what is bound where, as JSON by name, to everybody.
func (s *Store) ExtensionBindings(ctx context.Context) (map[string]json.RawMessage, error) {
	type row struct{ name, value string }
	rows, err := s.r.Query(ctx, allBindings)
	all, err := sqlite.Collect(rows, err, func(r sqlite.Row) (b row, err error) { return b, r.Scan(&b.name, &b.value) })
	if err != nil {
		return nil, fmt.Errorf("reading the bindings of extensions: %w", s.meaning(err))
	}
	out := make(map[string]json.RawMessage, len(all))
	for _, b := range all {
		out[b.name] = json.RawMessage(b.value)
	}
	return out, nil
}

// PutExtensionBinding sets a binding, or with nil takes it away, and says so in both logs. Admins only.
func (s *Store) PutExtensionBinding(ctx context.Context, a Actor, name string, value json.RawMessage, ev ExtensionEvent) error {
	return s.extend(ctx, a, ev, func(t *txn) error {
		if value == nil {
			return t.One(ctx, deleteBinding, name)
		}
		if name == "" || !json.Valid(value) {
			return fmt.Errorf("%w: a binding needs a name, and its value is JSON", ErrInvalid)
		}
		_, err := t.Exec(ctx, putBinding, name, string(value), sqlite.Stamp(t.now))
		return err
	})
}

// LogExtension appends to both logs what changed nothing else, such as an upload that was refused. Admins only.
func (s *Store) LogExtension(ctx context.Context, a Actor, ev ExtensionEvent) error {
	return s.extend(ctx, a, ev, func(*txn) error { return nil })
}

// extend makes a change of extensions with its lines in both logs.
func (s *Store) extend(ctx context.Context, a Actor, ev ExtensionEvent, f func(t *txn) error) error {
	if !a.Admin {
		return ErrForbidden
	}
	err := s.write(ctx, func(t *txn) error {
		if err := f(t); err != nil {
			return err
		}
		if _, err := t.Exec(ctx, insertExtensionEvent, sqlite.Stamp(t.now), a.Person, a.Key, ev.Action, ev.Module, ev.Binding, ev.Detail); err != nil {
			return err
		}
		target := ev.Module
		if ev.Binding != "" {
			target = ev.Binding + " " + ev.Module
		}
		return t.audit(ctx, a, "extension."+ev.Action, target, ev.Detail)
	})
	if err != nil {
		return fmt.Errorf("changing extensions: %w", err)
	}
	return nil
}

// ExtensionLog returns up to limit lines after an id, oldest first. Admins only.
func (s *Store) ExtensionLog(ctx context.Context, a Actor, after int64, limit int) ([]ExtensionEvent, error) {
	if !a.Admin {
		return nil, ErrForbidden
	}
	rows, err := s.r.Query(ctx, readExtensionLog, after, limit)
	all, err := sqlite.Collect(rows, err, func(r sqlite.Row) (e ExtensionEvent, err error) {
		var at int64
		err = r.Scan(&e.ID, &at, &e.Person, &e.Key, &e.Action, &e.Module, &e.Binding, &e.Detail)
		e.Time = sqlite.Moment(at)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the log of extensions: %w", s.meaning(err))
	}
	return all, nil
}

// ExtensionValues returns what modules of a name keep for a tenant, without what has expired. It is for the box alone: a
// tenant's values are shown to nobody.
func (s *Store) ExtensionValues(ctx context.Context, module, tenant string) ([]ExtensionValue, error) {
	rows, err := s.r.Query(ctx, readValues, module, tenant, sqlite.Stamp(s.now()))
	all, err := sqlite.Collect(rows, err, func(r sqlite.Row) (ExtensionValue, error) {
		v := ExtensionValue{Module: module, Tenant: tenant}
		var expires int64
		err := r.Scan(&v.Name, &v.Value, &expires)
		v.Expires = sqlite.Moment(expires)
		return v, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the values of an extension: %w", s.meaning(err))
	}
	return all, nil
}

// PutExtensionValues writes and deletes values, all or none.
func (s *Store) PutExtensionValues(ctx context.Context, values []ExtensionValue) error {
	err := s.write(ctx, func(t *txn) error {
		for _, v := range values {
			var err error
			if v.Value == nil {
				_, err = t.Exec(ctx, deleteValue, v.Module, v.Tenant, v.Name)
			} else {
				_, err = t.Exec(ctx, putValue, v.Module, v.Tenant, v.Name, v.Value, sqlite.Stamp(v.Expires))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing the values of an extension: %w", err)
	}
	return nil
}
