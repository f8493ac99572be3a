package edge

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// certificateLog lets certmagic, which logs with zap, write into our log. What it calls information is our debug: it
// says several lines for each certificate.
func certificateLog(log *slog.Logger) *zap.Logger {
	return zap.New(zapToSlog{log: log})
}

// zapToSlog is a zapcore.Core that writes to a slog.Logger.
type zapToSlog struct{ log *slog.Logger }

// Enabled reports whether the log wants a level.
func (z zapToSlog) Enabled(l zapcore.Level) bool {
	return z.log.Enabled(context.Background(), slogLevel(l))
}

// With returns a core that adds fields.
func (z zapToSlog) With(fields []zapcore.Field) zapcore.Core {
	return zapToSlog{log: z.log.With(attributes(fields)...)}
}

// Check adds the core to an entry that the log wants.
func (z zapToSlog) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if z.Enabled(e.Level) {
		return c.AddCore(e, z)
	}
	return c
}

// Write logs an entry.
func (z zapToSlog) Write(e zapcore.Entry, fields []zapcore.Field) error {
	z.log.Log(context.Background(), slogLevel(e.Level), "certificates: "+e.Message, attributes(fields)...)
	return nil
}

// Sync does nothing: the log keeps nothing back.
func (z zapToSlog) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	out := make([]any, 0, len(m.Fields))
	for k, v := range m.Fields {
		out = append(out, slog.Any(k, v))
	}
	return out
}

func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelWarn // certmagic tries again by itself
	case l >= zapcore.WarnLevel:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
