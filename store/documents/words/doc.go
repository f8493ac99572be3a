// Package words is an index of words in memory: which passages have which words,
// and how well they fit a question (BM25).
//
// It cuts, folds and stems texts as SQLite's FTS5 does with the tokenizer
// "porter unicode61 remove_diacritics 2", and scores as its bm25 does with its
// columns weighed 2 and 1, so that the two can take each other's place. FTS5
// reads a row of the database for each passage that has any of the words, which
// takes milliseconds for common ones; here a word takes a few nanoseconds a
// passage. Words themselves are not kept, only their hashes; where a word stands
// is not known, so phrases are not this package's.
package words
