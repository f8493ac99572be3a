//go:build !amd64

package tensor

func floatTableFor(Level) floatTable { return genericFloatTable() }

func opsTableFor(Level) opsTable { return genericOpsTable() }
