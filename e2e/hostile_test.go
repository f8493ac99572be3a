//go:build unix

package e2e_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// twoStandins is the configuration of a box with two chat models that a stand-in serves: it answers at once, so that whatever is
// slow is the box.
func twoStandins(t *testing.T) string {
	file := newStage(t).gguf("m.gguf", nil)
	model := func(name string) string {
		return fmt.Sprintf("{name: %s, file: %q, ctx_size: 2048, parallel: 8, device: vulkan}", name, file)
	}
	return fmt.Sprintf("programs: {llama_server: %q}\nmodels: [%s, %s]\n", standin(t, "llama-server"), model("small"), model("large"))
}

// TestHostileModules brings hostile modules into a box, one after the other. Each is refused with a reason, or contained: the
// default policy decides, says why and counts it. Meanwhile others are served as they are without. ONEBIT_ALL makes it
// the whole set.
func TestHostileModules(t *testing.T) {
	b := startBox(t, boxState(t, twoStandins(t)))
	b.claim()
	key, _ := b.key("")
	b.choose(key, "small", "warm")
	b.choose(key, "large", "warm")
	others := b.others(key)
	refused, contained := 0, 0
	for i, a := range hostileSet() {
		if !a.fast && os.Getenv("ONEBIT_ALL") == "" {
			continue
		}
		others.during.Store(&a.name)
		others.attacked.Store(true)
		status, answer, hash := b.push(a.module, fmt.Sprintf(`{"name":"h%d","version":"1.0.0","abi":1,"kind":"policy","capabilities":[%s]}`, i, a.caps))
		switch {
		case status == 422 && a.refused != "" && strings.Contains(answer, a.refused):
			t.Logf("%s: refused: %s", a.name, answer)
			refused++
		case status == 201 && a.mark != "":
			b.wake(key, a, fmt.Sprintf("h%d", i), hash)
			contained++
		default:
			t.Errorf("%s: %d %s", a.name, status, answer)
		}
		others.attacked.Store(false)
		b.honest(key, i, status == 201)
	}
	others.report(t)
	t.Logf("%d modules refused, %d contained", refused, contained)
	if status, text := b.do(key, "GET", "/v1/models", ""); status != 200 {
		t.Errorf("afterwards: %d %s", status, text)
	}
}

// honest does with an honest module what was done with a hostile one, so that what others wait then can be compared.
func (b *appliance) honest(key string, i int, ready bool) {
	b.t.Helper()
	if !ready {
		b.push([]byte("no module"), manifestOf("none", "1"))
		return
	}
	name := fmt.Sprintf("honest%d", i)
	status, answer, hash := b.push(policyModule(toLarge(name), false), manifestOf(name, "1.0.0"))
	if status != 201 {
		b.t.Fatalf("an honest module: %d %s\n%s", status, answer, b.log)
	}
	b.wake(key, attack{name: name, mark: name}, name, hash)
}

// wake activates a module that was let in and sends requests that wake it up, two at a time.
func (b *appliance) wake(key string, a attack, name, hash string) {
	b.t.Helper()
	b.admin("POST", "/bindings/policy/activate", fmt.Sprintf(`{"module":%q}`, name))
	label := "module=" + name + "@" + hash[:8]
	if _, h := b.choose(key, "auto", "asleep "+name); !a.awake && (!strings.Contains(h.Get("X-1bit-Route-Why"), label) || strings.Contains(h.Get("X-1bit-Route-Why"), "error=")) {
		b.t.Errorf("%s: asleep it decides %v", a.name, h)
	}
	var group sync.WaitGroup
	said := make([]string, 2)
	for n := range said {
		group.Go(func() {
			model, h := b.choose(key, "auto", fmt.Sprint(a.mark, " ", n))
			said[n] = model + ": " + h.Get("X-1bit-Route-Why")
			for name := range h {
				if name == "Set-Cookie" || name == "X-Laya-A" {
					b.t.Errorf("%s: it set the header %s", a.name, name)
				}
			}
		})
	}
	group.Wait()
	var want []string
	for _, cause := range a.causes {
		want = append(want, "small: default; "+label+"; error="+cause)
	}
	if a.causes == nil {
		want = []string{"large: " + label + "; harmless", "large: " + label + "; harmless too", "large: " + label + "; large is better"}
	}
	for _, s := range said {
		if !slices.Contains(want, s) {
			b.t.Errorf("%s: %q, not one of %q\n%s", a.name, s, want, b.log)
		}
	}
	seats := fmt.Sprint(b.admin("GET", "/extensions", "")["bindings"])
	counted := slices.ContainsFunc(a.causes, func(cause string) bool {
		return regexp.MustCompile(`causes:map\[[^\]]*` + cause + `:[123]`).MatchString(seats)
	})
	if a.causes != nil && !counted {
		b.t.Errorf("%s: not counted: %s", a.name, seats)
	}
	most := 0
	for _, pid := range b.workers() {
		kib, err := strconv.Atoi(statusOf(b.t, pid)["VmHWM"])
		if err == nil {
			most = max(most, kib)
		}
	}
	if !strings.HasPrefix(a.name, "honest") {
		b.t.Logf("%s: %s; at most %d MiB", a.name, said[0], most>>10)
	}
	if most > 256<<10 {
		b.t.Errorf("%s: its process took %d MiB", a.name, most>>10)
	}
}

// workers are the box's processes that run modules.
func (b *appliance) workers() (pids []int) {
	for _, pid := range childrenOf(b.t, b.cmd.Process.Pid) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), "extension-child\x00run") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// statusOf is what the kernel says of a process; empty when that has gone. Sizes are in KiB.
func statusOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	fields := map[string]string{}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return fields
	}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSuffix(strings.TrimSpace(value), " kB")
	}
	return fields
}

// bystanders are clients that have nothing to do with modules, and how long they waited.
type bystanders struct {
	attacked atomic.Bool
	stop     chan struct{}
	group    sync.WaitGroup
	mu       sync.Mutex
	waits    map[string][2][]time.Duration // by what they do: without attackers, with
	failed   []string
	during   atomic.Pointer[string]   // the attack of the moment
	slowest  map[string]time.Duration // chats, by attack
}

// others starts them: one chats with a model by its name, one lists models.
func (b *appliance) others(key string) *bystanders {
	o := &bystanders{stop: make(chan struct{}), waits: map[string][2][]time.Duration{}, slowest: map[string]time.Duration{}}
	for what, r := range map[string][3]string{
		"chat":   {"POST", "/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":"Hi"}],"max_tokens":2,"temperature":0}`},
		"models": {"GET", "/v1/models", ""},
	} {
		o.group.Go(func() {
			for {
				select {
				case <-o.stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				attacked, from := o.attacked.Load(), time.Now()
				why := b.once(key, r)
				o.note(what, attacked && o.attacked.Load(), time.Since(from), why)
			}
		})
	}
	b.t.Cleanup(func() { o.end() })
	return o
}

// once sends a request and says what is wrong with its answer.
func (b *appliance) once(key string, what [3]string) string {
	r, err := http.NewRequest(what[0], "https://127.0.0.1:"+b.port+what[1], strings.NewReader(what[2]))
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := b.client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		return fmt.Sprint(res.StatusCode, " ", string(text), err)
	}
	return ""
}

func (o *bystanders) note(what string, attacked bool, took time.Duration, why string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if why != "" {
		o.failed = append(o.failed, what+": "+why)
		return
	}
	n, w := 0, o.waits[what]
	if attacked {
		n = 1
		if name := *o.during.Load(); what == "chat" {
			o.slowest[name] = max(o.slowest[name], took)
		}
	}
	w[n] = append(w[n], took)
	o.waits[what] = w
}

func (o *bystanders) end() {
	select {
	case <-o.stop:
	default:
		close(o.stop)
	}
	o.group.Wait()
}

// report says how long they waited, without attackers and with. A bound on the ratio is generous: the machine has other work.
func (o *bystanders) report(t *testing.T) {
	t.Helper()
	o.end()
	if len(o.failed) > 0 {
		t.Errorf("%d requests of others failed; the first: %s", len(o.failed), o.failed[0])
	}
	names := slices.SortedFunc(maps.Keys(o.slowest), func(a, b string) int { return int(o.slowest[b] - o.slowest[a]) })
	for _, name := range names[:min(3, len(names))] {
		t.Logf("the slowest chat of others was during %q: %v", name, o.slowest[name])
	}
	for what, w := range o.waits {
		var p50, p99 [2]time.Duration
		for i, all := range w {
			if len(all) < 20 {
				t.Errorf("%s: only %d requests", what, len(all))
				return
			}
			slices.Sort(all)
			p50[i], p99[i] = all[len(all)/2], all[len(all)*99/100]
		}
		t.Logf("others' %s: %d requests without attackers: p50 %v, p99 %v; %d with: p50 %v, p99 %v", what, len(w[0]), p50[0], p99[0], len(w[1]), p50[1], p99[1])
		if p99[1] > 10*p99[0] && p50[1] > 3*p50[0] {
			t.Errorf("others' %s takes %v with attackers, %v without", what, p99[1], p99[0])
		}
	}
}

// TestModuleProcessFromOutside looks at the process of an active module as the kernel shows it.
func TestModuleProcessFromOutside(t *testing.T) {
	b := startBox(t, boxState(t, twoStandins(t)))
	b.claim()
	key, _ := b.key("")
	if status, answer, _ := b.push(policyModule(toLarge("1"), false), manifestOf("larger", "1.0.0")); status != 201 {
		t.Fatalf("uploading: %d %s", status, answer)
	}
	b.admin("POST", "/bindings/policy/activate", `{"module":"larger"}`)
	if model, h := b.choose(key, "auto", "first"); model != "large" {
		t.Fatalf("the module does not decide: %s %v", model, h)
	}
	pids := b.workers()
	if len(pids) == 0 {
		t.Fatal("no process of a module")
	}
	for _, pid := range pids {
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		status := statusOf(t, pid)
		for field, want := range map[string]string{"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapBnd": ""} {
			if want != "" && status[field] != want {
				t.Errorf("%s is %q, not %s", field, status[field], want)
			}
		}
		if raw, err := os.ReadFile(filepath.Join(proc, "environ")); err != nil || len(raw) > 0 {
			t.Errorf("its environment is %q, %v", raw, err)
		}
		sockets := descriptors(t, proc)
		for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet", "netlink"} {
			raw, err := os.ReadFile(filepath.Join(proc, "net", table))
			if err != nil {
				continue // this kernel does not have it
			}
			for _, inode := range sockets {
				if slices.Contains(strings.Fields(string(raw)), inode) {
					t.Errorf("it has an open socket of %s", table)
				}
			}
		}
		limits, err := os.ReadFile(filepath.Join(proc, "limits"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Max data size", "Max address space", "Max file size", "Max open files", "Max core file size"} {
			if regexp.MustCompile(name + ` +unlimited`).Match(limits) {
				t.Errorf("%s is unlimited", name)
			}
		}
	}
}

// descriptors returns the inodes of a process's sockets, and complains about what it should not have open.
func descriptors(t *testing.T, proc string) (sockets []string) {
	t.Helper()
	links, err := filepath.Glob(filepath.Join(proc, "fd", "*"))
	if err != nil || len(links) == 0 {
		t.Fatalf("no descriptors: %v", err)
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue
		}
		inode, socket := strings.CutPrefix(to, "socket:[")
		switch n := filepath.Base(link); {
		case socket && (n == "0" || n == "1" || n == "3"): // a connection for each of two instances
			sockets = append(sockets, strings.TrimSuffix(inode, "]"))
		case n == "2" && strings.HasPrefix(to, "pipe:"):
		case strings.HasPrefix(to, "anon_inode:"), strings.HasPrefix(to, "/memfd:"), strings.HasPrefix(to, "/sys/fs/cgroup/"): // Go's own, and snapshots
		default:
			t.Errorf("descriptor %s is %s", n, to)
		}
	}
	return sockets
}

// rememberer is a policy that answers "seen" to whoever it has seen before, by a key that it stores.
func rememberer() []byte {
	m := &wasm{}
	kv := m.imported("laya_v1", "kv_get", "iiii>i")
	keep := m.imported("laya_v1", "kv_set", "iiiii>i")
	m.guest()
	m.put(wordsAt, "key")
	seen, unseen := strings.Replace(harmless, "harmless", "seen", 1), strings.Replace(harmless, "harmless", "unseen", 1)
	m.put(answerAt, seen)
	m.put(answerAt+1024, unseen)
	return m.routes(when(`"id":"la`,
		i32(wordsAt), i32(3), i32(wordsAt+64), i32(64), invoke(kv), i32(0), op(0x4e, 0x04, 0x40), answered(answerAt, int64(len(seen))), op(0x0f, 0x0b),
		i32(wordsAt), i32(3), i32(wordsAt), i32(3), i32(0), invoke(keep), op(0x1a), answered(answerAt+1024, int64(len(unseen))), op(0x0f))).bytes()
}

// TestStoredKeysStayApart stores by one module for one person. Nobody else finds it: not another person, and not another module.
func TestStoredKeysStayApart(t *testing.T) {
	b := startBox(t, boxState(t, twoStandins(t)))
	b.claim()
	mine, _ := b.key("")
	person := b.admin("POST", "/people", `{"name":"Other","role":"member"}`)["id"].(string)
	theirs, _ := b.key(fmt.Sprintf(`,"owner":%q`, person))
	for _, name := range []string{"first", "second"} {
		module := append(rememberer(), cat([]byte{0}, sized(text("name"), []byte(name)))...) // another module, the same code
		status, answer, hash := b.push(module, fmt.Sprintf(`{"name":%q,"version":"1","abi":1,"kind":"policy","capabilities":["kv"]}`, name))
		if status != 201 {
			t.Fatalf("uploading: %d %s", status, answer)
		}
		b.admin("POST", "/bindings/policy/activate", fmt.Sprintf(`{"module":%q}`, name))
		for i, step := range []struct{ key, want string }{{mine, "unseen"}, {mine, "seen"}, {theirs, "unseen"}, {theirs, "seen"}, {mine, "seen"}} {
			want := "module=" + name + "@" + hash[:8] + "; " + step.want
			if _, h := b.choose(step.key, "auto", fmt.Sprint(name, i)); h.Get("X-1bit-Route-Why") != want {
				t.Errorf("%s, step %d: %q, not %q", name, i, h.Get("X-1bit-Route-Why"), want)
			}
		}
	}
}
