package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"onebit/appliance/egress"
)

// DefaultHub is asked when no other is named.
const DefaultHub = "https://huggingface.co"

// Hub is a server of model repositories.
type Hub struct {
	URL    string // without a slash at its end
	Client *egress.Client
}

// HubFromEnv returns the hub that $HF_ENDPOINT names, as other tools understand it. What is named there may lie
// anywhere, and so may the hosts that $ONEBIT_ALLOW_HOSTS lists, with commas between them. The token, for repositories
// that ask for one, is sent to the hub alone. A proxy of the environment is used.
func HubFromEnv(token egress.Token) (Hub, error) {
	h := Hub{URL: strings.TrimRight(os.Getenv("HF_ENDPOINT"), "/")}
	var cfg egress.Config
	if h.URL == "" {
		h.URL = DefaultHub
	} else {
		u, err := url.Parse(h.URL)
		if err != nil || u.Host == "" {
			return h, errors.New("HF_ENDPOINT is no URL")
		}
		cfg.Allow = []string{u.Host}
	}
	for _, host := range strings.Split(os.Getenv("ONEBIT_ALLOW_HOSTS"), ",") {
		if host = strings.TrimSpace(host); host != "" {
			cfg.Allow = append(cfg.Allow, host)
		}
	}
	if !token.Empty() {
		cfg.Tokens = map[string]egress.Token{h.URL: token}
	}
	at, err := url.Parse(h.URL)
	if err == nil {
		cfg.Proxy, err = http.ProxyFromEnvironment(&http.Request{URL: at})
	}
	if err != nil {
		return h, fmt.Errorf("reading the proxy of the environment: %w", err)
	}
	h.Client, err = egress.New(cfg)
	return h, err
}

// RepoFile is one file of a repository.
type RepoFile struct {
	Path   string
	Size   int64  // bytes
	SHA256 string // lower-case hex; empty for small files, which the hub keeps by another kind of hash
}

// Repo is what a hub says about one revision of a repository.
type Repo struct {
	Name   string
	Commit string // the revision that was meant
	Files  []RepoFile
}

var (
	sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)
	commitHex = regexp.MustCompile(`^[0-9a-f]{7,64}$`)
)

// maxListing bounds a repository's list of files, in bytes.
const maxListing = 16 << 20

// Repo asks for a repository's files at a revision.
func (h Hub) Repo(ctx context.Context, name, revision string) (Repo, error) {
	if revision == "" {
		revision = "main"
	}
	b, err := h.Client.Bytes(ctx, h.URL+"/api/models/"+name+"/revision/"+url.PathEscape(revision)+"?blobs=true", maxListing)
	if err != nil {
		return Repo{}, fmt.Errorf("asking the hub for %s: %w", name, hubError(err))
	}
	r, err := ParseRepo(b)
	if err != nil {
		return Repo{}, fmt.Errorf("asking the hub for %s: %w", name, err)
	}
	r.Name = name
	return r, nil
}

// hubError says what to do about a refusal.
func hubError(err error) error {
	s, ok := errors.AsType[*egress.StatusError](err)
	if !ok {
		return err
	}
	switch s.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: it does not exist, or asks for a token: give --token-file FILE or HF_TOKEN, and accept its terms on the hub's page", err)
	case http.StatusNotFound:
		return fmt.Errorf("%w: there is no such repository or revision", err)
	}
	return err
}

// ParseRepo reads a hub's description of a repository.
func ParseRepo(b []byte) (Repo, error) {
	var in struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Path string `json:"rfilename"`
			Size int64  `json:"size"`
			LFS  *struct {
				SHA256 string `json:"sha256"`
				OID    string `json:"oid"`
				Size   int64  `json:"size"`
			} `json:"lfs"`
		} `json:"siblings"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return Repo{}, fmt.Errorf("its answer is not what a hub says: %w", err)
	}
	if !commitHex.MatchString(in.SHA) {
		return Repo{}, fmt.Errorf("its answer is not what a hub says: the commit is %.80q", in.SHA)
	}
	r := Repo{Commit: in.SHA}
	for _, s := range in.Siblings {
		f := RepoFile{Path: s.Path, Size: s.Size}
		if s.LFS != nil {
			f.SHA256, f.Size = s.LFS.SHA256, max(s.LFS.Size, s.Size)
			if f.SHA256 == "" {
				f.SHA256 = strings.TrimPrefix(s.LFS.OID, "sha256:")
			}
			if !sha256Hex.MatchString(f.SHA256) {
				return Repo{}, fmt.Errorf("its answer is not what a hub says: the hash of %.80q is %.80q", s.Path, f.SHA256)
			}
		}
		if local(f.Path) != nil || f.Size < 0 || f.Size > maxFile {
			continue // a file that is not taken, whatever is asked for
		}
		r.Files = append(r.Files, f)
	}
	slices.SortFunc(r.Files, func(a, b RepoFile) int { return strings.Compare(a.Path, b.Path) })
	return r, nil
}

// maxFile is the largest file that is taken, in bytes.
const maxFile = 4 << 40

// file returns the URL of a repository's file.
func (h Hub) file(repo, revision, name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return h.URL + "/" + repo + "/resolve/" + url.PathEscape(revision) + "/" + strings.Join(parts, "/")
}

// Head asks what a hub says about one file before it sends its bytes elsewhere: size and hash, zero where it is silent.
func (h Hub) Head(ctx context.Context, address string) (RepoFile, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, address, nil)
	if err != nil {
		return RepoFile{}, fmt.Errorf("%q is no URL", withoutQuery(address))
	}
	req.Header.Set("Accept-Encoding", "identity")
	res, err := h.Client.Do(req, egress.Limits{Redirects: -1})
	if err != nil {
		return RepoFile{}, err
	}
	res.Body.Close()
	f := RepoFile{Path: path.Base(req.URL.Path)}
	f.SHA256 = strings.Trim(strings.TrimPrefix(res.Header.Get("X-Linked-Etag"), "W/"), `"`)
	if !sha256Hex.MatchString(f.SHA256) {
		f.SHA256 = ""
	}
	if n, err := strconv.ParseInt(res.Header.Get("X-Linked-Size"), 10, 64); err == nil && n > 0 && n <= maxFile {
		f.Size = n
	}
	return f, nil
}
