//go:build !amd64

package tensor

func quantTableFor(level Level) quantTable { return genericQuantTable(level) }
