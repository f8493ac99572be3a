package admin

import (
	"context"
	"time"

	"onebit/store"
)

// Box is the running box, as far as the control plane shows and changes it.
type Box interface {
	Status(ctx context.Context) Status

	Models() []Model
	AddModel(ctx context.Context, who store.Actor, m NewModel) (Model, error)
	ChangeModel(ctx context.Context, who store.Actor, name string, c ModelChange) (Model, error)
	RemoveModel(ctx context.Context, who store.Actor, name string, file bool) error
	LoadModel(ctx context.Context, name string) error
	UnloadModel(ctx context.Context, name string) error

	Catalog(ctx context.Context) []CatalogEntry
	Pulls() []Pull
	StartPull(ctx context.Context, who store.Actor, p NewPull) (Pull, error)
	CancelPull(ctx context.Context, id string) error

	PromptCache() PromptCache
	ClearPromptCache(ctx context.Context, who store.Actor) error

	Backends(ctx context.Context) []Backend
	RollbackBackend(ctx context.Context, who store.Actor, device string) error

	Settings() []Setting
	ChangeSettings(ctx context.Context, who store.Actor, values map[string]string) error
	Reload(ctx context.Context) error
	BackupFiles() map[string][]byte // what goes into a copy beside the store, by plain name

	Certificate() Certificate
	Routes() []RouteInfo
	Endpoints() []string // what the scope of a key may name, without /v1
	Log(after int64, limit int) []LogLine
}

// RouteInfo is one thing that the box answers.
type RouteInfo struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Part   string `json:"part" about:"api, admin or door"`
	Open   bool   `json:"open" about:"it answers without a key"`
}

// Status is the box at a glance.
type Status struct {
	Name      string         `json:"name"`
	Version   string         `json:"version"`
	Started   time.Time      `json:"started"`
	Ready     bool           `json:"ready" about:"requests can be answered"`
	Problems  []string       `json:"problems" about:"what is wrong, in sentences; empty when nothing is"`
	Running   int            `json:"running" about:"requests that are being answered"`
	Models    []Model        `json:"models"`
	Memory    Memory         `json:"memory"`
	Addresses []string       `json:"addresses" about:"where the API is, as URLs"`
	Store     StoreStatus    `json:"store"`
	Backup    BackupStatus   `json:"backup"`
	Degraded  *DegradedState `json:"degraded" about:"null, or what happened to the data and from when it is"`
}

// PromptCache is what is kept of prompts.
type PromptCache struct {
	Budget    int64              `json:"budget" about:"bytes that all files may take"`
	Bytes     int64              `json:"bytes" about:"that they take"`
	Entries   int                `json:"entries" about:"files, each with the state of a conversation"`
	Marked    int                `json:"marked" about:"of them, those that a client wants kept"`
	Hits      int64              `json:"hits" about:"requests of which 32 tokens or more were reused, as their servers counted"`
	Misses    int64              `json:"misses"`
	Prompt    int64              `json:"prompt_tokens" about:"of all prompts since the start"`
	Saved     int64              `json:"saved_tokens" about:"of them, those that were not computed again"`
	Expected  int64              `json:"expected_tokens" about:"of them, those that the index expected to be reused"`
	Share     float64            `json:"share" about:"of the prompts' tokens that were reused, 0 to 1"`
	Wrong     int64              `json:"wrong" about:"claims of the index that did not hold"`
	Restores  int64              `json:"restores"`
	Saves     int64              `json:"saves"`
	Evictions int64              `json:"evictions"`
	Written   int64              `json:"written_tokens" about:"newly kept because a client asked"`
	Steady    int64              `json:"steady_bytes" about:"of lines that change with each request and were left out"`
	Models    []PromptCacheModel `json:"models"`
}

// PromptCacheModel is the same of one model.
type PromptCacheModel struct {
	Model   string `json:"model" about:"its name, or that of its folder while it is not loaded"`
	Loaded  bool   `json:"loaded"`
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Tokens  int64  `json:"tokens" about:"in files"`
	Held    int    `json:"held" about:"tokens in slots"`
	Slots   int    `json:"slots"`
	Busy    int    `json:"busy"`
	Files   string `json:"files" about:"good, bad or untried: whether its program reuses what it restores"`
}

// Memory is what models may take and take, in bytes.
type Memory struct {
	Total    int64  `json:"total" about:"for all models"`
	Used     int64  `json:"used" about:"by those that are loaded"`
	Measured string `json:"measured" about:"where the figure comes from"`
}

// StoreStatus is the state of the database.
type StoreStatus struct {
	Bytes     int64     `json:"bytes"`
	Queued    int       `json:"queued" about:"rows that are not on the disk yet"`
	Dropped   int64     `json:"dropped" about:"rows of the request log that were given up"`
	Full      bool      `json:"full" about:"the disk is full: nothing can be changed"`
	Scrubbed  time.Time `json:"scrubbed" about:"when all stored bytes were last compared with their hashes"`
	ScrubGood bool      `json:"scrub_good"`
}

// BackupStatus is the state of scheduled copies.
type BackupStatus struct {
	Folder string    `json:"folder"`
	Last   time.Time `json:"last" about:"of the newest copy that was verified"`
	Next   time.Time `json:"next"`
	Error  string    `json:"error"`
}

// DegradedState says that a damaged database was replaced by a copy.
type DegradedState struct {
	Happened time.Time `json:"happened"`
	DataFrom time.Time `json:"data_from" about:"what changed after this moment is lost"`
	SetAside string    `json:"set_aside" about:"the damaged file"`
	Reason   string    `json:"reason"`
}

// Model is one model of the box.
type Model struct {
	Name     string    `json:"name"`
	Role     string    `json:"role" about:"chat, embedding or reranking"`
	Device   string    `json:"device"`
	Why      string    `json:"why" about:"the reason for the device"`
	State    string    `json:"state" about:"absent, queued, loading, ready, failed or unloading"`
	Problem  string    `json:"problem" about:"why it is not ready"`
	File     string    `json:"file" about:"the file's name, without its folder"`
	Bytes    int64     `json:"bytes" about:"of the file"`
	Memory   int64     `json:"memory" about:"bytes that it takes when loaded, as estimated"`
	Context  int       `json:"context" about:"tokens that one conversation can hold; 0 when unknown"`
	Slots    int       `json:"slots"`
	Running  int       `json:"running" about:"requests that it answers now"`
	Waiting  int       `json:"waiting" about:"requests that wait for it"`
	Queue    Queue     `json:"queue" about:"those that wait"`
	Pinned   bool      `json:"pinned"`
	Preload  bool      `json:"preload"`
	TTL      int64     `json:"ttl" about:"seconds without a request after which it is unloaded; 0 never"`
	Used     time.Time `json:"used" about:"last request"`
	Source   string    `json:"source" about:"configuration, or where the file came from"`
	Editable bool      `json:"editable" about:"false for a model of the configuration file"`
}

// Queue is the line before a model.
type Queue struct {
	Interactive int   `json:"interactive" about:"requests of this priority"`
	Normal      int   `json:"normal"`
	Background  int   `json:"background"`
	Keys        int   `json:"keys" about:"of how many keys and people they are"`
	Oldest      int64 `json:"oldest_ms" about:"milliseconds that the first of them has waited"`
	Wait        int64 `json:"wait_ms" about:"milliseconds that one that came now would wait, as estimated; 0 when it would be served at once"`
}

// NewModel is a model to add.
type NewModel struct {
	Name    string `json:"name,omitempty" about:"what clients call it; the file's own name when empty"`
	File    string `json:"file" about:"a name of the catalogue, or of a file that the box has found"`
	Role    string `json:"role,omitempty" about:"chat unless it is given"`
	Device  string `json:"device,omitempty" about:"auto unless it is given"`
	Context int    `json:"context,omitempty" about:"tokens over all slots; 0 leaves it to the program"`
	Slots   int    `json:"slots,omitempty"`
	Pinned  bool   `json:"pinned,omitempty"`
	Preload bool   `json:"preload,omitempty"`
	TTL     int64  `json:"ttl,omitempty" about:"seconds"`
}

// ModelChange is what is to be different about a model. What is absent stays.
type ModelChange struct {
	Device  *string `json:"device,omitempty"`
	Context *int    `json:"context,omitempty"`
	Slots   *int    `json:"slots,omitempty"`
	Pinned  *bool   `json:"pinned,omitempty"`
	Preload *bool   `json:"preload,omitempty"`
	TTL     *int64  `json:"ttl,omitempty"`
}

// CatalogEntry is a model file that the box knows or has found.
type CatalogEntry struct {
	Name    string   `json:"name"`
	About   string   `json:"about"`
	Bytes   int64    `json:"bytes"`
	SHA256  string   `json:"sha256" about:"empty when nobody published it"`
	License string   `json:"license"`
	Role    string   `json:"role"`
	Here    bool     `json:"here" about:"the file is on the box"`
	Source  string   `json:"source" about:"catalogue, or the program whose folder it lies in"`
	Fits    []string `json:"fits" about:"sizes of memory that hold it: 64 GB, 96 GB, 128 GB"`
}

// NewPull is a download to begin.
type NewPull struct {
	Model   string   `json:"model" about:"a name of the catalogue, a repository of the hub as owner/name, or an https URL"`
	Include []string `json:"include,omitempty" about:"patterns of file names, for a repository"`
	SHA256  string   `json:"sha256,omitempty" about:"for a URL: what the file must hash to"`
}

// Pull is a download.
type Pull struct {
	ID      string    `json:"id"`
	Model   string    `json:"model"`
	State   string    `json:"state" about:"running, done, failed or cancelled"`
	Step    string    `json:"step"`
	Done    int64     `json:"done" about:"bytes of this step"`
	Total   int64     `json:"total" about:"0 when unknown"`
	Started time.Time `json:"started"`
	Error   string    `json:"error"`
}

// Backend is an installed server program.
type Backend struct {
	Device   string `json:"device"`
	Version  string `json:"version"`
	Current  bool   `json:"current"`
	Previous bool   `json:"previous" about:"what a rollback returns to"`
}

// Setting is one value of the configuration.
type Setting struct {
	Name       string `json:"name"`
	Value      string `json:"value" about:"(secret) where it is one"`
	Origin     string `json:"origin" about:"default, settings, a line of the file, a variable or a flag"`
	About      string `json:"about"`
	Changeable bool   `json:"changeable" about:"the control plane may change it"`
}

// Certificate is what the box shows to clients.
type Certificate struct {
	Mode        string   `json:"mode" about:"local, acme or files"`
	Names       []string `json:"names"`
	Fingerprint string   `json:"fingerprint" about:"SHA-256 of the box's own root, in hex; empty without one"`
	Words       string   `json:"words" about:"the same, to be read aloud"`
	Root        string   `json:"root" about:"PEM of the box's own root"`
}

// LogLine is one line of the program's own log. Prompts and secrets are never in it.
type LogLine struct {
	ID    int64             `json:"id"`
	Time  time.Time         `json:"time"`
	Level string            `json:"level"`
	Text  string            `json:"text"`
	Attrs map[string]string `json:"attrs"`
}
