package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"onebit/appliance/config"
	"onebit/store"
	"onebit/store/documents"
	single "onebit/store/documents/local"
	"onebit/store/documents/migration"
	"onebit/store/documents/postgres"
)

const migrateUsage = `usage: 1bit docs migrate --to postgres|file [--config FILE] [--state DIR] [--set PATH=VALUE]

Moves all documents of a box that is stopped: from the file in its state into the PostgreSQL that documents.postgres of
the configuration names, or back. Ids, owners and vectors stay, and everything that arrived is held against what was
sent. A move that broke off can be begun again. What is moved stays where it was until somebody deletes it.
`

// migrateDocs is 1bit docs migrate.
func (p program) migrateDocs(ctx context.Context, args []string) int {
	to := ""
	if len(args) >= 2 && args[0] == "--to" {
		to, args = args[1], args[2:]
	}
	o, err := parseBox(args)
	if errors.Is(err, errHelp) {
		fmt.Fprint(p.stdout, migrateUsage)
		return 0
	}
	if err == nil && to != "postgres" && to != "file" {
		err = errors.New("say where to: --to postgres, or --to file")
	}
	if err == nil {
		err = p.moveDocs(ctx, o, to)
	}
	if err != nil {
		return p.fail("docs migrate", err)
	}
	return 0
}

func (p program) moveDocs(ctx context.Context, o boxOptions, to string) (err error) {
	cfg, _, err := o.read(nil)
	if err != nil {
		return err
	}
	if cfg.Documents.Postgres == "" {
		return errors.New(`the configuration names no database: documents: {postgres: "postgres://box@db/house"}`)
	}
	// the lock of the state keeps a running box out
	s, err := store.Open(ctx, store.Config{Dir: o.state, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("opening the state in %s, of a box that has to be stopped: %w", o.state, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	file, err := single.Open(ctx, single.Config{Dir: o.state})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if aside := file.SetAside(); aside != "" {
		return fmt.Errorf("the documents' file was damaged and is set aside as %s; nothing was moved", aside)
	}
	base, err := openPostgres(ctx, cfg.Documents)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, base.Close()) }()
	from, target := documents.Keeper(file), base
	if to == "file" {
		from, target = base, file
	}
	r, err := migration.Run(ctx, from, target, func(what string) { fmt.Fprintln(p.stderr, what) })
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "moved and compared: %d files (%d bytes), %d collections with %d files and %d passages\n", r.Files, r.Bytes, r.Collections, r.Attachments, r.Passages)
	if to == "file" {
		fmt.Fprintln(p.stdout, "take documents.postgres out of the configuration, then start the box")
	}
	return nil
}

// openPostgres opens the database of a configuration.
func openPostgres(ctx context.Context, c config.Documents) (documents.Keeper, error) {
	k, err := postgres.Open(ctx, postgres.Config{DSN: string(c.Postgres)})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// openDocuments opens what keeps the documents of a box: a database where the configuration names one, else a file in
// the state.
func (b *box) openDocuments(ctx context.Context, c config.Documents) (documents.Keeper, error) {
	if c.Postgres != "" {
		return openPostgres(ctx, c)
	}
	k, err := single.Open(ctx, single.Config{Dir: b.options.state})
	if err != nil {
		return nil, err
	}
	if aside := k.SetAside(); aside != "" {
		text := "the documents' database was damaged and is set aside as " + aside + "; restore a backup to have the documents again"
		b.problems.set("documents", text)
		b.log.Error(text)
	}
	return k, nil
}
