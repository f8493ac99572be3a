package sandbox_test

import (
	"slices"
	"strings"
	"testing"

	"onebit/engine/sandbox"

	"github.com/google/go-cmp/cmp"
)

func TestSpecSurvivesTheCommandLine(t *testing.T) {
	want := sandbox.Spec{
		Program: "/usr/bin/server", Args: []string{"-m", "a b\x00.gguf", "--port", "1"}, Env: []string{"PATH=/usr/bin"},
		Read: []string{"/models/a b.gguf"}, Devices: []string{"/dev/kfd"}, Scratch: "/tmp/x", Port: 8080, Alone: true, Parent: 7,
	}
	args, err := want.Arguments()
	if err != nil || len(args) != 2 || args[0] != sandbox.Command {
		t.Fatalf("%q, %v", args, err)
	}
	got, err := sandbox.Parse(args[1])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no program", `{}`, "no absolute path"},
		{"a relative program", `{"program":"sh"}`, "no absolute path"},
		{"an unknown member", `{"program":"/bin/sh","unconfined":true}`, "unknown field"},
		{"a relative path", `{"program":"/bin/sh","read":["../.."]}`, "not absolute"},
		{"a port that is none", `{"program":"/bin/sh","port":65536}`, "port 65536"},
		{"a port beside a conduit", `{"program":"/bin/sh","port":8080,"conduit":true}`, "no network beside it"},
		{"the network beside a conduit", `{"program":"/bin/sh","network":true,"conduit":true}`, "no network beside it"},
		{"everything as a scratch folder", `{"program":"/bin/sh","scratch":"/tmp/.."}`, "is not one"},
		{"two", `{"program":"/bin/sh"} {}`, "more than one"},
		{"no JSON", `program`, "reading a sandbox"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := sandbox.Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"program":"/bin/sh","args":["-c","true"],"env":["A=b"],"read":["/models"],"port":1,"alone":true}`)
	f.Add(`{"program":"/bin/sh","scratch":"/tmp/a","fresh":true}`)
	f.Add(`{"program":"bin/sh"}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := sandbox.Parse(text)
		if err != nil {
			return
		}
		for _, path := range slices.Concat([]string{s.Program}, s.Read, s.Write, s.Devices) {
			if !strings.HasPrefix(path, "/") {
				t.Fatalf("%q was taken for a path", path)
			}
		}
		args, err := s.Arguments()
		if err != nil {
			t.Fatal(err)
		}
		again, err := sandbox.Parse(args[1])
		if err != nil || again.Program != s.Program || again.Port != s.Port {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

func TestEnvironment(t *testing.T) {
	got := sandbox.Environment([]string{
		"PATH=/usr/bin", "HOME=/root", "ONEBIT_BACKUP_PASSPHRASE=canary", "ONEBIT_LOG=debug", "ONEBIT_STATE=/x", "HSA_OVERRIDE_GFX_VERSION=11.5.1",
		"LLAMA_API_KEY=canary", "LLAMA_ARG_HF_TOKEN=canary", "HF_TOKEN=canary", "GGML_VK_VISIBLE_DEVICES=0", "AWS_SECRET_ACCESS_KEY=canary",
		"LD_PRELOAD=/evil.so", "RADV_PERFTEST=coop_matrix", "AMD_SECRET=canary",
	})
	want := []string{"PATH=/usr/bin", "ONEBIT_LOG=debug", "HSA_OVERRIDE_GFX_VERSION=11.5.1", "GGML_VK_VISIBLE_DEVICES=0", "RADV_PERFTEST=coop_matrix"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMissingIsTold(t *testing.T) {
	for _, c := range []struct {
		name string
		have sandbox.Support
		want []string // a part of each line
		has  string
	}{
		{"all", sandbox.Support{Landlock: 7, Filter: true}, nil, "Landlock 7, system call filters"},
		{"an old kernel", sandbox.Support{Landlock: 3, Filter: true}, []string{"other ports"}, "Landlock 3, system call filters"},
		{"one before signals", sandbox.Support{Landlock: 5, Filter: true}, []string{"signal"}, "Landlock 5, system call filters"},
		{"no Landlock", sandbox.Support{Filter: true}, []string{"no Landlock"}, "system call filters"},
		{"nothing", sandbox.Support{}, []string{"no Landlock", "no system call filters"}, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			missing := c.have.Missing()
			if len(missing) != len(c.want) {
				t.Fatalf("%q", missing)
			}
			for i, want := range c.want {
				if !strings.Contains(missing[i], want) {
					t.Errorf("%q does not say %q", missing[i], want)
				}
			}
			if got := c.have.String(); got != c.has {
				t.Errorf("it has %q, want %q", got, c.has)
			}
		})
	}
}
