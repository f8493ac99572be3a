// Package extract reads the text and the structure of documents: headings,
// paragraphs, lists, tables and code, with pages where a format has them.
package extract
