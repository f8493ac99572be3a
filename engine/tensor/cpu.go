package tensor

import (
	"fmt"
	"os"
)

// Level names an instruction set that the kernels of this package are written for.
// A higher level is a superset of the lower ones.
type Level int

// The levels, slowest first.
const (
	// Generic is portable Go: the reference that the other levels are tested against.
	Generic Level = iota
	// AVX2 needs AVX2, FMA and F16C.
	AVX2
	// AVX512 needs AVX-512 F, BW, DQ, VL and VNNI.
	AVX512
)

// levelEnv is the environment variable that overrides Detect.
const levelEnv = "ONEBIT_CPU"

// String returns the word that ParseLevel reads.
func (l Level) String() string {
	switch l {
	case Generic:
		return "generic"
	case AVX2:
		return "avx2"
	case AVX512:
		return "avx512"
	}
	return fmt.Sprintf("level %d", int(l))
}

// PanelRows returns R, the number of rows that a panel of a packed matrix
// interleaves at this level: 16 for AVX512, else 8.
func (l Level) PanelRows() int {
	if l == AVX512 {
		return 16
	}
	return 8
}

// ParseLevel returns the level that a word names: avx512, avx2 or generic.
func ParseLevel(word string) (Level, error) {
	for _, l := range []Level{Generic, AVX2, AVX512} {
		if word == l.String() {
			return l, nil
		}
	}
	return 0, fmt.Errorf("unknown CPU level %q: want avx512, avx2 or generic", word)
}

// Detect returns the best level that this processor and its operating system run.
func Detect() Level {
	levels := Levels()
	return levels[len(levels)-1]
}

// Levels returns the levels that this machine can run, Generic first.
func Levels() []Level { return machineLevels() }

// LevelFromEnv returns the level that ONEBIT_CPU asks for, or Detect's when the
// variable is unset or empty. It fails for an unknown word and for a level
// that this machine cannot run.
func LevelFromEnv() (Level, error) {
	word := os.Getenv(levelEnv)
	if word == "" {
		return Detect(), nil
	}
	l, err := ParseLevel(word)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", levelEnv, err)
	}
	if best := Detect(); l > best {
		return 0, fmt.Errorf("reading %s: this machine does not run %v, its best level is %v", levelEnv, l, best)
	}
	return l, nil
}
