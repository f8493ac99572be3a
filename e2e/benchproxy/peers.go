package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/e2e/rig"
)

// path is one way to the server.
type path struct {
	name    string
	version string
	addr    string // host:port
	pid     int    // of the proxy; 0 without one
	parent  bool   // its children are not part of the proxy
	rounds  []measures
}

// starter starts proxies and ends them.
type starter struct {
	dir      string
	commands []*exec.Cmd
}

func (s *starter) stop() {
	for _, c := range slices.Backward(s.commands) {
		rig.Stop(c)
	}
}

// run starts a program that serves on port and waits until ready answers 200 there.
func (s *starter) run(name string, port int, ready string, cmd *exec.Cmd) (*path, error) {
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	s.commands = append(s.commands, cmd)
	p := &path{name: name, addr: "127.0.0.1:" + strconv.Itoa(port), pid: cmd.Process.Pid}
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		res, err := http.Get("http://" + p.addr + ready)
		if err != nil {
			continue
		}
		res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return p, nil
		}
	}
	said, err := os.ReadFile(log.Name())
	return nil, errors.Join(fmt.Errorf("%s did not become ready:\n%.2000s", name, said), err)
}

// startAll starts the server and every proxy that there is. It says aloud which are missing.
func startAll(o options, dir string) (paths []*path, stop func(), err error) {
	s := &starter{dir: dir}
	ours, backend, err := s.ours(o)
	if err != nil {
		return nil, s.stop, err
	}
	paths = []*path{{name: "direct", version: "the server itself, " + backend, addr: backend}, ours}
	for _, peer := range []struct {
		name  string
		start func(o options, backend string) (*path, string, error)
	}{{"caddy", s.caddy}, {"litellm", s.litellm}, {"llama-swap", s.llamaSwap}} {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), peer.name) {
			continue
		}
		p, why, err := peer.start(o, backend)
		if err != nil {
			return nil, s.stop, err
		}
		if p == nil {
			fmt.Printf("ABSENT %s: %s\n", peer.name, why)
			continue
		}
		paths = append(paths, p)
	}
	return paths, s.stop, nil
}

// ours starts `1bit serve`, which starts the server.
func (s *starter) ours(o options) (p *path, backend string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	program, model, note := filepath.Join(s.dir, "llama-server"), filepath.Join(s.dir, "bench.gguf"), filepath.Join(s.dir, "port")
	if err := errors.Join(os.Symlink(self, program), os.WriteFile(model, rig.EmptyModel(), 0o600)); err != nil {
		return nil, "", err
	}
	port, err := rig.FreePort()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command(o.bin, "serve", "-m", model, "--device", "cpu", "--llama-server", program, "--alias", "bench", "--port", strconv.Itoa(port),
		"--parallel", strconv.Itoa(o.clients))
	cmd.Env = append(os.Environ(), "BENCH_PORT="+note)
	if p, err = s.run("1bit", port, "/health", cmd); err != nil {
		return nil, "", err
	}
	p.parent, p.version = true, rig.Output(o.bin, "version")
	at, err := os.ReadFile(note)
	return p, "127.0.0.1:" + string(at), err
}

func (s *starter) file(name, text string) (string, error) {
	path := filepath.Join(s.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

func (s *starter) caddy(o options, backend string) (*path, string, error) {
	if o.caddy == "" {
		return nil, "no -caddy given", nil
	}
	port, err := rig.FreePort()
	if err != nil {
		return nil, "", err
	}
	file, err := s.file("Caddyfile", fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttp://127.0.0.1:%d {\n\treverse_proxy %s {\n\t\tflush_interval -1\n\t}\n}\n", port, backend))
	if err != nil {
		return nil, "", err
	}
	p, err := s.run("caddy", port, "/health", exec.Command(o.caddy, "run", "--config", file, "--adapter", "caddyfile"))
	if err != nil {
		return nil, "", err
	}
	p.version = "Caddy " + rig.Output(o.caddy, "version")
	if info, err := buildinfo.ReadFile(o.caddy); err == nil {
		p.version = "Caddy " + info.Main.Version
	}
	return p, "", nil
}

func (s *starter) litellm(o options, backend string) (*path, string, error) {
	if o.litellm == "" {
		return nil, o.litellmWhy, nil
	}
	port, err := rig.FreePort()
	if err != nil {
		return nil, "", err
	}
	file, err := s.file("litellm.yaml", fmt.Sprintf("model_list:\n  - model_name: bench\n    litellm_params:\n      model: openai/bench\n      api_base: http://%s/v1\n      api_key: none\n", backend))
	if err != nil {
		return nil, "", err
	}
	cmd := exec.Command(o.litellm, "--config", file, "--host", "127.0.0.1", "--port", strconv.Itoa(port))
	cmd.Env = append(os.Environ(), "LITELLM_TELEMETRY=False", "LITELLM_LOCAL_MODEL_COST_MAP=True", "LITELLM_MODE=PRODUCTION", "LITELLM_LOG=ERROR",
		"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true") // it listens on loopback, for a minute
	p, err := s.run("litellm", port, "/health/liveliness", cmd)
	if err != nil {
		return nil, err.Error(), nil //nolint:nilerr // a peer that does not start is not ours to mend: it is absent
	}
	p.version = rig.Output(filepath.Join(filepath.Dir(o.litellm), "python"), "-c", "import importlib.metadata as m; print('LiteLLM', m.version('litellm'))")
	return p, "", nil
}

func (s *starter) llamaSwap(_ options, backend string) (*path, string, error) {
	program := os.Getenv("LLAMA_SWAP")
	if program == "" {
		return nil, "$LLAMA_SWAP names no program", nil
	}
	port, err := rig.FreePort()
	if err != nil {
		return nil, "", err
	}
	file, err := s.file("swap.yaml", fmt.Sprintf("models:\n  bench:\n    cmd: sleep 86400\n    proxy: http://%s\n    checkEndpoint: none\n", backend))
	if err != nil {
		return nil, "", err
	}
	p, err := s.run("llama-swap", port, "/health", exec.Command(program, "--config", file, "--listen", "127.0.0.1:"+strconv.Itoa(port)))
	if err != nil {
		return nil, "", err
	}
	p.parent, p.version = true, rig.Output(program, "--version")
	return p, "", nil
}
