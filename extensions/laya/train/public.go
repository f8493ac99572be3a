package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
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

// byHand holds the classes that a person gave to public prompts, by the first 16 hex digits of the prompt's SHA-256. A class that is none
// of ours means that the reader was unsure.
//
//go:embed labels.tsv
var byHand string

func readByHand() map[string]int {
	out := map[string]int{}
	for line := range strings.Lines(byHand) {
		if hash, class, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok && line[0] != '#' {
			out[hash] = classOf(class)
		}
	}
	return out
}

// prompts are the public prompts: those whose class a rule gives, those that were read, and of the latter a fifth that nothing is trained on.
type prompts struct{ ruled, read, held []example }

// readPublic reads the public prompts of a folder. Those whose class is unsure are left out, and so are those of laya.LongBytes and more.
func readPublic(dir string, labels map[string]int) (*prompts, error) {
	packed, err := os.ReadFile(filepath.Join(dir, "public-prompts.jsonl.gz"))
	if err != nil {
		return nil, err
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	out := new(prompts)
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<24)
	for n := 1; lines.Scan(); n++ {
		var l publicLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if len(l.Text) >= laya.LongBytes {
			continue
		}
		sum := sha256.Sum256([]byte(l.Text))
		class, read := labels[hex.EncodeToString(sum[:8])]
		if !read {
			class = label(&l)
		}
		e := example{text: l.Text, class: class}
		switch {
		case class < 0:
		case !read:
			out.ruled = append(out.ruled, e)
		case binary.BigEndian.Uint32(sum[:])%5 == 0:
			out.held = append(out.held, e)
		default:
			out.read = append(out.read, e)
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
	// what a short answer does not serve
	longish = regexp.MustCompile(`(?i)(recipe|how (do|can|should|would|could|to|might|come)|why|explain|suggest|advice|tips|what should|what do i need|steps|tell me about|` +
		`ideas|help me|instructions|fun things|places to|things to do|what can i (do|use|put|sub)|substitut|difference|ingredients|how's|describe|reviews|` +
		`what (is|are|was|were) .*(best|process|like|famous|known for|theme|role|importance|purpose|cause|impact)|what (do|did|does) .* (eat|do|believe|discover|contribute|look like)\b|story|what to do|what happen|more about|information|plan )`)
	// what asks an assistant for more than a fact, though its source is a collection of facts and orders
	asksProse = regexp.MustCompile(`(?i)^(please |can you |could you |hey,? |so )*(how (do|can|would|should) (i|you|one|we) (make|cook|prepare|change (the|my) (oil|tire)|jump|` +
		`build|improve|bake|fix a)|why (do|does|did|is|are|was|were) |explain|what are (some|the best) (ways|tips)|give me (tips|advice|some ways)|` +
		`help me plan)|recipe for|things to do in|(travel|meal|dinner) (ideas|suggestions)`)
	// what is about one's own account or things, so that the answer is short
	own = regexp.MustCompile(`(?i)\b(card|account|bank|my list|pin|purchase|declined|apr|insurance|payment|frozen|hold|blocked|credit|rewards)\b`)
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
	return -1
}
