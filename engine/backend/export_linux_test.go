package backend

import "io/fs"

// OwnsPortIn is ownsPortIn.
func OwnsPortIn(proc fs.FS, pid, port int) bool { return ownsPortIn(proc, pid, port) }
