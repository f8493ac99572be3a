package catalog_test

import (
	"testing"

	"onebit/appliance/catalog"
)

func TestPrefixes(t *testing.T) {
	for name, want := range map[string]catalog.Prefixes{
		"all-minilm-l6-v2":                      {},
		"all-MiniLM-L6-v2-Q8_0.gguf":            {},
		"intfloat/multilingual-e5-small":        {Query: "query: ", Passage: "passage: "},
		"E5_base_v2.F16.gguf":                   {Query: "query: ", Passage: "passage: "},
		"nomic-embed-v2-moe":                    {Query: "search_query: ", Passage: "search_document: "},
		"nomic-embed-text-v1.5.Q8_0.gguf":       {Query: "search_query: ", Passage: "search_document: "},
		"bge-small-en-v1.5":                     {Query: "Represent this sentence for searching relevant passages: "},
		"bge-m3":                                {},
		"snowflake-arctic-embed-l-v2.0":         {Query: "query: "},
		"qwen3-embedding-0.6b":                  {Query: "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"},
		"bge-large-zh-v1.5":                     {Query: "为这个句子生成表示以用于检索相关文章："},
		"e5-mistral-7b-instruct":                {Query: "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery: "},
		"":                                      {},
		"somebody/a-model-that-nobody-knows":    {},
		"mxbai-embed-large-v1_fp16.gguf":        {Query: "Represent this sentence for searching relevant passages: "},
		"embeddinggemma-300M-Q8_0.gguf":         {Query: "task: search result | query: ", Passage: "title: none | text: "},
		"snowflake-arctic-embed-m-long.Q8.gguf": {Query: "Represent this sentence for searching relevant passages: "},
	} {
		if got := catalog.PrefixesOf(name); got != want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
