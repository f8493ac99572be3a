package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"
)

// Cost is what one password check takes. More costs a thief of the file more, and a login too.
type Cost struct {
	Memory  uint32 // KiB
	Time    uint32 // passes over that memory
	Threads uint8
}

// defaultCost is argon2id with 32 MiB and three passes: about a tenth of a second on one core.
var defaultCost = Cost{Memory: 32 << 10, Time: 3, Threads: 1}

// Bounds on a stored cost. A record beyond them is damaged or hostile.
const (
	maxMemory  = 256 << 10 // KiB
	maxTime    = 16
	maxThreads = 16
)

// Bounds on a password.
const (
	MinPassword = 12   // characters
	maxPassword = 1024 // bytes
)

// hasher turns passwords into argon2id records and checks them, a few at a time: however many logins come in at once,
// they take no more memory than that. The rest waits, up to a bound, and past it is turned away.
type hasher struct {
	cost  Cost
	slots chan struct{} // holds a token for each check that runs
	queue chan struct{} // holds a token for each check that runs or waits
	dummy string        // a record of a password that nobody knows
	spent atomic.Bool   // memory was used that can be given back
}

// tidy gives the memory of checks that have ended back to the system, which would otherwise keep it for minutes.
func (h *hasher) tidy() {
	if len(h.slots) == 0 && h.spent.Swap(false) {
		debug.FreeOSMemory()
	}
}

const (
	hashesAtOnce = 2
	hashesQueued = 16
)

func newHasher(cost Cost) (*hasher, error) {
	if cost == (Cost{}) {
		cost = defaultCost
	}
	if !cost.sound() {
		return nil, fmt.Errorf("a password cost of %d KiB, %d passes and %d threads is out of bounds", cost.Memory, cost.Time, cost.Threads)
	}
	h := &hasher{cost: cost, slots: make(chan struct{}, hashesAtOnce), queue: make(chan struct{}, hashesAtOnce+hashesQueued)}
	salt, key := make([]byte, 16), make([]byte, 32)
	rand.Read(salt)
	rand.Read(key)
	h.dummy = encodePHC(cost, salt, key)
	return h, nil
}

func (c Cost) sound() bool {
	return c.Memory >= 8*uint32(c.Threads) && c.Memory <= maxMemory && c.Time >= 1 && c.Time <= maxTime && c.Threads >= 1 && c.Threads <= maxThreads
}

// acquire waits for a slot.
func (h *hasher) acquire(ctx context.Context) (release func(), err error) {
	select {
	case h.queue <- struct{}{}:
	default:
		return nil, tooMany("too_many_logins", "too many logins are being checked at the moment", 2*time.Second)
	}
	select {
	case h.slots <- struct{}{}:
		return func() { h.spent.Store(true); <-h.slots; <-h.queue }, nil
	case <-ctx.Done():
		<-h.queue
		return nil, fmt.Errorf("waiting to check a password: %w", context.Cause(ctx))
	}
}

// hash returns the PHC record of a new password.
func (h *hasher) hash(ctx context.Context, password Secret) (string, error) {
	release, err := h.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	salt := make([]byte, 16)
	rand.Read(salt)
	return encodePHC(h.cost, salt, derive(password, h.cost, salt, 32)), nil
}

// verify reports whether password is the one of the record. An empty record costs as much as any other and never fits,
// so that the time does not tell whether there is such a person. stale says that the record was made at another cost.
func (h *hasher) verify(ctx context.Context, record string, password Secret) (fits, stale bool, err error) {
	release, err := h.acquire(ctx)
	if err != nil {
		return false, false, err
	}
	defer release()
	known := record != ""
	if !known {
		record = h.dummy
	}
	cost, salt, want, err := parsePHC(record)
	if err != nil {
		return false, false, err
	}
	if len(password.text) > maxPassword {
		return false, false, nil
	}
	got := derive(password, cost, salt, uint32(len(want)))
	same := subtle.ConstantTimeCompare(want, got) == 1
	return same && known, cost != h.cost, nil
}

// derive runs argon2id over the password in Unicode's composed form, since keyboards differ in how they write an accent.
func derive(password Secret, c Cost, salt []byte, size uint32) []byte {
	return argon2.IDKey(norm.NFC.Bytes([]byte(password.text)), salt, c.Time, c.Memory, c.Threads, size)
}

// encodePHC writes a record in the common form $argon2id$v=19$m=32768,t=3,p=1$SALT$HASH.
func encodePHC(c Cost, salt, key []byte) string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.Memory, c.Time, c.Threads, b64.EncodeToString(salt), b64.EncodeToString(key))
}

// parsePHC reads a record. Its errors do not quote it.
func parsePHC(record string) (c Cost, salt, key []byte, err error) {
	bad := fmt.Errorf("the stored form of a password is not sound")
	part := strings.Split(record, "$")
	if len(record) > 512 || len(part) != 6 || part[0] != "" || part[1] != "argon2id" || part[2] != "v="+strconv.Itoa(argon2.Version) {
		return Cost{}, nil, nil, bad
	}
	number := map[string]uint64{"m": 0, "t": 0, "p": 0}
	for field := range strings.SplitSeq(part[3], ",") {
		name, value, _ := strings.Cut(field, "=")
		old, known := number[name]
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil || !known || old != 0 || n == 0 {
			return Cost{}, nil, nil, bad
		}
		number[name] = n
	}
	if number["p"] > maxThreads {
		return Cost{}, nil, nil, bad
	}
	c = Cost{Memory: uint32(number["m"]), Time: uint32(number["t"]), Threads: uint8(number["p"])}
	b64 := base64.RawStdEncoding.Strict()
	salt, errSalt := b64.DecodeString(part[4])
	key, errKey := b64.DecodeString(part[5])
	if errSalt != nil || errKey != nil || len(salt) < 8 || len(key) < 16 || len(key) > 64 || !c.sound() {
		return Cost{}, nil, nil, bad
	}
	return c, salt, key, nil
}

// checkPassword returns why a new password is too weak, or nil. names are what the password must not be.
func checkPassword(password Secret, names ...string) error {
	text := norm.NFC.String(password.text)
	if !utf8.ValidString(text) || len(text) > maxPassword {
		return invalid("bad_password", "the password is not text of reasonable length")
	}
	if utf8.RuneCountInString(text) < MinPassword {
		return invalid("weak_password", fmt.Sprintf("a password needs at least %d characters; a few words make a good one", MinPassword))
	}
	different := map[rune]bool{}
	for _, r := range text {
		different[r] = true
	}
	if len(different) < 5 {
		return invalid("weak_password", "the password repeats too few characters")
	}
	for _, n := range names {
		if strings.EqualFold(text, n) {
			return invalid("weak_password", "the password must not be a name")
		}
	}
	return nil
}
