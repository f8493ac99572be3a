// Package conversation tells which conversation a request belongs to, as a pure function of what the client sends: an id
// that it names, else a rolling hash of how the conversation opens. There is no clock, no disk and no memory in here;
// whoever keeps something about conversations keeps it under these ids.
package conversation

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"net/http"
	"strings"
	"unsafe"

	"onebit/engine/wire/prefix"
)

// longText is how long a text may be that counts in full, in bytes.
const longText = 1 << 10

// castagnoli is the other of two checksums whose polynomials have nothing in common.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ID names a conversation: 32 hexadecimal digits. Nothing can be read out of it, and two tenants never share one.
type ID string

// Turn is one message, as far as it is text.
type Turn struct{ Role, Text string }

// IDs are the members of a request's body by which clients name conversations.
type IDs struct {
	Conversation string // of OpenAI's Responses: a name, or an object with an id
	Session      string // session_id, which some clients add
	Previous     string // previous_response_id: names the answer before, so it is another one in each turn
}

// maxName is the longest id of a client that is taken, in bytes. A longer one is no id.
const maxName = 256

// Explicit returns the id that a client names, with a word for where it stands: headers first, then the body. No two
// places can name the same conversation by accident.
func Explicit(h http.Header, body IDs) (id string, ok bool) {
	for _, name := range []string{"X-1bit-Conversation", "X-Session-Id", "X-Claude-Code-Session-Id"} {
		if v := h.Get(name); named(v) {
			return strings.ToLower(name) + ":" + v, true
		}
	}
	for _, m := range [][2]string{{"conversation", body.Conversation}, {"session", body.Session}, {"previous", body.Previous}} {
		if named(m[1]) {
			return m[0] + ":" + m[1], true
		}
	}
	return "", false
}

// named reports whether a text can be an id.
func named(v string) bool {
	return v != "" && len(v) <= maxName && strings.IndexFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}

// Rolling returns an id for each message of the user, made of all messages up to it. A later turn of the same conversation
// begins with the same ids, so the first one is equal in all turns, and the longest known one tells conversations apart
// that began alike. Without a message of the user there is one id, of all there is.
//
// Roles that mean the same are one, space around a text does not count, nor does a line before the system prompt that
// clients are known to change with each request (prefix.Steady has them). The model's name, tools and settings are no part of it.
//
// A long text counts by its length and two checksums of it, which take a tenth of the time of a cryptographic hash: within
// one tenant's conversations nobody gains by making two texts look alike, since whoever can may as well send the same text
// twice. The tenant counts in full, so that no text makes a conversation that of another.
func Rolling(tenant string, opening []Turn) []ID {
	var sum [sha256.Size]byte
	var room [sha256.Size + 2*(8+longText)]byte
	one := room[:0]
	count := func(text string) {
		one = append(binary.LittleEndian.AppendUint64(one, uint64(len(text))), text...)
	}
	part := func(texts ...string) {
		one = append(one[:0], sum[:]...)
		for _, t := range texts {
			if len(t) <= longText {
				count(t)
				continue
			}
			all := unsafe.Slice(unsafe.StringData(t), len(t))
			one = binary.LittleEndian.AppendUint64(one, uint64(len(t)))
			one = binary.LittleEndian.AppendUint32(one, crc32.ChecksumIEEE(all))
			one = binary.LittleEndian.AppendUint32(one, crc32.Checksum(all, castagnoli))
		}
		sum = sha256.Sum256(one)
	}
	one = append(one, sum[:]...)
	count("conversation 1")
	count(tenant)
	sum = sha256.Sum256(one)
	var ids []ID
	for _, t := range opening {
		role, text := role(t.Role), strings.TrimSpace(t.Text)
		if role == "system" {
			text = strings.TrimSpace(prefix.SteadyText(text))
		}
		if text == "" {
			continue
		}
		part(role, text)
		if role == "user" {
			ids = append(ids, id(sum))
		}
	}
	if ids == nil {
		ids = []ID{id(sum)}
	}
	return ids
}

func id(sum [sha256.Size]byte) ID { return ID(hex.EncodeToString(sum[:16])) }

// role unites names of the same role.
func role(r string) string {
	switch r {
	case "developer":
		return "system"
	case "human":
		return "user"
	case "model":
		return "assistant"
	}
	return r
}

// Identity is what is known of a request's conversation.
type Identity struct {
	ID    ID   // equal in all turns
	Turn  int  // 1 for the first: how many messages of the user there are
	Alike []ID // of each message of the user, the first first; nil when the client named the conversation
}

// Names are all by which a request's conversation may be known, the longest last.
func (i Identity) Names() []ID {
	if i.Alike != nil {
		return i.Alike
	}
	return []ID{i.ID}
}

// Answer is the name of the conversation that an answer belongs to: by it a request is known that goes on from there.
func Answer(tenant, response string) ID { return byName(tenant, "previous:"+response) }

// byName is the id of a conversation that somebody names.
func byName(tenant, name string) ID { return Rolling(tenant, []Turn{{"id", name}})[0] }

// Of tells which conversation a request belongs to. Whose it is must be known: equal words of two tenants are two
// conversations.
func Of(tenant string, h http.Header, p Prompt) Identity {
	if name, ok := Explicit(h, p.IDs); ok {
		turn := 0
		for _, t := range p.Turns {
			if role(t.Role) == "user" && strings.TrimSpace(t.Text) != "" {
				turn++
			}
		}
		return Identity{ID: byName(tenant, name), Turn: max(turn, 1)}
	}
	ids := Rolling(tenant, p.Turns)
	return Identity{ID: ids[0], Turn: len(ids), Alike: ids}
}
