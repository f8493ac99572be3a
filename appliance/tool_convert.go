package main

import (
	"context"
	"io"

	"onebit/engine/conversion"
)

// command is a sub-command with its own options.
type command = func(args []string, stdout, stderr io.Writer) int

// modelCommands are the commands of `1bit model` that have a usage of their own.
func modelCommands() map[string]command {
	return map[string]command{"plan": runModelPlan, "import": runModelImport, "convert": runModelConvert, "quantize": runModelQuantize}
}

const draftUsage = `usage: 1bit tool mtp-draft-vocab --mtp HEAD --target MODEL --ids LIST --out FILE
       1bit tool mtp-draft-vocab --count TEXT... --target MODEL [--size N] --out LIST

Cuts a multi-token prediction head down to the tokens that it is likely to draft.

     --mtp HEAD      the head, a GGUF file without an output matrix of its own
     --target MODEL  the model that it drafts for, a GGUF file or a folder with its shards
     --ids LIST      token ids, one a line; # begins a comment; may be compressed with gzip
     --count         make such a list of the tokens that are most frequent in texts
     --size N        how many ids at most (65536)
     --out FILE      the new head, or the list
`

// runToolMTPDraftVocab is `1bit tool mtp-draft-vocab`.
func runToolMTPDraftVocab(args []string, stdout, stderr io.Writer) int {
	o := newOptions("tool mtp-draft-vocab", draftUsage, stdout, stderr)
	head := o.String("mtp", "", "")
	target := o.String("target", "", "")
	ids := o.String("ids", "", "")
	out := o.String("out", "", "")
	count := o.Bool("count", false, "")
	size := o.Int("size", 65536, "")
	if status, done := o.parse(args, 0, 1<<16); done {
		return status
	}
	switch {
	case *target == "" || *out == "":
		return o.wrong("--target and --out are needed")
	case *count && (*head != "" || *ids != ""):
		return o.wrong("--count makes a list: --mtp and --ids do not go with it")
	case *count && len(o.words) == 0:
		return o.wrong("--count needs at least one text")
	case *count && *size < 1:
		return o.wrong("--size %d is no number of ids", *size)
	case *count:
		return o.finish(conversion.CountTokens(conversion.Count{Target: *target, Texts: o.words, Size: *size, Out: *out, Log: o.log}))
	case len(o.words) > 0:
		return o.wrong("unexpected %q", o.words[0])
	case *head == "" || *ids == "":
		return o.wrong("--mtp and --ids are needed")
	}
	return o.finish(conversion.DraftVocabulary{Head: *head, Target: *target, IDs: *ids, Out: *out, Log: o.log}.Write())
}

const hadamardUsage = `usage: 1bit tool hadamard --in MODEL --out FILE [--imatrix FILE] [--threads N]

Writes a Q4_0 file whose weights are rotated, 32 inputs at a time, for serve's
--long-model and --lean, and checks it against the source.

     --in MODEL      a GGUF file in F32, F16, BF16 or Q8_0, or a folder with its shards
     --out FILE      the rotated file
     --imatrix FILE  importance of the inputs (GGUF): weighs the error that is reported
     --threads N     workers (one for each core)
`

// runToolHadamard is `1bit tool hadamard`.
func runToolHadamard(args []string, stdout, stderr io.Writer) int {
	o := newOptions("tool hadamard", hadamardUsage, stdout, stderr)
	in := o.String("in", "", "")
	out := o.String("out", "", "")
	imatrix := o.String("imatrix", "", "")
	threads := o.whole("threads", 0, 0, maxThreads)
	if status, done := o.parse(args, 0, 0); done {
		return status
	}
	if *in == "" || *out == "" {
		return o.wrong("--in and --out are needed")
	}
	return o.finish(conversion.Hadamard{In: *in, Out: *out, Imatrix: *imatrix, Workers: *threads, Log: o.log}.Write())
}

const importUsage = `usage: 1bit model import DIR --out FILE [--type TYPE] [--pre NAME]

Makes a GGUF file of a published model: llama, mistral, qwen2, qwen3, gemma3, bert.

  DIR          folder with config.json, tokenizer.json or vocab.txt, and safetensors
  --out FILE   the GGUF file
  --type TYPE  of the matrices: F32, F16, BF16, Q8_0, Q4_0, ... (as published)
  --pre NAME   llama.cpp's name of the pre-tokenizer, where it cannot be told
`

// runModelImport is `1bit model import`.
func runModelImport(args []string, stdout, stderr io.Writer) int {
	o := newOptions("model import", importUsage, stdout, stderr)
	out := o.String("out", "", "")
	kind := o.String("type", "", "")
	pre := o.String("pre", "", "")
	if status, done := o.parse(args, 1, 1); done {
		return status
	}
	if *out == "" {
		return o.wrong("--out is needed")
	}
	return o.finish(conversion.Import{Dir: o.words[0], Out: *out, Type: *kind, Pre: *pre, Log: o.log}.Write())
}

const convertUsage = `usage: 1bit model convert DIR --out FILE [--type TYPE] [--converter FILE] [--python FILE]

Has llama.cpp's convert_hf_to_gguf.py make a GGUF file of a published model and
checks the outcome. The converter is looked for in $ONEBIT_CONVERT_HF, beside
$ONEBIT_LLAMA_SERVER and on PATH.

  --type TYPE       f32, f16, bf16, q8_0 or auto (auto)
  --converter FILE  convert_hf_to_gguf.py
  --python FILE     the interpreter to run it with (python3)
`

// runModelConvert is `1bit model convert`.
func runModelConvert(args []string, stdout, stderr io.Writer) int {
	o := newOptions("model convert", convertUsage, stdout, stderr)
	out := o.String("out", "", "")
	kind := o.String("type", "", "")
	converter := o.String("converter", "", "")
	python := o.String("python", "", "")
	if status, done := o.parse(args, 1, 1); done {
		return status
	}
	if *out == "" {
		return o.wrong("--out is needed")
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	c := conversion.Convert{Dir: o.words[0], Out: *out, Type: *kind, Program: *converter, Python: *python, Tools: o.tools()}
	return o.finish(c.Run(ctx))
}

const quantizeUsage = `usage: 1bit model quantize IN OUT TYPE [--llama-quantize FILE] [--imatrix FILE] [--threads N] [--allow-requantize]

Stores a GGUF file in another type with llama.cpp's llama-quantize and checks the
outcome. The program is looked for in $ONEBIT_LLAMA_QUANTIZE, beside
$ONEBIT_LLAMA_SERVER and on PATH; without it Q8_0, Q4_0, F16, BF16 and F32 are
written by 1bit itself, without a search for the best scales.

  --llama-quantize FILE  the program
  --imatrix FILE         importance matrix
  --threads N            workers
  --allow-requantize     take a source that is quantised already
`

// runModelQuantize is `1bit model quantize`.
func runModelQuantize(args []string, stdout, stderr io.Writer) int {
	o := newOptions("model quantize", quantizeUsage, stdout, stderr)
	program := o.String("llama-quantize", "", "")
	imatrix := o.String("imatrix", "", "")
	threads := o.whole("threads", 0, 0, maxThreads)
	again := o.Bool("allow-requantize", false, "")
	if status, done := o.parse(args, 3, 3); done {
		return status
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	return o.finish(conversion.Quantize{
		In: o.words[0], Out: o.words[1], Type: o.words[2], Program: *program, Imatrix: *imatrix,
		Threads: *threads, Again: *again, Tools: o.tools(),
	}.Run(ctx))
}
