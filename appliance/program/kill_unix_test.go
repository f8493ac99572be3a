//go:build unix

package program_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"onebit/appliance/program"
)

// Variables by which a test starts itself again, to be killed.
const (
	killDir  = "ONEBIT_TEST_KILL_DIR"
	killStep = "ONEBIT_TEST_KILL_STEP"
	killFrom = "ONEBIT_TEST_KILL_SOURCE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		os.Exit(doomed(dir, os.Getenv(killStep), os.Getenv(killFrom)))
	}
	os.Exit(m.Run())
}

// doomed changes a store and dies before a step; without a step it prints all of them.
func doomed(dir, step, source string) int {
	s := &program.Store{Dir: dir, Check: runs}
	s.Steps(func(name string) {
		if step == "" {
			fmt.Println(name)
		}
		if name == step {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	var err error
	if source == "" {
		_, err = s.Rollback(context.Background(), "vulkan")
	} else {
		_, err = s.Install(context.Background(), program.Wish{Device: "vulkan", Source: source})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// die runs a change in a process of its own, which is killed before a step.
func die(t *testing.T, dir, step, source string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), killDir+"="+dir, killStep+"="+step, killFrom+"="+source)
	out, err := cmd.CombinedOutput()
	if killed := err != nil && strings.Contains(err.Error(), "killed"); killed != (step != "") {
		t.Fatalf("step %q: %v: %s", step, err, out)
	}
	return string(out)
}

// TestKilled kills an install, and a way back, before each of their steps: what held before holds, or what was to hold.
func TestKilled(t *testing.T) {
	next := put(t, "v3.tar.gz", tarball(t, server("v3")))
	fresh := func() *program.Store {
		s := store(t)
		install(t, s, "vulkan", "v1")
		install(t, s, "vulkan", "v2")
		install(t, s, "rocm", "v1")
		return s
	}
	for _, c := range []struct {
		name, source, from, to string
	}{{"install", next, "v2", "v3"}, {"rollback", "", "v2", "v1"}} {
		steps := strings.Fields(die(t, fresh().Dir, "", c.source))
		want := 3
		if c.source != "" {
			want = 10
		}
		if len(steps) < want {
			t.Fatalf("only the steps %q", steps)
		}
		turned := slices.Index(steps, "turned")
		for i, step := range steps {
			t.Run(c.name+" before "+step, func(t *testing.T) {
				s := fresh()
				other := tree(t, filepath.Join(s.Dir, "rocm"))
				die(t, s.Dir, step, c.source)
				holds := c.from
				if i >= turned {
					holds = c.to
				}
				if got := says(t, s, "vulkan"); got != holds {
					t.Errorf("%s holds, not %s", got, holds)
				}
				if _, err := s.Verify(t.Context(), "vulkan"); err != nil {
					t.Error(err)
				}
				if tree(t, filepath.Join(s.Dir, "rocm")) != other {
					t.Error("the other device's folder has changed")
				}
				v, err := s.Install(t.Context(), program.Wish{Device: "vulkan", Source: next})
				if err != nil || says(t, s, "vulkan") != "v3" || !v.Current {
					t.Errorf("once more: %v", err)
				}
				if left, _ := filepath.Glob(filepath.Join(s.Dir, "vulkan", "incoming-*")); len(left) != 0 {
					t.Errorf("left over: %v", left)
				}
			})
		}
	}
	t.Run("while what is damaged is mended", func(t *testing.T) {
		s := fresh()
		v, err := s.Current("vulkan")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(v.Dir, "LICENSE"), []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
		same := put(t, "v2.tar.gz", tarball(t, server("v2")))
		die(t, s.Dir, "aside", same)
		if _, err := s.Install(t.Context(), program.Wish{Device: "vulkan", Source: put(t, "x.tar.gz", []byte("no archive"))}); err == nil {
			t.Error("what is no archive was installed")
		}
		if got := says(t, s, "vulkan"); got != "v2" {
			t.Errorf("%s holds", got)
		}
		if _, err := s.Install(t.Context(), program.Wish{Device: "vulkan", Source: same}); err != nil {
			t.Error(err)
		}
		if _, err := s.Verify(t.Context(), "vulkan"); err != nil {
			t.Error(err)
		}
	})
}
