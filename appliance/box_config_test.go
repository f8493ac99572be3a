package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	main "onebit/appliance"
)

func TestConfigCommand(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "1bit.yaml"), filepath.Join(dir, "bad.yaml")
	other, both := filepath.Join(dir, "box.toml"), t.TempDir()
	policy, marked, wide := filepath.Join(dir, "route.json"), filepath.Join(dir, "marked.json"), filepath.Join(dir, "wide.json")
	for file, text := range map[string]string{
		marked: "\ufeff" + `{"rules": [{"prefer": ["large"]}]}`, wide: "\xff\xfe{\x00}\x00", filepath.Join(dir, "marked.yaml"): "\ufeffname: attic\n",
		filepath.Join(dir, "marked.toml"): "\ufeffname = 'attic'\n", filepath.Join(dir, "wide.toml"): "\xff\xfen\x00",
		policy: `{"rules": [{"prefer": ["large"]}]}`,
		good:   "name: attic\n", bad: "naem: attic\nlisten: {port: x}\n", other: "name = 'cellar'\n[listen]\nport = 1\n",
		filepath.Join(dir, "bad.toml"): "naem = 'attic'\n[listen]\nport = 'x'\n", filepath.Join(both, "1bit.yaml"): "", filepath.Join(both, "1bit.toml"): "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name           string
		args           []string
		status         int
		stdout, stderr string
	}{
		{"the state's own file", []string{"check", "--state", dir}, 0, "1bit.yaml is right: 0 models\n", ""},
		{"no file in the state", []string{"check", "--state", t.TempDir()}, 0, "1bit.yaml: the defaults hold\n", ""},
		{"a variable that is wrong, beside a file that is", []string{"check", "--state", dir, "--set", "listen.port=x", "--set", "tls.mode=acem"}, 1, "", "mean acme?\n1bit config check: 2 mistakes\n"},
		{"print", []string{"print", "--state", dir, "--port", "8443"}, 0, "port: 8443  # --set listen.port", ""},
		{"TOML", []string{"check", "--state", dir, "--config", other}, 0, "box.toml is right: 0 models\n", ""},
		{"print TOML", []string{"print", "--state", dir, "--config", other, "--port", "8443"}, 0, "port = 8443  # --set listen.port", ""},
		{"all mistakes in TOML", []string{"check", "--config", filepath.Join(dir, "bad.toml"), "--state", dir}, 1, "", "bad.toml:1: there is no naem; did you mean name?\n" + filepath.Join(dir, "bad.toml") + ":3: listen.port"},
		{"two files", []string{"check", "--state", both}, 1, "", "1bit.toml: there is " + filepath.Join(both, "1bit.yaml") + " as well; keep one of them\n"},
		{"all mistakes", []string{"check", "--config", bad, "--state", dir}, 1, "", "bad.yaml:1: there is no naem; did you mean name?\n" + bad + ":2: listen.port"},
		{"counted", []string{"check", "--config", bad, "--state", dir}, 1, "", "2 mistakes\n"},
		{"a file that is not there", []string{"check", "--config", filepath.Join(dir, "none"), "--state", dir}, 1, "", "reading the configuration"},
		{"a policy that is right", []string{"check", "--state", dir, "--set", "extensions.route_policy=" + policy}, 0, "1bit.yaml is right", ""},
		{"a policy with an editor's mark", []string{"check", "--state", dir, "--set", "extensions.route_policy=" + marked}, 0, "1bit.yaml is right", ""},
		{"a policy in UTF-16", []string{"check", "--state", dir, "--set", "extensions.route_policy=" + wide}, 1, "", "it is in UTF-16: save it as UTF-8"},
		{"YAML with an editor's mark", []string{"check", "--state", dir, "--config", filepath.Join(dir, "marked.yaml")}, 0, "marked.yaml is right", ""},
		{"TOML with an editor's mark", []string{"check", "--state", dir, "--config", filepath.Join(dir, "marked.toml")}, 0, "marked.toml is right", ""},
		{"TOML in UTF-16", []string{"check", "--state", dir, "--config", filepath.Join(dir, "wide.toml")}, 1, "", "wide.toml: it is in UTF-16: save it as UTF-8\n"},
		{"a policy that is wrong", []string{"check", "--state", dir, "--set", "extensions.route_policy=" + good}, 1, "", "--set extensions.route_policy: extensions.route_policy: the policy \"" + good + "\": it is not JSON: line 1"},
		{"unknown option", []string{"check", "--prot", "1"}, 1, "", "unknown option --prot"},
		{"a file without its option", []string{"check", good}, 1, "", "\"" + good + "\" is no option: give a configuration as --config FILE\n"},
		{"no value", []string{"check", "--config"}, 1, "", "--config needs a value"},
		{"help", []string{"check", "--help"}, 0, "usage: 1bit config", ""},
		{"nothing", nil, 2, "", "usage: 1bit config"},
		{"no such verb", []string{"chekc"}, 2, "", "there are check and print"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := main.Run(t.Context(), nil, &stdout, &stderr, append([]string{"config"}, c.args...)...)
			if status != c.status || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.stderr) {
				t.Errorf("status %d\nstdout %s\nstderr %s", status, &stdout, &stderr)
			}
		})
	}
}

// TestConfigCheckLooksAround: what a box would not start with is a mistake, and what it would start without is a warning, each
// with its line and what to do.
func TestConfigCheckLooksAround(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, model, none := file("key", "sesame\n"), file("model.gguf", "GGUF"), filepath.Join(dir, "none")
	for _, c := range []struct {
		name, text string
		status     int
		stdout     string
		stderr     []string // the rest of lines that begin with the file's path
	}{
		{"all is there", "models:\n  - {name: a, file: " + model + "}\n  - name: b\n    remote: {url: 'https://1.1.1.1/v1', key_file: " + key + "}\n", 0, "is right: 2 models\n", nil},
		{"a model's file", "models:\n  - name: a\n    file: " + none + "\n", 0, "is right: 1 model, 1 warning\n", []string{":3: warning: models[0].file: its file cannot be read: stat " + none}},
		{"a model by name", "models:\n  - name: a\n    file: nobodys.gguf\n", 0, "1 warning\n", []string{`:3: warning: models[0].file: no model here is called "nobodys.gguf"`}},
		{"a model of the catalogue", "models:\n  - name: a\n    file: smollm2\n", 0, "1 warning\n", []string{":3: warning: models[0].file: it is not on this box yet: `1bit model pull smollm2` fetches it"}},
		{"a key", "models:\n  - name: a\n    remote:\n      url: https://1.1.1.1/v1\n      key_file: " + none + "\n", 0, "1 warning\n",
			[]string{":5: warning: models[0].remote.key_file: reading a token: open " + none + ": no such file or directory; write the key that the other server wants into that file"}},
		{"a file without a key", "models:\n  - name: a\n    remote:\n      url: https://1.1.1.1/v1\n      key_file: " + file("empty", "") + "\n", 0, "1 warning\n", []string{":5: warning: models[0].remote.key_file: reading a token"}},
		{"a root", "models:\n  - name: a\n    remote:\n      url: https://1.1.1.1/v1\n      root: " + none + "\n", 0, "1 warning\n", []string{":5: warning: models[0].remote.root: reading the root of https://1.1.1.1/v1: open " + none}},
		{"a root that is none", "models:\n  - name: a\n    remote:\n      url: https://1.1.1.1/v1\n      root: " + key + "\n", 0, "1 warning\n", []string{":5: warning: models[0].remote.root: " + key + " holds no certificate in PEM"}},
		{"an address in the house", "models:\n  - name: a\n    remote:\n      url: https://10.0.0.5:8443/v1\n", 0, "1 warning\n", []string{":4: warning: models[0].remote.url: 10.0.0.5 is refused: 10.0.0.5 is private; an address in the house, or one without TLS, is named in egress.private as host:port"}},
		{"an address in the house that is named", "models:\n  - name: a\n    remote:\n      url: https://10.0.0.5:8443/v1\negress: {private: ['10.0.0.5:8443']}\n", 0, "is right: 1 model\n", nil},
		{"copies that wander", "backup:\n  folder: copies\n  passphrase: hush\n", 0, "is right: 0 models, 1 warning\n", []string{`:2: warning: backup.folder: "copies" is not a whole path`}},
		{"a folder for copies", "backup:\n  folder: " + dir + "\n  passphrase: hush\n", 0, "is right: 0 models\n", nil},
		{"no folder for copies", "backup:\n  folder: " + none + "\n  passphrase: hush\n", 0, "is right: 0 models, 1 warning\n", []string{":2: warning: backup.folder: stat " + none + ": no such file or directory; a box does not make it"}},
		{"a file for copies", "backup:\n  folder: " + key + "\n  passphrase: hush\n", 0, "1 warning\n", []string{":2: warning: backup.folder: " + key + " is not a folder"}},
		{"no certificate", "tls:\n  mode: files\n  certificate: " + none + "\n  key: " + key + "\n", 1, "", []string{":3: tls.certificate: with tls.key it is no certificate: open " + none}},
		{"no root of an authority", "tls:\n  mode: acme\n  names: [box.example.org]\n  acme:\n    root: " + none + "\n", 1, "", []string{":5: tls.acme.root: open " + none}},
		{"a classifier that is not there", "extensions:\n  laya_model: " + none + "\n", 1, "", []string{":2: extensions.laya_model: "}},
		{"mistakes and warnings", "backup: {folder: copies, passphrase: hush}\nextensions:\n  route_policy: " + none + "\n", 1, "", []string{":1: warning: backup.folder", ":3: extensions.route_policy: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := file("1bit.yaml", c.text)
			var stdout, stderr bytes.Buffer
			status := main.Run(t.Context(), nil, &stdout, &stderr, "config", "check", "--state", dir)
			if status != c.status || !strings.HasSuffix(stdout.String(), c.stdout) || (c.stderr == nil && stderr.Len() > 0) {
				t.Errorf("status %d\nstdout %s\nstderr %s", status, &stdout, &stderr)
			}
			for _, want := range c.stderr {
				if !strings.Contains("\n"+stderr.String(), "\n"+path+want) {
					t.Errorf("%q is not in\n%s", want, &stderr)
				}
			}
		})
	}
}

// TestStateIsWhole: what a box starts works in folders of its own, so no path may depend on where the box was started.
func TestStateIsWhole(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, args := range [][]string{{"--state", "state"}, {"--state", dir, "--config", "state/1bit.yaml"}} {
		var stdout, stderr bytes.Buffer
		status := main.Run(t.Context(), nil, &stdout, &stderr, append([]string{"config", "check"}, args...)...)
		if where := filepath.Join(dir, "state", "1bit.yaml"); !strings.Contains(stdout.String()+stderr.String(), where) {
			t.Errorf("%q: status %d\n%s%s", args, status, &stdout, &stderr)
		}
	}
}

func TestStateDirectory(t *testing.T) {
	t.Setenv("HOME", "/h")
	for _, c := range []struct{ given, xdg, want string }{
		{"/var/lib/1bit", "/x", "/var/lib/1bit"},
		{"", "/x", "/x/1bit"},
		{"", "relative", "/h/.local/state/1bit"},
		{"", "", "/h/.local/state/1bit"},
	} {
		t.Setenv("STATE_DIRECTORY", c.given)
		t.Setenv("XDG_STATE_HOME", c.xdg)
		var stdout, stderr bytes.Buffer
		main.Run(t.Context(), nil, &stdout, &stderr, "config", "check")
		if want := "there is no " + c.want + "/1bit.yaml: "; !strings.HasPrefix(stdout.String(), want) {
			t.Errorf("%+v: %s%s", c, &stdout, &stderr)
		}
	}
}
