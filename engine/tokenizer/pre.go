package tokenizer

import "strings"

// preTokenizer is what tokenizer.ggml.pre stands for.
type preTokenizer struct {
	stages    []matcher
	whole     bool // a piece that is a token is not merged
	addBOS    bool // unless the file says otherwise
	raw       bool // merges work on characters, spaces written as U+2581, not on bytes
	feeds     bool // raw: a run of line feeds that is a token is not merged
	metaspace bool // raw: each line starts with a space, each space starts a piece
}

// preTokenizerOf returns the pre-tokeniser of a name; ok is false for a name
// that is not known. The names and what they mean are llama.cpp's.
func preTokenizerOf(name string) (p preTokenizer, ok bool) {
	if p, ok = wordsOf(name); ok {
		return p, true
	}
	digit, number3 := one(number), numbers(3)
	stages := func(m ...matcher) (preTokenizer, bool) { return preTokenizer{stages: m}, true }
	switch name {
	case "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "gigachat", "a.x-4.0", "mellum",
		"modern-bert", "roberta-bpe", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code":
		return stages(gpt2)
	case "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2":
		return stages(digit, gpt2)
	case "", "default":
		return stages(falconPunct(false), gpt2, many(number), digits3)
	case "falcon":
		return stages(falconPunct(true), gpt2, digits3)
	case "deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm":
		return stages(number3, runes(kanaHan, 0), deepseek(false))
	case "spark2_5":
		return stages(number3, runes(kanaHan, 0), deepseek(true), digit)
	case "deepseek-coder":
		return stages(lineBreak, spaced(letter), spaced(punct), runes(deepseekCJK, 0), digit)
	case "deepseek-llm":
		// Letters are ASCII punctuation here, but the stage before took them.
		marks := within('!', '/', ':', '~', 0x2018, 0x201f, 0x3000, 0x3002, 0xff01, 0xff0f, 0xff1a, 0xff5e)
		return stages(lineBreak, runes(casedLetter, space), runes(marks, space), tailSpace, runes(deepseekCJK, 0), many(number))
	case "afmoe":
		return stages(grouped, runes(asianScripts, 0), deepseek(false))
	case "poro-chat", "bloom", "gpt3-finnish":
		return stages(bloom)
	case "viking":
		return stages(bloom, digit)
	case "kimi-k2":
		return stages(kimi)
	case "superbpe":
		return stages(many(number), thousands)
	case "chameleon":
		p, ok = stages(sentinel, image, indent, digit, chameleonPunct, gpt2)
		p.addBOS = true
		return p, ok
	case "gemma4", "granite-embed-multi-311m":
		return preTokenizer{stages: []matcher{lines}, raw: true, feeds: true, addBOS: true}, true
	case "sarvam-moe":
		return preTokenizer{stages: []matcher{lines}, raw: true}, true
	case "mmbert":
		return preTokenizer{stages: []matcher{lines}, raw: true, feeds: true, metaspace: true}, true
	}
	return p, false
}

// wordsOf returns the pre-tokenisers of the words family.
func wordsOf(name string) (p preTokenizer, ok bool) {
	const breaks, breaksSlash = "\r\n", "\r\n/"
	qwen2 := words{letters: letter, apart: letter, digits: 1, tail: breaks}
	llama3, qwen35, seed, turkish := qwen2, qwen2, qwen2, qwen2
	llama3.digits = 3
	qwen35.letters, qwen35.apart = letter|mark, letter|mark
	seed.tail = ""
	turkish.plain = true
	o200k := words{joined: true, cased: true, letters: letter, apart: letter, digits: 3, tail: breaksSlash}
	tekken, granite, aya := o200k, o200k, o200k
	tekken.joined, tekken.plain, tekken.digits = false, true, 1
	granite.letters = letter | mark
	aya.letters, aya.cased = letter|mark, false
	youtu := aya
	youtu.digits = 1
	exaone := words{phrases: true, letters: letter, apart: letter, digits: 1, tail: breaksSlash, once: true}

	switch name {
	case "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano":
		p.stages, p.whole, p.addBOS = []matcher{llama3.match}, true, true
	case "dbrx", "smaug-bpe", "chatglm-bpe":
		p.stages = []matcher{llama3.match}
	case "glm4", "glm5":
		p.stages, p.whole = []matcher{llama3.match}, true
	case "minicpm5":
		p.stages, p.whole = []matcher{numbers(3), llama3.match}, true
	case "jais-2":
		p.stages = []matcher{llama3.match, cascade}
	case "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "megrez", "hunyuan", "solar-open", "grok-2",
		"bailingmoe", "bailingmoe2", "llada-moe":
		p.stages = []matcher{qwen2.match}
	case "laguna":
		p.stages = []matcher{lines, qwen2.match}
	case "qwen35":
		p.stages = []matcher{qwen35.match}
	case "seed-coder":
		p.stages = []matcher{seed.match}
	case "ufakzeka":
		p.stages = []matcher{turkish.match}
	case "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2":
		p.stages = []matcher{o200k.match}
	case "tekken":
		p.stages, p.whole, p.addBOS = []matcher{tekken.match}, true, true
	case "granite-embed-multi-97m":
		p.stages, p.whole = []matcher{granite.match}, true
	case "tiny_aya", "cohere2moe":
		p.stages = []matcher{grouped, aya.match}
	case "youtu":
		p.stages, p.whole = []matcher{either(runes(hangul, 0), runes(cjkPunct, 0), runes(bopomofo, 0), runes(kanaHan, 0)), youtu.match}, true
	case "exaone-moe":
		p.stages = []matcher{exaone.match}
	default:
		return p, false
	}
	return p, true
}

// falconPunct matches runs of punctuation and ASCII symbols, with or without
// the backtick.
func falconPunct(backtick bool) matcher {
	return func(c *classes, s string, i int) int {
		for i < len(s) {
			k, w := c.at(s, i)
			mark := k&punct != 0 || w == 1 && k&symbol != 0
			if !mark || s[i] == '`' && !backtick {
				break
			}
			i += w
		}
		return i
	}
}

func kanaHan(r rune) bool {
	return 0x3040 <= r && r <= 0x30ff || 0x4e00 <= r && r <= 0x9fa5
}

// deepseekCJK holds everything between U+0800 and U+9FA5, and Hangul.
func deepseekCJK(r rune) bool {
	return 0x800 <= r && r <= 0x9fa5 || 0xac00 <= r && r <= 0xd7ff
}

func hangul(r rune) bool {
	return 0xac00 <= r && r <= 0xd7a3 || 0x3131 <= r && r <= 0x318e
}

func bopomofo(r rune) bool { return 0x3105 <= r && r <= 0x312f }

func cjkPunct(r rune) bool {
	return 0x3001 <= r && r <= 0x303f || 0xfe30 <= r && r <= 0xfe4f || strings.ContainsRune("！…“”‘’—：；，", r)
}

func asianScripts(r rune) bool {
	switch {
	case 0xe40 <= r && r <= 0xeff, 0x1000 <= r && r <= 0x109f, 0x1100 <= r && r <= 0x11ff, 0x1780 <= r && r <= 0x17ff,
		0x2f00 <= r && r <= 0x2fdf, 0x3040 <= r && r <= 0x30ff, 0x3400 <= r && r <= 0x4dbf,
		0x4e00 <= r && r <= 0xfaff, 0xff65 <= r && r <= 0xff9f:
		return true
	}
	return false
}

// bloom matches what is no white space and none of a few marks, with at most
// one space before.
func bloom(c *classes, s string, i int) int {
	if s[i] == ' ' {
		if end := bloomRun(c, s, i+1); end > i+1 {
			return end
		}
	}
	return bloomRun(c, s, i)
}

func bloomRun(c *classes, s string, i int) int {
	for i < len(s) {
		k, w := c.at(s, i)
		if k&space != 0 || strings.Contains("(|.,!?…。，、।۔،)", s[i:i+w]) {
			break
		}
		i += w
	}
	return i
}

// sentinel matches <sentinel:DIGITS>.
func sentinel(_ *classes, s string, i int) int {
	const head = "<sentinel:"
	if !strings.HasPrefix(s[i:], head) {
		return i
	}
	end := i + len(head)
	n := asciiDigits(s, end, len(s))
	if end += n; n > 0 && end < len(s) && s[end] == '>' {
		return end + 1
	}
	return i
}

// image matches IMGIMG, one to four letters of A to I, and Z.
func image(_ *classes, s string, i int) int {
	const head = "IMGIMG"
	if !strings.HasPrefix(s[i:], head) {
		return i
	}
	end := i + len(head)
	for n := 0; n < 4 && end < len(s) && 'A' <= s[end] && s[end] <= 'I'; n++ {
		end++
	}
	if end > i+len(head) && end < len(s) && s[end] == 'Z' {
		return end + 1
	}
	return i
}

// indent matches a tab, a line feed, four spaces or two.
func indent(_ *classes, s string, i int) int {
	switch {
	case s[i] == '\t' || s[i] == '\n':
		return i + 1
	case strings.HasPrefix(s[i:], "    "):
		return i + 4
	case strings.HasPrefix(s[i:], "  "):
		return i + 2
	}
	return i
}

func chameleonPunct(c *classes, s string, i int) int {
	if k, w := c.at(s, i); k&punct != 0 || asciiPunct(rune(s[i])) {
		return i + w
	}
	return i
}
