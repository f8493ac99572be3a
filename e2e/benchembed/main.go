// Command benchembed times the built-in engine's embeddings beside llama-server's: the same file, threads and texts, one
// server first in odd rounds and the other in even ones.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"onebit/e2e/rig"
)

// options are the command line.
type options struct {
	bin, llama, models, level string
	threads, rounds, texts    int
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/1bit", "our program")
	flag.StringVar(&o.llama, "llama", "", "folder with llama-server")
	flag.StringVar(&o.models, "models", "", "comma-separated files")
	flag.IntVar(&o.threads, "threads", 0, "threads of both servers; 0 = all cores up to 2, else one less")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds")
	flag.IntVar(&o.texts, "texts", 64, "texts of 128 tokens in a request")
	flag.StringVar(&o.level, "level", "", "ONEBIT_CPU for our engine")
	flag.Parse()
	if o.threads == 0 {
		o.threads = max(min(2, runtime.NumCPU()), runtime.NumCPU()-1)
	}
	for _, file := range strings.Split(o.models, ",") {
		if err := bench(o, file); err != nil {
			fmt.Fprintln(os.Stderr, "benchembed:", err)
			os.Exit(1)
		}
	}
}

// side is one of the two servers with what it has done.
type side struct {
	url   string
	stop  func()
	vocab int       // tokens
	many  []float64 // texts a second, of a request with many
	one   []float64 // milliseconds of a request with one text of 16 tokens
}

// bench prints the figures of one file.
func bench(o options, file string) error {
	port := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		defer l.Close()
		return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	}
	threads, ours, theirs := strconv.Itoa(o.threads), port(), port()
	mine, err := launch(ours, []string{"ONEBIT_CPU=" + o.level}, o.bin, "engine", "-m", file, "--port", ours, "-t", threads, "-tb", threads)
	if err != nil {
		return err
	}
	defer mine.stop()
	// as serve starts it for a side server
	peer, err := launch(theirs, []string{"LD_LIBRARY_PATH=" + o.llama}, filepath.Join(o.llama, "llama-server"), "-m", file, "--port", theirs, "-t", threads, "-tb", threads,
		"--embedding", "-c", "8192", "-b", "8192", "-ub", "8192", "-np", "4")
	if err != nil {
		return err
	}
	defer peer.stop()
	for round := range o.rounds + 1 {
		order := []*side{mine, peer}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			many, err := s.ask(round, o.texts, 128)
			if err != nil {
				return err
			}
			one := time.Duration(0)
			const times = 5
			for i := range times {
				took, err := s.ask(round*times+i, 1, 16)
				if err != nil {
					return err
				}
				one += took / times
			}
			if round > 0 { // the first only warms up
				s.many, s.one = append(s.many, float64(o.texts)/many.Seconds()), append(s.one, one.Seconds()*1e3)
			}
		}
	}
	ratios := make([]float64, o.rounds)
	for i := range ratios {
		ratios[i] = mine.many[i] / peer.many[i]
	}
	fmt.Printf("%s, %d threads, %d rounds, load %s, level %s\n", filepath.Base(file), o.threads, o.rounds, rig.Load(), cmp.Or(o.level, "of this machine"))
	fmt.Printf("  texts of 128 tokens a second: 1bit %.1f, llama-server %.1f; median of the rounds' ratios %.2f (%.2f to %.2f)\n",
		median(mine.many), median(peer.many), median(ratios), slices.Min(ratios), slices.Max(ratios))
	fmt.Printf("  one text of 16 tokens, ms: 1bit %.2f, llama-server %.2f\n", median(mine.one), median(peer.one))
	return nil
}

// launch starts a server and waits until it is healthy.
func launch(port string, env []string, name string, args ...string) (*side, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &side{url: "http://127.0.0.1:" + port}
	s.stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	for range 600 {
		if r, err := http.Get(s.url + "/health"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s, s.readVocab()
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("%s is not healthy after a minute:\n%s", name, log.Bytes())
}

// readVocab asks the server for the size of the vocabulary.
func (s *side) readVocab() error {
	r, err := http.Get(s.url + "/v1/models")
	if err != nil {
		return err
	}
	defer r.Body.Close()
	var v struct {
		Data []struct {
			Meta struct {
				Vocab int `json:"n_vocab"`
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		return err
	}
	if len(v.Data) == 0 || v.Data[0].Meta.Vocab <= 200 {
		return fmt.Errorf("a vocabulary that is too small: %+v", v)
	}
	s.vocab = v.Data[0].Meta.Vocab
	return nil
}

// ask sends texts of so many token ids each, which follow from seed, and returns how long the answer took.
func (s *side) ask(seed, texts, tokens int) (time.Duration, error) {
	input := make([][]int, texts)
	for i := range input {
		input[i] = make([]int, tokens)
		for j := range input[i] {
			input[i][j] = 110 + (seed*7919+i*104729+j*31+j*j*17)%(s.vocab-110) // past what BERT's vocabulary begins with
		}
	}
	body, err := json.Marshal(map[string]any{"input": input, "encoding_format": "float"})
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	r, err := http.Post(s.url+"/v1/embeddings", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	took := time.Since(begun)
	var v struct {
		Data  []struct{ Embedding []float64 }
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}
	if err == nil {
		err = json.Unmarshal(answer, &v)
	}
	if err == nil && (len(v.Data) != texts || v.Usage.Prompt != texts*tokens) {
		err = errors.New("another number of vectors or tokens than was asked for")
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %.300s", err, answer)
	}
	return took, nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
