package bench

import _ "embed"

// prose is the text that long prompts are made of. It was written for this purpose.
//
//go:embed prose.txt
var prose string

// promptBytes is how much of prose the long prompt has, about 1,800 tokens.
const promptBytes = 8000

// Names of the figures, in tokens a second.
const (
	promptFigure = "prompt"
	codeFigure   = "code"
	insertFigure = "b-tree"
	shortFigure  = "short"
)

// questions are answered greedily; code drafts well, the short answer hardly at all.
var questions = []struct{ figure, text string }{
	{codeFigure, "Write a parser for ISO-8601 dates and times in Go, without the time package. Show only the code."},
	{insertFigure, "Explain step by step how a key is inserted into a B-tree, and when a node is split."},
	{shortFigure, "Translate into French, one sentence only: The train to the coast leaves a quarter of an hour earlier on Sundays."},
}

// figures lists them in the order in which they are printed.
var figures = []string{promptFigure, codeFigure, insertFigure, shortFigure}
