package chat

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ardanlabs/jinja"
)

// RenderExactly renders with the members of a JSON object as the template's only variables, messages untouched.
func (t *Template) RenderExactly(ctx context.Context, vars json.RawMessage, now time.Time) (string, error) {
	v, err := decode(vars, func(s string) string { return s })
	if err != nil {
		return "", err
	}
	return t.execute(ctx, v.AsDict().Data, len(vars), now)
}

// Evaluate is New without the probes.
func Evaluate(source string) (*Template, error) {
	t := &Template{source: source, limits: defaultLimits, gate: make(chan struct{}, concurrent)}
	translated, err := translate(source)
	if err != nil {
		return nil, err
	}
	t.compiled, err = jinja.Compile(translated)
	return t, err
}

// SetTime sets how long a rendering may take.
func (t *Template) SetTime(d time.Duration) { t.limits.time = d }

// Translate is the source for the evaluating library.
func Translate(source string) (string, error) { return translate(source) }
