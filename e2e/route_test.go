//go:build unix

package e2e_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// strix are the arguments of a machine with the devices of a Strix Halo box, all played by stand-ins.
func (s *stage) strix(more ...string) []string {
	s.t.Helper()
	s.env = append(s.env, "ONEBIT_LEAN_SERVER="+standin(s.t, "llama-server"))
	return append([]string{"-m", s.gguf("m.gguf", nil), "--laya", "--llama-server", standin(s.t, "llama-server"), "--zinc", standin(s.t, "zinc")}, more...)
}

// byDevice is a policy with a device for each class.
const byDevice = `{"classes": {"code": {"device": "hrx"}, "prose": {"device": "vulkan"}, "short": {"device": "zinc"}, "long_doc": {"device": "rocm"}}, "default": "vulkan"}`

// daemon makes the stage's classifier the stand-in for the reference's daemon.
func (s *stage) daemon() []string {
	s.t.Helper()
	s.env = append(s.env, "ONEBIT_LAYA_GGML="+standin(s.t, "laya-daemon"))
	return []string{"--laya-model", s.gguf("laya/gguf/laya_typed_decisions_q8_0.gguf", nil)}
}

// routed asks a chat and returns the header that says where it went.
func routed(t *testing.T, s *server, more obj, says ...string) (route, why string) {
	t.Helper()
	var messages []obj
	for i, text := range says {
		messages = append(messages, obj{"role": []string{"user", "assistant"}[i%2], "content": text})
	}
	body := obj{"messages": messages}
	for k, v := range more {
		body[k] = v
	}
	r := s.post("/v1/chat/completions", body)
	if r.status != 200 {
		t.Errorf("%.80v: %d %s", says, r.status, r.body)
	}
	return r.header.Get("X-1bit-Route"), r.header.Get("X-1bit-Route-Why")
}

// TestLayaBuiltIn chooses with the built-in classifier and policy: ready before any model is loaded, all to hrx.
func TestLayaBuiltIn(t *testing.T) {
	st := newStage(t, "STANDIN_LOAD=1s")
	s := st.serve(st.strix()...)
	for range 600 {
		if strings.Contains(s.log.String(), "ready after") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if n := len(st.log("start")); n != 0 {
		t.Errorf("%d programs were started before anything was asked", n)
	}
	if _, _, body := s.get("/v1/models"); !strings.Contains(body, `"device":"laya"`) || strings.Count(body, `"object":"model"`) != 1 {
		t.Errorf("models %s", body)
	}
	for says, class := range map[string]string{
		"write a python function that checks if a string is a palindrome": "code",
		"explain the causes of the french revolution":                     "prose",
		"what is the capital of Portugal":                                 "short",
	} {
		route, why := routed(t, s, nil, says)
		if words := strings.Fields(route); len(words) != 3 || words[0] != class || words[2] != "hrx" || len(words[1]) != 4 {
			t.Errorf("%s: %q", says, route)
		}
		if !strings.HasPrefix(why, "module=policy@") || !strings.Contains(why, "default hrx") {
			t.Errorf("%s: %q", says, why)
		}
	}
	if route, _ := routed(t, s, nil, strings.Repeat("a long document ", 64)); route != "long_doc 1.00 hrx" {
		t.Errorf("1,024 bytes: %q", route)
	}
	r := s.post("/v1/chat/completions", obj{"messages": []obj{{"role": "system", "content": strings.Repeat("be helpful. ", 500)}, {"role": "user", "content": "what is the capital of Portugal"}}})
	if route := r.header.Get("X-1bit-Route"); !strings.HasPrefix(route, "short ") {
		t.Errorf("a long system prompt: %q", route)
	}
	if n := len(st.log("start")); n != 1 {
		t.Errorf("%d programs were started", n)
	}
	if r := s.post("/tokenize", obj{"content": "a b"}); r.status != 200 {
		t.Errorf("the first backend's own route: %d %s", r.status, r.body)
	}
	if r := s.post("/v1/responses", obj{"input": "what is the capital of Portugal"}); r.status != 200 || !strings.HasPrefix(r.header.Get("X-1bit-Route"), "short ") {
		t.Errorf("responses: %d %v", r.status, r.header)
	}
	if r := s.post("/v1/completions", obj{"prompt": "what is the capital of Portugal", "stream": true}); r.status != 200 || !strings.HasPrefix(r.header.Get("X-1bit-Route"), "short ") {
		t.Errorf("completions: %d %v", r.status, r.header)
	}
}

// TestLayaDaemon runs the reference's daemon as the classifier, with a policy file.
func TestLayaDaemon(t *testing.T) {
	st := newStage(t)
	lib := st.file("libhsa-runtime64.so.1", "")
	s := st.serve(st.strix(append(st.daemon(), "--route-policy", st.file("policy.json", byDevice), "--hrx-libhsa", lib)...)...)
	for says, want := range map[string]string{"code please": "code 0.80 hrx", "prose please": "prose 0.80 vulkan", "anything": "short 0.80 zinc", strings.Repeat("x", 1024): "long_doc 1.00 rocm"} {
		for _, stream := range []bool{false, true} {
			if route, _ := routed(t, s, obj{"stream": stream}, says); route != want {
				t.Errorf("%.20s: %q, want %q", says, route, want)
			}
		}
	}
	d := st.log("start")[0]
	for _, e := range st.log("start") {
		if e.Program == "daemon" {
			d = e
		}
	}
	if got := strings.Join(d.Args, " "); !strings.HasSuffix(got, "laya_typed_decisions_q8_0.gguf --family typed-decisions --device hrx") {
		t.Errorf("the daemon was started with %s", got)
	}
	if env := strings.Join(d.Env, "\n"); !strings.Contains(env, "IREE_HAL_AMDGPU_LIBHSA_PATH="+lib) {
		t.Error("the daemon does not have the HSA runtime")
	}
	questions := 0
	for _, q := range st.log("question") {
		if strings.Contains(q.Body, "xxxx") {
			t.Error("a long document was put to the daemon")
		}
		at := func(c string) int { return strings.Index(q.Body, `"`+c+`":`) }
		if at("code") < 0 || at("code") > at("prose") || at("prose") > at("short") {
			t.Errorf("the order of the criteria: %s", q.Body)
		}
		if strings.Contains(q.Body, "please") || strings.Contains(q.Body, "anything") {
			questions++
		}
	}
	if questions != 3 {
		t.Errorf("%d questions about 3 conversations", questions)
	}
	if !s.log.says("chose a backend", 4) {
		t.Errorf("%d lines about 4 conversations", strings.Count(s.log.String(), "chose a backend"))
	}

	t.Log("a later turn stays")
	if route, why := routed(t, s, nil, "code please", "here it is", "prose now"); route != "code 0.80 hrx" || !strings.Contains(why, "kept") {
		t.Errorf("%q, %q", route, why)
	}
	t.Log("a daemon that answers nonsense leaves the default policy, and the conversation is served")
	for _, word := range []string{"!odd!", "!die!"} {
		if route, why := routed(t, s, nil, "prose "+word); route != "none 0.00 vulkan" || !strings.Contains(why, "unclassified") {
			t.Errorf("%s: %q, %q", word, route, why)
		}
	}
	t.Log("and one that ends is started again before the next question")
	for i := range 3 {
		if route, _ := routed(t, s, nil, fmt.Sprintf("code !after! %d", i)); route != "code 0.80 hrx" {
			t.Errorf("%q", route)
		}
	}
}

// TestLayaServer classifies by a decision model on a server. While it does not answer, the policy decides without a class.
func TestLayaServer(t *testing.T) {
	st := newStage(t)
	status := atomic.Int32{}
	status.Store(200)
	decides := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(int(status.Load()))
		fmt.Fprint(w, `{"answers":{"cls":{"type":"choice","choice":"prose","confidence":0.37}}}`)
	}))
	defer decides.Close()
	s := st.serve(st.strix("--laya-model", decides.URL, "--route-policy", st.file("policy.json", byDevice))...)
	if route, _ := routed(t, s, nil, "whatever it is"); route != "prose 0.37 vulkan" {
		t.Errorf("%q", route)
	}
	status.Store(500)
	if route, why := routed(t, s, nil, "and now"); route != "none 0.00 vulkan" || !strings.Contains(why, "unclassified") {
		t.Errorf("%q, %q", route, why)
	}
}

// TestLayaRules chooses by the further rules of a policy.
func TestLayaRules(t *testing.T) {
	st := newStage(t)
	s := st.serve(st.strix(append(st.daemon(), "--route-policy", st.file("policy.json", `{"rules": [
		{"name": "tools", "when": {"tools": true}, "prefer": ["rocm"]},
		{"name": "small", "when": {"model": "small-*", "class": ["short", "prose"]}, "prefer": ["zinc"]},
		{"when": {"class": "code"}, "prefer": ["npu", "vulkan"]}]}`))...)...)
	for name, c := range map[string]struct {
		more obj
		says string
		want string
		why  string
	}{
		"tools":   {obj{"tools": []obj{{"type": "function", "function": obj{"name": "f"}}}}, "code a", "code 0.80 rocm", "rule tools"},
		"a model": {obj{"model": "small-7b"}, "prose b", "prose 0.80 zinc", "rule small"},
		"a class": {obj{"model": "any"}, "code c", "code 0.80 vulkan", "rule 3"},
		"no rule": {obj{"model": "any"}, "prose d", "prose 0.80 hrx", "default hrx"},
	} {
		if route, why := routed(t, s, c.more, c.says); route != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q, %q", name, route, why)
		}
	}
}

// TestLayaStartFails: where none of the three that are tried comes up it is a 503 that names the first, and the next request tries
// again.
func TestLayaStartFails(t *testing.T) {
	st := newStage(t, "STANDIN_FAULT=exit-at-start")
	s := st.serve(st.strix()...)
	for n := 1; n <= 2; n++ {
		r := s.post("/v1/chat/completions", chat("what is the capital of Portugal", nil))
		if r.status != 503 || !strings.Contains(fmt.Sprint(dig(r.json(t), "error", "message")), "hrx did not become ready") || r.header.Get("X-1bit-Route") != "" {
			t.Errorf("%d %v %s", r.status, r.header, r.body)
		}
		if got := len(st.log("start")); got != 3*n {
			t.Errorf("%d starts after %d requests", got, n)
		}
	}
	if status, _, body := s.get("/health"); status != 200 {
		t.Errorf("health %d %s", status, body)
	}
}

// TestLayaFailover: a conversation whose backend does not come up is served by the next of its policy's order, and stays there.
func TestLayaFailover(t *testing.T) {
	st := newStage(t)
	broken := st.file("zinc", "#!/bin/sh\nexit 3\n")
	if err := os.Chmod(broken, 0o755); err != nil {
		t.Fatal(err)
	}
	policy := st.file("policy.json", `{"rules": [{"name": "order", "prefer": ["zinc", "vulkan"]}]}`)
	s := st.serve("-m", st.gguf("m.gguf", nil), "--laya", "--llama-server", standin(t, "llama-server"), "--zinc", broken, "--route-policy", policy)
	for _, stream := range []bool{false, true} {
		route, why := routed(t, s, obj{"stream": stream}, fmt.Sprint("a stream: ", stream))
		if !strings.HasSuffix(route, " vulkan") || !strings.Contains(why, "rule order") || !strings.HasSuffix(why, "; failover=vulkan") {
			t.Errorf("%q, %q", route, why)
		}
	}
	if route, why := routed(t, s, nil, "a stream: false", "yes", "and now"); !strings.HasSuffix(route, " vulkan") || !strings.Contains(why, "kept") || strings.Contains(why, "failover") {
		t.Errorf("a later turn: %q, %q", route, why)
	}
}

// TestLayaChildErrors: what a child refuses has the header all the same.
func TestLayaChildErrors(t *testing.T) {
	st := newStage(t)
	s := st.serve(st.strix()...)
	r := s.post("/v1/chat/completions", chat("!status:400!", nil))
	if r.status != 400 || !strings.HasSuffix(r.header.Get("X-1bit-Route"), " hrx") {
		t.Errorf("%d %v %s", r.status, r.header, r.body)
	}
}

// TestLayaRefusals: what does not go with --laya ends serve before the port is opened.
func TestLayaRefusals(t *testing.T) {
	st := newStage(t)
	m, h32 := st.gguf("m.gguf", nil), st.gguf("h32.gguf", map[string]uint32{"onebit.hadamard_q4_0": 32})
	llama := standin(t, "llama-server")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"adaptive":         {[]string{"-m", m, "--laya", "--adaptive"}, "--laya does not go with --adaptive"},
		"a role":           {[]string{"-m", m, "--laya", "--embedding"}, "--laya does not go with --embedding"},
		"prefill":          {[]string{"-m", m, "--laya", "--prefill-device", "hrx"}, "--laya does not go with --prefill-device"},
		"lean":             {[]string{"-m", m, "--laya", "--lean"}, "--laya does not go with --lean"},
		"a long model":     {[]string{"-m", m, "--laya", "--long-model", h32}, "--laya does not go with --long-model"},
		"one device's":     {[]string{"-m", h32, "--laya"}, "nothing to choose"},
		"no classifier":    {[]string{"-m", m, "--laya-model", filepath.Join(st.dir, "none.gguf")}, "--laya-model: there is no file"},
		"an empty folder":  {[]string{"-m", m, "--laya-model", filepath.Dir(st.file("empty/x", ""))}, "--laya-model: there is no laya_typed_decisions_q8_0.gguf"},
		"no policy":        {[]string{"-m", m, "--laya", "--route-policy", "/does/not/exist.json"}, "it cannot be read"},
		"no JSON":          {[]string{"-m", m, "--laya", "--route-policy", st.file("a.json", "{")}, "it is not JSON"},
		"no classes":       {[]string{"-m", m, "--laya", "--route-policy", st.file("b.json", "{}")}, "it has neither classes nor rules"},
		"an unknown class": {[]string{"-m", m, "--laya", "--route-policy", st.file("c.json", `{"classes": {"poem": {"device": "hrx"}}}`)}, `unknown class "poem"`},
		"no device":        {[]string{"-m", m, "--laya", "--route-policy", st.file("d.json", `{"classes": {"code": {}}}`)}, `the class "code" has no device`},
	} {
		code, _, errs := command(t, 30*time.Second, append([]string{"serve", "--port", "0", "--llama-server", llama}, c.args...)...)
		if code != 1 || !strings.Contains(errs, c.want) || strings.Contains(errs, "listening") {
			t.Errorf("%s: exit %d, %s", name, code, errs)
		}
	}
}

// TestLayaStrangers: serve says which names of a policy nobody here has, and no others.
func TestLayaStrangers(t *testing.T) {
	for name, c := range map[string]struct{ policy, want string }{
		"slips":  {`{"classes": {"code": {"device": "hrxx"}, "prose": {"device": "vulkan"}}, "rules": [{"prefer": ["attic", "zinc"]}], "default": "npu"}`, "warning: the policy names "},
		"none":   {byDevice, ""},
		"itself": {`{"rules": [{"prefer": ["m"]}], "default": "cpu"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			st := newStage(t)
			s := st.serve(st.strix("--route-policy", st.file("policy.json", c.policy))...)
			said := ""
			for line := range strings.Lines(s.log.String()) {
				if strings.Contains(line, "the policy names") {
					said += line
				}
			}
			if c.want == "" && said != "" || !strings.Contains(said, c.want) {
				t.Fatalf("it says %q\n%s", said, s.log)
			}
			if c.want == "" {
				return
			}
			names, _, _ := strings.Cut(said[strings.Index(said, c.want)+len(c.want):], ": no candidate here is called so")
			all := strings.Split(names, ", ")
			slices.Sort(all)
			if strings.Join(all, " ") != "attic hrxx npu" {
				t.Errorf("it names %q", all)
			}
		})
	}
}

// TestLayaElsewhere: on a device that was asked for there is nothing to choose, which is a warning.
func TestLayaElsewhere(t *testing.T) {
	st := newStage(t)
	s := st.serve("-m", st.gguf("m.gguf", nil), "--device", "vulkan", "--laya", "--llama-server", standin(t, "llama-server"))
	r := s.post("/v1/chat/completions", chat(capital, nil))
	if r.status != 200 || r.header.Get("X-1bit-Route") != "" || !s.log.says("--laya has no effect with --device vulkan", 1) {
		t.Errorf("%d %v\n%s", r.status, r.header, s.log)
	}
}

// TestLayaLoadsOnce: requests that need a backend which is being started wait for it, also beside one that serves.
func TestLayaLoadsOnce(t *testing.T) {
	st := newStage(t, "STANDIN_LOAD=2s")
	s := st.serve(st.strix(append(st.daemon(), "--route-policy", st.file("policy.json", byDevice))...)...)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { routed(t, s, nil, fmt.Sprintf("code %d", i)) })
	}
	all.Wait()
	started := func() (n int) {
		for _, e := range st.log("start") {
			if e.Program != "daemon" {
				n++
			}
		}
		return n
	}
	if n := started(); n != 1 {
		t.Errorf("%d starts", n)
	}
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		routed(t, s, nil, "prose is loading")
	}()
	await(t, 30*time.Second, "another backend is started", func() bool { return started() == 2 })
	routed(t, s, nil, "code is there")
	select {
	case <-loaded:
		t.Error("a backend that serves waited for another one's start")
	default:
	}
	<-loaded
}
