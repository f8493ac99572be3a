package main

import (
	"context"
	"io"
	"strings"

	"onebit/appliance/pool"
	"onebit/appliance/promptcache"
	"onebit/engine/backend"
	"onebit/store"
	"onebit/store/documents"
)

// Forget deletes the documents of a person who has gone.
func Forget(ctx context.Context, k documents.Keeper, person string) error {
	return librarian{&box{shelves: &shelves{keeper: k}}}.Forget(ctx, person)
}

// Run is what the program does with a command line.
func Run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, args ...string) int {
	return program{stdin: stdin, stdout: stdout, stderr: stderr}.run(ctx, args)
}

// IndexIn is where the prompt cache of a box records its files.
func IndexIn(s *store.Store) promptcache.Index { return prefixes{s} }

// Within is the budget of a prompt cache on a disk with so much that is free.
func Within(budget int64, free uint64, err error) int64 {
	r := room{space: func(string) (uint64, error) { return free, err }}
	return r.within(budget)
}

// CacheSecret is what keys the scopes of the prompt cache in a folder.
var CacheSecret = cacheSecret

// Budget is how much of a box's memory models may take.
var Budget = budget

// Clean takes out what a support bundle does not hold.
func Clean(text string, names ...string) string {
	c := newCleaner()
	for _, n := range names {
		c.hide(n)
	}
	return string(c.clean([]byte(text)))
}

// Share is share.
func Share(state, path string) error { return share(state, path) }

// ParseEngines reads the command line of `1bit engines`.
func ParseEngines(args []string, getenv func(string) string) error {
	_, err := parseEngines(args, getenv)
	return err
}

// Identity is what made the states of a server, by its command line.
func Identity(program string, args ...string) string {
	return identityOf(pool.ModelSpec{Version: "1"}, backend.ChildSpec{Program: program, Args: args})
}

// Traits are what is known of a model's states, by its file and the command line.
func Traits(file string, args ...string) promptcache.Traits {
	return traitsOf(pool.ModelSpec{Options: backend.Options{Model: file}}, backend.ChildSpec{Args: args})
}

// ScopeOfKey is whose a key's prompts are, and Unwritten whether they are kept from the disk.
func ScopeOfKey(k store.Key) (scope string, kept bool) {
	scope = scopeOfKey(&k)
	return scope, strings.HasPrefix(scope, unwritten)
}
