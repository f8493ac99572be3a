package route

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"onebit/extensions/laya/scorer"
)

// modelFile is the checkpoint's name in a folder of classifiers.
const modelFile = "laya_typed_decisions_q8_0.gguf"

// Source says what classifies.
type Source struct {
	URL     string // a server that answers decisions
	Model   string // a GGUF of a decision model
	Daemon  string // the program that runs Model; empty: a llama-server does
	Device  string // for Model; empty: the best that there is
	Wording int    // of the question
}

// Builtin reports whether it is the built-in classifier.
func (s Source) Builtin() bool { return s.URL == "" && s.Model == "" }

// String says in words what classifies.
func (s Source) String() string {
	switch {
	case s.URL != "":
		return "the decision model at " + s.URL
	case s.Daemon != "":
		return filepath.Base(s.Model) + " in " + filepath.Base(s.Daemon) + " on " + s.Device
	case s.Model != "":
		return filepath.Base(s.Model) + " in a llama-server"
	}
	return "the built-in classifier"
}

// FindSource finds the classifier that is meant: by an option, which may be empty, a folder, a .gguf file or a URL; else by the
// environment; else the one in the usual folder, if there is one; else the built-in one. What is named and not there is an
// error.
func FindSource(option string, getenv func(string) string) (s Source, err error) {
	if s.Wording, err = wording(getenv("ONEBIT_LAYA_CLASS_VARIANT")); err != nil {
		return s, err
	}
	from := "--laya-model"
	if option == "" {
		option, from = getenv("ONEBIT_LAYA_MODEL"), "ONEBIT_LAYA_MODEL"
	}
	switch {
	case strings.HasPrefix(option, "http://"), strings.HasPrefix(option, "https://"):
		s.URL = option
		return s, nil
	case strings.HasSuffix(option, ".gguf"):
		if s.Model = option; !isFile(option) {
			return s, fmt.Errorf("%s: there is no file %q", from, option)
		}
	case option != "":
		if s.Model = inFolder(option); s.Model == "" {
			return s, fmt.Errorf("%s: there is no %s in %q or its folder gguf; leave it out for the built-in classifier", from, modelFile, option)
		}
	default:
		for _, dir := range usual(getenv) {
			if s.Model = inFolder(dir); s.Model != "" {
				break
			}
		}
	}
	if s.Model == "" {
		return s, nil
	}
	s.Daemon, s.Device = getenv("ONEBIT_LAYA_GGML"), getenv("ONEBIT_LAYA_DEVICE")
	switch {
	case s.Device == "npu":
		return s, errors.New("ONEBIT_LAYA_DEVICE=npu needs an encoder that is not part of this program; take another device, or leave it out")
	case s.Daemon == "":
	case !isFile(s.Daemon):
		return s, fmt.Errorf("ONEBIT_LAYA_GGML: there is no file %q", s.Daemon)
	case s.Device == "":
		s.Device = "hrx"
	}
	return s, nil
}

// wording reads which wording of the question is wanted.
func wording(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n >= scorer.Wordings {
		return 0, fmt.Errorf("ONEBIT_LAYA_CLASS_VARIANT is %q; there are the wordings 0 to %d", text, scorer.Wordings-1)
	}
	return n, nil
}

// usual are the folders where a classifier lies when nobody names one.
func usual(getenv func(string) string) (dirs []string) {
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return []string{filepath.Join(dir, "1bit", "laya")}
	}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".local", "share", "1bit", "laya"))
	}
	return dirs
}

// inFolder is the model in a folder; empty when there is none.
func inFolder(dir string) string {
	for _, path := range []string{filepath.Join(dir, "gguf", modelFile), filepath.Join(dir, modelFile)} {
		if isFile(path) {
			return path
		}
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// NewDaemon makes the scorer of a source with a daemon. It starts nothing.
func (s Source) NewDaemon(env []string, log *slog.Logger) (*scorer.Daemon, error) {
	return scorer.NewDaemon(scorer.DaemonConfig{
		Program: []string{s.Daemon}, Env: env, Model: s.Model, Device: s.Device, Wording: s.Wording, Log: log, Stderr: os.Stderr,
	})
}
