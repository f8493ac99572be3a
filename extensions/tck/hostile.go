package tck

import (
	"bytes"
	"fmt"
	"strings"

	"onebit/extensions/abi"
	"onebit/extensions/payload"
)

// Input is a request that was made to make a guest fail. A guest must answer each within its limits, with no opinion or
// with a decision that a box can take.
type Input struct {
	Name  string
	Bytes []byte
}

// ordinary is a request such as a box makes.
func ordinary() abi.Request {
	return abi.Request{
		V: abi.Version, ID: "r1", Conversation: strings.Repeat("0", 32), Turn: 1, API: "chat", Model: "auto", Tenant: "t1", Tokens: 8, Bytes: 24,
		Flags: abi.Flags{Stream: true}, Headers: map[string]string{"x-team": "red"}, Head: "What is the time in Oslo?",
		Class: "short", Confidence: 0.9, Scores: map[string]float64{"short": 0.9, "prose": 0.1},
		Candidates: []abi.Candidate{
			{ID: "small", Backend: "cpu", Device: "cpu", Model: "small", Context: 4096, Healthy: true, PromptS: 400, DecodeS: 60, Load: 0.5, Cached: 900, Sticky: true, Price: 0.1},
			{ID: "large", Backend: "gpu", Device: "vulkan", Model: "large", Context: 32768, Healthy: true, Queue: 2, PromptS: 900.5, DecodeS: 22.25, Price: 2},
		},
	}
}

// Request returns a request with a prompt and two candidates, small and large, as a box would write it.
func Request(prompt string) []byte {
	r := ordinary()
	r.Head, r.Tail = payload.Cut(prompt)
	r.Bytes, r.Tokens = len(prompt), (len(prompt)+3)/4
	r.Class, r.Confidence, r.Scores = "", 0, nil
	return write(r)
}

func write(r abi.Request) []byte {
	b, err := payload.AppendRequest(nil, &r)
	if err != nil {
		panic("tck: " + err.Error()) // these requests are written here
	}
	return b
}

// Hostile returns the inputs. Some are requests that a box could make of what a client sends; the others are no requests.
func Hostile() (list []Input) {
	for _, u := range Unusual() {
		list = append(list, Input{u.Name, write(u.Request)})
	}
	return append(list, damaged()...)
}

// Named is a request and what is unusual about it.
type Named struct {
	Name    string
	Request abi.Request
}

// Unusual returns requests that a box could make of what a client sends. A box tries each module that is uploaded with
// them.
func Unusual() (list []Named) {
	add := func(name string, change func(r *abi.Request)) {
		r := ordinary()
		change(&r)
		list = append(list, Named{name, r})
	}
	add("an ordinary request", func(*abi.Request) {})
	add("nobody has classified", func(r *abi.Request) { r.Class, r.Confidence, r.Scores = "", 0, nil })
	add("nothing but zero values", func(r *abi.Request) { *r = abi.Request{V: abi.Version} })
	add("no words", func(r *abi.Request) { r.Head, r.Bytes, r.Tokens = "", 0, 0 })
	add("no candidates", func(r *abi.Request) { r.Candidates = nil })
	add("nobody healthy", func(r *abi.Request) { r.Candidates[0].Healthy, r.Candidates[1].Healthy = false, false })
	add("one candidate, which is not healthy", func(r *abi.Request) { r.Candidates = r.Candidates[:1]; r.Candidates[0].Healthy = false })
	add("candidates without names", func(r *abi.Request) { r.Candidates = make([]abi.Candidate, 3) })
	add("100 candidates", func(r *abi.Request) {
		r.Candidates = make([]abi.Candidate, 100)
		for i := range r.Candidates {
			r.Candidates[i] = abi.Candidate{ID: fmt.Sprint("c", i), Model: fmt.Sprint("m", i), Device: "cpu", Healthy: i%2 == 0, Context: i * 100, Queue: 100 - i}
		}
	})
	add("the longest head and tail", func(r *abi.Request) {
		r.Head, r.Tail, r.Bytes, r.Tokens = strings.Repeat("a", abi.MaxHead), strings.Repeat("z", abi.MaxTail), 1<<30, 1<<28
	})
	add("control characters", func(r *abi.Request) { r.Head = strings.Repeat("\u0000\u0001\"\\\n\r\t\u007f", 400) })
	add("letters beyond the first plane", func(r *abi.Request) { r.Head = strings.Repeat("\U0001F600\u0301\u202e漢\U0010FFFF", 150) })
	add("JSON in the text", func(r *abi.Request) { r.Head = strings.Repeat(`{"a":[`, 600) })
	add("an offer in the text", func(r *abi.Request) { r.Head = `","candidates":[{"id":"not offered","healthy":true}],"head":"` })
	add("fences without end", func(r *abi.Request) { r.Head = strings.Repeat("`", abi.MaxHead) })
	add("digits without end", func(r *abi.Request) { r.Head = strings.Repeat("4111 1111-1111.", 270) })
	add("at signs and dots", func(r *abi.Request) { r.Head = strings.Repeat("a@.@..b@c.", 400) })
	add("numbers at their ends", func(r *abi.Request) {
		r.Turn, r.Tokens, r.Bytes, r.Confidence = 1<<31-1, 1<<31-1, 1<<31-1, 1
		r.Candidates[0].Queue, r.Candidates[0].Context, r.Candidates[0].Price = 1<<31-1, 1<<31-1, 1e300
		r.Candidates[1].DecodeS, r.Candidates[1].PromptS, r.Candidates[1].Price = 1e-300, 5e-324, 0
	})
	add("strange names", func(r *abi.Request) {
		r.Class, r.Confidence, r.Scores = "\"", 1, map[string]float64{"": 0, strings.Repeat("k", 1000): 1e-300}
		r.Model, r.API, r.Tenant = strings.Repeat("m", 4000), "\"", "\u007f"
		r.Candidates[0].ID, r.Candidates[1].ID = "\u0000\"\\", strings.Repeat("漢", 100)
	})
	add("60 headers", func(r *abi.Request) {
		r.Headers = map[string]string{}
		for i := range 60 {
			r.Headers[fmt.Sprint("x-header-", i)] = strings.Repeat("v", 200)
		}
	})
	return list
}

// damaged are bytes that no box sends. A guest that reads past the end of what it was given fails here.
func damaged() (list []Input) {
	add := func(name string, b string) { list = append(list, Input{name, []byte(b)}) }
	good := write(ordinary())
	for n := 1; n < len(good); n += max(len(good)/24, 1) {
		list = append(list, Input{fmt.Sprintf("cut after %d bytes", n), good[:n]})
	}
	for i := 3; i < len(good); i += max(len(good)/24, 1) {
		b := bytes.Clone(good)
		b[i] ^= 0x24
		list = append(list, Input{fmt.Sprintf("byte %d changed", i), b})
	}
	list = append(list, Input{"followed by another", append(bytes.Clone(good), good...)})
	list = append(list, Input{"zero bytes", make([]byte, 1000)}, Input{"no UTF-8", bytes.Repeat([]byte{0xff, 0xc0, 0x80}, 300)})
	for _, b := range []string{" ", "null", "true", "0", `""`, "[]", "{}", "{", "}", "[", `"`, `{"`, `{"v"`, `{"v":`, `{"v":1`, `{"v":1,`, `{,}`, "\ufeff{}", `{"v":1}x`, "-", "1e", "nul"} {
		add(fmt.Sprintf("%q alone", b), b)
	}
	fill := func(open string) string { return strings.Repeat(open, (abi.MaxRequest-1)/len(open)) }
	add("64 KiB of open lists", fill("["))
	add("64 KiB of open objects", fill(`{"a":`))
	add("64 KiB of white space", fill(" "))
	add("64 KiB of backslashes", `{"head":"`+fill(`\`)[:60000])
	add("64 KiB of escapes", `{"head":"`+strings.Repeat(`\u00e9`, 10000)+`"}`)
	add("64 KiB of commas", "["+fill(",")[:60000])
	add("64 KiB of keys", "{"+strings.Repeat(`"head":"",`, 6000)+`"v":1}`)
	add("64 KiB of candidates", `{"v":1,"candidates":[`+strings.Repeat(`{"id":"x"},`, 5900)+`{}]}`)
	add("a list where an object stands", `{"v":1,"flags":[],"headers":[1],"scores":[],"candidates":{}}`)
	add("nulls everywhere", `{"v":null,"id":null,"tokens":null,"flags":null,"headers":null,"head":null,"confidence":null,"scores":null,"candidates":null}`)
	add("null for a candidate", `{"v":1,"candidates":[null,{"id":null}]}`)
	add("texts where numbers stand", `{"v":"1","tokens":"9","turn":{},"confidence":"x","candidates":[{"ctx":"a","queue":[],"price":"1"}]}`)
	add("numbers where texts stand", `{"v":1,"id":1,"head":2,"model":[3],"candidates":[{"id":4}]}`)
	add("numbers out of range", `{"v":1,"tokens":1e999,"bytes":-1e999,"turn":99999999999999999999999,"confidence":-0,"candidates":[{"id":"a","ctx":1e308,"queue":-5,"price":-1e400}]}`)
	add("a number of 10,000 digits", `{"v":1,"tokens":`+strings.Repeat("9", 10000)+`}`)
	add("strange numbers", `{"v":1,"tokens":0x10,"bytes":--1,"turn":1.2.3,"confidence":1e+}`)
	add("half pairs", `{"v":1,"head":"\ud800","tail":"\udc00\ud83d\u0041\ud83d"}`)
	add("wrong escapes", `{"v":1,"head":"\x41\u12","tail":"\uZZZZ"}`)
	add("the same key again", `{"v":1,"head":"a","head":"b","candidates":[{"id":"a"}],"candidates":[]}`)
	add("deep below a new member", `{"v":1,"new":`+strings.Repeat("[", 500)+strings.Repeat("]", 500)+`,"head":"x"}`)
	return list
}
