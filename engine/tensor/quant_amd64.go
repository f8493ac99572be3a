package tensor

func quantTableFor(level Level) quantTable { return genericQuantTable(level) }
