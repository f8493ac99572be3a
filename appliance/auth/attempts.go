package auth

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// attempts limits how often somebody may try something, by any text that stands for the somebody. It counts tries in
// windows of a minute.
type attempts struct {
	perMinute int

	mu   sync.Mutex
	seen map[string]window
}

type window struct {
	begin time.Time
	tries int
}

// most bounds the texts that are remembered, since an attacker chooses them.
const most = 4096

// try counts one more try of a text, or returns how long to wait.
func (a *attempts) try(now time.Time, text string) (wait time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.seen[text]
	if now.Sub(w.begin) >= time.Minute {
		w = window{begin: now}
	}
	if w.tries >= a.perMinute {
		return w.begin.Add(time.Minute).Sub(now), false
	}
	w.tries++
	if a.seen == nil {
		a.seen = map[string]window{}
	}
	if _, known := a.seen[text]; !known && len(a.seen) >= most {
		a.forget(now)
	}
	a.seen[text] = w
	return 0, true
}

// clear forgets the tries of a text that has shown itself to be honest.
func (a *attempts) clear(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.seen, text)
}

// forget makes room: first the windows that have passed, then, when none has, the one that began first.
func (a *attempts) forget(now time.Time) {
	var oldest string
	var begin time.Time
	for text, w := range a.seen {
		if now.Sub(w.begin) >= time.Minute {
			delete(a.seen, text)
		} else if begin.IsZero() || w.begin.Before(begin) {
			oldest, begin = text, w.begin
		}
	}
	if len(a.seen) >= most {
		delete(a.seen, oldest)
	}
}

// address returns what stands for the sender of a request when its tries are counted: an IPv4 address, or the 64-bit
// prefix of an IPv6 one, since a single customer has all the addresses below that.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host // a Unix socket has none
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		if p, err := ip.Prefix(64); err == nil {
			return p.String()
		}
	}
	return ip.String()
}

// tries limits what an attacker would repeat. A person's own mistakes from one place, a place's mistakes with all persons,
// and everybody's mistakes with one person are counted apart: so nobody can lock a person out from elsewhere with a few
// tries, and many places together do not get far either.
type tries struct {
	pair, address, person attempts
	code, codes           attempts // of one address, of all
}

func newTries() tries {
	return tries{
		pair: attempts{perMinute: 5}, address: attempts{perMinute: 20}, person: attempts{perMinute: 30},
		code: attempts{perMinute: 5}, codes: attempts{perMinute: 60},
	}
}

// login counts a try to log in.
func (t *tries) login(now time.Time, from, name string) error {
	for _, of := range []struct {
		limit *attempts
		text  string
	}{{&t.pair, name + "\x00" + from}, {&t.address, from}, {&t.person, name}} {
		if wait, ok := of.limit.try(now, of.text); !ok {
			return tooMany("too_many_tries", "too many tries to log in", wait)
		}
	}
	return nil
}

// guess counts a try of a code.
func (t *tries) guess(now time.Time, from string) error {
	for _, of := range []struct {
		limit *attempts
		text  string
	}{{&t.code, from}, {&t.codes, ""}} {
		if wait, ok := of.limit.try(now, of.text); !ok {
			return tooMany("too_many_tries", "too many codes were tried", wait)
		}
	}
	return nil
}
