package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"onebit/extensions/laya"
)

// example is a text with its class.
type example struct {
	text  string
	class int
}

type publicLine struct {
	Text   string `json:"text"`
	Guess  string `json:"guess"`
	Source string `json:"source"`
}

// readPublic reads the public prompts of a folder, with the class that the rules below give them. Those that the rules are
// unsure of are left out, and so are those of laya.LongBytes and more.
func readPublic(dir string) ([]example, error) {
	packed, err := os.ReadFile(filepath.Join(dir, "public-prompts.jsonl.gz"))
	if err != nil {
		return nil, err
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var out []example
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var l publicLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(out), err)
		}
		if c := label(&l); c >= 0 && len(l.Text) < laya.LongBytes {
			out = append(out, example{text: l.Text, class: c})
		}
	}
	return out, lines.Err()
}

var (
	// words that are hardly ever used but about software
	codeWords = regexp.MustCompile(`(?i)\b(python|javascript|java|typescript|html|css|sql|mysql|postgres|sqlite|c\+\+|c#|php|rust|golang|kotlin|swift|bash|` +
		`powershell|regex|docker|kubernetes|terraform|django|flask|react|vue|pytorch|tensorflow|pandas|numpy|matplotlib|node\.?js|npm|github|git|json|yaml|xml|` +
		`api|apis|backend|frontend|codebase|source code|compiler|unit tests?|algorithm|leetcode|aws|linux|ubuntu|vba|matlab|octave|godot|unity|unreal|arduino|` +
		`esp32|opencv|selenium|flutter|laravel|excel formula|latex|dataframe|webpage|website in|script that|scripts?|function that|stack trace|exception|cuda|llvm|` +
		`verilog|assembly|haskell|scala|julia|coding|programming|programmer|code)\b|\x60\x60\x60|#include|def \w+\(|function \w+\(|SELECT .* FROM|=>|\(\);|</\w+>`)
	// what asks for a text or a longer answer
	proseWords = regexp.MustCompile(`(?i)\b(write|story|poem|essay|explain|describe|compare|discuss|summar|why|how (do|does|can|should|would|could)|article|blog|` +
		`song|lyrics|script|scene|chapter|letter|email|speech|analy|pros and cons|difference|plan|strategy|recommend|suggest|advice|tips|ideas|design|imagine|` +
		`act as|you are|outline|proposal|rewrite|paragraph|essay|haiku|joke|rap|create|generate|draft|develop|tell me about|list|give me)`)
	// what a short answer does not serve
	longish = regexp.MustCompile(`(?i)(recipe|how (do|can|should|would|could|to|might|come)|why|explain|suggest|advice|tips|what should|what do i need|steps|tell me about|` +
		`ideas|help me|instructions|fun things|places to|things to do|what can i (do|use|put|sub)|substitut|difference|ingredients|how's|describe|reviews|` +
		`what (is|are|was|were) .*(best|process|like|famous|known for|theme|role|importance|purpose|cause|impact)|what (do|did|does) .* (eat|do|believe|discover|contribute|look like)\b|story|what to do|what happen|more about|information|plan )`)
	// what asks an assistant for more than a fact, though its source is a collection of facts and orders
	asksProse = regexp.MustCompile(`(?i)^(please |can you |could you |hey,? |so )*(how (do|can|would|should) (i|you|one|we) (make|cook|prepare|change (the|my) (oil|tire)|jump|` +
		`build|improve|bake|fix a)|why (do|does|did|is|are|was|were) |explain|what are (some|the best) (ways|tips)|give me (tips|advice|some ways)|` +
		`help me plan)|recipe for|things to do in|(travel|meal|dinner) (ideas|suggestions)`)
	// what is about one's own account or things, so that the answer is short
	own      = regexp.MustCompile(`(?i)\b(card|account|bank|my list|pin|purchase|declined|apr|insurance|payment|frozen|hold|blocked|credit|rewards)\b`)
	asksCode = regexp.MustCompile(`(?i)^(write|create|develop|design|build|make|generate|implement|fix|debug|refactor|convert|explain|can you|please|how|i need|using|given)\b`)
)

// spans are runs of one to four words out of public prompts that are not about code.
func spans(public [laya.Chosen][]example) []string {
	var out []string
	for _, class := range []laya.Class{laya.Short, laya.Prose} {
		for i, e := range public[class] {
			words := strings.Fields(e.text)
			for at := i % 3; at+4 < len(words) && at < 40; at += 5 {
				s := strings.Trim(strings.Join(words[at:at+1+(at+i)%4], " "), ".,?!:;\"")
				if s != "" && !codeWords.MatchString(s) {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// label is the class of a public prompt by its source and by weak signals, or -1.
func label(l *publicLine) int {
	switch l.Guess {
	case "code":
		return int(laya.Code)
	case "prose":
		return int(laya.Prose)
	case "short":
		if l.Source != "PolyAI banking77" && asksProse.MatchString(l.Text) && !own.MatchString(l.Text) {
			return int(laya.Prose)
		}
		if len(l.Text) > 110 || longish.MatchString(l.Text) {
			return -1
		}
		return int(laya.Short)
	}
	signs := len(codeWords.FindAllString(l.Text, 4))
	switch l.Source {
	case "arena-hard-auto creative_writing":
		if signs > 0 {
			return -1
		}
		return int(laya.Prose)
	case "arena-hard-auto arena-hard-v0.1", "arena-hard-auto hard_prompt":
		if signs >= 2 || signs == 1 && asksCode.MatchString(l.Text) {
			return int(laya.Code)
		}
		if signs == 0 && len(l.Text) > 40 && proseWords.MatchString(l.Text) {
			return int(laya.Prose)
		}
	default:
		if signs >= 2 {
			return int(laya.Code)
		}
		if signs == 0 && proseWords.MatchString(l.Text) && len(l.Text) > 80 && len(l.Text) < 400 {
			return int(laya.Prose)
		}
	}
	return -1
}
