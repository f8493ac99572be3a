// Command bench compares the built-in engine with a llama-server: the same file, threads and context, requests
// interleaved, figures from each server's own timings. It prints medians and ratios.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"onebit/e2e/rig"
)

type options struct {
	bin, llama, models, level string
	threads, rounds           int
	quick                     bool
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/1bit", "our program")
	flag.StringVar(&o.llama, "llama", "", "folder with llama-server, llama-bench and llama-quantize")
	flag.StringVar(&o.models, "models", "", "comma-separated files; empty: SmolLM2 Q4_1, the 0.5B Q4_K_M, and a Q8_0 made from it")
	flag.IntVar(&o.threads, "threads", 0, "threads of both servers; 0 = all cores up to 2, else one less")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds")
	flag.BoolVar(&o.quick, "quick", false, "prefill 240 and decode only")
	flag.StringVar(&o.level, "level", "", "ONEBIT_CPU for our engine")
	flag.Parse()
	if err := bench(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(o options) error {
	if o.threads == 0 {
		o.threads = max(min(runtime.NumCPU(), 2), runtime.NumCPU()-1)
	}
	files, err := benchFiles(o)
	if err != nil {
		return err
	}
	version, _ := exec.Command(o.bin, "version").Output()
	peer, _ := exec.Command(filepath.Join(o.llama, "llama-server"), "--version").CombinedOutput()
	fmt.Printf("date %s, %d cores, %d threads, %s, peer %s\n", time.Now().Format("2006-01-02"), runtime.NumCPU(), o.threads,
		strings.TrimSpace(string(version)), firstLine(string(peer)))
	fmt.Printf("cpu %s, ONEBIT_CPU=%q\n", rig.CPU(), o.level)
	loop := readLoop(o)
	if loop > 0 {
		fmt.Printf("memory read loop, %d threads: %.1f GB/s\n", o.threads, loop)
	}
	for _, f := range files {
		if err := benchFile(o, f, loop); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(f), err)
		}
	}
	return nil
}

func firstLine(s string) string {
	for _, l := range strings.Split(s, "\n") {
		if strings.HasPrefix(l, "version") {
			return strings.TrimSpace(l)
		}
	}
	l, _, _ := strings.Cut(s, "\n")
	return l
}

// readLoop asks our program for the machine's read bandwidth, in GB/s.
func readLoop(o options) float64 {
	out, err := exec.Command(o.bin, "tool", "memory", "-t", strconv.Itoa(o.threads)).Output()
	if err != nil {
		return 0
	}
	v, _ := strconv.ParseFloat(strings.Fields(string(out))[0], 64)
	return v
}

// benchFiles returns the files to measure, making the Q8_0 one when it is not there yet.
func benchFiles(o options) ([]string, error) {
	if o.models != "" {
		return strings.Split(o.models, ","), nil
	}
	var files []string
	for _, name := range []string{"smollm2", "qwen2.5-coder-0.5b"} {
		out, err := exec.Command(o.bin, "model", "pull", name).Output()
		if err != nil {
			return nil, fmt.Errorf("obtaining %s: %w", name, err)
		}
		files = append(files, strings.TrimSpace(string(out)))
	}
	q8 := strings.TrimSuffix(files[1], "q4_k_m.gguf") + "q8_0.gguf"
	if _, err := os.Stat(q8); errors.Is(err, os.ErrNotExist) {
		cmd := exec.Command(filepath.Join(o.llama, "llama-quantize"), "--allow-requantize", files[1], q8+".tmp", "Q8_0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("making the Q8_0 file: %w\n%s", err, out)
		}
		if err := os.Rename(q8+".tmp", q8); err != nil {
			return nil, err
		}
	}
	return append(files, q8), nil
}

// proc is one running server.
type proc struct {
	name string
	cmd  *exec.Cmd
	url  string
	up   time.Duration // exec to /health 200
}

func startProc(o options, name, file string, slots, ctx int) (*proc, error) {
	port, err := rig.FreePort()
	if err != nil {
		return nil, err
	}
	p := &proc{name: name, url: "http://127.0.0.1:" + strconv.Itoa(port)}
	common := []string{"-m", file, "--host", "127.0.0.1", "--port", strconv.Itoa(port), "-c", strconv.Itoa(ctx), "-np", strconv.Itoa(slots),
		"-t", strconv.Itoa(o.threads), "-tb", strconv.Itoa(o.threads)}
	if name == "1bit" {
		p.cmd = exec.Command(o.bin, append([]string{"engine"}, common...)...)
		if o.level != "" {
			p.cmd.Env = append(os.Environ(), "ONEBIT_CPU="+o.level)
		}
	} else {
		p.cmd = exec.Command(filepath.Join(o.llama, "llama-server"), append(common, "--no-webui", "--cache-ram", "0")...)
	}
	log, err := os.CreateTemp("", "bench-"+name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer os.Remove(log.Name())
	p.cmd.Stdout, p.cmd.Stderr = log, log
	begin := time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for time.Since(begin) < 120*time.Second {
		resp, err := http.Get(p.url + "/health")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				p.up = time.Since(begin)
				return p, nil
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	p.stop()
	b, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("%s did not become ready:\n%s", name, b)
}

func (p *proc) stop() {
	rig.Stop(p.cmd)
}

// rss is the resident memory in MiB.
func (p *proc) rss() float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	m := regexp.MustCompile(`VmRSS:\s+(\d+)`).FindSubmatch(b)
	if m == nil {
		return 0
	}
	kb, _ := strconv.ParseFloat(string(m[1]), 64)
	return kb / 1024
}

type timings struct {
	PromptN   int     `json:"prompt_n"`
	PromptMS  float64 `json:"prompt_ms"`
	Predicted int     `json:"predicted_n"`
	PredictMS float64 `json:"predicted_ms"`
}

// complete asks for n tokens after a prompt of token ids.
func (p *proc) complete(ids []int, n int) (timings, error) {
	body, _ := json.Marshal(map[string]any{"prompt": ids, "n_predict": n, "ignore_eos": true, "cache_prompt": false, "temperature": 0})
	resp, err := http.Post(p.url+"/completion", "application/json", bytes.NewReader(body))
	if err != nil {
		return timings{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return timings{}, err
	}
	var v struct {
		Timings timings `json:"timings"`
	}
	if resp.StatusCode != http.StatusOK {
		return timings{}, fmt.Errorf("%s: %s: %.300s", p.name, resp.Status, b)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return timings{}, fmt.Errorf("%s: %w: %.300s", p.name, err, b)
	}
	return v.Timings, nil
}

// prompt makes n token ids that no cache has seen.
func prompt(r *rand.Rand, n int) []int {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 300 + r.IntN(15000)
	}
	return ids
}

// measure is one row: tokens a second of one run.
type measure struct {
	name string
	run  func(p *proc, r *rand.Rand) (float64, error)
}

func prefill(n int) measure {
	return measure{fmt.Sprintf("prefill %d", n), func(p *proc, r *rand.Rand) (float64, error) {
		t, err := p.complete(prompt(r, n), 1)
		return float64(t.PromptN) / t.PromptMS * 1e3, err
	}}
}

func decode(depth, n int) measure {
	return measure{fmt.Sprintf("decode at %d", depth), func(p *proc, r *rand.Rand) (float64, error) {
		t, err := p.complete(prompt(r, max(depth, 4)), n)
		return float64(t.Predicted-1) / t.PredictMS * 1e3, err
	}}
}

func together(users, n int) measure {
	return measure{fmt.Sprintf("batch of %d", users), func(p *proc, r *rand.Rand) (float64, error) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var failed error
		total, slowest := 0, 0.0
		for range users {
			ids := prompt(r, 8)
			wg.Go(func() {
				t, err := p.complete(ids, n)
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
				total += t.Predicted
				slowest = max(slowest, t.PredictMS)
			})
		}
		wg.Wait()
		return float64(total) / slowest * 1e3, failed
	}}
}

func benchFile(o options, file string, loop float64) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	fmt.Printf("\n%s (%.0f MB)\n%-16s %22s %22s %8s\n", filepath.Base(file), float64(info.Size())/1e6, "", "1bit t/s (min-max)", "llama.cpp t/s", "ratio")
	single := []measure{prefill(240), decode(0, 64)}
	if !o.quick {
		single = []measure{prefill(240), prefill(1024), decode(0, 64), decode(1024, 48)}
	}
	if err := rows(o, file, 1, 4096, single, func(name string, ours float64) {
		if loop > 0 && strings.HasPrefix(name, "decode at 0") {
			fmt.Printf("%16s %.1f GB/s of weights, %.0f%% of the read loop\n", "", ours*float64(info.Size())/1e9, 100*ours*float64(info.Size())/1e9/loop)
		}
	}); err != nil {
		return err
	}
	if o.quick {
		return nil
	}
	if err := rows(o, file, 8, 8192, []measure{together(2, 48), together(4, 48), together(8, 48)}, nil); err != nil {
		return err
	}
	return startup(o, file)
}

// rows runs the measures round by round on both servers, each first in every other round.
func rows(o options, file string, slots, ctx int, list []measure, after func(name string, ours float64)) error {
	ours, err := startProc(o, "1bit", file, slots, ctx)
	if err != nil {
		return err
	}
	defer ours.stop()
	peer, err := startProc(o, "llama", file, slots, ctx)
	if err != nil {
		return err
	}
	defer peer.stop()
	r := rand.New(rand.NewPCG(1, uint64(len(file))))
	for _, p := range []*proc{ours, peer} {
		if _, err := p.complete(prompt(r, 16), 8); err != nil {
			return err
		}
	}
	for _, m := range list {
		var got [2][]float64
		for round := range o.rounds {
			for k := range 2 {
				i := (k + round) % 2
				v, err := m.run([]*proc{ours, peer}[i], r)
				if err != nil {
					return err
				}
				got[i] = append(got[i], v)
			}
		}
		a, b := median(got[0]), median(got[1])
		fmt.Printf("%-16s %8.1f (%5.0f-%5.0f) %8.1f (%5.0f-%5.0f) %7.2fx\n", m.name, a, slices.Min(got[0]), slices.Max(got[0]), b, slices.Min(got[1]), slices.Max(got[1]), a/b)
		if after != nil {
			after(m.name, a)
		}
	}
	return nil
}

// startup measures the time to a healthy server and its memory after 20 equal requests.
func startup(o options, file string) error {
	var up, rss [2][]float64
	r := rand.New(rand.NewPCG(2, 2))
	ids := prompt(r, 64)
	for round := range 3 {
		for k := range 2 {
			i := (k + round) % 2
			p, err := startProc(o, []string{"1bit", "llama"}[i], file, 1, 4096)
			if err != nil {
				return err
			}
			up[i] = append(up[i], p.up.Seconds()*1e3)
			if round == 0 {
				for range 20 {
					if _, err := p.complete(ids, 16); err != nil {
						p.stop()
						return err
					}
				}
				rss[i] = append(rss[i], p.rss())
			}
			p.stop()
		}
	}
	fmt.Printf("%-16s %19.0f ms %19.0f ms %7.2fx\n", "exec to healthy", median(up[0]), median(up[1]), median(up[0])/median(up[1]))
	fmt.Printf("%-16s %18.0f MiB %18.0f MiB %7.2fx\n", "resident, 20 req", rss[0][0], rss[1][0], rss[0][0]/rss[1][0])
	return nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
