package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"onebit/extensions"
	"onebit/extensions/laya/built"
)

// bindLaya makes the built-in classifier the one that says the class of each conversation, where the configuration wants
// it and an admin has bound no other. A new version of the program brings its own, which takes the place of the old one.
func (b *box) bindLaya(ctx context.Context) error {
	if !b.now.Load().cfg.Extensions.Laya {
		return nil
	}
	text := ""
	if err := b.placeLaya(ctx); err != nil && ctx.Err() == nil {
		text = "the built-in classifier is not bound: " + err.Error()
		b.log.Warn(text)
	}
	b.problems.set("laya", text)
	return nil // the default policy decides
}

func (b *box) placeLaya(ctx context.Context) error {
	module, err := built.Module()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(module)
	sha := hex.EncodeToString(sum[:])
	now := b.extensions.Status()
	if seat, ok := activeClassifier(now); ok && (seat.SHA256 == sha || !strings.HasPrefix(seat.Module, "laya@")) {
		return nil
	}
	if !slices.ContainsFunc(now.Modules, func(m extensions.Shown) bool { return m.SHA256 == sha }) {
		u := b.extensions.Receive()
		defer u.Close()
		u.Manifest(built.Manifest())
		if err := u.Module(bytes.NewReader(module), sha); err != nil {
			return err
		}
		if _, err := b.extensions.Add(ctx, extensions.System(), u); err != nil {
			return err
		}
	}
	if err := b.extensions.Activate(ctx, extensions.System(), extensions.ClassifierBinding, extensions.Placement{Module: sha}); err != nil {
		return fmt.Errorf("activating it: %w", err)
	}
	b.log.Info("bound the built-in classifier", "sha", sha[:8])
	return nil
}

// activeClassifier is what decides the class now.
func activeClassifier(l extensions.Listing) (extensions.Seat, bool) {
	for _, bound := range l.Bindings {
		if bound.Name != extensions.ClassifierBinding {
			continue
		}
		for _, s := range bound.Seats {
			if s.Stage == "active" {
				return s, true
			}
		}
	}
	return extensions.Seat{}, false
}
