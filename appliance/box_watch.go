package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"onebit/appliance/config"
	"onebit/appliance/folder"
	"onebit/store"
	"onebit/store/documents"
)

// How often the box looks at watched folders, and for how long a file must have stayed the same.
const (
	watchEvery  = 5 * time.Second
	watchSettle = 2 * time.Second
)

// folderMark is the metadata by which a collection of a watched folder is known.
const folderMark = "folder"

// watchFolders keeps the folders of the configuration, as it is at the moment, and their collections the same.
func (s *shelves) watchFolders(ctx context.Context) {
	watchers := map[string]*folder.Watcher{}
	for {
		if now := s.b.now.Load(); now != nil {
			for _, w := range now.cfg.Documents.Watched() {
				problem := ""
				if err := s.watchFolder(ctx, w, watchers); err != nil && ctx.Err() == nil {
					problem = fmt.Sprintf("the documents of %s are not brought in: %v", w.Folder, err)
				}
				s.b.problems.set("watch "+w.Folder, problem)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchEvery):
		}
	}
}

func (s *shelves) watchFolder(ctx context.Context, c config.Watched, watchers map[string]*folder.Watcher) error {
	of, err := s.folderCollection(ctx, c)
	if err != nil || of.ID == "" {
		return err
	}
	w := watchers[of.ID]
	if w == nil {
		w = &folder.Watcher{Dir: c.Folder, Settle: watchSettle, Target: shelved{s, of}, Report: func(e folder.Event) {
			if e.Err != nil {
				s.b.log.Warn("a watched file", "folder", c.Folder, "file", e.Path, "error", e.Err)
				return
			}
			s.b.log.Info("a watched file", "folder", c.Folder, "file", e.Path, "did", e.Did)
		}}
		watchers[of.ID] = w
	}
	return w.Sync(ctx)
}

// folderCollection finds the collection of a folder, or makes it for the first admin; none while the box has nobody.
func (s *shelves) folderCollection(ctx context.Context, c config.Watched) (documents.Collection, error) {
	people, err := s.b.store.People(ctx, store.System())
	if err != nil {
		return documents.Collection{}, err
	}
	page := documents.Page{Limit: 100, Ascending: true}
	for {
		all, more, err := s.keeper.Collections(ctx, documents.System(), page)
		if err != nil {
			return documents.Collection{}, err
		}
		for _, one := range all {
			// anybody may write the mark on a collection of theirs; it is an admin's that gets the folder
			if one.Metadata[folderMark] == c.Folder && one.Name == c.Collection && slices.ContainsFunc(people, func(p store.Person) bool { return p.ID == one.Owner && p.Role == store.RoleAdmin }) {
				return one, nil
			}
			page.After = one.ID
		}
		if !more || len(all) == 0 {
			break
		}
	}
	for _, p := range people {
		if p.Role == store.RoleAdmin && p.Active(time.Now()) {
			return s.keeper.AddCollection(ctx, documents.Reader{Person: p.ID}, documents.Collection{
				Name: c.Collection, Sharing: documents.Sharing{Everyone: true}, Metadata: map[string]string{folderMark: c.Folder},
			})
		}
	}
	return documents.Collection{}, nil
}

// shelved is a collection that a folder is put into.
type shelved struct {
	s *shelves
	c documents.Collection
}

func (t shelved) List(ctx context.Context) ([]folder.Entry, error) {
	var out []folder.Entry
	page := documents.Page{Limit: 100, Ascending: true}
	for {
		all, more, err := t.s.keeper.Attachments(ctx, documents.System(), t.c.ID, "", "", page)
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			page.After = a.File
			path, _ := a.Attributes[folder.PathAttribute].(string)
			hash, _ := a.Attributes[folder.HashAttribute].(string)
			if path != "" {
				out = append(out, folder.Entry{File: a.File, Path: path, SHA256: hash})
			}
		}
		if !more || len(all) == 0 {
			return out, nil
		}
	}
}

func (t shelved) Put(ctx context.Context, e folder.Entry, old string, r io.Reader) error {
	keeper, by := t.s.keeper, documents.Reader{Person: t.c.Owner}
	f, err := keeper.AddFile(ctx, by, documents.File{Name: folder.Name(e.Path), Purpose: "assistants"}, r)
	if err != nil {
		return &folder.LaterError{Err: err}
	}
	_, err = keeper.Attach(ctx, by, documents.Attachment{Collection: t.c.ID, File: f.ID,
		Attributes: map[string]any{folder.PathAttribute: e.Path, folder.HashAttribute: e.SHA256}})
	if err != nil {
		return errors.Join(err, keeper.DeleteFile(context.WithoutCancel(ctx), by, f.ID))
	}
	t.s.queue.Wake()
	failed := t.wait(ctx, f.ID)
	if old != "" && ctx.Err() == nil {
		return errors.Join(failed, keeper.DeleteFile(ctx, documents.System(), old))
	}
	return failed
}

// wait returns once a file can be found, or why it never can.
func (t shelved) wait(ctx context.Context, file string) error {
	for {
		a, err := t.s.keeper.Attachment(ctx, documents.System(), t.c.ID, file)
		switch {
		case err != nil:
			return err
		case a.Status == documents.Completed:
			return nil
		case a.Status != documents.InProgress:
			return errors.New(a.Problem)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (t shelved) Remove(ctx context.Context, e folder.Entry) error {
	return t.s.keeper.DeleteFile(ctx, documents.System(), e.File)
}
