package tensor

import "golang.org/x/sys/cpu"

// Bits of XCR0: the register state that the operating system saves.
const (
	saveXMM    = 1 << 1
	saveYMM    = 1 << 2
	saveOpmask = 1 << 5
	saveZMM    = 3 << 6

	saveAVX    = saveXMM | saveYMM
	saveAVX512 = saveAVX | saveOpmask | saveZMM
)

// machineLevels trusts a feature bit only when the operating system saves the
// registers that the feature uses.
func machineLevels() []Level {
	levels := []Level{Generic}
	x := &cpu.X86
	if !x.HasOSXSAVE {
		return levels
	}
	saved := xgetbv()
	if saved&saveAVX != saveAVX || !x.HasAVX2 || !x.HasFMA || !x.HasF16C {
		return levels
	}
	levels = append(levels, AVX2)
	wide := x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL && x.HasAVX512VNNI
	if saved&saveAVX512 == saveAVX512 && wide {
		levels = append(levels, AVX512)
	}
	return levels
}
