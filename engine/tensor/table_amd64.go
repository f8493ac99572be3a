package tensor

func floatTableFor(level Level) floatTable {
	switch level {
	}
	return genericFloatTable()
}

func opsTableFor(level Level) opsTable {
	switch level {
	}
	return genericOpsTable()
}
