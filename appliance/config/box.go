package config

import (
	"net/netip"
	"slices"
	"time"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/recipe"
	"onebit/extensions"
	"onebit/extensions/abi"
)

// Box is the configuration of `1bit appliance`: one value, made from the defaults, the file, the environment and the
// flags, in this order. Nobody changes it after it was made. The names in the tags are the file's.
//
// A field's name in the environment is ONEBIT_ and its path in upper case, joined by underscores: listen.http_port is
// ONEBIT_LISTEN_HTTP_PORT. Lists of texts are written with commas there. Lists of models and secrets in maps have no
// name in the environment.
type Box struct {
	Name      string     `yaml:"name" about:"the box's name on the network: NAME.local"`
	Listen    Listen     `yaml:"listen" about:"where the box listens"`
	TLS       TLS        `yaml:"tls" about:"certificates"`
	Discovery bool       `yaml:"discovery" about:"announce the box by mDNS once it is claimed"`
	Models    []BoxModel `yaml:"models" about:"what is served"`
	Folders   []string   `yaml:"model_folders" about:"more folders with model files, such as a second drive"`
	Memory    Memory     `yaml:"memory" about:"what models may take"`
	Programs  Programs   `yaml:"programs" about:"servers that are started; empty means as the page searches them"`
	Web       Web        `yaml:"web" about:"pages of other sites"`
	Requests  Requests   `yaml:"requests" about:"limits of one request"`
	Queue     Queue      `yaml:"queue" about:"requests that wait for a model"`
	Log       Log        `yaml:"log" about:"what is written down"`
	Backup    Backup     `yaml:"backup" about:"copies of the state"`
	Telemetry Telemetry  `yaml:"telemetry" about:"figures sent elsewhere; nothing unless it is named here"`
	Egress    Egress     `yaml:"egress" about:"where the box may fetch models from"`

	Extensions Extensions `yaml:"extensions" about:"what uploaded modules may do"`
	Documents  Documents  `yaml:"documents" about:"collections of documents"`
	Cache      Cache      `yaml:"cache" about:"what is kept of prompts"`
}

// Cache says what is kept of prompts, so that a conversation that goes on is not computed from its beginning.
type Cache struct {
	Budget    Size          `yaml:"budget" about:"bytes of all files with the state of conversations; 0 keeps none. Half of what is free on the disk is the most"`
	TTL       time.Duration `yaml:"ttl" about:"a file that was not used for so long goes; 0 means never"`
	MinTokens int           `yaml:"min_tokens" about:"shorter conversations are not worth a file"`
	Steady    bool          `yaml:"steady" about:"leave out lines that agents change with each request, such as a billing header"`
}

// Listen says where the box listens.
type Listen struct {
	Host           string         `yaml:"host" about:"address to listen on; empty means all"`
	Port           int            `yaml:"port" about:"HTTPS and HTTP/3"`
	HTTPPort       int            `yaml:"http_port" about:"plain HTTP: trust page and redirects; -1 turns it off"`
	HTTP3          bool           `yaml:"http3" about:"serve HTTP/3 on the same port"`
	TrustedProxies []netip.Prefix `yaml:"trusted_proxies" about:"addresses whose X-Forwarded-For is believed"`
}

// TLS says which certificates the box shows.
type TLS struct {
	Mode        string   `yaml:"mode" about:"local, acme or files"`
	Names       []string `yaml:"names" about:"names beside NAME.local"`
	Certificate string   `yaml:"certificate" about:"PEM file, for mode files"`
	Key         string   `yaml:"key" about:"PEM file of the private key, for mode files"`
	ACME        ACME     `yaml:"acme" about:"for mode acme"`
}

// ACME says how public certificates are obtained.
type ACME struct {
	Email      string            `yaml:"email" about:"where the authority writes to"`
	Directory  string            `yaml:"directory" about:"URL of another authority than Let's Encrypt"`
	Root       string            `yaml:"root" about:"PEM file that the authority's own certificate is checked against"`
	Challenges []string          `yaml:"challenges" about:"http-01, tls-alpn-01, dns-01"`
	Profile    string            `yaml:"profile" about:"such as shortlived"`
	DNS        string            `yaml:"dns" about:"provider for dns-01"`
	DNSOptions map[string]Secret `yaml:"dns_options" about:"what the provider needs"`
}

// BoxModel is one model that the box serves.
type BoxModel struct {
	Name    string        `yaml:"name" about:"for clients"`
	File    string        `yaml:"file" about:"a path, or a name of the catalogue"`
	Remote  BoxRemote     `yaml:"remote" about:"in place of a file: a server of somebody else's that runs the model"`
	Role    string        `yaml:"role" about:"chat, embedding or reranking"`
	Device  string        `yaml:"device" about:"auto, npu, hrx, rocm, cpu, vulkan, zinc, ds4, mlx or onnx"`
	Pin     bool          `yaml:"pin" about:"never unloaded to make room"`
	Preload bool          `yaml:"preload" about:"loaded when the box starts"`
	TTL     time.Duration `yaml:"ttl" about:"unloaded after this long without a request; 0 means never"`

	Context  int `yaml:"ctx_size" about:"tokens over all slots; 0 leaves it to the program"`
	Parallel int `yaml:"parallel" about:"slots; 0 leaves them to the program"`

	FlashAttn        string   `yaml:"flash_attn"`
	MTP              string   `yaml:"mtp"`
	DFlash           string   `yaml:"dflash"`
	DraftMax         int      `yaml:"mtp_max"`
	DraftPMin        string   `yaml:"mtp_p_min"`
	Mmproj           string   `yaml:"mmproj"`
	MoESlots         string   `yaml:"moe_slots" about:"a number, or auto"`
	MoESubst         string   `yaml:"moe_subst"`
	MoEPrefetch      int      `yaml:"moe_prefetch"`
	PrefillDevice    string   `yaml:"prefill_device"`
	PrefillMinTokens int      `yaml:"prefill_min_tokens"`
	SSDStreaming     bool     `yaml:"ssd_streaming"`
	Lean             bool     `yaml:"lean"`
	NPUOptions       []string `yaml:"npu_opt"`
	NoRecipes        bool     `yaml:"no_recipes"`
}

// BoxRemote is a model that another box or an OpenAI-compatible server runs. Only the file can name one: what people ask
// leaves the box there. The zero value is none.
type BoxRemote struct {
	URL       string        `yaml:"url" about:"such as https://box.example.org/v1"`
	Model     string        `yaml:"model" about:"its name there; empty means the same as here"`
	Key       Secret        `yaml:"key" about:"for that server; no other gets it"`
	KeyFile   string        `yaml:"key_file" about:"file that holds the key"`
	Root      string        `yaml:"root" about:"PEM file that the server's certificate is checked against; empty means the system's authorities"`
	Timeout   time.Duration `yaml:"timeout" about:"to the first byte of an answer and between two events; 0 means 5m"`
	Auto      bool          `yaml:"auto" about:"the box may choose it for requests that leave the model to the box"`
	Documents bool          `yaml:"documents" about:"passages of the box's documents may be sent to it"`
	Disabled  bool          `yaml:"disabled" about:"nothing is sent"`
}

// Elsewhere reports whether the model is one that another server runs.
func (m BoxModel) Elsewhere() bool { return m.Remote != BoxRemote{} }

// Memory bounds what loaded models take together.
type Memory struct {
	Reserve Size `yaml:"reserve" about:"left to the rest of the box; 0 means what a plan leaves"`
	Limit   Size `yaml:"limit" about:"for all models together; 0 means what there is"`
}

// Programs name the servers of the devices. Only the file can: no request sets the path of a program.
type Programs struct {
	LlamaServer string `yaml:"llama_server"`
	Zinc        string `yaml:"zinc"`
	DS4         string `yaml:"ds4"`
	MLXServer   string `yaml:"mlx_server"`
	NPU         string `yaml:"npu"`
	HRXLibHSA   string `yaml:"hrx_libhsa"`
	Recipes     string `yaml:"recipes"`
}

// Web says which other sites' pages may use the API.
type Web struct {
	Origins []string `yaml:"origins" about:"such as https://chat.example.org; the box's own are always allowed"`
}

// Requests bound what one request may take.
type Requests struct {
	Body      Size          `yaml:"body" about:"bytes of a body"`
	Upload    time.Duration `yaml:"upload" about:"for a body to arrive"`
	Limit     time.Duration `yaml:"limit" about:"from arrival to the last byte"`
	Load      time.Duration `yaml:"load" about:"of that, waiting for a model: in line, and for its load"`
	KeepAlive time.Duration `yaml:"keep_alive" about:"silence on a stream before a comment is sent"`
	Write     time.Duration `yaml:"write" about:"for a client to take one event"`
	Drain     time.Duration `yaml:"drain" about:"for running answers when the box stops"`
}

// Queue bounds the requests that wait for a model: for one of its slots, or for it to be loaded.
type Queue struct {
	MaxWait time.Duration `yaml:"max_wait" about:"how long requests for loaded models hold up one for another that needs their memory"`
	Length  int           `yaml:"length" about:"requests that may wait in all; 0 means any number"`
	PerKey  int           `yaml:"per_key" about:"of those, requests of one key or person; 0 means any number"`
	Guests  string        `yaml:"guests" about:"the most urgent that a guest's request may be: interactive, normal or background"`
}

// Log says what is written down.
type Log struct {
	Level    string        `yaml:"level" about:"debug, info, warn or error"`
	Requests string        `yaml:"requests" about:"none, metadata or full; a key may ask for less"`
	Keep     time.Duration `yaml:"keep" about:"how long requests are kept"`
}

// Backup says when the state is copied, and where to.
type Backup struct {
	Folder     string        `yaml:"folder" about:"such as a USB drive; empty makes no copies"`
	Every      time.Duration `yaml:"every"`
	Keep       int           `yaml:"keep" about:"newest copies that are kept"`
	Recipient  string        `yaml:"recipient" about:"age public key; a backup needs this or a passphrase"`
	Passphrase Secret        `yaml:"passphrase"`
}

// Telemetry says where figures go.
type Telemetry struct {
	OTLP    string `yaml:"otlp" about:"URL of an OpenTelemetry collector"`
	Webhook Secret `yaml:"webhook" about:"URL that alerts are posted to"`
	Secret  Secret `yaml:"secret" about:"signs the alerts"`
}

// Egress says where models come from.
type Egress struct {
	Hub     string   `yaml:"hub" about:"address of the model hub"`
	Hosts   []string `yaml:"hosts" about:"hosts beside the hub that models may be fetched from by URL; * means any public one"`
	Private []string `yaml:"private" about:"host:port on private addresses that may be reached: mirrors, a collector, a webhook"`
	Token   Secret   `yaml:"token" about:"for gated repositories of the hub"`
}

// Extensions says what modules that are uploaded to the box may do. Only the file can: whoever may upload a module must
// not be able to take the lock off the door.
type Extensions struct {
	Signatures   string   `yaml:"signatures" about:"off, required, or pinned: each name to the key that is trusted for it"`
	Trusted      []string `yaml:"trusted" about:"minisign public keys; NAME=KEY trusts a key for a module's name"`
	Capabilities []string `yaml:"capabilities" about:"what modules may be granted"`
	Headers      []string `yaml:"headers" about:"headers of requests that modules may see"`
	Params       []string `yaml:"params" about:"parameters of requests that modules may set"`
	Laya         bool     `yaml:"laya" about:"bind the built-in classifier, where nothing else is bound as one; taken up at the next start"`
	LayaModel    string   `yaml:"laya_model" about:"what says the class in its place: a folder or a .gguf file with a decision model, or the URL of a server that has one; taken up at the next start"`
	RoutePolicy  string   `yaml:"route_policy" about:"file with a routing policy as JSON, bound where nothing else is bound as one; read again when it changes"`
}

// Documents says which documents the box brings in by itself.
type Documents struct {
	Watch []string `yaml:"watch" about:"folders, each as FOLDER=COLLECTION: a collection for everybody on the box, kept the same as the folder"`
	// Postgres may hold a password.
	Late     bool   `yaml:"late" about:"order what is found by late interaction, where no model ranks: better, and half a second slower; a built-in embedding model can"`
	Postgres Secret `yaml:"postgres" about:"DSN of a PostgreSQL with pgvector that keeps the documents in place of a file; taken up at the next start"`
}

// Watched is a folder that is kept the same as a collection.
type Watched struct{ Folder, Collection string }

// Watched lists the folders of Watch.
func (d Documents) Watched() []Watched {
	var all []Watched
	for _, w := range d.Watch {
		if folder, collection, ok := cutLast(w); ok {
			all = append(all, Watched{folder, collection})
		}
	}
	return all
}

// Policy is the same in the words of the manager of modules.
func (e Extensions) Policy() extensions.Policy {
	p := extensions.Policy{Signatures: e.Signatures, Trusted: e.Trusted, Headers: e.Headers, Params: e.Params}
	p.Capabilities = make([]abi.Capability, 0, len(e.Capabilities))
	for _, c := range e.Capabilities {
		p.Capabilities = append(p.Capabilities, abi.Capability(c))
	}
	return p
}

// capabilities are all that there are.
func capabilities() []string {
	var all []string
	for _, f := range abi.Imports() {
		if c := string(f.Capability); c != "" && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

// Size is a number of bytes. In the file it is a whole number, or one with KB, MB, GB, KiB, MiB or GiB.
type Size int64

// BoxDefaults is the configuration that holds when nothing else is said.
func BoxDefaults() Box {
	l := Defaults()
	return Box{
		Name:      "1bit",
		Listen:    Listen{Port: 443, HTTPPort: 80, HTTP3: true},
		TLS:       TLS{Mode: "local", ACME: ACME{Challenges: []string{"http-01", "tls-alpn-01"}}},
		Discovery: true,
		Requests: Requests{
			Body: Size(l.Body), Upload: l.Upload, Limit: l.Request, Load: 10 * time.Minute,
			KeepAlive: l.KeepAlive, Write: l.Write, Drain: 30 * time.Second,
		},
		Queue:  Queue{MaxWait: 30 * time.Second, Length: 256, PerKey: 64, Guests: "normal"},
		Log:    Log{Level: "info", Requests: "metadata", Keep: 30 * 24 * time.Hour},
		Backup: Backup{Every: 24 * time.Hour, Keep: 7},
		Egress: Egress{Hub: "https://huggingface.co"},

		Extensions: Extensions{Signatures: extensions.SignaturesOff, Capabilities: capabilities(), Params: []string{"temperature", "top_p", "max_tokens"}},
		Cache:      Cache{Budget: 8 << 30, TTL: 7 * 24 * time.Hour, MinTokens: 256, Steady: true},
	}
}

// Limits returns the bounds of a request as the gateway takes them.
func (b Box) Limits() Limits {
	r := b.Requests
	return Limits{
		Body: int64(r.Body), Upload: r.Upload, Request: r.Limit, Ready: r.Load,
		KeepAlive: r.KeepAlive, Write: r.Write, Drain: r.Drain,
	}
}

// Options returns how a model is started from file, which is where its File was found.
func (b Box) Options(m BoxModel, file string) (backend.Options, error) {
	o := backend.Options{
		Model: file, Alias: m.Name, Device: engine.Device(m.Device), Role: recipe.Role(m.Role),
		Context: m.Context, Parallel: m.Parallel, FlashAttn: m.FlashAttn,
		LlamaServer: b.Programs.LlamaServer, Zinc: b.Programs.Zinc, DS4: b.Programs.DS4,
		MLXServer: b.Programs.MLXServer, NPU: b.Programs.NPU, LibHSA: b.Programs.HRXLibHSA,
		SSDStreaming: m.SSDStreaming, Lean: m.Lean, PrefillDevice: m.PrefillDevice, PrefillMinTokens: m.PrefillMinTokens,
		MTP: m.MTP, DFlash: m.DFlash, DraftMax: m.DraftMax, DraftPMin: m.DraftPMin, Mmproj: m.Mmproj,
		MoESubst: m.MoESubst, MoEPrefetch: m.MoEPrefetch,
		AdaptiveAt: 1, LongFrom: 2048,
		NPUOptions: m.NPUOptions, Recipes: b.Programs.Recipes, NoRecipes: m.NoRecipes,
	}
	if m.MoESlots != "" {
		if err := experts(&o)(m.MoESlots); err != nil {
			return o, err
		}
	}
	return o, nil
}
