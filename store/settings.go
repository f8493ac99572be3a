package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"onebit/store/sqlite"
)

// Setting returns a setting's JSON value.
func (s *Store) Setting(ctx context.Context, name string) (json.RawMessage, error) {
	var v string
	if err := s.r.Row(ctx, "select value from settings where name = ?", name).Scan(&v); err != nil {
		return nil, fmt.Errorf("reading setting %q: %w", name, s.meaning(err))
	}
	return json.RawMessage(v), nil
}

// SetSetting sets a setting to a JSON value; nil removes it. Names that begin with "store." are the store's own. The audit
// log gets the name, never the value. Admins only.
func (s *Store) SetSetting(ctx context.Context, a Actor, name string, value json.RawMessage) error {
	if !a.Admin {
		return ErrForbidden
	}
	err := s.write(ctx, func(t *txn) error {
		if err := allowedSetting(name, value); err != nil {
			return err
		}
		if err := t.set(ctx, name, value); err != nil {
			return err
		}
		return t.audit(ctx, a, "setting.set", name, "")
	})
	if err != nil {
		return fmt.Errorf("changing setting %q: %w", name, err)
	}
	return nil
}

func allowedSetting(name string, value json.RawMessage) error {
	if name == "" || len(name) > 128 || strings.HasPrefix(name, ownSettings) {
		return fmt.Errorf("%w: the setting %q cannot be set", ErrInvalid, name)
	}
	if value != nil && !json.Valid(value) {
		return fmt.Errorf("%w: the value is not JSON", ErrInvalid)
	}
	return nil
}

func (t *txn) set(ctx context.Context, name string, value json.RawMessage) error {
	if value == nil {
		_, err := t.Exec(ctx, "delete from settings where name = ?", name)
		return err
	}
	_, err := t.Exec(ctx, `insert into settings(name, value, changed) values(?, ?, ?)
		on conflict do update set value = excluded.value, changed = excluded.changed`, name, string(value), sqlite.Stamp(t.now))
	return err
}
