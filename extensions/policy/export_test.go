package policy

import "onebit/extensions/policy/guest"

// Raw lets tests ask with what is no request.
func Raw(file, request []byte) string { return guest.Decide(file, request) }
