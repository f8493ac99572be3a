package policy

import "onebit/extensions/policy/guest"

// Raw lets tests ask with what is no request.
func Raw(file, request []byte) string {
	p, wrong := guest.New(file)
	if wrong != "" {
		return ""
	}
	said, _, err := p.Route(request, 1<<40)
	if err != nil {
		return err.Error()
	}
	return string(said)
}
