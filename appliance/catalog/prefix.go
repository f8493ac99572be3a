package catalog

import "strings"

// Prefixes are what an embedding model was trained to see before a text.
type Prefixes struct {
	Query   string // before what is searched for
	Passage string // before what is found
}

// prefixes lists models by a part of their names in lower case, the more special first. Each publisher states them.
var prefixes = [...]struct {
	name string
	Prefixes
}{
	{"e5-mistral", Prefixes{"Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ", ""}},
	{"e5-large-instruct", Prefixes{"Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: ", ""}},
	{"e5-", Prefixes{"query: ", "passage: "}},
	{"bge-m3", Prefixes{}},
	{"bge-small-zh", Prefixes{"为这个句子生成表示以用于检索相关文章：", ""}},
	{"bge-base-zh", Prefixes{"为这个句子生成表示以用于检索相关文章：", ""}},
	{"bge-large-zh", Prefixes{"为这个句子生成表示以用于检索相关文章：", ""}},
	{"bge-small-en", Prefixes{"Represent this sentence for searching relevant passages: ", ""}},
	{"bge-base-en", Prefixes{"Represent this sentence for searching relevant passages: ", ""}},
	{"bge-large-en", Prefixes{"Represent this sentence for searching relevant passages: ", ""}},
	{"mxbai-embed", Prefixes{"Represent this sentence for searching relevant passages: ", ""}},
	{"arctic-embed-m-v2", Prefixes{"query: ", ""}},
	{"arctic-embed-l-v2", Prefixes{"query: ", ""}},
	{"arctic-embed", Prefixes{"Represent this sentence for searching relevant passages: ", ""}},
	{"nomic-embed", Prefixes{"search_query: ", "search_document: "}},
	{"modernbert-embed", Prefixes{"search_query: ", "search_document: "}},
	{"embeddinggemma", Prefixes{"task: search result | query: ", "title: none | text: "}},
	{"qwen3-embedding", Prefixes{"Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:", ""}},
}

// PrefixesOf returns what belongs before queries and passages of the embedding model of that name: a name of this list,
// of a file or of a repository. Most models want nothing.
func PrefixesOf(model string) Prefixes {
	name := strings.ReplaceAll(strings.ToLower(model), "_", "-")
	for _, p := range prefixes {
		if strings.Contains(name, p.name) {
			return p.Prefixes
		}
	}
	return Prefixes{}
}
