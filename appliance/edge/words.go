package edge

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

// fingerprintWords is how many words stand for a fingerprint: 128 bits, which nobody can make another root to match.
const fingerprintWords = 16

// wordList holds one word for each byte: short, common and unlike each other.
const wordList = `
acid acorn actor adult agent alarm album alley amber angle ankle apple apron arena armor arrow
atlas attic autumn award bacon badge bamboo banjo barrel basin beach beaver bench berry bishop blanket
blossom bottle bread bridge broom bubble bucket butter cabin cactus camel candle canoe carbon carpet castle
cattle cedar cellar chalk cherry chess chicken circus citrus clover cobra coffee comet copper coral cotton
cradle crayon cricket crown crystal curtain cushion dagger daisy dancer desert diamond dinner doctor dolphin donkey
dragon drawer drum eagle easel echo eclipse elbow ember emperor engine falcon farmer feather fender fiddle
flannel flute forest fossil fountain fox galaxy garden garlic ginger giraffe glacier glove goblet granite grape
guitar hammer harbor harvest hazel helmet heron hockey honey hornet hotel hunter igloo index island ivory
jacket jaguar jelly jigsaw jungle kernel kettle kitten ladder lagoon lantern lemon leopard letter lily linen
lizard lobster lotus magnet mango maple marble market meadow melon mirror mitten monkey mosaic mountain muffin
mustard napkin nectar needle nickel noodle nugget oasis ocean olive onion orchid otter oxygen oyster paddle
panda paper parrot peach peanut pebble pencil pepper pigeon pillow pirate planet plaster pocket poem polar
potato prism pumpkin puzzle quartz quilt rabbit radar raisin raven ribbon river rocket saddle salmon sandal
saturn scarf seal shadow shovel silver socket spider spinach sponge stadium statue summer sunset swallow tailor
talent teapot temple thunder ticket tiger timber toast tractor trumpet tulip tunnel turtle umbrella urchin valley
vanilla velvet violin volcano waffle walnut wagon walrus whale willow window winter wizard yogurt zebra zipper
`

// Words returns a fingerprint as words that can be read aloud and compared. It takes the SHA-256 in hex and returns
// nothing when it is none.
func Words(fingerprint string) string {
	b, err := hex.DecodeString(fingerprint)
	if err != nil || len(b) != sha256.Size {
		return ""
	}
	list := strings.Fields(wordList)
	var out []string
	for _, c := range b[:fingerprintWords] {
		out = append(out, list[c])
	}
	return strings.Join(out, " ")
}

// errNoFingerprint says what a fingerprint looks like.
var errNoFingerprint = errors.New("a fingerprint is 64 hex digits, or 16 words of the trust page")

// SameFingerprint reports whether what a person gives is the fingerprint of a root, whose SHA-256 comes in hex: the
// same digits, with or without colons and "sha256:" before them, or its words. It is an error when it is neither.
func SameFingerprint(given, fingerprint string) (bool, error) {
	given = strings.ToLower(strings.TrimSpace(given))
	if list := strings.FieldsFunc(given, func(r rune) bool { return r == ' ' || r == '-' || r == ',' }); len(list) == fingerprintWords {
		return strings.Join(list, " ") == Words(fingerprint), nil
	}
	digits := strings.NewReplacer(":", "", " ", "").Replace(strings.TrimPrefix(given, "sha256:"))
	if b, err := hex.DecodeString(digits); err != nil || len(b) != sha256.Size {
		return false, errNoFingerprint
	}
	return digits == fingerprint, nil
}
