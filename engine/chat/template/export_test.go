package template

import "time"

// SetTime sets how long a rendering may take.
func (t *Template) SetTime(d time.Duration) { t.limits.time = d }

// Translate is the source for the evaluating library.
func Translate(source string) (string, error) { return translate(source) }
