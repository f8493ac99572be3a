package extract_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"onebit/store/documents/extract"
)

// cache is where the tests keep the compiled PDF reader.
var cache string

func compiled(t *testing.T) context.Context { return extract.WithCache(t.Context(), cache) }

// TestMain plays the child when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		os.Exit(child(os.Args[2], extract.FileName(os.Args[len(os.Args)-1])))
	}
	var err error
	if cache, err = os.MkdirTemp("", "extract"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(cache)
	os.Exit(code)
}

func child(mode, name string) int {
	switch mode {
	case "hang":
		time.Sleep(time.Hour) // the parent ends it
	case "die":
		panic("as a broken parser would")
	case "silent":
		return 0
	case "lie":
		os.Stdout.WriteString(`{"document":{"media":"application/x-evil","pages":-3,"blocks":[{"kind":"paragraph","text":"a\u0000\u202eb","page":99}]}}`)
		return 0
	case "kind":
		os.Stdout.WriteString(`{"document":{"blocks":[{"kind":"script","text":"a"}]}}`)
		return 0
	case "flood":
		for range 1 << 20 {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 4096)); err != nil {
				return 1
			}
		}
	case "memory":
		var all [][]byte
		for {
			b := make([]byte, 64<<20)
			for i := range b {
				b[i] = 1
			}
			if all = append(all, b); len(all) > 8 {
				os.Stderr.WriteString("fatal error: runtime: out of memory")
				p, _ := os.FindProcess(os.Getpid())
				_ = p.Kill()
			}
		}
	case "read":
		if err := extract.Child(context.Background(), os.Stdin, os.Stdout, name); err != nil {
			os.Stderr.WriteString(err.Error())
			return 1
		}
	}
	return 0
}

func file(t *testing.T, content []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func runner(mode string) extract.Runner {
	return extract.Runner{Program: []string{os.Args[0], "child", mode}}
}

func TestChildReads(t *testing.T) {
	f := file(t, []byte("# A\n\nb\n"))
	if _, err := f.Seek(3, 0); err != nil {
		t.Fatal(err)
	}
	d, err := runner("read").Extract(t.Context(), f, "-x.md")
	if err != nil || brief(d) != "title A\nheading 1: A\nparagraph: b\n" {
		t.Errorf("%v, %v", d, err)
	}
	var refused *extract.Error
	if _, err := runner("read").Extract(t.Context(), file(t, []byte{0, 1, 2}), "a.md"); !errors.As(err, &refused) || refused.Remedy == "" {
		t.Errorf("a file that is not read gives %v", err)
	}
}

func TestChildFails(t *testing.T) {
	f := file(t, []byte("x"))
	var refused *extract.Error
	late := runner("hang")
	late.Limit = time.Second
	if _, err := late.Extract(t.Context(), f, "a"); !errors.As(err, &refused) || !strings.Contains(err.Error(), "longer than 1s") {
		t.Errorf("a child that hangs: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := runner("hang").Extract(ctx, f, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that has no more time: %v", err)
	}
	if _, err := runner("memory").Extract(t.Context(), f, "a"); !errors.As(err, &refused) {
		t.Errorf("a child that was killed: %v", err)
	}
	if _, err := runner("flood").Extract(t.Context(), f, "a"); !errors.As(err, &refused) {
		t.Errorf("a child that never ends its answer: %v", err)
	}
	for _, mode := range []string{"die", "silent", "kind"} {
		if _, err := runner(mode).Extract(t.Context(), f, "a"); err == nil || errors.As(err, &refused) {
			t.Errorf("%s: %v, want an error of ours", mode, err)
		}
	}
	if _, err := (extract.Runner{}).Extract(t.Context(), f, "a"); err == nil {
		t.Error("a runner without a program runs")
	}
}

func TestChildIsNotTrusted(t *testing.T) {
	d, err := runner("lie").Extract(t.Context(), file(t, []byte("x")), "a")
	if err != nil {
		t.Fatal(err)
	}
	if d.Media != "" || d.Pages != 0 || d.Blocks[0].Text != "ab" || d.Blocks[0].Page != 0 {
		t.Errorf("taken as %+v", d)
	}
}

func TestDamagedPDFs(t *testing.T) {
	whole := gardenPDF()
	for at := 0; at < len(whole); at += 499 {
		b := append([]byte(nil), whole...)
		b[at] ^= 0x55
		var refused *extract.Error
		if _, err := extract.Read(compiled(t), b, "a.pdf", extract.Default()); err != nil && !errors.As(err, &refused) {
			t.Errorf("byte %d changed: %v", at, err)
		}
	}
}

func TestWarm(t *testing.T) {
	dir := t.TempDir()
	if err := extract.Warm(extract.WithCache(t.Context(), dir)); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(dir + "/*/*"); err != nil || len(files) == 0 {
		t.Errorf("nothing was kept: %v", err)
	}
}
