package edge

import (
	"net/http"
	"net/url"

	"onebit/engine/door"
)

func refuse(w http.ResponseWriter, why string) { door.Refuse(w, why) }

func changes(method string) bool { return door.Changes(method) }

func sameHost(u *url.URL, host string) bool { return door.SameHost(u, host) }

func hostname(host string) string { return door.Hostname(host) }
