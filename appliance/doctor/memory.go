package doctor

import (
	"runtime"

	"onebit/engine"
)

// Share is memory that programs can have, in bytes.
type Share struct {
	Total uint64 // if nobody else had any
	Free  uint64 // now
}

// Memory is what there is for models, in bytes. What cannot be told is zero or absent.
type Memory struct {
	Host     Share                   // the machine's, as far as we are allowed to use it
	Graphics map[engine.Device]Share // of the card that has most of it for programs on a device
	Carved   uint64                  // what cards have beside Host
	Unified  bool                    // cards draw on Host
}

// ReadMemory reads what memory there is, and nothing else. root is the folder that holds /proc and /sys. It takes a
// fraction of a millisecond and may be asked often.
func ReadMemory(root string) Memory {
	e := &exam{Box: Box{Root: root, GOOS: runtime.GOOS}, cmdline: map[string]string{}}
	e.memory()
	limit, _ := e.controlGroup()
	m := Memory{Host: Share{Total: min(e.report.Memory, limit), Free: e.report.Available}, Graphics: map[engine.Device]Share{}}
	e.started()
	e.discover()
	for _, c := range e.report.Cards {
		empty := c
		empty.VRAMUsed, empty.GTTUsed = 0, 0
		empty.usable(m.Host.Total, e.kernel)
		m.Carved += c.VRAM
		m.Unified = m.Unified || c.Integrated
		for _, d := range []engine.Device{engine.Vulkan, engine.Zinc, engine.HRX, engine.ROCm, engine.DS4} {
			s := Share{Total: empty.ROCm, Free: c.ROCm}
			if d == engine.Vulkan || d == engine.Zinc {
				s = Share{Total: empty.Vulkan, Free: c.Vulkan}
			}
			if s.Total > m.Graphics[d].Total {
				m.Graphics[d] = s
			}
		}
	}
	return m
}
