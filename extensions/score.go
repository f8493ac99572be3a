package extensions

import (
	"context"
	"errors"
	"time"

	"onebit/extensions/abi"
	"onebit/extensions/laya/scorer"
)

// scorer is what classifies where no module does; nil for nobody.
func (m *Manager) scorer() scorer.Scorer {
	if m.cfg.Scorer == nil {
		return nil
	}
	return m.cfg.Scorer()
}

// score lets a scorer that is no module say the class of what the user wrote. Its failure leaves the conversation without one.
func (d *deciding) score(ctx context.Context) {
	s := d.m.scorer()
	if s == nil {
		return
	}
	begin := time.Now()
	a, err := s.Score(ctx, d.text(abi.LastUser))
	switch {
	case errors.Is(err, scorer.ErrNoOpinion):
		return
	case ctx.Err() != nil && err != nil:
		return // the client has gone
	case err != nil:
		d.unclassified = "; unclassified: the scorer failed"
		d.m.cfg.Log.Warn("a conversation is not classified", "why", err, "after", time.Since(begin).Round(time.Millisecond))
		return
	}
	d.req.Class, d.req.Confidence, d.req.Scores = a.Class, a.Confidence, a.Scores
	d.fallback.Class, d.fallback.Confidence = a.Class, a.Confidence
}
