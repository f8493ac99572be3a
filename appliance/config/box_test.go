package config_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"onebit/appliance/config"
)

func read(text string) (config.Box, config.Origins, error) {
	return config.ReadBox(config.Source{File: "box.yaml", YAML: []byte(text)})
}

func TestBoxDefaults(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "---\n"} {
		box, _, err := read(text)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(fmt.Sprint(config.BoxDefaults()), fmt.Sprint(box)); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestBoxFile(t *testing.T) {
	box, origins, err := read(`
name: kitchen
listen:
  port: 8443
  http_port: -1
  trusted_proxies: [10.0.0.0/8, 192.168.1.7]
tls: {mode: acme, names: [box.example.org], acme: {challenges: dns-01, dns: cloudflare, dns_options: {api_token: hush}}}
models:
  - name: small
    file: smollm2
    ttl: 15m
    pin: yes
  - {name: e, file: /models/e.gguf, role: embedding, device: cpu, moe_slots: auto}
memory: {reserve: 2.5GiB}
log: {keep: 7d}
`)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(box.Name, box.Listen.Port, box.Listen.HTTPPort, box.Listen.TrustedProxies, box.Memory.Reserve, box.Log.Keep)
	if want := "kitchen 8443 -1 [10.0.0.0/8 192.168.1.7/32] 2560MiB 168h0m0s\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	m := box.Models[0]
	if m.TTL != 15*time.Minute || !m.Pin || m.Device != "auto" || m.Role != "chat" {
		t.Errorf("model %+v", m)
	}
	if string(box.TLS.ACME.DNSOptions["api_token"]) != "hush" {
		t.Error("the secret of the DNS provider is lost")
	}
	if origins["models[0].ttl"] != "box.yaml:11" || origins["listen.port"] != "box.yaml:4" {
		t.Errorf("origins %v", origins)
	}
	o, err := box.Options(box.Models[1], "/models/e.gguf")
	if err != nil || !o.MoEAuto || o.Alias != "e" || o.Role != "embedding" {
		t.Errorf("options %+v, %v", o, err)
	}
}

func TestBoxMistakes(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "naem: x", "box.yaml:1: there is no naem; did you mean name?"},
		{"unknown key below", "listen:\n  prot: 1", "box.yaml:2: there is no listen.prot; did you mean port?"},
		{"unlike any", "listen:\n  zzzzzzzz: 1", "box.yaml:2: there is no listen.zzzzzzzz; there are host, port"},
		{"twice", "name: a\nname: b", "box.yaml:2: name is given twice"},
		{"not YAML", "name: [", "box.yaml: line 1"},
		{"wrong kind", "listen: 5", "box.yaml:1: listen is a map of host"},
		{"list for a value", "name: [a]", "box.yaml:1: name is one value"},
		{"value for a list", "models: 5", "box.yaml:1: models is a list"},
		{"no value", "name:", "box.yaml:1: name has no value"},
		{"anchor", "name: &a x", "anchors and aliases are not used here"},
		{"number", "listen: {port: many}", `listen.port: "many" is not a whole number`},
		{"port", "listen: {port: 70000}", "listen.port: 70000 is not a port"},
		{"same ports", "listen: {port: 80}", "are both 80"},
		{"truth", "discovery: perhaps", `"perhaps" is neither true nor false`},
		{"duration", "log: {keep: soon}", `"soon" is not a length of time`},
		{"negative duration", "log: {keep: -5s}", `"-5s" is not a length of time`},
		{"size", "memory: {reserve: lots}", `"lots" is not a size`},
		{"endless size", "memory: {reserve: 1e300GiB}", `is not a size`},
		{"prefix", "listen: {trusted_proxies: [300.0.0.1]}", "is not an address or a prefix"},
		{"name", "name: My Box", "is not a host name"},
		{"mode", "tls: {mode: acem}", `tls.mode: there is no "acem"; did you mean acme?`},
		{"acme without a name", "tls: {mode: acme}", "acme needs a public name"},
		{"wildcard by http", "tls: {mode: acme, names: ['*.example.org']}", "needs the challenge dns-01"},
		{"files", "tls: {mode: files}", "needs tls.certificate and tls.key"},
		{"no provider", "tls: {acme: {challenges: [dns-01]}}", "needs a provider"},
		{"model without file", "models: [{name: a}]", "models[0].file is missing"},
		{"two of a name", "models: [{name: a, file: f}, {name: a, file: g}]", `there are two models "a"`},
		{"model name", "models: [{name: 'a b', file: f}]", `"a b" is not a name`},
		{"device", "models: [{name: a, file: f, device: gpu}]", `there is no device "gpu"`},
		{"role", "models: [{name: a, file: f, role: poet}]", `there is no role "poet"`},
		{"experts", "models: [{name: a, file: f, moe_slots: few}]", "models[0].moe_slots"},
		{"negative", "models: [{name: a, file: f, parallel: -1}]", "a number is negative"},
		{"an unknown option of a model", "models: [{name: a, file: f, ctx: 5}]", "box.yaml:1: there is no models[0].ctx"},
		{"origin", "web: {origins: ['*']}", "is not an origin"},
		{"URL", "telemetry: {otlp: collector}", "telemetry.otlp is not a URL"},
		{"a hidden secret", "backup: {passphrase: (secret)}", "box.yaml:1: backup.passphrase: (secret) is what is shown in place"},
		{"open backup", "backup: {folder: /mnt}", "a backup is encrypted"},
		{"very long", strings.Repeat("#", 1<<20+1), "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := read(c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestBoxTellsAllMistakes(t *testing.T) {
	_, _, err := read("naem: x\nlisten: {port: a}\nmemory: {reserve: b}\n")
	if problems, ok := errors.AsType[config.ProblemsError](err); !ok || len(problems) != 3 {
		t.Errorf("got %v", err)
	}
}

func TestBoxOverrides(t *testing.T) {
	src := config.Source{
		File: "box.yaml", YAML: []byte("name: file\nlisten: {port: 1, http_port: 2}\nlog: {level: warn}"),
		Env: []string{"ONEBIT_NAME=variable", "ONEBIT_LISTEN_PORT=3", "ONEBIT_TLS_NAMES=a.example, b.example", "ONEBIT_LOG=debug", "HOME=/", "ONEBIT_SOMETHING_ELSE=1"},
		Set: []string{"listen.port=4", "web.origins="},
	}
	box, origins, err := config.ReadBox(src)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintln(box.Name, box.Listen.Port, box.Listen.HTTPPort, box.TLS.Names, box.Log.Level), "variable 4 2 [a.example b.example] warn\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if origins["name"] != "ONEBIT_NAME" || origins["listen.port"] != "--set listen.port" {
		t.Errorf("origins %v", origins)
	}
	for set, want := range map[string]string{
		"listen.prot=1":  "--set listen.prot: no setting has this path; did you mean listen.port?",
		"name":           "--set name: it is not of the form",
		"listen.port=no": "--set listen.port: \"no\" is not a whole number",
		"models=x":       "no setting has this path",
	} {
		_, _, err := config.ReadBox(config.Source{File: "f", Set: []string{set}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", set, err, want)
		}
	}
	_, _, err = config.ReadBox(config.Source{File: "f", Env: []string{"ONEBIT_LISTEN_PROT=1"}})
	if err == nil || !strings.Contains(err.Error(), "did you mean ONEBIT_LISTEN_PORT?") {
		t.Errorf("a misspelt variable: %v", err)
	}
}

func TestBoxStoredSettings(t *testing.T) {
	src := config.Source{
		File: "box.yaml", YAML: []byte("log: {level: warn}"),
		Stored: map[string]string{"log.level": "debug", "log.keep": "3d", "web.origins": "https://a.example", "programs.zinc": "/bin/sh", "gone": "1"},
	}
	box, origins, err := config.ReadBox(src)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintln(box.Log.Level, box.Log.Keep, box.Web.Origins, box.Programs.Zinc), "warn 72h0m0s [https://a.example] \n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	values := map[string]config.Value{}
	for _, v := range config.Values(box, origins) {
		values[v.Path] = v
	}
	if v := values["log.keep"]; v.Text != "72h0m0s" || v.Origin != config.Settings || v.About == "" {
		t.Errorf("log.keep is %+v", v)
	}
	if v := values["log.level"]; v.Origin != "box.yaml:1" {
		t.Errorf("log.level is %+v", v)
	}
	src.Stored = map[string]string{"log.keep": "soon"}
	if _, _, err := config.ReadBox(src); err == nil || !strings.Contains(err.Error(), "settings: ") {
		t.Errorf("a wrong setting: %v", err)
	}
	for _, path := range []string{"programs.llama_server", "model_folders", "listen.port", "tls.certificate", "egress.private", "telemetry.webhook", "backup.folder"} {
		if config.Changeable(path) {
			t.Errorf("%s may be changed", path)
		}
	}
}

// reveal puts a value where a secret is hidden; a file with hidden secrets is refused.
func reveal(printed string) string {
	return strings.ReplaceAll(printed, `"(secret)"`, `"https://hush.example.org/x"`)
}

// TestBoxPrint reads what was printed and gets the same, and no secret is in it.
func TestBoxPrint(t *testing.T) {
	text, err := os.ReadFile("testdata/box.yaml")
	if err != nil {
		t.Fatal(err)
	}
	box, origins, err := read(string(text))
	if err != nil {
		t.Fatal(err)
	}
	printed := config.Print(box, origins)
	if strings.Contains(printed, "hush") {
		t.Error("a secret is printed")
	}
	again, _, err := read(reveal(printed))
	if err != nil {
		t.Fatalf("%v in\n%s", err, printed)
	}
	if diff := cmp.Diff(fmt.Sprintf("%+v", box), fmt.Sprintf("%+v", again)); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(printed, "name: \"attic\"  # box.yaml:2\n") {
		t.Errorf("no origin in\n%s", printed)
	}
}

func FuzzBox(f *testing.F) {
	text, err := os.ReadFile("testdata/box.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add("models: [{name: a, file: b}]\nlisten: {trusted_proxies: 10.0.0.1}")
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		box, origins, err := read(text)
		if err != nil {
			return
		}
		if _, _, err := read(reveal(config.Print(box, origins))); err != nil {
			t.Errorf("%v after printing %q", err, text)
		}
	})
}
