package host

// CopySnapshots makes m keep its snapshots as systems without shared ones do.
func CopySnapshots(m *Module) { m.copies = true }

// Volatile tells whether m is set up anew for each call.
func Volatile(m *Module) bool { return m.volatile }

// Hot tells how much of its memory i keeps from call to call, and in how many spans.
func Hot(i *Instance) (spans, bytes int) {
	for _, h := range i.hot {
		bytes += h.to - h.from
	}
	return len(i.hot), bytes
}
