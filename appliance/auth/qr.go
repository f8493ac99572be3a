package auth

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// DrawQR returns text as a QR code for a terminal, light on dark, two rows of it in each line. The margin of four is
// part of the code: without it cameras do not find it.
func DrawQR(text Secret) (string, error) {
	code, err := qr.Encode(text.text, qr.M)
	if err != nil {
		return "", fmt.Errorf("drawing a QR code: %w", err)
	}
	var b strings.Builder
	const margin = 4
	light := func(x, y int) bool { return !code.Black(x, y) } // outside of the code nothing is black
	for y := -margin; y < code.Size+margin; y += 2 {
		for x := -margin; x < code.Size+margin; x++ {
			below := y+1 < code.Size+margin && light(x, y+1)
			switch {
			case light(x, y) && below:
				b.WriteRune('█')
			case light(x, y):
				b.WriteRune('▀')
			case below:
				b.WriteRune('▄')
			default:
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String(), nil
}
