package catalog

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"onebit/appliance/egress"
)

// transfer brings the bytes of one file into a partial file, hashing them as they come. A transfer that is broken off
// goes on where it stood: beside the partial file lies a state file with the server's mark of the content and the hash
// of the bytes that are safely on disk.
type transfer struct {
	client  *egress.Client
	url     string
	partial string // path
	name    string // for people
	want    int64  // bytes; 0 when it is not known
	sha256  string // expected; empty when it is not known
	gguf    bool   // the file must begin as a GGUF file

	progress Progress
	note     func(string)
	pause    func(context.Context, time.Duration) error
	tries    int           // in a row that bring nothing; default 6
	window   time.Duration // in which at least some bytes must come; default 60 s

	out     *os.File
	hash    hash.Hash
	size    int64 // want, or what the server says
	done    int64 // bytes in out, and hashed
	safe    int64 // of them, on disk and in the state file
	etag    string
	resumed bool // out holds bytes of more than one answer
}

// Bytes.
const (
	chunk      = 256 << 10 // read at most at once
	flushEvery = 32 << 20  // written before they are sent to disk
	saveEvery  = 128 << 20 // on disk before the state file is written anew
	leastBytes = 64 << 10  // that must come in a window
)

// fatal is an error that trying again does not mend.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// errChanged says that the server has another file than the one that was begun.
var errChanged = errors.New("the file has changed on the server")

// run transfers the file and returns its hash in hex and its size. The partial file is closed and on disk then.
func (t *transfer) run(ctx context.Context) (sum string, size int64, err error) {
	if t.tries == 0 {
		t.tries = 6
	}
	if t.window == 0 {
		t.window = time.Minute
	}
	if t.pause == nil {
		t.pause = sleep
	}
	if err := t.open(); err != nil {
		return "", 0, err
	}
	defer func() {
		if err != nil && t.done > 0 {
			t.keep() // what came is not lost
		}
		t.out.Close()
		if err != nil && t.done == 0 {
			os.Remove(t.partial)
			os.Remove(t.stateFile())
		}
	}()
	for again := false; ; again = true {
		if err := t.all(ctx); err != nil {
			return "", 0, err
		}
		sum := hex.EncodeToString(t.hash.Sum(nil))
		if t.sha256 == "" || sum == t.sha256 {
			if err := flush(t.out); err != nil {
				return "", 0, fmt.Errorf("writing %s to disk: %w", t.name, err)
			}
			forget(t.out, 0, 0)
			return sum, t.done, nil
		}
		wrong := fmt.Errorf("checking what was downloaded for %s: its SHA-256 is %s, not %s; it was removed: %w", t.name, sum, t.sha256, ErrDamaged)
		mixed := t.resumed
		if err := t.reset(); err != nil {
			return "", 0, err
		}
		if !mixed || again {
			return "", 0, wrong
		}
		t.say("the parts of " + t.name + " do not belong together; getting it again from the beginning")
	}
}

func (t *transfer) stateFile() string { return t.partial + ".state" }

func (t *transfer) say(s string) {
	if t.note != nil {
		t.note(s)
	}
}

// all asks until all bytes are there.
func (t *transfer) all(ctx context.Context) error {
	for failures := 0; ; {
		if t.size > 0 && t.done == t.size {
			return nil
		}
		before := t.done
		wait, err := t.try(ctx)
		switch _, hopeless := errors.AsType[fatal](err); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case hopeless:
			return err
		case t.done > before:
			failures = 0
		}
		if errors.Is(err, errChanged) {
			if err := t.reset(); err != nil {
				return err
			}
		}
		if failures++; failures >= t.tries {
			return fmt.Errorf("downloading %s (run again to resume): %w", t.name, err)
		}
		if wait == 0 {
			wait = min(time.Second<<(failures-1), 30*time.Second)
		}
		t.say(fmt.Sprintf("%v; going on in %v", err, wait.Round(time.Second)))
		if err := t.pause(ctx, wait); err != nil {
			return err
		}
	}
}

// try asks once, for what is missing. The error is fatal, or the next try may mend it, not before wait has passed.
func (t *transfer) try(ctx context.Context) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return 0, fatal{fmt.Errorf("%q is no URL", withoutQuery(t.url))}
	}
	req.Header.Set("Accept-Encoding", "identity")
	if t.done > 0 {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(t.done, 10)+"-")
		if strings.HasPrefix(t.etag, `"`) { // a weak mark says nothing about single bytes
			req.Header.Set("If-Range", t.etag)
		}
	}
	res, err := t.client.Do(req, egress.Limits{Bytes: -1, Window: t.window, Least: leastBytes})
	if refused, ok := errors.AsType[*egress.RefusedError](err); ok {
		return 0, fatal{refused}
	}
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if wait, err := t.check(res); err != nil {
		return wait, err
	}
	return 0, t.receive(ctx, res)
}

// check looks at the head of an answer and places what follows: at its own beginning or behind what there is.
func (t *transfer) check(res *http.Response) (wait time.Duration, err error) {
	bad := func(format string, args ...any) error {
		return fatal{fmt.Errorf("asking for %s: "+format, append([]any{t.name}, args...)...)}
	}
	switch code := res.StatusCode; {
	case code == http.StatusOK || code == http.StatusPartialContent:
	case code == http.StatusRequestedRangeNotSatisfiable:
		return 0, errChanged
	case code == http.StatusTooManyRequests || code >= 500:
		wait = retryAfter(res.Header.Get("Retry-After"))
		if wait > 5*time.Minute {
			return 0, bad("%s wants to be asked again in %v", res.Request.URL.Hostname(), wait)
		}
		return wait, &egress.StatusError{Status: code, Host: res.Request.URL.Hostname()}
	default:
		return 0, fatal{hubError(&egress.StatusError{Status: code, Host: res.Request.URL.Hostname()})}
	}
	if e := res.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return 0, bad("it comes packed as %q, which was not asked for", e)
	}
	if kind, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";"); t.gguf && strings.TrimSpace(kind) == "text/html" {
		return 0, bad("a page for people came in place of the file")
	}
	etag := res.Header.Get("ETag")
	if res.StatusCode == http.StatusOK {
		if t.done > 0 {
			t.say(t.name + " begins anew: the server does not resume, or has another file now")
		}
		if err := t.reset(); err != nil {
			return 0, fatal{err}
		}
		t.etag = etag
		return 0, t.total(res.ContentLength, bad)
	}
	if t.etag != "" && etag != "" && etag != t.etag {
		return 0, errChanged
	}
	from, total, ok := contentRange(res.Header.Get("Content-Range"))
	if !ok || from != t.done || t.done == 0 {
		return 0, bad("it sent %q for the bytes from %d", res.Header.Get("Content-Range"), t.done)
	}
	t.resumed = true
	return 0, t.total(total, bad)
}

// total takes in what an answer says about the whole file's length, -1 when it is silent.
func (t *transfer) total(n int64, bad func(string, ...any) error) error {
	switch {
	case n < 0:
	case n > maxFile:
		return bad("it has %d bytes", n)
	case t.size == 0:
		t.size = n
	case t.size != n && t.resumed:
		return errChanged
	case t.size != n:
		return bad("it has %d bytes, not %d", n, t.size)
	}
	return nil
}

// receive writes and hashes what comes.
func (t *transfer) receive(ctx context.Context, res *http.Response) error {
	buf := make([]byte, chunk)
	for {
		n, err := res.Body.Read(buf)
		for t.done == 0 && n < 4 && err == nil { // enough to see what it is
			var more int
			more, err = res.Body.Read(buf[n:])
			n += more
		}
		if n > 0 {
			if err := t.take(ctx, buf[:n]); err != nil {
				return err
			}
		}
		switch err { // a body that was broken off wraps io.EOF, or is another
		case nil:
		case io.EOF:
			if t.size > 0 && t.done < t.size {
				return fmt.Errorf("downloading %s: got %d of %d bytes", t.name, t.done, t.size)
			}
			t.size = t.done
			return nil
		default:
			return fmt.Errorf("downloading %s: %w", t.name, err)
		}
	}
}

// take adds bytes to the partial file.
func (t *transfer) take(ctx context.Context, b []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.gguf && t.done == 0 && len(b) >= 4 && !bytes.HasPrefix(b, []byte("GGUF")) {
		return fatal{fmt.Errorf("what comes for %s is no GGUF file: it begins with %.40q", t.name, b)}
	}
	if t.size > 0 && t.done+int64(len(b)) > t.size {
		return fatal{fmt.Errorf("downloading %s: more than its %d bytes come", t.name, t.size)}
	}
	if t.done+int64(len(b)) > maxFile {
		return fatal{fmt.Errorf("downloading %s: it does not end", t.name)}
	}
	begin := time.Now()
	if _, err := t.out.WriteAt(b, t.done); err != nil {
		return fatal{fmt.Errorf("writing %s: %w", t.name, err)}
	}
	t.hash.Write(b)
	rest(begin)
	before := t.done
	t.done += int64(len(b))
	if t.done/flushEvery != before/flushEvery {
		if err := flush(t.out); err != nil {
			return fatal{fmt.Errorf("writing %s to disk: %w", t.name, err)}
		}
		forget(t.out, 0, t.done)
		if t.done-t.safe >= saveEvery {
			t.save()
		}
	}
	if t.progress != nil {
		t.progress("downloading "+t.name, t.done, t.size)
	}
	return nil
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// contentRange reads "bytes FROM-TO/TOTAL". A total that is not told is -1.
func contentRange(s string) (from, total int64, ok bool) {
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, whole, ok2 := strings.Cut(rest, "/")
	first, last, ok3 := strings.Cut(span, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	if !ok || !ok2 || !ok3 || err != nil || err2 != nil || from < 0 || to < from {
		return 0, 0, false
	}
	if whole == "*" {
		return from, -1, true
	}
	total, err = strconv.ParseInt(whole, 10, 64)
	if err != nil || total != to+1 { // an answer up to another end is not what was asked for
		return 0, 0, false
	}
	return from, total, true
}

// retryAfter reads a header in seconds or as a time; 0 when there is none.
func retryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil && n >= 0 {
		return time.Duration(min(n, 1<<30)) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
