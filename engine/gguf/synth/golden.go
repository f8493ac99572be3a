package synth

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

// Golden is what another engine computed with one model: the oracle for ours.
type Golden struct {
	Origin string `json:"origin"` // which engine, how and when
	SHA256 string `json:"sha256"` // of the model file
	Spec   Spec   `json:"spec"`
	// Tokens were given to the model one after another, without any token in
	// front. Steps[i] is what it then expected after Tokens[:i+1].
	Tokens []int32 `json:"tokens"`
	Steps  []Step  `json:"steps"`
}

// Step holds the most likely next tokens and their natural log-probabilities,
// the best first.
type Step struct {
	IDs      []int32   `json:"ids"`
	LogProbs []float32 `json:"logprobs"`
}

// ReadGolden reads a golden file.
func ReadGolden(path string) (*Golden, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	g := &Golden{}
	if err := json.Unmarshal(b, g); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return g, nil
}

// Model makes the model file that the steps were computed with. It is an error
// when the file has become another since.
func (g *Golden) Model() ([]byte, error) {
	b, err := Bytes(g.Spec)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != g.SHA256 {
		return nil, fmt.Errorf("the model has the SHA-256 %x instead of %s: make the golden file anew", sum, g.SHA256)
	}
	return b, nil
}
