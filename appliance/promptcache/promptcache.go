// Package promptcache is the prompt-cache index of a box: it knows which slot of which model server, or which file, holds
// the state of which prompt, sends each request where most of its prompt has been computed before, and keeps states in
// files when their slots are needed for something else.
//
// # What is in the way
//
// [Cache.Wrap] puts a [Backend] before a chat server that has llama-server's slots. Everything that may touch a slot goes
// through it, so it owns them: each request is sent to a slot of our choice, never two at a time to one; what a client says
// of slots is replaced. When all are busy, requests wait in order.
//
// # Choosing
//
// A prompt is a chain of blocks (engine/wire/prefix), whose hashes cover whose prompt it is. For each idle slot there are up
// to three ways: go on from what it holds, as far as the chains agree; restore a file in it; begin anew. What counts is the
// number of tokens that are not computed again, less what the way costs in the same measure: moving a state to a file or
// back takes about a fiftieth of the time of computing it, and what is lost for good counts for a third; more for a slot
// that was in use a moment ago. So a slot is not taken from a conversation for a few tokens of a system prompt that both
// have, and no request is sent to an empty slot when that makes it worse.
//
// # Between keys
//
// A slot that holds the prompt of one scope (a key, or a person without one) is never gone on from by another: such a
// request carries cache_prompt false until one of it was answered, so the server compares nothing with what was there
// before. Neither what is reused nor how long it takes says anything of somebody else's prompts. Files are looked up within
// a scope too. Scopes are known by keyed hashes alone; when a key goes, so do its files.
//
// # Files
//
// The file of a conversation serves any prefix of it: a server cuts a restored state back to what it has in common with the
// prompt. So a prompt that shares only a marked system prompt with an earlier one, or was edited in the middle, restores
// the same file. States of recurrent models and of sliding windows cannot be cut back by llama-server ([Traits]): only those
// are taken that the prompt goes on from whole. What nobody knew shows in the answers: after two claims that did not
// hold nothing is cut back for an hour.
//
// A file has a random name, lies in a folder of its model and is written by the server. It is recorded in the index when it
// is whole and on the disk, and forgotten there before it is deleted; both are done in order by one goroutine, [Cache.Run].
// What is in the folder and not recorded, or recorded and not there, is swept at the next start. So the index never names
// a file that is not there, at whatever point the program ends.
//
// All files lie within a byte budget. The first to go are those whose time is over. Then a file goes of the scope that would
// keep most without it, in bytes or in number, until nobody has more than what a fair division leaves them: very many
// conversations of one key cost no other key a file within its share, however long that was not asked for, and everybody's best
// file is as good as anybody's, however large it is. A new file that would be the first to go is not written. Of one scope, and
// among files that are equal in this, what was not asked for the longest goes first, and last what clients have marked, for as
// long as they wished. The marks of one scope count for half of the budget.
//
// # Claims
//
// A server may say that it restored a state and then compute everything again. Before the first restore of a build of a
// program, a small prompt is saved, erased and restored, and the files of a build are used only when that was reused.
// Each expectation is compared with the answer's own count; an entry that promised what did not come is removed. What
// clients and figures show is the server's count, and nothing is said before it is there. Of a stream that is before its
// first byte: the server is asked to say how it begins with the prompt, which the client does not see.
//
// # Marks
//
// A client's mark (prompt_cache_breakpoint, cache_control) is a wish that the state up to there be kept. Usage.Written
// counts the tokens that were not kept for such a wish before. Kept means: before the answer ends the state is in a file, on
// the disk and recorded, so that it survives whatever ends the program after that. What is too little for a file of its own
// (a quarter of Settings.Least), and a state of more than 256 MiB, which would keep its client waiting, is in a file before
// its slot is given to another conversation or the server stopped; a second of quiet writes it ahead of that. Nothing is
// called kept that could not be written, or whose build has not shown that files are of use.
//
// # Several answers
//
// A request for several answers, or with several prompts, does not take the slots of others where that can be helped
// ([ways]). It waits in line like any other; what it displaces goes to files first, and is not taken for there afterwards.
package promptcache

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"onebit/engine"
	"onebit/engine/wire/prefix"
)

// Settings are what may change while a Cache runs.
type Settings struct {
	Budget int64         // bytes of all files; 0 keeps none
	TTL    time.Duration // a file that was not used for so long goes; 0 for never
	Least  int           // tokens below which a state is not worth a file
	Steady bool          // lines that agents change with each request are left out
}

// Config describes a Cache. All fields but Unwritten and Now must be given.
type Config struct {
	Dir      string // holds a folder for each model; nobody else writes there
	Secret   []byte // keys the hashes of scopes
	Settings func() Settings
	Index    Index
	// Unwritten reports whether nothing of a scope's prompts may go to files; nil: there is no such scope. It is always the
	// same for one scope.
	Unwritten func(scope string) bool
	Now       func() time.Time // nil: time.Now
	Log       *slog.Logger
}

// Index is where files are recorded. Put replaces what is known of the file.
type Index interface {
	Entries(ctx context.Context) ([]Entry, error)
	Put(ctx context.Context, e Entry) error
	Delete(ctx context.Context, file string) error
}

// Hash is a keyed or plain SHA-256.
type Hash = [sha256.Size]byte

// Entry is one file with the state of a model after a prompt.
type Entry struct {
	File   string // its name
	Model  string // the folder
	Of     Hash   // the model's file, its options and the build of the program
	Scope  Hash   // whose prompt it was
	Points []Point
	Tokens int // all that it holds, with the answer
	Bytes  int64
	Marked time.Time // the client asked to keep it until then; zero: it did not
	Used   time.Time // last
}

// Point is the end of a block.
type Point struct {
	Hash   [16]byte
	Tokens int  // of the prompt up to there, as counted or in proportion between two counts
	Mark   bool // the client asked to keep it
}

// maxEntries and maxPoints bound the index; a longer prompt is known by its beginning.
const (
	maxEntries = 2048
	maxPoints  = 8192
)

// Cache is the index. All methods may be called at the same time from many goroutines.
type Cache struct {
	cfg Config

	mu       sync.Mutex // after a Backend's own
	entries  map[string]*entry
	total    int64 // bytes of all entries
	backends map[*Backend]bool
	proofs   map[Hash]verdict
	rates    map[Hash]float64 // bytes of a token, by Entry.Of
	scopes   map[string]Hash  // the latest words
	counts   Counts
	jobs     []job
	doing    bool          // a job has been taken out of jobs and is not done
	idle     chan struct{} // closed when jobs is empty and none is being done
	kick     chan struct{}
}

// entry is an Entry in use. Cache.mu guards it; Points does not change.
type entry struct {
	Entry
	users int  // restores under way: it is not deleted meanwhile
	gone  bool // to be deleted with its last user
	noted time.Time
}

// job is a change of the index on the disk.
type job struct {
	put  *Entry // whole, but perhaps not on the disk yet
	drop string // the path of a file to forget and delete
	file string
	done chan<- error // has room for what came of it; nil where nobody waits
}

// New reads the index and sweeps the folder: what is not recorded is deleted, what is recorded and not whole is
// forgotten. Nobody else may use the folder.
func New(ctx context.Context, cfg Config) (*Cache, error) {
	switch {
	case cfg.Dir == "" || cfg.Settings == nil || cfg.Index == nil || cfg.Log == nil:
		return nil, errors.New("a prompt cache needs a folder, settings, an index and a log")
	case len(cfg.Secret) < 16:
		return nil, errors.New("a prompt cache needs a secret of 16 bytes or more")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Cache{
		cfg: cfg, entries: map[string]*entry{}, backends: map[*Backend]bool{}, proofs: map[Hash]verdict{}, rates: map[Hash]float64{},
		kick: make(chan struct{}, 1),
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the prompt cache: %w", err)
	}
	if err := c.load(ctx); err != nil {
		return nil, err
	}
	return c, c.sweep()
}

// load takes in what is recorded and there.
func (c *Cache) load(ctx context.Context) error {
	all, err := c.cfg.Index.Entries(ctx)
	if err != nil {
		return fmt.Errorf("reading the index of the prompt cache: %w", err)
	}
	for _, e := range all {
		info, err := os.Stat(c.path(e.Model, e.File))
		if err == nil && info.Mode().IsRegular() && info.Size() == e.Bytes && len(e.Points) > 0 {
			c.entries[e.File] = &entry{Entry: e, noted: e.Used}
			c.total += e.Bytes
			c.learn(e.Of, e.Bytes, e.Tokens)
			continue
		}
		if err := c.cfg.Index.Delete(ctx, e.File); err != nil {
			return fmt.Errorf("forgetting a prompt: %w", err)
		}
	}
	return nil
}

// sweep deletes the files that are not recorded.
func (c *Cache) sweep() error {
	models, err := os.ReadDir(c.cfg.Dir)
	if err != nil {
		return fmt.Errorf("reading the folder of the prompt cache: %w", err)
	}
	for _, m := range models {
		dir := filepath.Join(c.cfg.Dir, m.Name())
		files, err := os.ReadDir(dir)
		if err != nil {
			continue // it is no folder of ours
		}
		for _, f := range files {
			if e := c.entries[f.Name()]; e != nil && e.Model == m.Name() {
				continue
			}
			if err := os.RemoveAll(filepath.Join(dir, f.Name())); err != nil {
				c.cfg.Log.Warn("a file of the prompt cache cannot be deleted", "file", f.Name(), "why", err)
			}
		}
	}
	return nil
}

// Folder is where the server of a model is to keep the state of its slots.
func (c *Cache) Folder(model string) string { return filepath.Join(c.cfg.Dir, folder(model)) }

// folder names it. A model's own name may be no name of a file.
func folder(model string) string {
	sum := sha256.Sum256([]byte("1bit prompt cache " + model))
	return hex.EncodeToString(sum[:8])
}

func (c *Cache) path(model, file string) string { return filepath.Join(c.cfg.Dir, model, file) }

// mostScopes is of how many words the hash is remembered.
const mostScopes = 256

// scope is the keyed hash of whose prompts they are.
func (c *Cache) scope(word string) (h Hash) {
	c.mu.Lock()
	h, ok := c.scopes[word]
	c.mu.Unlock()
	if ok {
		return h
	}
	m := hmac.New(sha256.New, c.cfg.Secret)
	m.Write([]byte(word))
	m.Sum(h[:0])
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.scopes) >= mostScopes || c.scopes == nil {
		c.scopes = map[string]Hash{}
	}
	c.scopes[word] = h
	return h
}

// Expect returns how many tokens of a request's prompt would be reused by a model, as far as is known. It is quick where
// nothing of whose prompt it is is kept, and for a prompt that begins like none. One goroutine at a time may ask.
func (c *Cache) Expect(req *engine.Request) func(model string) (tokens int) {
	e := &expecting{c: c, req: req, scope: c.scope(req.Scope), backends: c.wrapped()}
	e.word = hexed(e.scope)
	return e.of
}

// expecting is a request that models are compared for.
type expecting struct {
	c      *Cache
	req    *engine.Request
	scope  Hash
	word   string
	parsed *prefix.Parsed // nil while nobody needed it

	backends []*Backend
}

func (e *expecting) of(model string) (tokens int) {
	c, scope := e.c, e.scope
	first, dir := e.firsts(model)
	if len(first) == 0 {
		return 0
	}
	if e.parsed == nil {
		if c.cfg.Settings().Steady {
			e.req, _ = prefix.Steady(e.req)
		}
		e.parsed = prefix.Parse(e.req)
	}
	if begin, ok := e.parsed.First(e.word, model); !ok || !slices.Contains(first, begin) {
		return 0 // most new conversations
	}
	chain, err := chainOf(scope, model, e.req)
	if err != nil || len(chain.Blocks) == 0 {
		return 0
	}
	for _, b := range e.backends {
		if b.model == model {
			tokens = max(tokens, b.expect(chain))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.entries {
		if e.Model == dir && c.proofs[e.Of] != bad {
			_, n := common(e.Points, chain.Blocks)
			tokens = max(tokens, n)
		}
	}
	return tokens
}

// firsts are the hashes of the first blocks of what is kept of a scope for a model, and the name of its folder.
func (e *expecting) firsts(model string) (first [][16]byte, dir string) {
	c := e.c
	for _, b := range e.backends {
		if b.model == model {
			first, dir = b.firsts(first, e.scope), b.dir
		}
	}
	if dir == "" {
		dir = folder(model)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.entries {
		if one.Scope == e.scope && one.Model == dir && len(one.Points) > 0 {
			first = append(first, one.Points[0].Hash)
		}
	}
	return first, dir
}

// hexed is a scope as the chains have it.
func hexed(h Hash) string { return hex.EncodeToString(h[:]) }

func chainOf(scope Hash, model string, req *engine.Request) (prefix.Chain, error) {
	chain, err := prefix.Of(hexed(scope), model, req)
	if len(chain.Blocks) > maxPoints {
		chain.Blocks = chain.Blocks[:maxPoints]
	}
	return chain, err
}

// wrapped are the backends of the moment.
func (c *Cache) wrapped() []*Backend {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]*Backend, 0, len(c.backends))
	for b := range c.backends {
		all = append(all, b)
	}
	return all
}

// common is how many blocks of a chain are held, and how many tokens that is.
func common(held []Point, blocks []prefix.Block) (k, tokens int) {
	for k < len(held) && k < len(blocks) && held[k].Hash == blocks[k].Hash {
		tokens = held[k].Tokens
		k++
	}
	return k, tokens
}

// Run keeps the index on the disk true, writes marked states ahead and lets go of what is too old. It blocks until ctx
// ends and then finishes what is to be written.
func (c *Cache) Run(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		c.work(context.WithoutCancel(ctx))
		select {
		case <-ctx.Done():
			c.work(context.WithoutCancel(ctx))
			return nil
		case <-c.kick:
		case <-tick.C:
			c.expire()
			for _, b := range c.wrapped() {
				b.ahead(ctx)
			}
		}
	}
}

// Flush waits until the index on the disk is what it is in memory. Run must be running.
func (c *Cache) Flush(ctx context.Context) error {
	c.mu.Lock()
	if len(c.jobs) == 0 && !c.doing {
		c.mu.Unlock()
		return nil
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// add notes a job; mu is held.
func (c *Cache) add(j job) {
	c.jobs = append(c.jobs, j)
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// work does all jobs in order.
func (c *Cache) work(ctx context.Context) {
	for {
		c.mu.Lock()
		c.doing = len(c.jobs) > 0
		if !c.doing {
			if c.idle != nil {
				close(c.idle)
				c.idle = nil
			}
			c.mu.Unlock()
			return
		}
		j := c.jobs[0]
		c.jobs = c.jobs[1:]
		c.mu.Unlock()
		err := c.do(ctx, j)
		if j.done != nil {
			j.done <- err
		}
		if err != nil {
			c.cfg.Log.Warn("the index of the prompt cache", "file", j.file, "why", err)
		}
	}
}

// do records a file once it is on the disk, or forgets one and then deletes it.
func (c *Cache) do(ctx context.Context, j job) error {
	if j.put != nil {
		if err := settled(c.path(j.put.Model, j.put.File), j.put.Bytes); err != nil {
			c.mu.Lock()
			c.forget(j.put.File)
			c.mu.Unlock()
			return err
		}
		return c.cfg.Index.Put(ctx, *j.put)
	}
	if err := c.cfg.Index.Delete(ctx, j.file); err != nil {
		return err // the file stays, since the index may name it
	}
	if err := os.Remove(j.drop); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// settled makes sure that a file is whole and on the disk.
func settled(path string, bytes int64) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != bytes {
		return fmt.Errorf("it has %d bytes and not %d", info.Size(), bytes)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	_ = dir.Sync() // some systems cannot; what is recorded and not there is swept
	return dir.Close()
}
