package recipe

// spellings lists, for the flags of llama-server that have more than one, all that set the same thing: short and long
// ones, the forms that switch it off, and those of older servers.
var spellings = [...][]string{
	{"-m", "--model"},
	{"-a", "--alias"},
	{"-dev", "--device"},
	{"-ngl", "--gpu-layers", "--n-gpu-layers"},
	{"-sm", "--split-mode"},
	{"-ts", "--tensor-split"},
	{"-mg", "--main-gpu"},
	{"-fit", "--fit"},
	{"-fitt", "--fit-target"},
	{"-fitc", "--fit-ctx"},
	{"--op-offload", "--no-op-offload"},

	{"-c", "--ctx-size"},
	{"-b", "--batch-size"},
	{"-ub", "--ubatch-size"},
	{"-np", "--parallel"},
	{"-cb", "--cont-batching", "-nocb", "--no-cont-batching"},
	{"-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified"},
	{"-kvo", "--kv-offload", "-nkvo", "--no-kv-offload"},
	{"-ctk", "--cache-type-k"},
	{"-ctv", "--cache-type-v"},
	{"-fa", "--flash-attn"},
	{"-dt", "--defrag-thold"},
	{"-cram", "--cache-ram"},
	{"-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"},
	{"-cms", "--checkpoint-min-step"},
	{"-sps", "--slot-prompt-similarity"},
	{"-bs", "--backend-sampling"},
	{"--cache-prompt", "--no-cache-prompt"},
	{"--cache-idle-slots", "--no-cache-idle-slots"},
	{"--context-shift", "--no-context-shift"},
	{"--warmup", "--no-warmup"},
	{"--slots", "--no-slots"},
	{"--jinja", "--no-jinja"},
	{"-to", "--timeout"},

	{"-t", "--threads"},
	{"-tb", "--threads-batch"},
	{"-C", "--cpu-mask"},
	{"-Cr", "--cpu-range"},
	{"-Cb", "--cpu-mask-batch"},
	{"-Crb", "--cpu-range-batch"},

	{"-lm", "--load-mode", "--mmap", "--no-mmap", "--mlock", "-dio", "--direct-io", "-ndio", "--no-direct-io"},
	{"-lzm", "--lazy-mode"},
	{"--repack", "-nr", "--no-repack"},
	{"-ot", "--override-tensor"},
	{"-cmoe", "--cpu-moe"},
	{"-ncmoe", "--n-cpu-moe"},
	{"-ncffn", "--n-cpu-ffn"},

	{"--embedding", "--embeddings"},
	{"--rerank", "--reranking"},
	{"-mm", "--mmproj"},
	{"-mmu", "--mmproj-url"},
	{"--mmproj-auto", "--no-mmproj", "--no-mmproj-auto"},
	{"--mmproj-offload", "--no-mmproj-offload"},

	{"-md", "--model-draft", "--spec-draft-model"},
	{"-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl"},
	{"-devd", "--device-draft", "--spec-draft-device"},
	{"-td", "--threads-draft", "--spec-draft-threads"},
	{"-tbd", "--threads-batch-draft", "--spec-draft-threads-batch"},
	{"-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"},
	{"-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"},
	{"-otd", "--override-tensor-draft", "--spec-draft-override-tensor"},
	{"-cmoed", "--cpu-moe-draft", "--spec-draft-cpu-moe"},
	{"-ncmoed", "--n-cpu-moe-draft", "--spec-draft-n-cpu-moe", "--spec-draft-ncmoe"},
	{"--spec-draft-n-max", "--draft-max", "--draft-n", "--draft"},
	{"--spec-draft-n-min", "--draft-min", "--draft-n-min"},
	{"--spec-draft-p-min", "--draft-p-min"},
	{"--spec-draft-p-split", "--draft-p-split"},
	{"--spec-draft-backend-sampling", "--no-spec-draft-backend-sampling"},

	{"-s", "--seed"},
	{"-l", "--logit-bias"},
	{"-n", "--predict", "--n-predict"},
	{"--temp", "--temperature"},
	{"--typical", "--typical-p"},
	{"--top-nsigma", "--top-n-sigma"},
	{"--sampler-seq", "--sampling-seq"},
	{"-j", "--json-schema"},
	{"-jf", "--json-schema-file"},
	{"-rea", "--reasoning"},
	{"--reasoning-preserve", "--no-reasoning-preserve"},
	{"-lv", "--verbosity", "--log-verbosity"},
	{"-v", "--verbose", "--log-verbose"},
	{"--log-prefix", "--no-log-prefix"},
	{"--log-timestamps", "--no-log-timestamps"},
}

// canonical returns one name for all spellings of a flag.
func canonical(flag string) string {
	for _, names := range spellings {
		for _, name := range names {
			if name == flag {
				return names[0]
			}
		}
	}
	return flag
}

// isFlag reports whether an argument is a flag: it begins with a dash and is neither a dash alone nor a number.
func isFlag(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' {
		return false
	}
	return arg[1] != '.' && (arg[1] < '0' || arg[1] > '9')
}

// groups cuts arguments into flags, each with the values after it. Values before the first flag are left out.
func groups(args []string) [][]string {
	var all [][]string
	for i, arg := range args {
		switch {
		case isFlag(arg):
			all = append(all, args[i:i+1:i+1])
		case len(all) > 0:
			all[len(all)-1] = append(all[len(all)-1], arg)
		}
	}
	return all
}
