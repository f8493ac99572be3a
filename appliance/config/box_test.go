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
	return config.ReadBox(config.Source{File: "box.yaml", Text: []byte(text)})
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

// TestRemote holds that a model of another server is read from both kinds of file, and that its key is shown nowhere.
func TestRemote(t *testing.T) {
	for file, text := range map[string]string{
		"box.yaml": "models:\n  - name: a\n    parallel: 2\n    remote: {url: 'http://10.0.0.5:8080/v1', model: b, key: sesame, timeout: 2m, auto: true}\negress: {private: ['10.0.0.5:8080']}",
		"box.toml": "[[models]]\nname = \"a\"\nparallel = 2\n[models.remote]\nurl = \"http://10.0.0.5:8080/v1\"\nmodel = \"b\"\nkey = \"sesame\"\ntimeout = \"2m\"\nauto = true\n[egress]\nprivate = [\"10.0.0.5:8080\"]",
	} {
		box, from, err := config.ReadBox(config.Source{File: file, Text: []byte(text)})
		if err != nil {
			t.Fatal(err)
		}
		want := config.BoxRemote{URL: "http://10.0.0.5:8080/v1", Model: "b", Key: "sesame", Timeout: 2 * time.Minute, Auto: true}
		if m := box.Models[0]; m.Remote != want || !m.Elsewhere() || m.Parallel != 2 {
			t.Errorf("%s: %+v", file, m.Remote)
		}
		if !config.IsSecret("models[0].remote.key") || from["models[0].remote.key"] == "" {
			t.Errorf("%s: the key is no secret, or comes from nowhere", file)
		}
		if shown := config.Print(box, from) + config.PrintTOML(box, from) + fmt.Sprintf("%+v", box); strings.Contains(shown, "sesame") {
			t.Errorf("%s: the key is shown", file)
		}
	}
}

func TestBoxMistakes(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "naem: x", "box.yaml:1: there is no naem; did you mean name?"},
		{"unknown key below", "listen:\n  prot: 1", "box.yaml:2: there is no listen.prot; did you mean port?"},
		{"unlike any", "listen:\n  zzzzzzzz: 1", "box.yaml:2: there is no listen.zzzzzzzz; there are host, port"},
		{"twice", "name: a\nname: b", "box.yaml:2: name is given twice"},
		{"not YAML", "name: [", "box.yaml:1: did not find"},
		{"a watched folder without a collection", "documents:\n  watch: [/srv/papers]", "box.yaml:2: documents.watch: \"/srv/papers\" is not FOLDER=COLLECTION"},
		{"a watched folder that is not whole", "documents:\n  watch: [papers=House]", "box.yaml:2: documents.watch: \"papers=House\" is not FOLDER=COLLECTION"},
		{"two documents", "name: a\n---\nname: b", "box.yaml:2: a second document"},
		{"twice in a map", "tls: {acme: {dns_options: {a: b, a: c}}}", "box.yaml:1: tls.acme.dns_options.a is given twice"},
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
		{"a priority", "queue: {guests: urgent}", `queue.guests: there is no "urgent"`},
		{"a policy that is nowhere", "extensions: {route_policy: route.json}", "is not the whole path of a file"},
		{"a classifier that is nowhere", "extensions: {laya_model: laya.gguf}", "neither the whole path of a file or folder nor a URL"},
		{"a wait", "queue: {max_wait: 0s}", "queue.max_wait must be more than 0"},
		{"a length", "queue: {length: -1}", "queue.length: -1 is negative"},
		{"a length for keys", "queue: {per_key: -5}", "queue.per_key: -5 is negative"},
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
		{"a remote and a file", "models: [{name: a, file: f, remote: {url: https://x.org}}]", "models[0] has a file and a remote"},
		{"a remote without a URL", "models: [{name: a, remote: {model: b}}]", "models[0].remote.url: \"\" is not a URL"},
		{"a remote without TLS", "models:\n  - name: a\n    remote:\n      url: http://x.org/v1", "box.yaml:4: models[0].remote.url: what people ask is not sent without TLS"},
		{"a remote without TLS that is not named", "models: [{name: a, remote: {url: 'http://10.0.0.5:80/v1'}}]\negress: {private: ['10.0.0.5:81']}", "without TLS"},
		{"a user in the address", "models: [{name: a, remote: {url: 'https://u:p@x.org/v1'}}]", "has a user, query or fragment"},
		{"two keys", "models: [{name: a, remote: {url: https://x.org, key: a, key_file: /b}}]", "there is a key as well"},
		{"a root that is nowhere", "models: [{name: a, remote: {url: https://x.org, root: b.pem}}]", "is not the whole path of a file"},
		{"what a remote does not have", "models: [{name: a, pin: true, remote: {url: https://x.org}}]", "models[0].pin: the model runs on another server"},
		{"a device for a remote", "models: [{name: a, device: cpu, remote: {url: https://x.org}}]", "models[0].device: the model runs on another server"},
		{"origin", "web: {origins: ['*']}", "is not an origin"},
		{"URL", "telemetry: {otlp: collector}", "telemetry.otlp is not a URL"},
		{"a hidden secret", "backup: {passphrase: (secret)}", "box.yaml:1: backup.passphrase: (secret) is what is shown in place"},
		{"copies without a pause", "backup:\n  folder: /mnt\n  passphrase: hush\n  every: 59m", "box.yaml:4: backup.every: there is at least an hour"},
		{"no copies", "backup: {folder: /mnt, passphrase: hush, keep: 0}", "backup.keep must be more than 0"},
		{"what is wrong in kind beside what is in sense", "naem: x\nlisten: {port: 70000}", "did you mean name?\nbox.yaml:2: listen.port: 70000 is not a port"},
		{"open backup", "backup: {folder: /mnt}", "a backup is encrypted"},
		{"signatures", "extensions: {signatures: some}", `extensions.signatures: there is no "some"`},
		{"signatures of nobody", "extensions: {signatures: required}", "needs keys in extensions.trusted"},
		{"a key", "extensions: {trusted: [RWQ]}", `"RWQ" is no minisign public key`},
		{"a capability", "extensions: {capabilities: [network]}", `there is no "network"`},
		{"a parameter", "extensions: {params: [model]}", `there is no "model"`},
		{"a secret header", "extensions: {headers: [Authorization]}", "is a secret"},
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

// TestOneFaultOneMessage: a value that could not be read is not said to be wrong in other ways too, nor is anything that needs it.
func TestOneFaultOneMessage(t *testing.T) {
	for _, c := range []struct{ text, set, env, want string }{
		{text: "queue: {max_wait: soon}", want: "is not a length of time"},
		{text: "queue: {max_wait: -5s}", want: "is not a length of time"},
		{set: "queue.max_wait=soon", want: "is not a length of time"},
		{env: "ONEBIT_QUEUE_MAX_WAIT=soon", want: "is not a length of time"},
		{text: "backup: {folder: /mnt, passphrase: hush, every: daily}", want: "is not a length of time"},
		{text: "backup: {folder: /mnt, passphrase: }", want: "backup.passphrase has no value"},
		{text: "tls: {mode: acme, names: {a: b}}", want: "tls.names is a list"},
		{text: "tls: {mode: acme, names: [[a]]}", want: "tls.names[0] is one value"},
		{text: "tls: {mode: acme, name: [a.org]}", want: "did you mean names?"},
		{text: "tls: {mode: files, certificate: /c, keey: /k}", want: "did you mean key?"},
		{set: "backup.pasphrase=hush", text: "backup: {folder: /mnt}", want: "did you mean backup.passphrase?"},
		{env: "ONEBIT_BACKUP_PASPHRASE=hush", text: "backup: {folder: /mnt}", want: "did you mean ONEBIT_BACKUP_PASSPHRASE?"},
		{text: "models: [5]", want: "models[0] is a map"},
		{text: "models: [{name: [a], file: f}]", want: "models[0].name is one value"},
		{text: "models: [{namme: a, file: f}]", want: "did you mean name?"},
		{text: "models: [{name: a, file: }]", want: "models[0].file has no value"},
		{text: "models: [{name: a, remote: 5}]", want: "models[0].remote is a map"},
		{text: "models: [{name: a, remote: {url: [x]}}]", want: "models[0].remote.url is one value"},
		{text: "extensions: {signatures: required, trusted: }", want: "extensions.trusted has no value"},
		{text: "cache: {min_tokens: few}", want: "is not a whole number"},
		{text: "listen: {port: many}", want: "is not a whole number"},
	} {
		src := config.Source{File: "box.yaml", Text: []byte(c.text)}
		if c.set != "" {
			src.Set = []string{c.set}
		}
		if c.env != "" {
			src.Env = []string{c.env}
		}
		_, _, err := config.ReadBox(src)
		if problems, ok := errors.AsType[config.ProblemsError](err); !ok || len(problems) != 1 || !strings.Contains(problems[0].Text, c.want) {
			t.Errorf("%s%s%s: got\n%v\nwant %q", c.text, c.set, c.env, err, c.want)
		}
	}
	for text, want := range map[string]int{ // and what has another fault is told with it
		"name: My Box\nnaem: x": 2, "queue: {max_wait: soon, length: -1}": 2,
		"models: [{name: a, file: f, device: gpu}, {name: [b], file: f}]": 2,
		"models: [{name: a, file: f, parallel: -1}, 5]":                   2,
	} {
		_, _, err := read(text)
		if problems, ok := errors.AsType[config.ProblemsError](err); !ok || len(problems) != want {
			t.Errorf("%s: got\n%v\nwant %d mistakes", text, err, want)
		}
	}
}

func TestBoxTOMLMistakes(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "# a box\nnaem = 'x'", "box.toml:2: there is no naem; did you mean name?"},
		{"unknown key below", "[listen]\n\nprot = 1", "box.toml:3: there is no listen.prot; did you mean port?"},
		{"unknown table", "name = 'a'\n[listne]\nport = 1", "box.toml:2: there is no listne; did you mean listen?"},
		{"unknown dotted", "listen.prot = 1", "box.toml:1: there is no listen.prot; did you mean port?"},
		{"twice", "name = 'a'\nname = 'b'", "box.toml:2: name is given twice"},
		{"a table twice", "[listen]\nport = 1\n[listen]\nhost = ''", "box.toml:3: listen is given twice"},
		{"dotted and table", "listen.port = 1\n[listen]\nhost = ''", "box.toml:2:"},
		{"twice below", "[listen]\nport = 1\nport = 2", "box.toml:3: listen.port is given twice"},
		{"twice in a map", "[tls.acme.dns_options]\na = 'b'\na = 'c'", "box.toml:3: tls.acme.dns_options.a is given twice"},
		{"twice in line", "listen = {port = 1, port = 2}", "box.toml:1: listen.port is given twice"},
		{"added to what is closed", "log = {level = 'info'}\nlog.keep = '3d'", "box.toml:2:"},
		{"a list and its table", "models = []\n[[models]]\nname = 'a'", "box.toml:2:"},
		{"not TOML", "name = [", "box.toml:1: "},
		{"not TOML further down", "name = 'a'\n\nlisten: 5", "box.toml:3: "},
		{"YAML", "name: a\n", "box.toml:1: "},
		{"wrong kind", "listen = 5", "box.toml:1: listen is a map of host"},
		{"list for a value", "name = ['a']", "box.toml:1: name is one value"},
		{"value for a list", "models = 5", "box.toml:1: models is a list"},
		{"table for a list", "[models]\nname = 'a'", "box.toml:1: models is a list"},
		{"list for a table", "[[listen]]\nport = 1", "box.toml:1: listen is a map"},
		{"below a value", "name = 'a'\n[name.b]\nc = 1", "box.toml:2: name is no table"},
		{"date", "[log]\nkeep = 2026-01-02", "box.toml:2: log.keep: dates and times are not used here"},
		{"time", "name = 10:00:00", "box.toml:1: name: dates and times are not used here"},
		{"number", "listen.port = 'many'", `box.toml:1: listen.port: "many" is not a whole number`},
		{"large number", "listen.port = 99999999999999999999", "box.toml:1: "},
		{"fraction", "listen.port = 1.5", `listen.port: "1.5" is not a whole number`},
		{"in a list", "listen.trusted_proxies = [\n  '10.0.0.1',\n  '300.0.0.1',\n]", "box.toml:3: listen.trusted_proxies[1]"},
		{"second model", "[[models]]\nname = 'a'\nfile = 'f'\n\n[[models]]\nname = 'a'\nfile = 'g'", `box.toml:6: models[1].name: there are two models "a"`},
		{"a hidden secret", "backup.passphrase = '(secret)'", "box.toml:1: backup.passphrase: (secret) is what is shown in place"},
		{"deep", "models = " + strings.Repeat("[", 1<<19), "box.toml:1: "},
		{"deep tables", strings.Repeat("a.", 1<<18) + "a = 1", "box.toml:1: "},
		{"very long", strings.Repeat("#", 1<<20+1), "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := readAs("box.toml", c.text)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestBoxTOMLFile(t *testing.T) {
	box, _, err := readAs("BOX.TOML", `
name = "kitchen"
listen = {port = 8_443, http_port = -1, trusted_proxies = ["10.0.0.0/8", "192.168.1.7"]}
memory.reserve = "2.5GiB"
memory.limit = 0x100000
log.keep = '7d'
[tls]
mode = "acme"
names = ["box.example.org"]
acme.challenges = "dns-01"
[tls.acme.dns_options]
api_token = "hush"
[tls.acme]
dns = "cloudflare"
[[models]]
name = "small"
file = "smollm2"
ttl = "15m"
pin = true
mtp_p_min = 0.5
[[models]]
name = "e"
file = "/models/e.gguf"
role = "embedding"
`)
	if err == nil || !strings.Contains(err.Error(), "BOX.TOML:13: table acme already exists") { // acme.challenges has made it
		t.Fatalf("a table that was there already: %v, %v", err, box)
	}
	box, origins, err := readAs("BOX.TOML", `
name = "kitchen"
listen = {port = 8_443, http_port = -1, trusted_proxies = ["10.0.0.0/8", "192.168.1.7"]}
memory.reserve = "2.5GiB"
memory.limit = 0x100000
log.keep = '7d'
[tls.acme.dns_options]
api_token = "hush"
[tls.acme]
dns = "cloudflare"
challenges = "dns-01"
[tls]
mode = "acme"
names = ["box.example.org"]
[[models]]
name = "small"
file = "smollm2"
ttl = "15m"
pin = true
mtp_p_min = 0.5
[[models]]
name = "e"
file = "/models/e.gguf"
role = "embedding"
`)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(box.Name, box.Listen.Port, box.Listen.HTTPPort, box.Listen.TrustedProxies, box.Memory.Reserve, box.Memory.Limit, box.Log.Keep)
	if want := "kitchen 8443 -1 [10.0.0.0/8 192.168.1.7/32] 2560MiB 1MiB 168h0m0s\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if m := box.Models[0]; m.TTL != 15*time.Minute || !m.Pin || m.Device != "auto" || m.Role != "chat" || m.DraftPMin != "0.5" || box.Models[1].Role != "embedding" {
		t.Errorf("models %+v", box.Models)
	}
	if string(box.TLS.ACME.DNSOptions["api_token"]) != "hush" {
		t.Error("the secret of the DNS provider is lost")
	}
	if origins["models[0].ttl"] != "BOX.TOML:18" || origins["listen.port"] != "BOX.TOML:3" || origins["tls.mode"] != "BOX.TOML:13" {
		t.Errorf("origins %v", origins)
	}
}

// TestBoxMarks reads files as editors of other systems write them.
func TestBoxMarks(t *testing.T) {
	for file, text := range map[string]string{
		"box.yaml": "\ufeffname: attic\r\nlog:\r\n  keep: 2d\r\n", "box.toml": "\ufeffname = 'attic'\r\n[log]\r\nkeep = '2d'\r\n",
	} {
		box, origins, err := readAs(file, text)
		if err != nil || box.Name != "attic" || box.Log.Keep != 48*time.Hour || origins["log.keep"] != file+":3" {
			t.Errorf("%s: %v, %v", file, origins, err)
		}
	}
}

// TestBoxTOMLOverrides holds that what stands above a file stands above one in TOML too.
func TestBoxTOMLOverrides(t *testing.T) {
	box, origins, err := config.ReadBox(config.Source{
		File: "box.toml", Text: []byte("name = 'file'\n[listen]\nport = 1\nhttp_port = 2\n"),
		Stored: map[string]string{"name": "stored", "log.level": "debug"}, Env: []string{"ONEBIT_LISTEN_PORT=3"}, Set: []string{"listen.http_port=4"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(box.Name, " ", box.Listen.Port, " ", box.Listen.HTTPPort, " ", box.Log.Level); got != "file 3 4 debug" {
		t.Errorf("got %s", got)
	}
	if origins["name"] != "box.toml:1" || origins["listen.port"] != "ONEBIT_LISTEN_PORT" || origins["log.level"] != config.Settings {
		t.Errorf("origins %v", origins)
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
		File: "box.yaml", Text: []byte("name: file\nlisten: {port: 1, http_port: 2}\nlog: {level: warn}"),
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
		File: "box.yaml", Text: []byte("log: {level: warn}"),
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
	for _, path := range []string{"programs.llama_server", "model_folders", "listen.port", "tls.certificate", "egress.private", "telemetry.webhook", "backup.folder", "extensions.signatures", "extensions.trusted"} {
		if config.Changeable(path) {
			t.Errorf("%s may be changed", path)
		}
	}
}

// reveal puts a value where a secret is hidden; a file with hidden secrets is refused.
func reveal(printed string) string {
	return strings.ReplaceAll(printed, `"(secret)"`, `"https://hush.example.org/x"`)
}

// forms are the languages that a configuration can be written in.
var forms = []struct {
	file  string
	print func(config.Box, config.Origins) string
}{{"box.yaml", config.Print}, {"box.toml", config.PrintTOML}}

func readAs(file, text string) (config.Box, config.Origins, error) {
	return config.ReadBox(config.Source{File: file, Text: []byte(text)})
}

// TestBoxPrint reads what was printed and gets the same, and no secret is in it.
func TestBoxPrint(t *testing.T) {
	boxes := map[string]string{}
	for _, form := range forms {
		t.Run(form.file, func(t *testing.T) {
			text, err := os.ReadFile("testdata/" + form.file)
			if err != nil {
				t.Fatal(err)
			}
			box, origins, err := readAs(form.file, string(text))
			if err != nil {
				t.Fatal(err)
			}
			boxes[form.file] = plainly(box)
			for _, other := range forms {
				printed := other.print(box, origins)
				if strings.Contains(printed, "hush") {
					t.Error("a secret is printed")
				}
				again, _, err := readAs(other.file, reveal(printed))
				if err != nil {
					t.Fatalf("%v in\n%s", err, printed)
				}
				if diff := cmp.Diff(plainly(box), plainly(again)); diff != "" {
					t.Error(diff)
				}
				if !strings.Contains(printed, "\"attic\"  # "+form.file+":2\n") {
					t.Errorf("no origin in\n%s", printed)
				}
			}
		})
	}
	if diff := cmp.Diff(boxes["box.yaml"], boxes["box.toml"]); diff != "" {
		t.Errorf("the two examples differ: %s", diff)
	}
}

// plainly writes a configuration out.
func plainly(b config.Box) string { return fmt.Sprintf("%+v", b) }

// fuzzBox reads any text in a language. What is taken can be printed in each, and is the same then.
func fuzzBox(f *testing.F, file string, seeds ...string) {
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		box, origins, err := readAs(file, text)
		if err != nil {
			return
		}
		for _, form := range forms {
			printed := form.print(box, origins)
			again, _, err := readAs(form.file, reveal(printed))
			if err != nil {
				t.Fatalf("%v after printing %q:\n%s", err, text, printed)
			}
			if plainly(box) != plainly(again) {
				t.Errorf("%q became\n%s\nand not\n%s", text, plainly(again), plainly(box))
			}
		}
	})
}

func FuzzBox(f *testing.F) {
	fuzzBox(f, "box.yaml", "models: [{name: a, file: b}]\nlisten: {trusted_proxies: 10.0.0.1}", "a: &a [*a]\n", "name: a\n---\nname: b\n")
}

func FuzzBoxTOML(f *testing.F) {
	fuzzBox(f, "box.toml", "models = [{name='a', file='b'}]\nlisten.trusted_proxies = '10.0.0.1'", "[listen]\nport=0x1BB\n[[models]]\nname=1979-05-27\n",
		"[[models]]\nname='a'\nfile='b'\n[models.x]\n", "tls.acme.dns_options.'a.b' = \"\\u0041\"\n[tls]\nnames=[]\n", "log={level=\"info\"}\nlog.keep='3d'\n")
}
