package catalog

// NewestFormat is the number of the format in which records are written.
func NewestFormat() int { return formats.Format() }
