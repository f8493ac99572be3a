package catalog

import "onebit/engine"

// Roles of entries.
const (
	Chat      = "chat"
	Embedding = "embedding"
	Reranking = "reranking"
	Draft     = "draft"     // goes beside a chat model with --mtp or --dflash
	Projector = "projector" // goes beside a chat model with --mmproj
)

// The llama-servers on cards.
var cards = []engine.Device{engine.HRX, engine.Vulkan, engine.ROCm}

// larger lists the models that the measurements of serve were made with, and what goes beside them. Hashes stand where
// public projects pin them; all others, and sizes that are not exact, are the hub's to say when the file is pulled.
func larger() []Entry {
	return append(chats(), sides()...)
}

func chats() []Entry {
	return []Entry{
		{
			Name: "qwen3.8-27b", File: "Qwen3.8-27B-UD-Q4_K_XL.gguf", Rough: 17_600_000_000, PerToken: 64 << 10,
			Role: Chat, Devices: cards, License: "Apache-2.0", With: []string{"qwen3.8-27b-mtp", "qwen3.8-27b-mmproj"},
			About: "Qwen3.8 27B, UD-Q4_K_XL: the large chat model; on vulkan with --mtp",
			Hub:   &HubFile{"unsloth/Qwen3.8-27B-GGUF", "", "Qwen3.8-27B-UD-Q4_K_XL.gguf"},
		},
		{
			Name: "qwen3.8-27b-q4_k_m", File: "Qwen3.8-27B-Q4_K_M.gguf", Rough: 16_800_000_000, PerToken: 64 << 10,
			SHA256: "31629f53165ab6a7dad8c9847dcfd1fdf55829dac1e6e748f4a68581b0033d34",
			Role:   Chat, Devices: cards, License: "Apache-2.0", With: []string{"qwen3.8-27b-mtp", "qwen3.8-27b-mmproj"},
			About: "Qwen3.8 27B, Q4_K_M",
			Hub:   &HubFile{"ggml-org/Qwen3.8-27B-GGUF", "main", "Qwen3.8-27B-Q4_K_M.gguf"},
		},
		{
			Name: "qwen3.8-flash-next", File: "UD-Q4_K_XL/Qwen3.8-Flash-Next-UD-Q4_K_XL-00001-of-00004.gguf", Rough: 111_000_000_000, Filed: 29_500_000_000,
			Role: Chat, Devices: []engine.Device{engine.Vulkan}, License: "Apache-2.0",
			About: "Qwen3.8 Flash-Next, UD-Q4_K_XL in 4 parts: with -lm mmap, or --moe-slots auto where memory is short",
			Hub:   &HubFile{"unsloth/Qwen3.8-Flash-Next-GGUF", "", "UD-Q4_K_XL/*.gguf"},
		},
		{
			Name: "qwen3-coder-30b-a3b", File: "Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf", Rough: 18_560_000_000, PerToken: 96 << 10,
			SHA256: "fadc3e5f8d42bf7e894a785b05082e47daee4df26680389817e2093056f088ad",
			Role:   Chat, Devices: cards, License: "Apache-2.0",
			About: "Qwen3 Coder 30B-A3B Instruct, Q4_K_M: fast, a mixture of experts; --long-model takes its rotated file",
			Hub:   &HubFile{"unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF", "main", "Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf"},
		},
		{
			Name: "qwen3-coder-30b-a3b-h32", File: "Qwen3-Coder-30B-A3B-Q4_0-H32.gguf", Rough: 17_200_000_000, PerToken: 96 << 10,
			Role: Chat, Devices: []engine.Device{engine.ROCm}, License: "Apache-2.0",
			About: "Qwen3 Coder 30B-A3B, Hadamard-rotated Q4_0: long prompts on rocm",
			Hub:   &HubFile{"1bit-MONSTER/Qwen3-Coder-30B-A3B-Q4_0-H32-GGUF", "", "*.gguf"},
		},
		{
			Name: "qwen3-0.6b", File: "Qwen3-0.6B-Q4_K_M.gguf", Size: 396_705_472, PerToken: 112 << 10,
			SHA256: "ac2d97712095a558e31573f62f466a3f9d93990898b0ec79d7c974c1780d524a",
			Role:   Chat, License: "Apache-2.0",
			About: "Qwen3 0.6B, Q4_K_M: small, for trying devices",
			Hub:   &HubFile{"unsloth/Qwen3-0.6B-GGUF", "main", "Qwen3-0.6B-Q4_K_M.gguf"},
		},
	}
}

func sides() []Entry {
	return []Entry{
		{
			Name: "qwen3.8-27b-mtp", File: "mtp-Qwen3.8-27B-Q4_0.gguf",
			SHA256: "051a1764cff8c4f3ee6ae8b00593a0364c7539c67fa50ffc58f3f96509fca38e",
			Role:   Draft, Devices: cards, License: "Apache-2.0",
			About: "the draft head of Qwen3.8 27B, for --mtp",
			Hub:   &HubFile{"ggml-org/Qwen3.8-27B-GGUF", "main", "mtp-Qwen3.8-27B-Q4_0.gguf"},
		},
		{
			Name: "qwen3.8-27b-mmproj", File: "mmproj-Qwen3.8-27B-Q8_0.gguf",
			SHA256: "2e968a6af97ce35d8971890b257b9b7edabf20ad91450501fa53162a19ee33eb",
			Role:   Projector, Devices: cards, License: "Apache-2.0",
			About: "the projector of Qwen3.8 27B, for --mmproj",
			Hub:   &HubFile{"ggml-org/Qwen3.8-27B-GGUF", "main", "mmproj-Qwen3.8-27B-Q8_0.gguf"},
		},
		{
			Name: "qwen3-embedding-0.6b", File: "Qwen3-Embedding-0.6B-Q8_0.gguf", Rough: 640_000_000, PerToken: 112 << 10,
			SHA256: "06507c7b42688469c4e7298b0a1e16deff06caf291cf0a5b278c308249c3e439",
			Role:   Embedding, License: "Apache-2.0",
			About: "Qwen3 Embedding 0.6B, Q8_0: for --embed",
			Hub:   &HubFile{"Qwen/Qwen3-Embedding-0.6B-GGUF", "370f27d7550e0def9b39c1f16d3fbaa13aa67728", "Qwen3-Embedding-0.6B-Q8_0.gguf"},
		},
		{
			Name: "qwen3-reranker-0.6b", File: "qwen3-reranker-0.6b-q8_0.gguf", Rough: 640_000_000, PerToken: 112 << 10,
			SHA256: "22c9979ce4fbcdc5acdc310c6641c32797eff1aa980b8f7a2db8a8ea23429a48",
			Role:   Reranking, License: "Apache-2.0",
			About: "Qwen3 Reranker 0.6B, Q8_0: for --rerank",
			Hub:   &HubFile{"ggml-org/Qwen3-Reranker-0.6B-Q8_0-GGUF", "main", "qwen3-reranker-0.6b-q8_0.gguf"},
		},
		{
			Name: "bge-reranker-v2-m3", File: "bge-reranker-v2-m3-Q8_0.gguf", Size: 635_676_416,
			SHA256: "a43c7c9b11a4c1517e5bf95151960e1621d1b72f7a493364b01e386cf1aaa1d3",
			Role:   Reranking, Devices: cards, License: "Apache-2.0",
			About: "BGE Reranker v2 M3, Q8_0: many languages, for --rerank",
			Hub:   &HubFile{"gpustack/bge-reranker-v2-m3-GGUF", "3093af03b1a635e67b084b1d8c03c5f5e020fd05", "bge-reranker-v2-m3-Q8_0.gguf"},
		},
		{
			Name: "nomic-embed-v2-moe", File: "nomic-embed-text-v2-moe.Q8_0.gguf", Rough: 512_000_000,
			SHA256: "06e7a7e594a26985523c18383aba4aad39fe6e14f08ffc6ab5b554e1ccdc3cff",
			Role:   Embedding, Devices: cards, License: "Apache-2.0",
			About: "Nomic Embed Text v2 MoE, Q8_0: for --embed or --embedding",
			Hub:   &HubFile{"nomic-ai/nomic-embed-text-v2-moe-GGUF", "main", "nomic-embed-text-v2-moe.Q8_0.gguf"},
		},
	}
}
