package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"onebit/engine"
	"onebit/extensions"
)

var (
	hostLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	modelName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$`)
)

// challenges are the ways in which an authority is shown that a name is ours.
var challenges = []string{"http-01", "tls-alpn-01", "dns-01"}

// check finds what no single value can say.
func (r *reader) check(b Box) {
	if !hostLabel.MatchString(b.Name) {
		r.bad(r.at("name"), "name: %q is not a host name: lower-case letters, digits and hyphens", b.Name)
	}
	if p := b.Listen.Port; p < 0 || p > 65535 {
		r.bad(r.at("listen.port"), "listen.port: %d is not a port", p)
	}
	if p := b.Listen.HTTPPort; p < -1 || p > 65535 {
		r.bad(r.at("listen.http_port"), "listen.http_port: %d is not a port; -1 turns plain HTTP off", p)
	}
	if b.Listen.Port == b.Listen.HTTPPort && b.Listen.Port != 0 {
		r.bad(r.at("listen.http_port", "listen.port"), "listen.http_port and listen.port are both %d", b.Listen.Port)
	}
	r.word("tls.mode", b.TLS.Mode, "local", "acme", "files")
	r.word("log.level", b.Log.Level, "debug", "info", "warn", "error")
	r.word("log.requests", b.Log.Requests, "none", "metadata", "full")
	r.word("queue.guests", b.Queue.Guests, "interactive", "normal", "background")
	if b.Queue.MaxWait <= 0 {
		r.bad(r.at("queue.max_wait"), "queue.max_wait must be more than 0")
	}
	for path, n := range map[string]int{"queue.length": b.Queue.Length, "queue.per_key": b.Queue.PerKey} {
		if n < 0 {
			r.bad(r.at(path), "%s: %d is negative; 0 means any number", path, n)
		}
	}
	r.checkTLS(b.TLS)
	r.checkModels(b.Models, b.Egress.Private)
	r.checkElsewhere(b)
	r.checkExtensions(b.Extensions)
	if b.Cache.MinTokens < 1 {
		r.bad(r.at("cache.min_tokens"), "cache.min_tokens: %d is not 1 or more", b.Cache.MinTokens)
	}
	for _, w := range b.Documents.Watch {
		if folder, name, ok := cutLast(w); !ok || !filepath.IsAbs(folder) || name == "" {
			r.bad(r.at("documents.watch"), "documents.watch: %q is not FOLDER=COLLECTION with the whole path of the folder", w)
		}
	}
}

// unread is in place of where a value is that could not be read: what would be said about it has been said.
const unread = "?"

// at is where the value of a path is, for what is wrong with it in view of the others.
func (r *reader) at(path string, others ...string) string {
	if r.unread(path) || slices.ContainsFunc(others, r.unread) {
		return unread
	}
	return r.place(path)
}

// place is where the value of a path is.
func (r *reader) place(path string) string {
	if from, ok := r.origins[path]; ok {
		return from
	}
	return r.file
}

// unread reports whether something was wrong with a value, with what it is a part of, or with a part of it.
func (r *reader) unread(path string) bool {
	return slices.ContainsFunc(r.failed, func(failed string) bool { return within(failed, path) || within(path, failed) })
}

// within reports whether a path is another one or below it.
func within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// word checks that a value is one of some.
func (r *reader) word(path, value string, among ...string) {
	if !slices.Contains(among, value) {
		r.bad(r.at(path), "%s: there is no %q%s", path, value, Meant(value, among))
	}
}

// cutLast cuts a watched folder from its collection.
func cutLast(w string) (folder, collection string, ok bool) {
	at := strings.LastIndexByte(w, '=')
	if at < 0 {
		return "", "", false
	}
	return w[:at], w[at+1:], true
}

func (r *reader) checkExtensions(e Extensions) {
	r.word("extensions.signatures", e.Signatures, extensions.SignaturesOff, extensions.SignaturesRequired, extensions.SignaturesPinned)
	if err := extensions.CheckPolicy(extensions.Policy{Trusted: e.Trusted}); err != nil {
		r.bad(r.at("extensions.trusted"), "extensions.trusted: %v", err)
	}
	if e.RoutePolicy != "" && !filepath.IsAbs(e.RoutePolicy) {
		r.bad(r.at("extensions.route_policy"), "extensions.route_policy: %q is not the whole path of a file", e.RoutePolicy)
	}
	if m := e.LayaModel; m != "" && !filepath.IsAbs(m) && !strings.Contains(m, "://") {
		r.bad(r.at("extensions.laya_model"), "extensions.laya_model: %q is neither the whole path of a file or folder nor a URL", m)
	}
	if e.Signatures != extensions.SignaturesOff && len(e.Trusted) == 0 {
		r.bad(r.at("extensions.signatures", "extensions.trusted"), "extensions.signatures: %s needs keys in extensions.trusted", e.Signatures)
	}
	for _, c := range e.Capabilities {
		r.word("extensions.capabilities", c, capabilities()...)
	}
	for _, p := range e.Params {
		r.word("extensions.params", p, extensions.Params()...)
	}
	for _, h := range e.Headers {
		switch strings.ToLower(h) {
		case "authorization", "x-api-key", "cookie", "proxy-authorization":
			r.bad(r.at("extensions.headers"), "extensions.headers: %s is a secret, and no module may see it", h)
		}
	}
}

func (r *reader) checkTLS(t TLS) {
	switch {
	case t.Mode == "files" && (t.Certificate == "" || t.Key == ""):
		r.bad(r.at("tls.mode", "tls.certificate", "tls.key"), "tls.mode: files needs tls.certificate and tls.key")
	case t.Mode == "acme" && len(t.Names) == 0:
		r.bad(r.at("tls.mode", "tls.names"), "tls.mode: acme needs a public name in tls.names")
	}
	for _, name := range t.Names {
		for label := range strings.SplitSeq(strings.TrimPrefix(name, "*."), ".") {
			if !hostLabel.MatchString(label) {
				r.bad(r.at("tls.names"), "tls.names: %q is not a host name", name)
				break
			}
		}
		if strings.HasPrefix(name, "*.") && t.Mode == "acme" && !slices.Contains(t.ACME.Challenges, "dns-01") {
			r.bad(r.at("tls.names", "tls.acme.challenges"), "tls.names: %q needs the challenge dns-01", name)
		}
	}
	for _, c := range t.ACME.Challenges {
		r.word("tls.acme.challenges", c, challenges...)
	}
	if slices.Contains(t.ACME.Challenges, "dns-01") && t.ACME.DNS == "" {
		r.bad(r.at("tls.acme.challenges", "tls.acme.dns"), "tls.acme.challenges: dns-01 needs a provider in tls.acme.dns")
	}
}

// CheckModel returns what is wrong with a model that did not come from a file, or an empty text.
func CheckModel(m BoxModel) string {
	r := reader{file: "model"}
	r.checkModels([]BoxModel{m}, nil)
	if len(r.problems) == 0 {
		return ""
	}
	return strings.TrimPrefix(r.problems[0].Text, "models[0].")
}

func (r *reader) checkModels(models []BoxModel, private []string) {
	names := map[string]bool{}
	for i, m := range models {
		path := fmt.Sprintf("models[%d]", i)
		where := func(name string, others ...string) string {
			for _, name := range append(others, name) {
				if r.unread(path + "." + name) {
					return unread
				}
			}
			if from, ok := r.origins[path+"."+name]; ok {
				return from
			}
			return r.place("models")
		}
		switch {
		case m.Elsewhere() && m.File != "":
			r.bad(where("file", "remote"), "%s has a file and a remote; a model has one of them", path)
		case m.File == "" && !m.Elsewhere():
			r.bad(where("file", "remote"), "%s.file is missing: a path, or a name of the catalogue (`1bit model list`)", path)
		case m.Name == "":
			r.bad(where("name"), "%s.name is missing: what clients call the model", path)
		case !modelName.MatchString(m.Name):
			r.bad(where("name"), "%s.name: %q is not a name: letters, digits and ._:/@+-", path, m.Name)
		case names[m.Name]:
			r.bad(where("name"), "%s.name: there are two models %q", path, m.Name)
		}
		names[m.Name] = true
		if m.Elsewhere() {
			r.checkRemote(m, path, private, where)
		}
		if !engine.Device(m.Device).Known() {
			r.bad(where("device"), "%s.device: there is no device %q; use auto, npu, hrx, rocm, cpu, vulkan, zinc, ds4, mlx or onnx", path, m.Device)
		}
		if !slices.Contains([]string{"chat", "embedding", "reranking"}, m.Role) {
			r.bad(where("role"), "%s.role: there is no role %q; use chat, embedding or reranking", path, m.Role)
		}
		if m.Context < 0 || m.Parallel < 0 || m.DraftMax < 0 || m.MoEPrefetch < 0 || m.PrefillMinTokens < 0 {
			r.bad(where("ctx_size", "parallel", "mtp_max", "moe_prefetch", "prefill_min_tokens"), "%s: a number is negative", path)
		}
		if m.DraftPMin != "" {
			var kept string
			if err := fraction(&kept)(m.DraftPMin); err != nil {
				r.bad(where("mtp_p_min"), "%s.mtp_p_min: %v", path, err)
			}
		}
		if _, err := (Box{}).Options(m, m.File); err != nil {
			r.bad(where("moe_slots"), "%s.moe_slots: %v", path, err)
		}
	}
}

// checkRemote checks a model that another server runs.
func (r *reader) checkRemote(m BoxModel, path string, private []string, where func(string, ...string) string) {
	bad := func(name, format string, args ...any) {
		others := map[string][]string{"key_file": {"remote.key"}}[name]
		r.bad(where("remote."+name, others...), "%s.remote.%s: %s", path, name, fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(m.Remote.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		bad("url", "%q is not a URL such as https://box.example.org/v1", m.Remote.URL)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		bad("url", "it has a user, query or fragment; the key is a setting of its own")
	case u.Scheme == "http" && !nearby(u.Hostname()) && !slices.Contains(private, u.Host):
		bad("url", "what people ask is not sent without TLS: use https, or name %s in egress.private", u.Host)
	}
	if m.Remote.Key != "" && m.Remote.KeyFile != "" {
		bad("key_file", "there is a key as well; keep one of them")
	}
	for name, file := range map[string]string{"key_file": m.Remote.KeyFile, "root": m.Remote.Root} {
		if file != "" && !filepath.IsAbs(file) {
			bad(name, "%q is not the whole path of a file", file)
		}
	}
	rest := m // what is left is for models that the box runs itself
	rest.Name, rest.Role, rest.Parallel, rest.Remote = "", "", 0, BoxRemote{}
	if rest.Device == "auto" {
		rest.Device = ""
	}
	v := reflect.ValueOf(rest)
	for i, name := range fields(v.Type()) {
		if !v.Field(i).IsZero() && name != "file" {
			r.bad(where(name), "%s.%s: the model runs on another server, which has its own", path, name)
		}
	}
}

// nearby reports whether a host is this machine, as it is written.
func nearby(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// checkElsewhere checks what the box sends to or fetches from.
func (r *reader) checkElsewhere(b Box) {
	for path, text := range map[string]string{
		"telemetry.otlp": b.Telemetry.OTLP, "telemetry.webhook": string(b.Telemetry.Webhook), "egress.hub": b.Egress.Hub,
		"tls.acme.directory": b.TLS.ACME.Directory,
	} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
			r.bad(r.at(path), "%s is not a URL such as https://host/path", path)
		}
	}
	for _, origin := range b.Web.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Path != "" || u.RawQuery != "" {
			r.bad(r.at("web.origins"), "web.origins: %q is not an origin such as https://chat.example.org", origin)
		}
	}
	if b.Backup.Folder != "" && b.Backup.Recipient == "" && b.Backup.Passphrase == "" {
		r.bad(r.at("backup.folder", "backup.recipient", "backup.passphrase"), "backup.folder: a backup is encrypted: give backup.recipient or backup.passphrase")
	}
	if b.Backup.Folder != "" && b.Backup.Every < time.Hour {
		r.bad(r.at("backup.every"), "backup.every: there is at least an hour between copies, 1h")
	}
	if b.Backup.Folder != "" && b.Backup.Keep <= 0 {
		r.bad(r.at("backup.keep"), "backup.keep must be more than 0")
	}
}
