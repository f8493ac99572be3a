package auth_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"rsc.io/qr"

	"onebit/appliance/auth"
)

func TestCode(t *testing.T) {
	for range 200 {
		c := auth.NewCode()
		text := c.Text().Expose()
		if groups := strings.Split(text, "-"); len(groups) != 6 || len(text) != 35 {
			t.Fatalf("%q is not six groups of five", text)
		}
		variants := []string{text, strings.ToLower(text), strings.ReplaceAll(text, "-", " "), strings.ReplaceAll(text, "-", ""), " " + text + "\n",
			strings.NewReplacer("1", "l", "0", "o").Replace(text), strings.NewReplacer("1", "I", "0", "O").Replace(text)}
		for _, v := range variants {
			if got, err := auth.ParseCode(v); err != nil || got != c {
				t.Fatalf("%q was read as another code, or not at all: %v", v, err)
			}
		}
	}
}

// A slip of the pen must be told from a wrong code, so that it costs no try.
func TestCodeSlips(t *testing.T) {
	c := auth.NewCode()
	text := []byte(strings.ReplaceAll(c.Text().Expose(), "-", ""))
	const symbols = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	slips, seen := 0, 0
	for i := range text {
		for _, s := range []byte(symbols) {
			if s == text[i] {
				continue
			}
			slip := bytes.Clone(text)
			slip[i] = s
			slips++
			if _, err := auth.ParseCode(string(slip)); err == nil {
				seen++
			}
		}
		if i > 0 && text[i] != text[i-1] {
			slip := bytes.Clone(text)
			slip[i], slip[i-1] = slip[i-1], slip[i]
			slips++
			if _, err := auth.ParseCode(string(slip)); err == nil {
				seen++
			}
		}
	}
	if seen > 2 { // each passes with a chance of one in four million
		t.Errorf("%d of %d slips pass for codes", seen, slips)
	}
	for _, bad := range []string{"", "-", "12345", string(text[:29]), string(text) + "0", "U" + string(text[1:]), "é" + string(text[1:]), strings.Repeat("0", 300)} {
		if _, err := auth.ParseCode(bad); code(err) != "malformed_code" {
			t.Errorf("%q: got %v, want malformed_code", bad, err)
		}
	}
}

func TestProofIsBound(t *testing.T) {
	c, root, nonce := auth.NewCode(), auth.Fingerprint{1}, []byte("0123456789abcdef")
	want := c.Proof(auth.ClientSide, root, nonce)
	if !bytes.Equal(want, c.Proof(auth.ClientSide, root, nonce)) {
		t.Fatal("a proof is not the same twice")
	}
	others := map[string][]byte{
		"another code":  c.Flip(127).Proof(auth.ClientSide, root, nonce),
		"another root":  c.Proof(auth.ClientSide, auth.Fingerprint{2}, nonce),
		"another nonce": c.Proof(auth.ClientSide, root, nil),
		"the box's own": c.Proof(auth.BoxSide, root, nonce),
	}
	for name, got := range others {
		if bytes.Equal(want, got) {
			t.Errorf("the proof with %s is the same", name)
		}
	}
	if h := c.Hash(); bytes.Equal(h[:], want) || h == c.Flip(0).Hash() {
		t.Error("the stored form is not the code's own")
	}
}

func TestFingerprint(t *testing.T) {
	f := auth.Fingerprint{0xab, 0xcd, 31: 0x01}
	for _, text := range []string{f.String(), strings.ToLower(f.String()), strings.ReplaceAll(f.String(), ":", ""), strings.ReplaceAll(f.String(), ":", " ")} {
		if got, err := auth.ParseFingerprint(text); err != nil || got != f {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "ab", f.String() + ":00", strings.Replace(f.String(), "A", "x", 1)} {
		if _, err := auth.ParseFingerprint(bad); err == nil {
			t.Errorf("%q was taken for a fingerprint", bad)
		}
	}
}

func FuzzParseCode(f *testing.F) {
	f.Add("00000-00000-00000-00000-00000-00000")
	f.Add("ABCDE FGHJK mnpqr 12345 oilOI 00000")
	f.Add("\u2011\u00a0é")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := auth.ParseCode(text)
		if err != nil {
			return
		}
		again, err := auth.ParseCode(c.Text().Expose())
		if err != nil || again != c {
			t.Errorf("%q reads as a code that does not read back", text)
		}
	})
}

// The picture on the terminal has every module of the code in its place, and the margin around it.
func TestQR(t *testing.T) {
	const text = "https://box.local/claim#00000-00000-00000-00000-00000-00000"
	picture, err := auth.DrawQR(auth.NewSecret(text))
	if err != nil {
		t.Fatal(err)
	}
	want, err := qr.Encode(text, qr.M)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(picture, "\n"), "\n")
	for y := -4; y < want.Size+4; y++ {
		line := []rune(lines[(y+4)/2])
		if len(line) != want.Size+8 {
			t.Fatalf("line %d has %d columns, want %d", y, len(line), want.Size+8)
		}
		for x := -4; x < want.Size+4; x++ {
			upper := (y+4)%2 == 0
			r := line[x+4]
			light := r == '█' || (upper && r == '▀') || (!upper && r == '▄')
			if light == want.Black(x, y) {
				t.Fatalf("the module at %d,%d is wrong", x, y)
			}
		}
	}
}

func TestSecretsHide(t *testing.T) {
	s, c := auth.NewSecret("hush-hush"), auth.NewCode()
	text := c.Text().Expose()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%e"} { // go vet refuses %p and %w
		for _, v := range []any{s, &s, c, &c, struct{ S auth.Secret }{s}, struct{ C auth.Code }{c}, []auth.Secret{s}, map[string]auth.Secret{"k": s}} {
			said := fmt.Sprintf(verb, v)
			if strings.Contains(said, "hush") || strings.Contains(said, "68757368") || strings.Contains(said, text) || strings.Contains(said, text[:5]) {
				t.Errorf("%s of a %T shows it: %s", verb, v, said)
			}
		}
	}
}
