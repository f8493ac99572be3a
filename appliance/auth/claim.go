package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"onebit/store"
)

// codeLife is how long a code on the console is good for.
const codeLife = 30 * time.Minute

// purpose is what a code on the console is good for.
type purpose int

const (
	toClaim   purpose = iota + 1 // makes the first admin
	toRecover                    // lets an admin of a claimed box back in
)

// codes holds the one code that the console shows. It lives in memory: a restart of the box makes a new one.
type codes struct {
	mu      sync.Mutex
	purpose purpose // 0: there is none
	code    Code
	expires time.Time
}

// armed returns the code of a purpose while it is good.
func (c *codes) armed(want purpose, now time.Time) (Code, time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.code, c.expires, c.purpose == want && now.Before(c.expires)
}

func (c *codes) arm(p purpose, now time.Time) (Code, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.purpose, c.code, c.expires = p, NewCode(), now.Add(codeLife)
	return c.code, c.expires
}

// disarm takes a code away once it has been used. It reports whether it was still there.
func (c *codes) disarm(used Code) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.purpose == 0 || c.code != used {
		return false
	}
	c.purpose, c.code = 0, Code{}
	return true
}

// again makes a code good once more whose use has failed. It expires when it would have.
func (c *codes) again(used Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.purpose == 0 {
		c.purpose, c.code = toClaim, used
	}
}

// Armed is a code that the console shows.
type Armed struct {
	Code    Secret    // as it is shown
	URL     Secret    // where to use it, the code in its fragment; empty where the box has no address yet
	Expires time.Time // when it is good no more
	Claimed bool      // whether it lets an admin back in, rather than claims the box
}

// Arm shows a new code on the console: on a box that belongs to nobody one to claim it with, on any other one that lets
// an admin back in. The code before it is good no more. Only who stands at the box may cause it: its start, or its socket.
func (a *Auth) Arm(ctx context.Context) (Armed, error) {
	claimed, err := a.IsClaimed(ctx)
	if err != nil {
		return Armed{}, fmt.Errorf("asking whether the box is claimed: %w", err)
	}
	p, path, action := toClaim, "/claim", "claim.arm"
	if claimed {
		p, path, action = toRecover, "/recover", "recovery.arm"
	}
	code, expires := a.codes.arm(p, a.now())
	if err := a.store.Audit(ctx, store.System(), action, "", ""); err != nil {
		a.codes.disarm(code)
		return Armed{}, fmt.Errorf("noting a new code: %w", err)
	}
	armed := Armed{Code: code.Text(), Expires: expires, Claimed: claimed}
	if url := a.url(); url != "" {
		armed.URL = Secret{url + path + "#" + code.Text().text}
	}
	if err := a.show(armed); err != nil {
		return Armed{}, fmt.Errorf("writing to the console: %w", err)
	}
	return armed, nil
}

func (a *Auth) url() string {
	if a.cfg.URL == nil {
		return ""
	}
	return strings.TrimRight(a.cfg.URL(), "/")
}

// show writes a code for whoever stands at the box.
func (a *Auth) show(armed Armed) error {
	var b strings.Builder
	if armed.Claimed {
		b.WriteString("\nA way back in for an admin of this box.\n\n")
	} else {
		b.WriteString("\nThis box belongs to nobody yet. Whoever has this code can claim it.\n\n")
	}
	if !armed.URL.Empty() {
		picture, err := DrawQR(armed.URL)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "  open    %s\n\n%s\n", armed.URL.text, picture)
	}
	fmt.Fprintf(&b, "  code    %s\n", armed.Code.text)
	if root, ok := a.Root(); ok {
		fmt.Fprintf(&b, "  root    %s\n", root)
		if words := a.words(root); words != "" {
			fmt.Fprintf(&b, "  words   %s\n", words)
		}
		b.WriteString("\nThe page shows the same. If it shows another root, it is not this box: leave it.\n")
	}
	fmt.Fprintf(&b, "The code works once, until %s.\n\n", armed.Expires.Format("15:04 MST"))
	_, err := io.WriteString(a.cfg.Console, b.String())
	return err
}

// Root returns the fingerprint of the box's root certificate, where it has one.
func (a *Auth) Root() (Fingerprint, bool) {
	if a.cfg.Root == nil {
		return Fingerprint{}, false
	}
	block, _ := pem.Decode(a.cfg.Root())
	if block == nil {
		return Fingerprint{}, false
	}
	return sha256.Sum256(block.Bytes), true
}

func (a *Auth) words(root Fingerprint) string {
	if a.cfg.Words == nil {
		return ""
	}
	return a.cfg.Words(hex.EncodeToString(root[:]))
}

// Claim is what somebody sends who claims the box: the code, or a proof of it, and who they are.
type Claim struct {
	Code    Secret
	Proof   []byte // Code.Proof of ClientSide for this box's root, without a nonce
	Name    string
	BoxName string // as in http://NAME.local; empty: as it is
	TLSMode string // local, acme or files; empty: as it is

	Password Secret
	Passkey  json.RawMessage // the browser's answer to BeginPasskey; in place of a password or beside it
}

// Welcome is what somebody gets who has come in for good.
type Welcome struct {
	Person   store.Person
	Recovery Secret // shown once; empty where none was made
	Login    Secret // the value for the login cookie
	Expires  time.Time
}

var (
	errClaimed   = &Error{Status: 410, Code: "already_claimed", Message: "the box has been claimed"}
	errWrongCode = forbidden("wrong_code", "the code is not the one that the box shows")
	errNoCode    = forbidden("no_code", "no code is good at the moment: restart the box, or run 1bit admin recover on it, for a new one")
)

// shown checks a code, or a proof of it, against the one of a purpose on the console. Each check of something that could
// be a code is counted as a try.
func (a *Auth) shown(p purpose, from Visitor, code Secret, proof []byte) (Code, error) {
	var c Code
	if len(proof) == 0 {
		var err error
		if c, err = ParseCode(code.text); err != nil {
			return Code{}, err
		}
	}
	if err := a.tries.guess(a.now(), from.Address); err != nil {
		return Code{}, err
	}
	want, err := a.compare(p, c, proof)
	if err == nil {
		a.tries.code.clear(from.Address)
	}
	return want, err
}

// compare returns the code of a purpose if c is it, or, where there is a proof, if it is a proof of it.
func (a *Auth) compare(p purpose, c Code, proof []byte) (Code, error) {
	want, _, ok := a.codes.armed(p, a.now())
	if !ok {
		return Code{}, errNoCode
	}
	if len(proof) == 0 {
		ok = subtle.ConstantTimeCompare(c.bits[:], want.bits[:]) == 1
	} else {
		root, _ := a.Root()
		ok = hmac.Equal(proof, want.Proof(ClientSide, root, nil))
	}
	if !ok {
		return Code{}, errWrongCode
	}
	return want, nil
}

// unclaimed refuses what is for a box that belongs to nobody.
func (a *Auth) unclaimed(ctx context.Context) error {
	claimed, err := a.IsClaimed(ctx)
	if err != nil {
		return fmt.Errorf("asking whether the box is claimed: %w", err)
	}
	if claimed {
		return errClaimed
	}
	return nil
}

// Claim makes the first admin. Of two at once one comes first, and the other is told that the box has been claimed. A
// mistake in the rest of the request does not use the code up.
func (a *Auth) Claim(ctx context.Context, from Visitor, c Claim) (Welcome, error) {
	if err := a.unclaimed(ctx); err != nil {
		return Welcome{}, err
	}
	code, err := a.shown(toClaim, from, c.Code, c.Proof)
	if err != nil {
		return Welcome{}, err
	}
	settings, err := a.settings(ctx, c)
	if err != nil {
		return Welcome{}, err
	}
	newcomer, err := a.newcomer(ctx, from, toClaimPasskey, account{c.Name, c.Password, c.Passkey})
	if err != nil {
		return Welcome{}, err
	}
	recovery := NewCode()
	hash := recovery.Hash()
	newcomer.Recovery = &hash
	person, err := a.store.Claim(ctx, store.ClaimRequest{Admin: newcomer, Settings: settings})
	if errors.Is(err, store.ErrConflict) {
		return Welcome{}, errClaimed
	}
	if err != nil {
		return Welcome{}, fmt.Errorf("claiming the box: %w", err)
	}
	a.codes.disarm(code)
	a.claimed()
	w, err := a.welcome(ctx, from, person)
	w.Recovery = recovery.Text()
	return w, err
}

// claimed tells whoever waits for it that the box belongs to somebody.
func (a *Auth) claimed() {
	a.isClaimed.Store(true)
	if a.cfg.Claimed != nil {
		a.cfg.Claimed()
	}
}

var boxName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// settings checks what a claim chooses of the configuration, and returns what to store of it.
func (a *Auth) settings(ctx context.Context, c Claim) (map[string]json.RawMessage, error) {
	values := map[string]string{}
	if c.BoxName != "" {
		if !boxName.MatchString(c.BoxName) {
			return nil, invalid("bad_box_name", "a box's name has up to 63 lower-case letters, digits and hyphens, and no hyphen at either end")
		}
		values["name"] = c.BoxName
	}
	switch c.TLSMode {
	case "":
	case "local", "acme", "files":
		values["tls.mode"] = c.TLSMode
	default:
		return nil, invalid("bad_tls_mode", "the TLS mode is local, acme or files")
	}
	switch {
	case len(values) == 0:
		return nil, nil
	case a.cfg.Settings == nil:
		return nil, invalid("no_settings", "this box takes its name and TLS mode from its configuration alone")
	}
	return a.cfg.Settings(ctx, values)
}

// RestoreClaim restores a backup on a box that belongs to nobody, in place of a claim: its people come back, and so do
// their keys.
func (a *Auth) RestoreClaim(ctx context.Context, from Visitor, code, passphrase Secret, backup io.Reader) error {
	if err := a.unclaimed(ctx); err != nil {
		return err
	}
	if a.cfg.Restore == nil {
		return &Error{Status: 501, Code: "cannot_restore", Message: "this box cannot restore a backup"}
	}
	used, err := a.shown(toClaim, from, code, nil)
	if err != nil {
		return err
	}
	if !a.codes.disarm(used) {
		return errNoCode // somebody else was first
	}
	if err := a.cfg.Restore(ctx, backup, passphrase); err != nil {
		a.codes.again(used)
		return fmt.Errorf("restoring a backup: %w", err)
	}
	a.claimed()
	return nil
}
