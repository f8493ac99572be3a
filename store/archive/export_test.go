package archive

import (
	"io"
	"os"
)

// Unpack is Read without the encryption.
func Unpack(r io.Reader, root *os.Root) (Manifest, map[string][]byte, error) {
	u := unpacker{root: root, files: map[string][]byte{}}
	err := u.unpack(suspicious{r})
	return u.manifest, u.files, err
}
