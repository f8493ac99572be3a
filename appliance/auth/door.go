package auth

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"time"
)

// claimState is what a program is told about the claim: what `1bit claim` needs to know that it talks to the real box.
type claimState struct {
	Claimed bool       `json:"claimed"`
	Armed   bool       `json:"armed"`             // whether a code is good at the moment
	Expires *time.Time `json:"expires,omitempty"` // of that code
	Root    string     `json:"root,omitempty"`    // certificate as PEM
	Proof   []byte     `json:"proof,omitempty"`   // Code.Proof of BoxSide for the root and the caller's nonce
}

// getClaim shows the form, or says how the claim stands. ?nonce=HEX asks for a proof that the box knows the code: only who
// knows it too can check that, and it is for this box's root alone.
func (a *Auth) getClaim(w http.ResponseWriter, r *http.Request) error {
	claimed, err := a.IsClaimed(r.Context())
	if err != nil {
		return err
	}
	code, expires, armed := a.codes.armed(toClaim, a.now())
	root, hasRoot := a.Root()
	if wantsPage(r) {
		if claimed {
			return errClaimed
		}
		v := view{Title: "Claim this box", Restore: a.cfg.Restore != nil, Settings: a.cfg.Settings != nil, Armed: armed}
		if hasRoot {
			v.Root, v.Words = root.String(), a.words(root)
		}
		return a.page(w, http.StatusOK, "claim", v)
	}
	state := claimState{Claimed: claimed, Armed: armed && !claimed}
	if hasRoot {
		state.Root = string(a.cfg.Root())
	}
	if state.Armed {
		state.Expires = &expires
		if text := r.URL.Query().Get("nonce"); text != "" {
			nonce, err := hex.DecodeString(text)
			if err != nil || len(nonce) < 16 || len(nonce) > 64 {
				return invalid("bad_nonce", "a nonce is 16 to 64 bytes in hexadecimal")
			}
			state.Proof = code.Proof(BoxSide, root, nonce)
		}
	}
	return answer(w, http.StatusOK, state)
}

func (a *Auth) postClaim(w http.ResponseWriter, r *http.Request) error {
	in, err := read(r)
	if err != nil {
		return err
	}
	welcome, err := a.Claim(r.Context(), VisitorOf(r), Claim{Code: in.Code, Proof: in.Proof, Name: in.Name, BoxName: in.BoxName,
		TLSMode: in.TLSMode, Password: in.Password, Passkey: in.Passkey})
	return a.letIn(w, r, welcome, err)
}

func (a *Auth) postClaimPasskey(w http.ResponseWriter, r *http.Request) error {
	in, err := read(r)
	if err != nil {
		return err
	}
	options, err := a.BeginClaimPasskey(r.Context(), VisitorOf(r), PasskeyRequest{in.Code, in.Proof, in.Name})
	return asked(w, options, err)
}

// asked hands a browser the options for a passkey.
func asked(w http.ResponseWriter, options json.RawMessage, err error) error {
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, options)
}

// postRestore takes a multipart form: the code and the passphrase come before the backup, which streams.
func (a *Auth) postRestore(w http.ResponseWriter, r *http.Request) error {
	form, err := r.MultipartReader()
	if err != nil {
		return &Error{Status: http.StatusUnsupportedMediaType, Code: "unsupported_media_type", Message: "send a multipart form"}
	}
	field := map[string]Secret{}
	for range 8 {
		part, err := form.NextPart()
		if err != nil {
			break
		}
		if part.FormName() == "backup" {
			err := a.RestoreClaim(r.Context(), VisitorOf(r), field["code"], field["passphrase"], part)
			return a.restored(w, r, err)
		}
		if field[part.FormName()], err = text(part); err != nil {
			return err
		}
	}
	return invalid("invalid_form", "the form has a code, a passphrase and, after them, a backup")
}

func text(part *multipart.Part) (Secret, error) {
	b, err := io.ReadAll(io.LimitReader(part, maxPassword+1))
	if err != nil || len(b) > maxPassword {
		return Secret{}, invalid("invalid_form", "a field of the form is too long, or did not arrive")
	}
	return Secret{string(b)}, nil
}

func (a *Auth) restored(w http.ResponseWriter, r *http.Request, err error) error {
	if err != nil {
		return err
	}
	if wantsPage(r) {
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return nil
	}
	return answer(w, http.StatusOK, map[string]bool{"restored": true})
}

func (a *Auth) getLogin(w http.ResponseWriter, r *http.Request) error {
	claimed, err := a.IsClaimed(r.Context())
	if err != nil {
		return err
	}
	if !claimed && wantsPage(r) {
		http.Redirect(w, r, "/claim", http.StatusSeeOther)
		return nil
	}
	if !wantsPage(r) {
		p, err := a.byLogin(r.Context(), r)
		if err != nil {
			return err
		}
		return answer(w, http.StatusOK, came{Person: p.Person, Name: p.Name, Role: string(p.Role)})
	}
	p, err := a.byLogin(r.Context(), r)
	if err != nil { // whatever the reason is, logging in is the way on
		return a.page(w, http.StatusOK, "login", view{Title: "Log in"})
	}
	return a.page(w, http.StatusOK, "home", view{Title: "You are logged in", Name: p.Name, Admin: p.Admin, API: "https://" + r.Host + "/v1", Still: true})
}

func (a *Auth) postLogin(w http.ResponseWriter, r *http.Request) error {
	in, err := read(r)
	if err != nil {
		return err
	}
	welcome, err := a.LoginPassword(r.Context(), VisitorOf(r), in.Name, in.Password)
	return a.letIn(w, r, welcome, err)
}

func (a *Auth) postPasskeyLogin(w http.ResponseWriter, r *http.Request) error {
	options, err := a.BeginPasskeyLogin(VisitorOf(r))
	return asked(w, options, err)
}

func (a *Auth) postPasskeyAnswer(w http.ResponseWriter, r *http.Request) error {
	in, err := read(r)
	if err != nil {
		return err
	}
	welcome, err := a.LoginPasskey(r.Context(), VisitorOf(r), in.Passkey)
	return a.letIn(w, r, welcome, err)
}

// postLogout takes the cookie away too where its login has ended already.
func (a *Auth) postLogout(w http.ResponseWriter, r *http.Request) error {
	p, err := a.byLogin(r.Context(), r)
	if err == nil {
		err = a.Logout(r.Context(), p)
	}
	if refusal, ok := errors.AsType[*Error](err); ok && refusal.Status == http.StatusUnauthorized {
		err = nil
	}
	if err != nil {
		return err
	}
	SetCookie(w, Secret{}, time.Time{})
	if wantsPage(r) {
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return nil
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Auth) getInvite(w http.ResponseWriter, r *http.Request) error {
	return a.page(w, http.StatusOK, "invite", view{Title: "Come in"})
}

func (a *Auth) postInvite(w http.ResponseWriter, r *http.Request) error {
	in, err := read(r)
	if err != nil {
		return err
	}
	welcome, err := a.Accept(r.Context(), VisitorOf(r), Acceptance{Code: in.Code, Name: in.Name, Password: in.Password, Passkey: in.Passkey})
	return a.letIn(w, r, welcome, err)
}

func (a *Auth) postInvitePasskey(w http.ResponseWriter, r *http.Request) error {
	in, err := read(r)
	if err != nil {
		return err
	}
	options, err := a.BeginInvitePasskey(r.Context(), VisitorOf(r), PasskeyRequest{Code: in.Code, Name: in.Name})
	return asked(w, options, err)
}

func (a *Auth) getRecover(w http.ResponseWriter, r *http.Request) error {
	return a.page(w, http.StatusOK, "recover", view{Title: "Get back in"})
}

func (a *Auth) postRecover(w http.ResponseWriter, r *http.Request) error {
	in, err := read(r)
	if err != nil {
		return err
	}
	welcome, err := a.Recover(r.Context(), VisitorOf(r), Recovery{Code: in.Code, Name: in.Name, Password: in.Password})
	return a.letIn(w, r, welcome, err)
}

func (a *Auth) postPassword(w http.ResponseWriter, r *http.Request) error {
	return a.change(w, r, func(p *Principal, in input) error {
		return a.SetPassword(r.Context(), VisitorOf(r), p, in.Old, in.Password)
	})
}

// change does what somebody with a login asks for.
func (a *Auth) change(w http.ResponseWriter, r *http.Request, do func(p *Principal, in input) error) error {
	p, err := a.byLogin(r.Context(), r)
	if err != nil {
		return err
	}
	in, err := read(r)
	if err != nil {
		return err
	}
	if err := do(p, in); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *Auth) postAddPasskey(w http.ResponseWriter, r *http.Request) error {
	p, err := a.byLogin(r.Context(), r)
	if err != nil {
		return err
	}
	options, err := a.BeginPasskey(r.Context(), VisitorOf(r), p)
	return asked(w, options, err)
}

func (a *Auth) postAddPasskeyAnswer(w http.ResponseWriter, r *http.Request) error {
	return a.change(w, r, func(p *Principal, in input) error {
		return a.AddPasskey(r.Context(), VisitorOf(r), p, in.Name, in.Passkey)
	})
}
