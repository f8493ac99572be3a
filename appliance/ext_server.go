package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/record"
	"onebit/extensions"
)

const extServerUsage = `
With the box that runs on this machine, as its admin:

       1bit ext push FILE [--manifest FILE] [--signature FILE] [--config FILE] [--asset NAME=FILE]...
       1bit ext list
       1bit ext shadow MODULE [BINDING] [options]
       1bit ext activate [MODULE] [BINDING] [options]
       1bit ext rollback [BINDING]
       1bit ext unbind BINDING
       1bit ext rm MODULE
       1bit ext log

push uploads a module with FILE.json beside FILE.wasm, and FILE.wasm.minisig where that is there. shadow lets it see requests
without being obeyed; activate lets it decide, or what is in canary or shadow where no module is named; rollback returns to
the one before. MODULE is a name, NAME@VERSION or the beginning of a SHA-256; BINDING is policy or classifier, as the module
is, unless another name is given.

  --percent N            only this share of conversations: a canary
  --config FILE          the module's configuration, JSON
  --grant CAPABILITY     what it gets of what it asks for, else all that the box allows; may be repeated
  --on-error WHAT        open: the default policy decides; reject: the request is turned away
  --every-turn           ask in each turn of a conversation, not once
  --key ID, --model PATTERN   whom a binding of another name is for; may be repeated
  --max-errors SHARE, --max-p99 MS, --max-disagreement SHARE   the box goes back by itself
  --socket PATH          the box's socket ($ONEBIT_SOCKET, else admin.sock in the state directory)
`

// extServerActs are the words of `1bit ext` that need a running box.
func extServerActs() map[string]act {
	return map[string]act{
		"push": pushModule, "list": listModules, "shadow": shadowModule, "activate": activateModule, "rollback": rollbackBinding,
		"unbind": removeBinding, "rm": removeModule, "log": moduleLog,
	}
}

// pushLimit bounds an upload with its dry run: compiling alone may take a minute.
const pushLimit = 5 * time.Minute

func pushModule(ctx context.Context, p program, args []string) error {
	c := newCommandLine("push")
	manifest, signature, config := c.String("manifest", "", ""), c.String("signature", "", ""), c.String("config", "", "")
	var assets *[]string
	c.list("asset", &assets)
	l, err := c.open(args, 1, 1)
	if err != nil {
		return err
	}
	file := c.words[0]
	module, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the module: %w", err)
	}
	f := &moduleForm{}
	f.w = multipart.NewWriter(&f.body)
	// what lies beside the module belongs to it, unless something else is said
	f.file("manifest", *manifest, strings.TrimSuffix(file, ".wasm")+".json")
	f.file("signature", *signature, file+".minisig")
	f.file("config", *config, "")
	if assets != nil {
		for _, text := range *assets {
			name, file, ok := strings.Cut(text, "=")
			if !ok || name == "" || file == "" {
				return usageError{fmt.Errorf("--asset %s: write it as NAME=FILE", text)}
			}
			f.asset(name, file)
		}
	}
	f.part("module", "", module)
	if f.err = errors.Join(f.err, f.w.Close()); f.err != nil {
		return f.err
	}
	sum := sha256.Sum256(module)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://box"+admin.Prefix+"/extensions", &f.body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", f.w.FormDataContentType())
	r.Header.Set("X-1bit-Sha256", hex.EncodeToString(sum[:]))
	l.client.Timeout = pushLimit
	answer, err := l.do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var made extensions.Shown
	if err := readAnswer(answer, &made); err != nil {
		return err
	}
	t := made.Report
	fmt.Fprintf(p.stderr, "1bit ext: %s %s is ready; %d samples, %d hostile and %d recorded requests, at most %d units and %d pages a call, %d µs\n",
		made.Name, made.Version, t.Samples, t.Hostile, t.Recorded, t.Units, t.Pages, t.Micros)
	fmt.Fprintln(p.stdout, made.SHA256)
	return nil
}

// moduleForm is an upload in the making.
type moduleForm struct {
	body bytes.Buffer
	w    *multipart.Writer
	err  error
}

// file adds a file: the one that is named, else the usual one where it is there.
func (f *moduleForm) file(part, named, usual string) {
	name := named
	if name == "" {
		name = usual
	}
	if name == "" || f.err != nil {
		return
	}
	b, err := os.ReadFile(name)
	if err != nil {
		if named != "" {
			f.err = fmt.Errorf("reading the %s: %w", part, err)
		}
		return
	}
	if part != "signature" {
		if b, err = record.Text(b); err != nil {
			f.err = fmt.Errorf("reading the %s %s: %w", part, name, err)
		}
	}
	f.part(part, "", b)
}

// asset adds a file that the module reads.
func (f *moduleForm) asset(name, file string) {
	b, err := os.ReadFile(file)
	if err != nil && f.err == nil {
		f.err = fmt.Errorf("reading the asset %s: %w", name, err)
	}
	f.part("asset", name, b)
}

func (f *moduleForm) part(name, file string, b []byte) {
	if f.err != nil {
		return
	}
	var w io.Writer
	if file != "" {
		w, f.err = f.w.CreateFormFile(name, file)
	} else {
		w, f.err = f.w.CreateFormField(name)
	}
	if f.err == nil {
		_, f.err = w.Write(b)
	}
}

func listModules(ctx context.Context, p program, args []string) error {
	l, err := newCommandLine("list").open(args, 0, 0)
	if err != nil {
		return err
	}
	var all extensions.Listing
	if err := l.call(ctx, "GET", "/extensions", nil, &all); err != nil {
		return err
	}
	rows := [][]string{{"MODULE", "VERSION", "KIND", "STATE", "SHA256", "ADDED"}}
	for _, m := range all.Modules {
		rows = append(rows, []string{m.Name, m.Version, m.Kind, m.State, m.SHA256[:12], date(&m.Added)})
	}
	if err := table(p.stdout, rows); err != nil || len(all.Bindings) == 0 {
		return err
	}
	fmt.Fprintln(p.stdout)
	rows = [][]string{{"BINDING", "STAGE", "MODULE", "CALLS", "UNDECIDED", "P50", "P99", "DIFFERS", "BREAKER", "PROBLEM"}}
	for _, b := range all.Bindings {
		for _, s := range b.Seats {
			u := s.Usage
			lost := int64(0)
			for _, n := range u.Causes {
				lost += n
			}
			stage := s.Stage
			if stage == "canary" {
				stage = fmt.Sprintf("canary %g%%", b.Percent)
			}
			rows = append(rows, []string{b.Name, stage, s.Module, fmt.Sprint(u.Calls), fmt.Sprint(lost), fmt.Sprintf("%.2f ms", u.P50),
				fmt.Sprintf("%.2f ms", u.P99), fmt.Sprint(u.Disagreement), u.Breaker, s.Problem})
		}
	}
	return table(p.stdout, rows)
}

// bindingOptions reads the options of shadow and activate into the body of the request.
func bindingOptions(c *commandLine) func() (map[string]any, error) {
	var config, onError *string
	var grants, keys, models *[]string
	c.text("config", &config)
	c.text("on-error", &onError)
	c.list("grant", &grants)
	c.list("key", &keys)
	c.list("model", &models)
	every := c.Bool("every-turn", false, "")
	numbers := map[string]*float64{}
	for _, name := range []string{"percent", "max-errors", "max-p99", "max-disagreement"} {
		c.Func(name, "", func(text string) error {
			v, err := strconv.ParseFloat(text, 64)
			numbers[name] = &v
			return err
		})
	}
	return func() (map[string]any, error) {
		body, guard := map[string]any{}, map[string]any{}
		if config != nil {
			b, err := os.ReadFile(*config)
			if err == nil {
				b, err = record.Text(b)
			}
			if err != nil {
				return nil, fmt.Errorf("reading the configuration: %w", err)
			}
			if !json.Valid(b) {
				return nil, fmt.Errorf("%s is no JSON", *config)
			}
			body["config"] = json.RawMessage(b)
		}
		for name, v := range map[string]*[]string{"capabilities": grants, "keys": keys, "models": models} {
			if v != nil {
				body[name] = *v
			}
		}
		if onError != nil {
			body["on_error"] = *onError
		}
		if *every {
			body["every_turn"] = true
		}
		if v := numbers["percent"]; v != nil {
			body["percent"] = *v
		}
		for option, member := range map[string]string{"max-errors": "error_rate", "max-p99": "p99_ms", "max-disagreement": "disagreement"} {
			if v := numbers[option]; v != nil {
				guard[member] = *v
			}
		}
		if len(guard) > 0 {
			body["guard"] = guard
		}
		return body, nil
	}
}

// bindingOf is the binding that a module usually has.
func (l *local) bindingOf(ctx context.Context, ref string) (string, error) {
	var all extensions.Listing
	if err := l.call(ctx, "GET", "/extensions", nil, &all); err != nil {
		return "", err
	}
	for _, m := range all.Modules {
		if m.Name == ref || m.Name+"@"+m.Version == ref || len(ref) >= 6 && strings.HasPrefix(m.SHA256, ref) || m.Name+"@"+m.SHA256[:8] == ref {
			return m.Kind, nil
		}
	}
	return "", fmt.Errorf("there is no module %q; 1bit ext list shows those that are here", ref)
}

func placeModule(ctx context.Context, p program, verb string, args []string, least int) error {
	c := newCommandLine(verb)
	options := bindingOptions(c)
	l, err := c.open(args, least, 2)
	if err != nil {
		return err
	}
	body, err := options()
	if err != nil {
		return err
	}
	binding := extensions.PolicyBinding
	if len(c.words) > 0 {
		body["module"] = c.words[0]
		if binding, err = l.bindingOf(ctx, c.words[0]); err != nil && len(c.words) == 1 {
			var all extensions.Listing // a word alone may be a binding, in which something waits
			if lerr := l.call(ctx, "GET", "/extensions", nil, &all); lerr != nil {
				return lerr
			}
			for _, b := range all.Bindings {
				if verb == "activate" && b.Name == c.words[0] {
					delete(body, "module")
					binding, err = b.Name, nil
				}
			}
		}
		if len(c.words) == 2 {
			binding, err = c.words[1], nil
		}
		if err != nil {
			return err
		}
	}
	l.client.Timeout = pushLimit
	if err := l.call(ctx, "POST", "/bindings/"+escaped(binding)+"/"+verb, body, nil); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "1bit ext: done, for the binding %s\n", binding)
	return nil
}

func shadowModule(ctx context.Context, p program, args []string) error {
	return placeModule(ctx, p, "shadow", args, 1)
}

func activateModule(ctx context.Context, p program, args []string) error {
	return placeModule(ctx, p, "activate", args, 0)
}

func rollbackBinding(ctx context.Context, p program, args []string) error {
	c := newCommandLine("rollback")
	l, err := c.open(args, 0, 1)
	if err != nil {
		return err
	}
	binding := extensions.PolicyBinding
	if len(c.words) == 1 {
		binding = c.words[0]
	}
	return l.call(ctx, "POST", "/bindings/"+escaped(binding)+"/rollback", nil, nil)
}

func removeBinding(ctx context.Context, p program, args []string) error {
	c := newCommandLine("unbind")
	l, err := c.open(args, 1, 1)
	if err != nil {
		return err
	}
	return l.call(ctx, "DELETE", "/bindings/"+escaped(c.words[0]), nil, nil)
}

func removeModule(ctx context.Context, p program, args []string) error {
	c := newCommandLine("rm")
	l, err := c.open(args, 1, 1)
	if err != nil {
		return err
	}
	return l.call(ctx, "DELETE", "/extensions/"+escaped(c.words[0]), nil, nil)
}

func moduleLog(ctx context.Context, p program, args []string) error {
	l, err := newCommandLine("log").open(args, 0, 0)
	if err != nil {
		return err
	}
	rows := [][]string{{"TIME", "WHO", "ACTION", "BINDING", "MODULE", "DETAIL"}}
	for after := int64(0); ; {
		var some struct{ Events []extensions.Event }
		query := url.Values{"after": {fmt.Sprint(after)}, "limit": {"1000"}}
		if err := l.call(ctx, "GET", "/extensions/log?"+query.Encode(), nil, &some); err != nil {
			return err
		}
		for _, e := range some.Events {
			rows = append(rows, []string{date(&e.Time), e.Person, e.Action, e.Binding, e.Module[:min(12, len(e.Module))], e.Detail})
			after = e.ID
		}
		if len(some.Events) < 1000 {
			return table(p.stdout, rows)
		}
	}
}
