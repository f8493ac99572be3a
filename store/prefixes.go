package store

import (
	"context"
	"fmt"
	"time"

	"onebit/store/sqlite"
)

// Prefix is one file that holds the state of a model after a prompt. The file itself is not of the store: whoever keeps it
// records it only once it is whole, and forgets it before it is deleted.
type Prefix struct {
	File   string   // its name, below the folder of the model
	Model  string   // the folder
	Of     [32]byte // the model's file, its options and the build of the program
	Scope  [32]byte // whose prompt it was, as a keyed hash
	Last   [16]byte // hash of the last block
	Blocks []byte   // the hashes of all blocks and what is known of each, in the form of whoever keeps the file
	Tokens int64
	Bytes  int64
	Marked time.Time // the client asked to keep it until then; zero: it did not
	Used   time.Time // last
}

// MaxPrefixes is how many files are recorded at most, and MaxPrefixBlocks how long the blocks of one may be, in bytes.
const (
	MaxPrefixes     = 4096
	MaxPrefixBlocks = 256 << 10
)

const (
	prefixColumns = "file, model, identity, scope, last, blocks, tokens, bytes, marked, used"
	allPrefixes   = "select " + prefixColumns + " from prefixes order by used, file"
	putPrefix     = "insert into prefixes(" + prefixColumns + `) values(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		on conflict do update set marked = excluded.marked, used = excluded.used`
	countPrefixes  = "select count(*) from prefixes where file <> ?"
	deletePrefix   = "delete from prefixes where file = ?"
	deletePrefixes = "delete from prefixes"
)

func scanPrefix(r sqlite.Row) (p Prefix, err error) {
	var of, scope, last []byte
	var marked, used int64
	err = r.Scan(&p.File, &p.Model, &of, &scope, &last, &p.Blocks, &p.Tokens, &p.Bytes, &marked, &used)
	if err == nil && (len(of) != len(p.Of) || len(scope) != len(p.Scope) || len(last) != len(p.Last)) {
		err = fmt.Errorf("%w: a hash of the prefix %q has another length", ErrCorrupt, p.File)
	}
	copy(p.Of[:], of)
	copy(p.Scope[:], scope)
	copy(p.Last[:], last)
	p.Marked, p.Used = sqlite.Moment(marked), sqlite.Moment(used)
	return p, err
}

// PutPrefix records a file, or when a recorded one was last used and until when it is marked. More than MaxPrefixes, or a
// longer list of blocks than MaxPrefixBlocks, is [ErrInvalid].
func (s *Store) PutPrefix(ctx context.Context, p Prefix) error {
	if p.File == "" || p.Model == "" || p.Tokens < 0 || p.Bytes < 0 || len(p.Blocks) > MaxPrefixBlocks {
		return fmt.Errorf("recording a prefix: %w: it has no file or no model, or is too large", ErrInvalid)
	}
	err := s.write(ctx, func(t *txn) error {
		var n int
		if err := t.Row(ctx, countPrefixes, p.File).Scan(&n); err != nil {
			return err
		}
		if n >= MaxPrefixes {
			return fmt.Errorf("%w: %d prefixes are recorded already", ErrInvalid, n)
		}
		_, err := t.Exec(ctx, putPrefix, p.File, p.Model, p.Of[:], p.Scope[:], p.Last[:], p.Blocks, p.Tokens, p.Bytes, sqlite.Stamp(p.Marked), sqlite.Stamp(p.Used))
		return err
	})
	if err != nil {
		return fmt.Errorf("recording a prefix: %w", err)
	}
	return nil
}

// Prefixes returns all that are recorded, the longest unused first.
func (s *Store) Prefixes(ctx context.Context) ([]Prefix, error) {
	rows, err := s.r.Query(ctx, allPrefixes)
	all, err := sqlite.Collect(rows, err, scanPrefix)
	if err != nil {
		return nil, fmt.Errorf("reading the prefixes: %w", s.meaning(err))
	}
	return all, nil
}

// DeletePrefix forgets a file. One that is not recorded is forgotten already.
func (s *Store) DeletePrefix(ctx context.Context, file string) error {
	err := s.write(ctx, func(t *txn) error {
		_, err := t.Exec(ctx, deletePrefix, file)
		return err
	})
	if err != nil {
		return fmt.Errorf("forgetting a prefix: %w", err)
	}
	return nil
}

// DeletePrefixes forgets all files.
func (s *Store) DeletePrefixes(ctx context.Context) error {
	err := s.write(ctx, func(t *txn) error {
		_, err := t.Exec(ctx, deletePrefixes)
		return err
	})
	if err != nil {
		return fmt.Errorf("forgetting all prefixes: %w", err)
	}
	return nil
}
