package host

// CopySnapshots makes m keep its snapshots as systems without shared ones do.
func CopySnapshots(m *Module) { m.copies = true }

// Volatile tells whether m is set up anew for each call.
func Volatile(m *Module) bool { return m.volatile }
