// Package extract reads the text and the structure of documents: headings,
// paragraphs, lists, tables and code, with pages where a format has them.
//
// Files come from strangers. Read judges a file by its content, never by its
// name, and reads within a Budget: of bytes, of what compressed parts expand
// to, of nesting, of parts, of text. Nothing in a file is run, fetched or
// looked up: no scripts, no external entities, no links. Read is meant for a
// process of its own (Child), which its parent (Runner) starts for one document,
// confines and ends after a time; a parser that dies costs one document.
//
// PDF is read by PDFium compiled to WebAssembly, XLSX by excelize, HTML and
// Markdown by the parsers that their communities keep. The XML formats have
// readers of our own, since the libraries for them write more than they read,
// and trust what they read.
package extract
