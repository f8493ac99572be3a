package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"onebit/appliance/admin"
)

// local speaks with the box that runs on this machine, over its own socket.
type local struct {
	socket string
	client *http.Client
}

// newLocal finds the socket: the one given, else ONEBIT_SOCKET, else the one of the usual state directory, else the one of
// a box that the system runs.
func newLocal(given string, getenv func(string) string) (*local, error) {
	path := given
	if path == "" {
		path = getenv("ONEBIT_SOCKET")
	}
	if path == "" {
		dir, err := stateDir(getenv)
		if err != nil {
			return nil, err
		}
		path = filepath.Join(dir, socketName)
		const system = "/var/lib/1bit/" + socketName
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Stat(system); !errors.Is(err, fs.ErrNotExist) {
				path = system
			}
		}
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	return &local{socket: path, client: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: time.Minute}}, nil
}

// call sends in as JSON, when there is one, and reads the answer into out, when there is one.
func (l *local) call(ctx context.Context, method, path string, in, out any) error {
	answer, err := l.send(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	return readAnswer(answer, out)
}

// send sends in as JSON, when there is one, and returns the open answer.
func (l *local) send(ctx context.Context, method, path string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("writing the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://box"+admin.Prefix+path, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return l.do(r)
}

// do sends a request and returns the open answer.
func (l *local) do(r *http.Request) (*http.Response, error) {
	answer, err := l.client.Do(r)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no box runs at %s: start one with `1bit appliance`, or name its socket with --socket or ONEBIT_SOCKET", l.socket)
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("the socket %s is for the box's own user: run this as that user, or with sudo", l.socket)
	case err != nil:
		return nil, fmt.Errorf("asking the box: %w", err)
	}
	return answer, nil
}

// readAnswer reads JSON into out, or returns what the error object says.
func readAnswer(answer *http.Response, out any) error {
	b, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("reading the box's answer: %w", err)
	}
	if answer.StatusCode >= 400 {
		var said struct {
			Error struct{ Message string }
		}
		if json.Unmarshal(b, &said) != nil || said.Error.Message == "" {
			return fmt.Errorf("the box answered %s", answer.Status)
		}
		return errors.New(said.Error.Message)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("reading the box's answer: %w", err)
	}
	return nil
}

// findPerson returns the person of a name or an id.
func (l *local) findPerson(ctx context.Context, text string) (admin.Person, error) {
	var all struct{ People []admin.Person }
	if err := l.call(ctx, "GET", "/people", nil, &all); err != nil {
		return admin.Person{}, err
	}
	for _, p := range all.People {
		if p.ID == text || strings.EqualFold(p.Name, text) {
			return p, nil
		}
	}
	return admin.Person{}, fmt.Errorf("nobody is called %q", text)
}

// findKey returns the key of an id, of the beginning that a list shows, or of a name that one key alone has.
func (l *local) findKey(ctx context.Context, text string) (admin.Key, error) {
	var all struct{ Keys []admin.Key }
	if err := l.call(ctx, "GET", "/keys", nil, &all); err != nil {
		return admin.Key{}, err
	}
	var found []admin.Key
	for _, k := range all.Keys {
		if k.ID == text {
			return k, nil
		}
		// a whole key works too: who has one in hand may ask about it
		if k.Name == text || (len(text) >= len(k.Prefix) && strings.HasPrefix(text, k.Prefix)) {
			found = append(found, k)
		}
	}
	switch len(found) {
	case 0:
		return admin.Key{}, errors.New("there is no such key: give its id, its beginning or its name")
	case 1:
		return found[0], nil
	}
	return admin.Key{}, fmt.Errorf("%d keys are called so: give the id", len(found))
}

// table writes rows in columns; the first row is the head.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// date shows a time in a table.
func date(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04")
}

// escaped is a path's last part.
func escaped(id string) string { return url.PathEscape(id) }
