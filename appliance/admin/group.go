package admin

import (
	"errors"
	"fmt"
	"strings"

	"onebit/engine"
	"onebit/store"
)

// grouped says what keeps its own row.
func grouped(f *store.UsageFilter, by string) error {
	words := map[string]*bool{"day": &f.ByDay, "key": &f.ByKey, "person": &f.ByPerson, "model": &f.ByModel, "endpoint": &f.ByEndpoint}
	for word := range strings.SplitSeq(by, ",") {
		if word = trimmed(word); word == "" {
			continue
		}
		to, ok := words[word]
		if !ok {
			return &engine.InvalidError{Param: "by", Code: "invalid_value", Message: fmt.Sprintf("usage is by day, key, person, model or endpoint, not by %q", word)}
		}
		*to = true
	}
	return nil
}

// broken reports whether a check found damage, as against not having been possible.
func broken(err error) bool { return errors.Is(err, store.ErrCorrupt) }

// backupOptions says how a copy is locked.
func backupOptions(in backupRequest) (store.BackupOptions, error) {
	o := store.BackupOptions{IncludeCA: in.Authority}
	if in.Recipient == "" {
		o.Passphrase = in.Passphrase
		return o, nil
	}
	if in.Passphrase != "" {
		return o, &engine.InvalidError{Param: "recipient", Code: "invalid_value", Message: "give a passphrase or a recipient, not both"}
	}
	if !strings.HasPrefix(in.Recipient, "age1") { // the rest of it is the store's to judge
		return o, &engine.InvalidError{Param: "recipient", Code: "invalid_value", Message: "the recipient is no age public key (age1...)"}
	}
	o.Recipients = []string{in.Recipient}
	return o, nil
}
