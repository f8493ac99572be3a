package wire

// Valid is valid.
func Valid(b []byte) bool { return valid(b) }
