package backend

import "io/fs"

// OwnsPortIn is ownsPortIn.
func OwnsPortIn(proc fs.FS, pid, port int) bool { return ownsPortIn(proc, pid, port) }

// HeldByIn is heldByIn.
func HeldByIn(proc fs.FS, uid, port int) bool { return heldByIn(proc, uid, port) }
