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
	at := func(path string) string {
		if from, ok := r.origins[path]; ok {
			return from
		}
		return r.file
	}
	word := func(path, value string, among ...string) {
		if !slices.Contains(among, value) {
			r.bad(at(path), "%s: there is no %q%s", path, value, Meant(value, among))
		}
	}
	if !hostLabel.MatchString(b.Name) {
		r.bad(at("name"), "name: %q is not a host name: lower-case letters, digits and hyphens", b.Name)
	}
	if p := b.Listen.Port; p < 0 || p > 65535 {
		r.bad(at("listen.port"), "listen.port: %d is not a port", p)
	}
	if p := b.Listen.HTTPPort; p < -1 || p > 65535 {
		r.bad(at("listen.http_port"), "listen.http_port: %d is not a port; -1 turns plain HTTP off", p)
	}
	if b.Listen.Port == b.Listen.HTTPPort && b.Listen.Port != 0 {
		r.bad(at("listen.http_port"), "listen.http_port and listen.port are both %d", b.Listen.Port)
	}
	word("tls.mode", b.TLS.Mode, "local", "acme", "files")
	word("log.level", b.Log.Level, "debug", "info", "warn", "error")
	word("log.requests", b.Log.Requests, "none", "metadata", "full")
	word("queue.guests", b.Queue.Guests, "interactive", "normal", "background")
	if b.Queue.MaxWait <= 0 {
		r.bad(at("queue.max_wait"), "queue.max_wait must be more than 0")
	}
	for path, n := range map[string]int{"queue.length": b.Queue.Length, "queue.per_key": b.Queue.PerKey} {
		if n < 0 {
			r.bad(at(path), "%s: %d is negative; 0 means any number", path, n)
		}
	}
	r.checkTLS(b.TLS, at, word)
	r.checkModels(b.Models, b.Egress.Private, at)
	r.checkElsewhere(b, at)
	r.checkExtensions(b.Extensions, at, word)
	if b.Cache.MinTokens < 1 {
		r.bad(at("cache.min_tokens"), "cache.min_tokens: %d is not 1 or more", b.Cache.MinTokens)
	}
	for _, w := range b.Documents.Watch {
		if folder, name, ok := cutLast(w); !ok || !filepath.IsAbs(folder) || name == "" {
			r.bad(at("documents.watch"), "documents.watch: %q is not FOLDER=COLLECTION with the whole path of the folder", w)
		}
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

func (r *reader) checkExtensions(e Extensions, at func(string) string, word func(string, string, ...string)) {
	word("extensions.signatures", e.Signatures, extensions.SignaturesOff, extensions.SignaturesRequired, extensions.SignaturesPinned)
	if err := extensions.CheckPolicy(extensions.Policy{Trusted: e.Trusted}); err != nil {
		r.bad(at("extensions.trusted"), "extensions.trusted: %v", err)
	}
	if e.RoutePolicy != "" && !filepath.IsAbs(e.RoutePolicy) {
		r.bad(at("extensions.route_policy"), "extensions.route_policy: %q is not the whole path of a file", e.RoutePolicy)
	}
	if m := e.LayaModel; m != "" && !filepath.IsAbs(m) && !strings.Contains(m, "://") {
		r.bad(at("extensions.laya_model"), "extensions.laya_model: %q is neither the whole path of a file or folder nor a URL", m)
	}
	if e.Signatures != extensions.SignaturesOff && len(e.Trusted) == 0 {
		r.bad(at("extensions.signatures"), "extensions.signatures: %s needs keys in extensions.trusted", e.Signatures)
	}
	for _, c := range e.Capabilities {
		word("extensions.capabilities", c, capabilities()...)
	}
	for _, p := range e.Params {
		word("extensions.params", p, extensions.Params()...)
	}
	for _, h := range e.Headers {
		switch strings.ToLower(h) {
		case "authorization", "x-api-key", "cookie", "proxy-authorization":
			r.bad(at("extensions.headers"), "extensions.headers: %s is a secret, and no module may see it", h)
		}
	}
}

func (r *reader) checkTLS(t TLS, at func(string) string, word func(string, string, ...string)) {
	switch {
	case t.Mode == "files" && (t.Certificate == "" || t.Key == ""):
		r.bad(at("tls.mode"), "tls.mode: files needs tls.certificate and tls.key")
	case t.Mode == "acme" && len(t.Names) == 0:
		r.bad(at("tls.mode"), "tls.mode: acme needs a public name in tls.names")
	}
	for _, name := range t.Names {
		for label := range strings.SplitSeq(strings.TrimPrefix(name, "*."), ".") {
			if !hostLabel.MatchString(label) {
				r.bad(at("tls.names"), "tls.names: %q is not a host name", name)
				break
			}
		}
		if strings.HasPrefix(name, "*.") && t.Mode == "acme" && !slices.Contains(t.ACME.Challenges, "dns-01") {
			r.bad(at("tls.names"), "tls.names: %q needs the challenge dns-01", name)
		}
	}
	for _, c := range t.ACME.Challenges {
		word("tls.acme.challenges", c, challenges...)
	}
	if slices.Contains(t.ACME.Challenges, "dns-01") && t.ACME.DNS == "" {
		r.bad(at("tls.acme.challenges"), "tls.acme.challenges: dns-01 needs a provider in tls.acme.dns")
	}
}

// CheckModel returns what is wrong with a model that did not come from a file, or an empty text.
func CheckModel(m BoxModel) string {
	r := reader{file: "model"}
	r.checkModels([]BoxModel{m}, nil, func(string) string { return "" })
	if len(r.problems) == 0 {
		return ""
	}
	return strings.TrimPrefix(r.problems[0].Text, "models[0].")
}

func (r *reader) checkModels(models []BoxModel, private []string, at func(string) string) {
	names := map[string]bool{}
	for i, m := range models {
		path := fmt.Sprintf("models[%d]", i)
		where := func(name string) string {
			if from, ok := r.origins[path+"."+name]; ok {
				return from
			}
			return at("models")
		}
		switch {
		case m.Elsewhere() && m.File != "":
			r.bad(where("file"), "%s has a file and a remote; a model has one of them", path)
		case m.File == "" && !m.Elsewhere():
			r.bad(where("file"), "%s.file is missing: a path, or a name of the catalogue (`1bit model list`)", path)
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
			r.bad(at("models"), "%s: a number is negative", path)
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
func (r *reader) checkRemote(m BoxModel, path string, private []string, where func(string) string) {
	bad := func(name, format string, args ...any) {
		r.bad(where("remote."+name), "%s.remote.%s: %s", path, name, fmt.Sprintf(format, args...))
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
func (r *reader) checkElsewhere(b Box, at func(string) string) {
	for path, text := range map[string]string{
		"telemetry.otlp": b.Telemetry.OTLP, "telemetry.webhook": string(b.Telemetry.Webhook), "egress.hub": b.Egress.Hub,
		"tls.acme.directory": b.TLS.ACME.Directory,
	} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
			r.bad(at(path), "%s is not a URL such as https://host/path", path)
		}
	}
	for _, origin := range b.Web.Origins {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Path != "" || u.RawQuery != "" {
			r.bad(at("web.origins"), "web.origins: %q is not an origin such as https://chat.example.org", origin)
		}
	}
	if b.Backup.Folder != "" && b.Backup.Recipient == "" && b.Backup.Passphrase == "" {
		r.bad(at("backup.folder"), "backup.folder: a backup is encrypted: give backup.recipient or backup.passphrase")
	}
	if b.Backup.Folder != "" && b.Backup.Every < time.Hour {
		r.bad(at("backup.every"), "backup.every: there is at least an hour between copies, 1h")
	}
	if b.Backup.Folder != "" && b.Backup.Keep <= 0 {
		r.bad(at("backup.keep"), "backup.keep must be more than 0")
	}
}
