package record

import (
	"bytes"
	"errors"
)

// Text is what a person wrote into a file of JSON or the like, without the mark that some editors put before it. What an
// editor wrote in another form than UTF-8 is an error that says so.
func Text(b []byte) ([]byte, error) {
	if bytes.HasPrefix(b, []byte{0xff, 0xfe}) || bytes.HasPrefix(b, []byte{0xfe, 0xff}) {
		return nil, errors.New("it is in UTF-16: save it as UTF-8")
	}
	return bytes.TrimPrefix(b, []byte("\ufeff")), nil
}
