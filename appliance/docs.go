package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/folder"
	"onebit/engine/wire"
)

const docsUsage = `usage: 1bit docs add --to COLLECTION FILE|FOLDER...
       1bit docs watch --to COLLECTION FOLDER
       1bit docs list [COLLECTION]
       1bit docs search --in COLLECTION QUESTION
       1bit docs ask --in COLLECTION [--model NAME] QUESTION
       1bit docs rm COLLECTION [FILE...]
       1bit docs migrate --to postgres|file

Documents of a box. add brings files in, makes the collection when there is none, and waits until all can be found; it
fails when one cannot, and says why. What is there already, by name and content, is left. watch keeps a collection the
same as a folder until it is stopped. list shows collections, or the files of one. ask answers with citations. rm
deletes files, or a whole collection. COLLECTION and FILE are ids or names.
migrate moves everything to PostgreSQL or back, of a box that is stopped; its -h names its options.

  --to, --in NAME  the collection; --in may be repeated
  --top N          how many passages (8)
  --every SECONDS  how often watch looks (5)
  --for PERSON     whose documents; needed where the box has several admins
  --box URL        another box than the one that runs on this machine; its key is $ONEBIT_KEY
  --root FILE      that box's root certificate in PEM, where this computer does not trust it
  --socket PATH    the box's socket ($ONEBIT_SOCKET, else admin.sock in the state directory)
`

// docs is `1bit docs`.
func (p program) docs(ctx context.Context, args []string) int {
	ctx, stop := untilSignal(ctx)
	defer stop()
	if len(args) > 0 && args[0] == "migrate" {
		return p.migrateDocs(ctx, args[1:])
	}
	return p.runActs(ctx, "docs", docsUsage, map[string]act{
		"add": addDocs, "watch": watchDocs, "list": listDocs, "search": searchDocs, "ask": askDocs, "rm": removeDocs,
	}, args)
}

// docsBox is a box whose documents are worked with.
type docsBox struct {
	base   string
	client *http.Client
	key    string
	person string // for whom the console acts; empty for whom the key is
}

// docsLine is a command line of `1bit docs`.
type docsLine struct {
	*commandLine
	to             *string
	in             *[]string
	top, every     *int
	person, remote string
	root, model    string
}

func newDocsLine(name string) *docsLine {
	l := &docsLine{commandLine: newCommandLine(name)}
	l.to = l.String("to", "", "")
	l.list("in", &l.in)
	l.top, l.every = l.whole("top", 0, 1, 50), l.whole("every", 5, 1, 86400)
	l.StringVar(&l.person, "for", "", "")
	l.StringVar(&l.remote, "box", "", "")
	l.StringVar(&l.root, "root", "", "")
	l.StringVar(&l.model, "model", "", "")
	return l
}

// connect parses the command line and finds the box.
func (l *docsLine) connect(ctx context.Context, args []string, least, most int) (*docsBox, error) {
	local, err := l.open(args, least, most)
	if err != nil {
		return nil, err
	}
	if l.remote != "" {
		return remoteDocs(l.remote, l.root, os.Getenv("ONEBIT_KEY"))
	}
	b := &docsBox{base: "http://box", client: &http.Client{Transport: local.client.Transport}}
	b.person, err = local.documentsOf(ctx, l.person)
	return b, err
}

// documentsOf is the id of the person for whom the console acts: the one named, or the only admin.
func (l *local) documentsOf(ctx context.Context, name string) (string, error) {
	if name != "" {
		p, err := l.findPerson(ctx, name)
		return p.ID, err
	}
	var all struct{ People []admin.Person }
	if err := l.call(ctx, "GET", "/people", nil, &all); err != nil {
		return "", err
	}
	found := ""
	for _, p := range all.People {
		if p.Role == "admin" && !p.Disabled {
			if found != "" {
				return "", usageError{errors.New("the box has several admins: say with --for whose documents these are")}
			}
			found = p.ID
		}
	}
	if found == "" {
		return "", errors.New("the box has no admin yet: claim it first")
	}
	return found, nil
}

// remoteDocs is a box somewhere else.
func remoteDocs(address, root, key string) (*docsBox, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, usageError{fmt.Errorf("--box: %q is no URL such as https://1bit.local", address)}
	}
	if key == "" {
		return nil, errors.New("another box wants a key: put it into the variable ONEBIT_KEY")
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
	if root != "" {
		pem, err := os.ReadFile(root)
		if err != nil {
			return nil, fmt.Errorf("reading the root certificate: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate", root)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &docsBox{base: strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/v1"), client: &http.Client{Transport: transport}, key: key}, nil
}

// send sends a request and returns the open answer.
func (b *docsBox) send(ctx context.Context, method, path, media string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, b.base+"/v1"+path, body)
	if err != nil {
		return nil, err
	}
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	if b.key != "" {
		r.Header.Set("Authorization", "Bearer "+b.key)
	}
	if b.person != "" {
		r.Header.Set(onBehalf, b.person)
	}
	answer, err := b.client.Do(r)
	if err != nil {
		if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
			err = fmt.Errorf("%w; name a file with the box's root by --root, or run `1bit trust`", err)
		}
		return nil, fmt.Errorf("asking the box: %w", err)
	}
	return answer, nil
}

// call sends JSON, when there is some, and reads the answer into out, when that is wanted.
func (b *docsBox) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	media := ""
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, media = bytes.NewReader(text), "application/json"
	}
	answer, err := b.send(ctx, method, path, media, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return readAnswer(answer, out)
}

// shownStore and shownFile are what the command line reads of a collection and of a file in one.
type shownStore struct {
	ID     string
	Name   string
	Bytes  int64          `json:"usage_bytes"`
	Counts map[string]int `json:"file_counts"`
}

type shownFile struct {
	ID       string
	Status   string
	Bytes    int64                     `json:"usage_bytes"`
	Error    *struct{ Message string } `json:"last_error"`
	Marks    map[string]any            `json:"attributes"`
	Progress struct{ Chunks, Embedded, Pages int }
}

func (f shownFile) mark(name string) string {
	s, _ := f.Marks[name].(string)
	return s
}

// every calls f with each object of a list that comes in pages.
func every[T any](ctx context.Context, b *docsBox, path string, id func(T) string, f func(T) error) error {
	after := ""
	for {
		var page struct {
			Data []T
			More bool `json:"has_more"`
		}
		if err := b.call(ctx, "GET", path+"?limit=100&order=asc&after="+url.QueryEscape(after), nil, &page); err != nil {
			return err
		}
		for _, one := range page.Data {
			after = id(one)
			if err := f(one); err != nil {
				return err
			}
		}
		if !page.More || len(page.Data) == 0 {
			return nil
		}
	}
}

// collection finds one by id or name; nil when there is none.
func (b *docsBox) collection(ctx context.Context, word string) (*shownStore, error) {
	var found []shownStore
	err := every(ctx, b, "/vector_stores", func(s shownStore) string { return s.ID }, func(s shownStore) error {
		if s.ID == word || strings.EqualFold(s.Name, word) {
			found = append(found, s)
		}
		return nil
	})
	switch {
	case err != nil || len(found) == 0:
		return nil, err
	case len(found) > 1:
		return nil, fmt.Errorf("%d collections are called so: give the id", len(found))
	}
	return &found[0], nil
}

func (b *docsBox) existing(ctx context.Context, word string) (*shownStore, error) {
	s, err := b.collection(ctx, word)
	if err == nil && s == nil {
		err = fmt.Errorf("there is no collection %q", word)
	}
	return s, err
}

// toCollection finds the collection of --to, or makes it.
func (l *docsLine) toCollection(ctx context.Context, b *docsBox) (*shownStore, error) {
	if *l.to == "" {
		return nil, usageError{errors.New("--to says which collection")}
	}
	s, err := b.collection(ctx, *l.to)
	if err != nil || s != nil {
		return s, err
	}
	s = &shownStore{}
	return s, b.call(ctx, "POST", "/vector_stores", map[string]string{"name": *l.to}, s)
}

// docsTarget is a collection as a folder is put into it.
type docsTarget struct {
	b     *docsBox
	store string
	state func(path, state string) // is told how a file comes on; nil for nobody
}

func (t docsTarget) files() string { return "/vector_stores/" + escaped(t.store) + "/files" }

// List returns what was put in by path.
func (t docsTarget) List(ctx context.Context) ([]folder.Entry, error) {
	var all []folder.Entry
	return all, every(ctx, t.b, t.files(), func(f shownFile) string { return f.ID }, func(f shownFile) error {
		if p := f.mark(folder.PathAttribute); p != "" {
			all = append(all, folder.Entry{File: f.ID, Path: p, SHA256: f.mark(folder.HashAttribute)})
		}
		return nil
	})
}

// Put uploads a file, waits until it can be found, and then takes the old one out.
func (t docsTarget) Put(ctx context.Context, e folder.Entry, old string, r io.Reader) error {
	id, err := t.upload(ctx, folder.Name(e.Path), r)
	if err != nil {
		return err
	}
	marks := map[string]string{folder.PathAttribute: e.Path, folder.HashAttribute: e.SHA256}
	if err := t.b.call(ctx, "POST", t.files(), map[string]any{"file_id": id, "attributes": marks}, nil); err != nil {
		return errors.Join(err, t.b.call(context.WithoutCancel(ctx), "DELETE", "/files/"+escaped(id), nil, nil))
	}
	failed := t.wait(ctx, e.Path, id)
	if ctx.Err() == nil && old != "" {
		if err := t.b.call(ctx, "DELETE", "/files/"+escaped(old), nil, nil); err != nil {
			return errors.Join(failed, fmt.Errorf("taking the old one out: %w", err))
		}
	}
	return failed
}

// Remove deletes a file.
func (t docsTarget) Remove(ctx context.Context, e folder.Entry) error {
	return t.b.call(ctx, "DELETE", "/files/"+escaped(e.File), nil, nil)
}

func (t docsTarget) upload(ctx context.Context, name string, r io.Reader) (string, error) {
	in, out := io.Pipe()
	form := multipart.NewWriter(out)
	go func() {
		err := form.WriteField("purpose", "assistants")
		var part io.Writer
		if err == nil {
			part, err = form.CreateFormFile("file", name)
		}
		if err == nil {
			_, err = io.Copy(part, r)
		}
		if err == nil {
			err = form.Close()
		}
		out.CloseWithError(err)
	}()
	defer func() { _ = in.Close() }() // the reading end of a pipe never fails
	answer, err := t.b.send(ctx, "POST", "/files", form.FormDataContentType(), in)
	if err != nil {
		return "", &folder.LaterError{Err: err}
	}
	defer answer.Body.Close()
	var made struct{ ID string }
	if err := readAnswer(answer, &made); err != nil {
		if answer.StatusCode >= http.StatusInternalServerError || answer.StatusCode == http.StatusTooManyRequests {
			return "", &folder.LaterError{Err: err}
		}
		return "", err
	}
	return made.ID, nil
}

// wait returns once a file can be found, or why it never can.
func (t docsTarget) wait(ctx context.Context, path, id string) error {
	pause := 50 * time.Millisecond
	for {
		var f shownFile
		if err := t.b.call(ctx, "GET", t.files()+"/"+escaped(id), nil, &f); err != nil {
			return err
		}
		switch f.Status {
		case "completed":
			return nil
		case "in_progress":
			if t.state != nil && f.Progress.Chunks > 0 {
				t.state(path, fmt.Sprintf("%d of %d passages", f.Progress.Embedded, f.Progress.Chunks))
			}
		default:
			if f.Error != nil {
				return errors.New(f.Error.Message)
			}
			return errors.New(f.Status)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
			pause = min(pause*3/2, time.Second)
		}
	}
}

func addDocs(ctx context.Context, p program, args []string) error {
	l := newDocsLine("add")
	b, err := l.connect(ctx, args, 1, 10_000)
	if err != nil {
		return err
	}
	for _, path := range l.words { // before anything is made
		if _, err := os.Stat(path); err != nil {
			return err
		}
	}
	s, err := l.toCollection(ctx, b)
	if err != nil {
		return err
	}
	a := &adding{p: p, t: docsTarget{b: b, store: s.ID}}
	there, err := a.t.List(ctx)
	if err != nil {
		return err
	}
	a.there = map[string]folder.Entry{}
	for _, e := range there {
		a.there[e.Path] = e
	}
	for _, path := range l.words {
		if err := a.add(ctx, path); err != nil {
			return err
		}
	}
	fmt.Fprintf(p.stderr, "1bit docs: %d added, %d there already, %d failed, in %s (%s)\n", a.added, a.same, a.failed, s.Name, s.ID)
	if a.failed > 0 {
		return fmt.Errorf("%d of the files cannot be read as documents", a.failed)
	}
	return nil
}

// adding brings files in, one after the other.
type adding struct {
	p                   program
	t                   docsTarget
	there               map[string]folder.Entry
	added, same, failed int
}

// add brings in one file, or all of a folder.
func (a *adding) add(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return a.one(ctx, filepath.Dir(path), filepath.Base(path))
	}
	return filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case at != path && strings.HasPrefix(d.Name(), ".") && d.IsDir():
			return fs.SkipDir
		case strings.HasPrefix(d.Name(), ".") || !d.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(path, at)
		if err != nil {
			return err
		}
		return a.one(ctx, path, name)
	})
}

// one brings a file in. That it is refused is told and counted.
func (a *adding) one(ctx context.Context, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	hash, err := hashOf(f)
	if err != nil {
		return err
	}
	e := folder.Entry{Path: filepath.ToSlash(name), SHA256: hash}
	old := a.there[e.Path]
	if old.SHA256 == hash {
		a.same++
		fmt.Fprintf(a.p.stdout, "%s  there already\n", printable(e.Path))
		return nil
	}
	begin := time.Now()
	err = a.t.Put(ctx, e, old.File, f)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		a.failed++
		fmt.Fprintf(a.p.stdout, "%s  failed: %s\n", printable(e.Path), printable(err.Error()))
		return nil
	}
	a.added++
	fmt.Fprintf(a.p.stdout, "%s  added in %s\n", printable(e.Path), time.Since(begin).Round(10*time.Millisecond))
	return nil
}

func watchDocs(ctx context.Context, p program, args []string) error {
	l := newDocsLine("watch")
	b, err := l.connect(ctx, args, 1, 1)
	if err != nil {
		return err
	}
	if info, err := os.Stat(l.words[0]); err != nil || !info.IsDir() {
		return errors.Join(err, fmt.Errorf("%s is no folder", l.words[0]))
	}
	s, err := l.toCollection(ctx, b)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "1bit docs: watching %s for %s (%s); Ctrl-C ends it\n", l.words[0], s.Name, s.ID)
	w := &folder.Watcher{Dir: l.words[0], Target: docsTarget{b: b, store: s.ID}, Settle: time.Second, Report: func(e folder.Event) {
		if e.Err != nil {
			e.Did = cmp.Or(e.Did, "skipped") + ", failed: " + e.Err.Error()
		}
		fmt.Fprintf(p.stdout, "%s  %s\n", printable(e.Path), printable(e.Did))
	}}
	return w.Run(ctx, time.Duration(*l.every)*time.Second)
}

func listDocs(ctx context.Context, p program, args []string) error {
	l := newDocsLine("list")
	b, err := l.connect(ctx, args, 0, 1)
	if err != nil {
		return err
	}
	if len(l.words) == 0 {
		rows := [][]string{{"ID", "NAME", "FILES", "FAILED", "IN PROGRESS", "BYTES"}}
		err := every(ctx, b, "/vector_stores", func(s shownStore) string { return s.ID }, func(s shownStore) error {
			rows = append(rows, []string{s.ID, printable(s.Name), fmt.Sprint(s.Counts["total"]), fmt.Sprint(s.Counts["failed"]), fmt.Sprint(s.Counts["in_progress"]), fmt.Sprint(s.Bytes)})
			return nil
		})
		return rowsOf(p, rows, err)
	}
	s, err := b.existing(ctx, l.words[0])
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "NAME", "STATE", "PASSAGES", "BYTES", "WHY"}}
	err = every(ctx, b, "/vector_stores/"+escaped(s.ID)+"/files", func(f shownFile) string { return f.ID }, func(f shownFile) error {
		why := ""
		if f.Error != nil {
			why = f.Error.Message
		}
		rows = append(rows, []string{f.ID, printable(b.nameOf(ctx, f)), f.Status, fmt.Sprint(f.Progress.Chunks), fmt.Sprint(f.Bytes), printable(why)})
		return nil
	})
	return rowsOf(p, rows, err)
}

// rowsOf prints rows under their head, also those that came before an error.
func rowsOf(p program, rows [][]string, err error) error {
	if err != nil && len(rows) == 1 {
		return err
	}
	return errors.Join(err, table(p.stdout, rows))
}

// nameOf is a file's path in its folder, or its name.
func (b *docsBox) nameOf(ctx context.Context, f shownFile) string {
	if p := f.mark(folder.PathAttribute); p != "" {
		return p
	}
	var of struct{ Filename string }
	if b.call(ctx, "GET", "/files/"+escaped(f.ID), nil, &of) != nil {
		return "-" // somebody else's, in a collection that is shared
	}
	return of.Filename
}

// inCollections are the ids of those of --in.
func (l *docsLine) inCollections(ctx context.Context, b *docsBox) ([]string, error) {
	if l.in == nil || len(*l.in) == 0 {
		return nil, usageError{errors.New("--in says which collection")}
	}
	var ids []string
	for _, word := range *l.in {
		s, err := b.existing(ctx, word)
		if err != nil {
			return nil, err
		}
		ids = append(ids, s.ID)
	}
	return ids, nil
}

func searchDocs(ctx context.Context, p program, args []string) error {
	l := newDocsLine("search")
	b, err := l.connect(ctx, args, 1, 1000)
	if err != nil {
		return err
	}
	ids, err := l.inCollections(ctx, b)
	if err != nil {
		return err
	}
	for _, id := range ids {
		var found struct {
			Data []struct {
				Filename string
				Score    float64
				Content  []struct{ Text string }
				Citation struct {
					Path []string
					Page int
				}
			}
		}
		ask := map[string]any{"query": strings.Join(l.words, " "), "max_num_results": cmp.Or(*l.top, 8)}
		if err := b.call(ctx, "POST", "/vector_stores/"+escaped(id)+"/search", ask, &found); err != nil {
			return err
		}
		for _, r := range found.Data {
			where := r.Filename
			if r.Citation.Page > 0 {
				where += fmt.Sprintf(", page %d", r.Citation.Page)
			}
			if len(r.Citation.Path) > 0 {
				where += ", " + strings.Join(r.Citation.Path, " > ")
			}
			fmt.Fprintf(p.stdout, "%.3f  %s\n", r.Score, printable(where))
			for _, c := range r.Content {
				fmt.Fprintf(p.stdout, "%s\n\n", printable(c.Text))
			}
		}
	}
	return nil
}

func askDocs(ctx context.Context, p program, args []string) error {
	l := newDocsLine("ask")
	b, err := l.connect(ctx, args, 1, 1000)
	if err != nil {
		return err
	}
	ids, err := l.inCollections(ctx, b)
	if err != nil {
		return err
	}
	tool := map[string]any{"type": "file_search", "vector_store_ids": ids}
	if *l.top > 0 {
		tool["max_num_results"] = *l.top
	}
	body, err := json.Marshal(map[string]any{"model": l.model, "input": strings.Join(l.words, " "), "tools": []any{tool}, "stream": true, "store": false})
	if err != nil {
		return err
	}
	answer, err := b.send(ctx, "POST", "/responses", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 400 {
		return readAnswer(answer, nil)
	}
	return p.showResponse(answer.Body)
}

// showResponse writes a streamed response as it comes, and at the end the files that it cites.
func (p program) showResponse(in io.Reader) error {
	events := wire.NewEventReader(in)
	defer events.Release()
	var files []string
	seen := map[string]bool{}
	for {
		e, err := events.Next()
		if err != nil {
			return fmt.Errorf("the answer broke off: %w", err)
		}
		var said struct {
			Type       string
			Delta      string
			Annotation struct{ Filename string }
			Response   struct{ Error *struct{ Message string } }
		}
		if err := json.Unmarshal(e.Data, &said); err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		switch said.Type {
		case "response.output_text.delta":
			fmt.Fprint(p.stdout, printable(said.Delta))
		case "response.output_text.annotation.added":
			if name := said.Annotation.Filename; !seen[name] {
				seen[name] = true
				files = append(files, printable(name))
			}
		case "response.completed", "response.incomplete":
			fmt.Fprintln(p.stdout)
			if len(files) > 0 {
				fmt.Fprintf(p.stdout, "\nfrom: %s\n", strings.Join(files, ", "))
			}
			return nil
		case "response.failed":
			if said.Response.Error != nil {
				return errors.New(said.Response.Error.Message)
			}
			return errors.New("the answer failed")
		}
	}
}

func removeDocs(ctx context.Context, p program, args []string) error {
	l := newDocsLine("rm")
	b, err := l.connect(ctx, args, 1, 10_000)
	if err != nil {
		return err
	}
	s, err := b.existing(ctx, l.words[0])
	if err != nil {
		return err
	}
	if len(l.words) == 1 {
		return b.removeCollection(ctx, p, s)
	}
	wanted := map[string]bool{}
	for _, w := range l.words[1:] {
		wanted[w] = true
	}
	var ids []string
	if err := every(ctx, b, "/vector_stores/"+escaped(s.ID)+"/files", func(f shownFile) string { return f.ID }, func(f shownFile) error {
		name := b.nameOf(ctx, f)
		for _, w := range []string{f.ID, name} {
			if wanted[w] {
				ids = append(ids, f.ID)
				delete(wanted, w)
				fmt.Fprintf(p.stderr, "1bit docs: deleting %s (%s)\n", printable(name), f.ID)
				break
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, id := range ids {
		if err := b.call(ctx, "DELETE", "/files/"+escaped(id), nil, nil); err != nil {
			return err
		}
	}
	for w := range wanted {
		return fmt.Errorf("the collection has no file %q", w)
	}
	return nil
}

// removeCollection deletes a collection with those of its files that were put in by path.
func (b *docsBox) removeCollection(ctx context.Context, p program, s *shownStore) error {
	t := docsTarget{b: b, store: s.ID}
	there, err := t.List(ctx)
	if err != nil {
		return err
	}
	for _, e := range there {
		if err := t.Remove(ctx, e); err != nil {
			return err
		}
	}
	if err := b.call(ctx, "DELETE", "/vector_stores/"+escaped(s.ID), nil, nil); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "1bit docs: deleted the collection %s (%s)\n", printable(s.Name), s.ID)
	return nil
}

// hashOf is the SHA-256 of a file, which is read from its beginning again afterwards.
func hashOf(f *os.File) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	_, err := f.Seek(0, io.SeekStart)
	return hex.EncodeToString(sum.Sum(nil)), err
}
