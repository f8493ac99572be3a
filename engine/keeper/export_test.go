package keeper

// ParseEvent reads an event and returns what a client makes of it.
func ParseEvent(b []byte) (pid, uid int, err error) {
	e, err := parseEvent(b)
	return e.PID, e.UID, err
}

// RequestOf is requestOf.
var RequestOf = requestOf
