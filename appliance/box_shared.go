package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"onebit/appliance/admin"
	"onebit/store"
	"onebit/store/documents"
)

// librarian shows the control plane what documents there are.
type librarian struct{ b *box }

// shownFailures is how many failures of a collection are shown.
const shownFailures = 20

// wordsOf gives errors of the document store the meaning that the control plane knows.
func wordsOf(err error) error {
	switch {
	case errors.Is(err, documents.ErrNotFound):
		return store.ErrNotFound
	case errors.Is(err, documents.ErrInvalid):
		return errors.Join(store.ErrInvalid, err)
	case errors.Is(err, documents.ErrFull):
		return store.ErrFull
	}
	return err
}

func (l librarian) Collections(ctx context.Context, after string, limit int) ([]admin.Collection, error) {
	all, _, err := l.b.shelves.keeper.Collections(ctx, documents.System(), documents.Page{After: after, Limit: limit, Ascending: true})
	if err != nil {
		return nil, wordsOf(err)
	}
	out := make([]admin.Collection, 0, len(all))
	for _, c := range all {
		shown, err := l.shown(ctx, c)
		if errors.Is(err, documents.ErrNotFound) {
			continue // it has just gone
		}
		if err != nil {
			return nil, wordsOf(err)
		}
		out = append(out, shown)
	}
	return out, nil
}

func (l librarian) shown(ctx context.Context, c documents.Collection) (admin.Collection, error) {
	keeper, by := l.b.shelves.keeper, documents.System()
	n, err := keeper.Counts(ctx, by, c.ID, "")
	if err != nil {
		return admin.Collection{}, err
	}
	used, err := keeper.Bytes(ctx, by, c.ID)
	if err != nil {
		return admin.Collection{}, err
	}
	out := admin.Collection{
		ID: c.ID, Name: c.Name, Owner: c.Owner, Created: c.Created, Active: c.Active, Bytes: used, Model: c.Model,
		Completed: n[documents.Completed], InProgress: n[documents.InProgress], Failed: n[documents.Failed], Cancelled: n[documents.Cancelled],
		Failures: []admin.Failure{}, Sharing: admin.Sharing{Everyone: c.Sharing.Everyone, People: append([]string{}, c.Sharing.People...)},
	}
	if out.Failed > 0 {
		failed, _, err := keeper.Attachments(ctx, by, c.ID, documents.Failed, "", documents.Page{Limit: shownFailures})
		if err != nil {
			return admin.Collection{}, err
		}
		for _, a := range failed {
			out.Failures = append(out.Failures, admin.Failure{File: a.File, Why: a.Problem})
		}
	}
	return out, nil
}

func (l librarian) ShareCollection(ctx context.Context, who store.Actor, id string, s admin.Sharing) (admin.Collection, error) {
	keeper, by := l.b.shelves.keeper, documents.System()
	c, err := keeper.Collection(ctx, by, id)
	if err != nil {
		return admin.Collection{}, wordsOf(err)
	}
	for _, person := range s.People {
		if _, err := l.b.store.Person(ctx, store.System(), person); err != nil {
			return admin.Collection{}, err
		}
	}
	with := strings.Join(s.People, ",")
	if s.Everyone {
		with = "everyone"
	}
	if err := l.b.store.Audit(ctx, who, "documents.share", id, with); err != nil { // first: nothing is opened unseen
		return admin.Collection{}, err
	}
	c.Sharing = documents.Sharing{Everyone: s.Everyone, People: s.People}
	if c, err = keeper.UpdateCollection(ctx, by, c); err != nil {
		return admin.Collection{}, wordsOf(err)
	}
	shown, err := l.shown(ctx, c)
	return shown, wordsOf(err)
}

func (l librarian) DeleteCollection(ctx context.Context, who store.Actor, id string) error {
	if err := l.b.shelves.keeper.DeleteCollection(ctx, documents.System(), id); err != nil {
		return wordsOf(err)
	}
	return l.b.store.Audit(ctx, who, "documents.delete", id, "")
}

// Resolve finds a collection of those that a person may see.
func (l librarian) Resolve(ctx context.Context, person, word string) (id string, others []string, err error) {
	keeper, by := l.b.shelves.keeper, documents.Reader{Person: person}
	id, err = findCollection(ctx, keeper, seen{by, func(string) bool { return true }}, word)
	if !errors.Is(err, documents.ErrNotFound) {
		return id, nil, wordsOf(err)
	}
	all, _, err := keeper.Collections(ctx, by, documents.Page{Limit: 100})
	for _, c := range all {
		others = append(others, fmt.Sprintf("%q (%s)", c.Name, c.ID))
	}
	return "", others, wordsOf(err)
}

// Forget deletes what a person who has gone leaves.
func (l librarian) Forget(ctx context.Context, person string) error {
	keeper, by := l.b.shelves.keeper, documents.Reader{Person: person}
	page := documents.Page{Limit: 100}
	for {
		all, more, err := keeper.Collections(ctx, by, page)
		if err != nil {
			return wordsOf(err)
		}
		for _, c := range all {
			page.After = c.ID
			if c.Owner != person { // it was shared with them
				continue
			}
			if err := keeper.DeleteCollection(ctx, by, c.ID); err != nil && !errors.Is(err, documents.ErrNotFound) {
				return wordsOf(err)
			}
		}
		if !more || len(all) == 0 {
			break
		}
	}
	page = documents.Page{Limit: 100}
	for {
		all, more, err := keeper.Files(ctx, by, "", page)
		if err != nil {
			return wordsOf(err)
		}
		for _, f := range all {
			page.After = f.ID
			if err := keeper.DeleteFile(ctx, by, f.ID); err != nil && !errors.Is(err, documents.ErrNotFound) {
				return wordsOf(err)
			}
		}
		if !more || len(all) == 0 {
			return nil
		}
	}
}
