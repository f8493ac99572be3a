//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"strings"
)

// attack is one hostile module: either refused when it is uploaded, or contained when a request wakes it up.
type attack struct {
	name    string
	module  []byte
	caps    string   // asked for, as JSON strings
	mark    string   // what wakes it up; empty for a module that is refused
	refused string   // what the refusal says
	causes  []string // why the default policy decides; nil where the module does, because nothing came of the attack
	awake   bool     // it never sleeps but in a dry run
	fast    bool     // tried by every run
}

// slowed are the causes of what would not end: units run out, or on a busy machine the time does.
var slowed = []string{"budget", "timeout"}

// harmless says that an attack came to nothing.
const harmless = `{"v":1,"action":"route","candidates":["large"],"reason":"harmless"}`

// hostileSet is at least one module for each way that is known to hang, kill or bloat a host, or to lie to it.
func hostileSet() []attack {
	s := &hostiles{}
	s.endings()
	s.memory()
	s.structures()
	s.bodies()
	s.pointers()
	s.escapes()
	s.answers()
	s.hostCalls()
	return s.all
}

type hostiles struct{ all []attack }

func (s *hostiles) mark() string { return fmt.Sprintf("atk%05d", len(s.all)) }

// refused adds a module that is not let in.
func (s *hostiles) refused(name, why string, module []byte, caps ...string) *attack {
	s.all = append(s.all, attack{name: name, module: module, refused: why, caps: strings.Join(caps, ",")})
	return &s.all[len(s.all)-1]
}

// woken adds a module that does code when its mark stands in a request.
func (s *hostiles) woken(name string, causes []string, make func(m *wasm) []byte, caps ...string) *attack {
	m := &wasm{}
	mark := s.mark()
	code := make(m)
	if m.memory == nil {
		m.guest()
	}
	m.routes(when(mark, code))
	s.all = append(s.all, attack{name: name, module: m.bytes(), mark: mark, causes: causes, caps: strings.Join(caps, ",")})
	return &s.all[len(s.all)-1]
}

func (a *attack) always() { a.fast = true }

// endings is what does not end by itself.
func (s *hostiles) endings() {
	s.woken("an infinite loop in route", slowed, func(*wasm) []byte { return forever() }).always()
	m := (&wasm{}).guest().routes()
	m.start = []byte{m.function(">", localsOf(0), forever())}
	s.refused("an infinite loop in start", "guest failed (", m.bytes())
	m = &wasm{memory: op(1, 8, 8)}
	m.export("memory", 2, 0)
	m.export("laya_abi_v1", 0, m.function(">", localsOf(0)))
	m.export("laya_buffer", 0, m.function("i>i", localsOf(0), forever(), op(0x00)))
	s.refused("an infinite loop in the buffer export", "guest failed (", m.routes().bytes())
	// the clock of dry runs stands at a time that is not this one
	m = &wasm{}
	now := m.imported("laya_v1", "now_ms", ">l")
	m.memory = op(1, 8, 8)
	m.export("memory", 2, 0)
	m.export("laya_abi_v1", 0, m.function(">", localsOf(0)))
	m.export("laya_buffer", 0, m.function("i>i", localsOf(0),
		invoke(now), i64(0), op(0x55), invoke(now), i64(1_800_000_000_000), op(0x52, 0x71, 0x04, 0x40), forever(), op(0x0b), i32(bufferAt)))
	s.all = append(s.all, attack{name: "an infinite loop in the buffer export, but not in a dry run", module: m.routes().bytes(), mark: s.mark(), causes: slowed, caps: `"now"`, awake: true})
	s.woken("a flood of log lines", slowed, func(m *wasm) []byte {
		log := m.imported("laya_v1", "log", "iii>")
		m.guest()
		return forever(i32(3), i32(bufferAt), i32(4096), invoke(log))
	}).always()
	s.woken("2^44 calls without a loop", slowed, func(m *wasm) []byte {
		m.guest()
		f := m.function(">", localsOf(0))
		for range 44 {
			f = m.function(">", localsOf(0), invoke(f), invoke(f))
		}
		return invoke(f)
	}).always()
	s.woken("fib(60) by recursion", slowed, func(m *wasm) []byte {
		m.guest()
		self := byte(len(m.imports) + len(m.bodies))
		m.function("i>i", localsOf(0), get(0), i32(2), op(0x48, 0x04, 0x40), get(0), op(0x0f, 0x0b),
			get(0), i32(1), op(0x6b), invoke(self), get(0), i32(2), op(0x6b), invoke(self), op(0x6a))
		return cat(i32(60), invoke(self), op(0x1a))
	})
	s.woken("endless recursion", []string{"stack"}, func(m *wasm) []byte {
		m.guest()
		self := byte(len(m.imports) + len(m.bodies))
		m.function(">", localsOf(0), invoke(self), invoke(self))
		return invoke(self)
	}).always()
	s.woken("recursion with 400 locals", []string{"stack"}, func(m *wasm) []byte {
		m.guest()
		self := byte(len(m.imports) + len(m.bodies))
		m.function("i>i", localsOf(400), get(0), invoke(self), get(0), op(0x6a))
		return cat(i32(1), invoke(self), op(0x1a))
	})
}

// fill is one memory.fill of everything there is.
var fill = cat(i32(0), i32(0), i32(512*pageSize), op(0xfc, 11, 0))

// memory is what takes memory, or writes it for ever.
func (s *hostiles) memory() {
	m := &wasm{}
	m.guest().memory = cat(op(1), leb(512, false), leb(512, false))
	s.refused("2,000 memory.fill of 32 MiB in a row", "bulk instructions", m.routes(bytes.Repeat(fill, 2000)).bytes())
	s.woken("500 memory.fill of 32 MiB in a row", slowed, func(m *wasm) []byte {
		m.guest().memory = cat(op(1), leb(512, false), leb(512, false))
		return bytes.Repeat(fill, 500)
	})
	s.woken("memory.fill of 32 MiB in a loop", slowed, func(m *wasm) []byte {
		m.guest().memory = cat(op(1), leb(512, false), leb(512, false))
		return forever(fill)
	})
	grow := cat(op(0x02, 0x40, 0x03, 0x40), i32(1), op(0x40, 0, 0x21, 3), get(3), i32(-1), op(0x46, 0x0d, 1),
		get(3), i32(16), op(0x74), i32(7), op(0x36, 2, 0, 0x0c, 0, 0x0b, 0x0b)) // and write to each page
	s.woken("memory.grow to the limit", nil, func(m *wasm) []byte { return cat(grow, m.guest().says(harmless)) }).always()
	s.woken("memory.grow for ever", slowed, func(*wasm) []byte { return forever(grow) })
	s.woken("memory.grow to 4 GiB at once", nil, func(m *wasm) []byte {
		return cat(must(is(-1, i32(65535), op(0x40, 0))), m.guest().says(harmless))
	})
	m = &wasm{}
	m.guest().memory = cat(op(0), leb(65536, false))
	s.refused("a memory of 4 GiB", "module refused: memory", m.routes().bytes()).always()
	m = &wasm{}
	m.guest().memory = cat(op(1), leb(513, false), leb(513, false))
	s.refused("a memory of one page over the limit", "module refused: memory", m.routes().bytes())
	m = &wasm{}
	m.guest().tables = [][]byte{cat(op(0x70, 0), leb(1, false))}
	s.refused("table.grow in a loop", "module refused: code", m.routes(forever(op(0xd0, 0x70), i32(10_000), op(0xfc, 15, 0, 0x1a))).bytes())
	m = (&wasm{}).guest()
	for range 100 {
		m.tables = append(m.tables, cat(op(0x70, 0), leb(10_000_000, false)))
	}
	s.refused("100 tables of 10,000,000", "module refused: table", m.routes().bytes()).always()
	m = (&wasm{}).guest()
	m.tables = [][]byte{cat(op(0x70, 0), leb(10_000_000, false))}
	s.refused("a table of 10,000,000", "module refused: table", m.routes().bytes())
}

// sections are the names of sections whose first number is a count, by their ids.
var sections = map[byte]string{1: "type", 2: "import", 3: "function", 4: "table", 5: "memory", 6: "global", 7: "export", 9: "element", 10: "code", 11: "data"}

// structures are modules that lie about how much of something there is, or use names that are the host's.
func (s *hostiles) structures() {
	for id := byte(1); id <= 11; id++ {
		if name, ok := sections[id]; ok {
			lie := cat([]byte("\x00asm\x01\x00\x00\x00"), []byte{id, 4, 0xff, 0xff, 0xff, 0x7f}) // 14 bytes
			a := s.refused(fmt.Sprintf("14 bytes that announce 268,435,455 of section %s", name), "module refused: "+name, lie)
			a.fast = id == 7 || id == 10
			s.refused(fmt.Sprintf("15 bytes that announce 4,294,967,295 of section %s", name), "module refused: "+name,
				cat([]byte("\x00asm\x01\x00\x00\x00"), []byte{id, 5, 0xff, 0xff, 0xff, 0xff, 0x0f}))
		}
	}
	s.refused("a section longer than the module", "module refused", cat([]byte("\x00asm\x01\x00\x00\x00"), []byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f}))
	whole := (&wasm{}).guest().routes().bytes()
	s.refused("a module cut in half", "module refused", whole[:len(whole)/2])
	m := &wasm{}
	m.imported("laya_meter", "tick", "l>l")
	s.refused("the meter's own function", "module refused: import", m.guest().routes().bytes())
	m = (&wasm{}).guest().routes()
	m.globals = [][]byte{cat(op(0x7e, 1), i64(1<<62), op(0x0b))}
	m.export("laya_meter_units", 3, 0)
	s.refused("the meter's own counter", "module refused: export", m.bytes())
	m = &wasm{}
	m.imported("laya_v1", "kv_get", "iiii>i")
	s.refused("a function whose power was not asked for", "kv", m.guest().routes().bytes()).always()
}

// bodies are functions that a compiler takes very long for, or dies of.
func (s *hostiles) bodies() {
	in := func(locals []byte, code ...[]byte) []byte {
		m := (&wasm{}).guest()
		m.function(">", locals, code...)
		return m.routes().bytes()
	}
	s.refused("4,294,967,295 locals", "locals", in(cat(op(1), leb(1<<32-1, false), op(0x7f)))).always()
	s.refused("50,000,000 locals", "locals", in(localsOf(50_000_000)))
	s.refused("300 nested loops with 300 locals", "loops nest", in(localsOf(300), bytes.Repeat(op(0x03, 0x40), 300), bytes.Repeat(op(0x0b), 300))).always()
	s.refused("5,000 locals at 5,000 joins", "locals", in(localsOf(5000), bytes.Repeat(op(0x02, 0x40, 0x0b), 5000)))
	s.refused("900 locals at 5,000 joins", "locals times", in(localsOf(900), bytes.Repeat(op(0x02, 0x40, 0x0b), 5000)))
	s.refused("100,000 nested blocks", "body of", in(localsOf(0), bytes.Repeat(op(0x02, 0x40), 100_000), bytes.Repeat(op(0x0b), 100_000)))
	s.refused("40,000 nested blocks", "blocks nest", in(localsOf(0), bytes.Repeat(op(0x02, 0x40), 40_000), bytes.Repeat(op(0x0b), 40_000)))
	s.refused("a br_table of 500,000", "body of", in(localsOf(0), i32(0), op(0x0e), leb(500_000, false), make([]byte, 500_001)))
	s.refused("a br_table of 100,000", "br_table", in(localsOf(0), i32(0), op(0x0e), leb(100_000, false), make([]byte, 100_001))).always()
	line := cat(i32(16), i32(16), op(0x28, 2, 0, 0x36, 2, 0))
	s.refused("1 MB of loads and stores in a line", "body of", in(localsOf(0), bytes.Repeat(line, 1<<20/len(line))))
	m := (&wasm{}).guest()
	for range 60 { // as much as is let in: it is compiled, or its compiler is ended
		m.function(">", localsOf(0), bytes.Repeat(line, (127<<10)/len(line)))
	}
	mark := s.mark()
	harm := m.says(harmless)
	s.all = append(s.all, attack{name: "7 MB of loads and stores in 60 functions", module: m.routes(when(mark, harm)).bytes(), mark: mark, refused: "compile"})
}

// pointers are addresses that are not the guest's.
func (s *hostiles) pointers() {
	s.woken("an answer out of bounds", []string{"pointer"}, func(*wasm) []byte { return cat(answered(-1, 16), op(0x0f)) })
	s.woken("an answer over the edge", []string{"pointer"}, func(*wasm) []byte { return cat(answered(8*pageSize-8, 9), op(0x0f)) }).always()
	s.woken("an answer that wraps around", []string{"pointer"}, func(*wasm) []byte { return cat(answered(0xfffffff0, 0x20), op(0x0f)) })
	s.woken("an answer of 4 GiB", []string{"pointer", "answer"}, func(*wasm) []byte { return cat(answered(0, 0xffffffff), op(0x0f)) })
	for _, at := range []int64{-1, -8, 8*pageSize - 1} {
		m := &wasm{memory: op(1, 8, 8)}
		m.export("memory", 2, 0)
		m.export("laya_abi_v1", 0, m.function(">", localsOf(0)))
		m.export("laya_buffer", 0, m.function("i>i", localsOf(0), i32(at)))
		s.refused(fmt.Sprintf("a buffer at %#x", uint32(at)), "guest failed (pointer)", m.routes().bytes())
	}
	s.woken("pointers out of bounds, over the edge and wrapped, to the host", nil, func(m *wasm) []byte {
		text := m.imported("laya_v1", "text", "iiii>i")
		kv := m.imported("laya_v1", "kv_get", "iiii>i")
		set := m.imported("laya_v1", "kv_set", "iiiii>i")
		add := m.imported("laya_v1", "kv_add", "iilii>i")
		log := m.imported("laya_v1", "log", "iii>")
		m.guest()
		code := cat(i32(1), i32(-4), i32(100), invoke(log))
		for _, area := range [][2]int64{{-1, 16}, {8*pageSize - 8, 9}, {-16, 32}, {0, -1}} {
			at, n := i32(area[0]), i32(area[1])
			code = cat(code,
				must(is(-1, i32(0), i32(0), at, n, invoke(text))),
				must(is(-1, at, n, i32(wordsAt), i32(16), invoke(kv))),
				must(is(-1, i32(wordsAt), i32(4), at, n, invoke(kv))),
				must(is(-1, i32(wordsAt), i32(4), at, n, i32(0), invoke(set))))
		}
		return cat(code, must(is(-1, i32(wordsAt), i32(4), i64(1), i32(0), i32(8*pageSize-7), invoke(add))), m.says(harmless))
	}, `"text"`, `"kv"`).always()
}

// escapes are traps, ends, and what is none of a module's business.
func (s *hostiles) escapes() {
	s.woken("unreachable", []string{"trap"}, func(*wasm) []byte { return op(0x00) }).always()
	s.woken("a division by zero", []string{"trap"}, func(*wasm) []byte { return cat(i32(1), i32(0), op(0x6d, 0x1a)) })
	s.woken("a load beyond memory", []string{"trap"}, func(*wasm) []byte { return cat(load64(-8), op(0x1a)) })
	s.woken("proc_exit", []string{"exit"}, func(m *wasm) []byte {
		exit := m.imported("wasi_snapshot_preview1", "proc_exit", "i>")
		return cat(i32(0), invoke(exit))
	}).always()
	for name, f := range map[string][2]string{"opening a file": {"wasi_snapshot_preview1", "path_open"}, "a socket": {"wasi_snapshot_preview1", "sock_accept"}, "a function of somebody else": {"env", "system"}} {
		m := &wasm{}
		m.imported(f[0], f[1], "i>i")
		s.refused(name, "module refused: import", m.guest().routes().bytes())
	}
	s.woken("files, environment, clock, sleep", nil, func(m *wasm) []byte {
		wasi := func(name, sig string) byte { return m.imported("wasi_snapshot_preview1", name, sig) }
		prestat, read, write, seek := wasi("fd_prestat_get", "ii>i"), wasi("fd_read", "iiii>i"), wasi("fd_write", "iiii>i"), wasi("fd_filestat_get", "ii>i")
		environ, args, clock := wasi("environ_sizes_get", "ii>i"), wasi("args_sizes_get", "ii>i"), wasi("clock_time_get", "ili>i")
		poll := wasi("poll_oneoff", "iiii>i")
		m.guest()
		var code []byte
		for fd := int64(3); fd < 12; fd++ {
			code = cat(code, must(is(8, i32(fd), i32(wordsAt), invoke(prestat))), must(is(8, i32(fd), i32(wordsAt), invoke(seek))),
				must(is(8, i32(fd), i32(wordsAt), i32(1), i32(wordsAt), invoke(read))), must(is(8, i32(fd), i32(wordsAt), i32(1), i32(wordsAt), invoke(write))))
		}
		for _, sizes := range []byte{environ, args} {
			code = cat(code, store32(wordsAt, 7), store32(wordsAt+4, 7), must(is(0, i32(wordsAt), i32(wordsAt+4), invoke(sizes))), must(is(0, load32(wordsAt))), must(is(0, load32(wordsAt+4))))
		}
		time := cat(must(is(0, i32(0), i64(0), i32(wordsAt+8), invoke(clock))), must(load64(wordsAt+8), i64(1_600_000_000_000_000_000), op(0x51)))
		sleep := cat(i32(512+24), i64(3600_000_000_000), op(0x37, 3, 0), must(is(0, i32(512), i32(1024), i32(1), i32(wordsAt+16), invoke(poll))))
		return cat(code, time, repeated(100_000, 3), time, sleep, time, m.says(harmless))
	}).always()
	// random bytes that were not a function of the request would be seen by the dry run, which asks everything twice
	m := &wasm{}
	random := m.imported("wasi_snapshot_preview1", "random_get", "ii>i")
	m.guest()
	m.put(answerAt, harmless)
	m.put(answerAt+1024, strings.Replace(harmless, "harmless", "harmless too", 1))
	mark := s.mark()
	s.all = append(s.all, attack{name: "random bytes", mark: mark, module: m.routes(when(mark, must(is(0, i32(wordsAt), i32(8), invoke(random))),
		load32(wordsAt), i32(1), op(0x71, 0x04, 0x40), answered(answerAt, int64(len(harmless))), op(0x0f, 0x0b), answered(answerAt+1024, int64(len(harmless)+4)), op(0x0f))).bytes()})
}

// answers are those that a box must not believe.
func (s *hostiles) answers() {
	void := func(name, answer string, causes ...string) *attack {
		return s.woken(name, append(causes, "void"), func(m *wasm) []byte { return m.guest().says(answer) })
	}
	void("an answer that is not JSON", "large").always()
	void("an answer of 16 KiB and one byte", `{"v":1,"action":"abstain","reason":"`+strings.Repeat("x", 16<<10+1-38)+`"}`, "answer")
	void("an answer that names what was not offered", `{"v":1,"action":"route","candidates":["large","/etc/passwd"]}`).always()
	void("an answer that names an address", `{"v":1,"action":"route","candidates":["http://169.254.169.254/"]}`)
	void("a header with a line feed", `{"v":1,"action":"route","candidates":["large"],"headers":{"x-laya-a":"b\r\nSet-Cookie: c=d"}}`).always()
	void("a header that is not a module's", `{"v":1,"action":"route","candidates":["large"],"headers":{"set-cookie":"c=d"}}`)
	void("an answer that nests deep", `{"v":1,"action":"route","candidates":["large"],"new":`+strings.Repeat("[", 7000)+strings.Repeat("]", 7000)+`}`).always()
	void("a key that occurs twice", `{"v":1,"action":"abstain","action":"route","candidates":["large"]}`)
	void("a status that is no refusal", `{"v":1,"action":"reject","reject":{"status":200,"code":"x","message":"y"}}`)
	void("a parameter that the operator does not list", `{"v":1,"action":"route","candidates":["large"],"params":{"tools":[{"type":"function"}]}}`)
	s.woken("passages of a collection that the caller cannot see", nil, func(m *wasm) []byte { // the box adds none
		return m.guest().says(`{"v":1,"action":"route","candidates":["large"],"rag":{"collection":"private","top_k":3,"query":"all"},"reason":"harmless"}`)
	})
	void("a confidence of 2", `{"v":1,"action":"route","candidates":["large"],"confidence":2}`)
	void("an answer that is not UTF-8", "{\"v\":1,\"action\":\"abstain\",\"reason\":\"\xff\xfe\"}")
}

// hostCalls are calls of the host over and over.
func (s *hostiles) hostCalls() {
	calls := func(name, function, sig string, cap string, args ...[]byte) *attack {
		return s.woken("calling "+name+" for ever", slowed, func(m *wasm) []byte {
			f := m.imported("laya_v1", function, sig)
			m.guest().memory = cat(op(1), leb(32, false), leb(512, false))
			m.put(wordsAt, "key")
			return forever(cat(args...), invoke(f), op(0x1a))
		}, cap)
	}
	calls("kv_get", "kv_get", "iiii>i", `"kv"`, i32(wordsAt), i32(3), i32(wordsAt+64), i32(64)).always()
	calls("kv_set with 1 MiB", "kv_set", "iiiii>i", `"kv"`, i32(wordsAt), i32(3), i32(answerAt), i32(1<<20), i32(0))
	calls("tokens of 1 MiB", "tokens", "ii>i", `"tokens"`, i32(answerAt), i32(1<<20))
	calls("text", "text", "iiii>i", `"text"`, i32(2), i32(0), i32(answerAt), i32(1<<20))
	calls("embed", "embed", "iiii>i", `"embed"`, i32(wordsAt), i32(3), i32(answerAt), i32(4096))
	s.woken("calling random_get for ever", slowed, func(m *wasm) []byte {
		f := m.imported("wasi_snapshot_preview1", "random_get", "ii>i")
		m.guest()
		return forever(i32(answerAt), i32(65536), invoke(f), op(0x1a))
	})
}
