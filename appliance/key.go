package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"onebit/appliance/admin"
)

const keyUsage = `usage: 1bit key create NAME [options]
       1bit key list
       1bit key show KEY
       1bit key update KEY [options]
       1bit key revoke KEY...

Keys of the box that runs on this machine. KEY is an id, a name, or the beginning that list shows. create prints the key
itself, this once: the box keeps only its hash. revoke cuts what runs by the key within a second.

  --for PERSON          whose key it is; needed where the box has several admins
  --model PATTERN       only such models, * for any text; may be repeated, and so may the next two
  --endpoint PATH       only such paths, as in /chat/completions or /chat/*
  --collection NAME     only such collections of documents, by name or id
  --bind                passages of those are added to chats; --bind=false ends that
  --admin               good for the admin API
  --guest               a pass for a visitor: it expires after a day and has limits, unless they are given
  --rpm N               requests a minute, 0 for no limit
  --tokens-per-day N    prompt and answer, 0 for no limit
  --concurrency N       requests at once, 0 for no limit
  --priority PRIORITY   the highest that its requests may have: background, normal or interactive (unless it is said); those
                        above it are lowered to it
  --weight N            its share of a busy model beside other keys, 1 to 100; 2 is twice the share of one with 1
  --privacy LEVEL       what the request log keeps: none, metadata or full
  --expires WHEN        12h, 7d, 2027-01-31 or never
  --name NAME           with update: another name
  --socket PATH         the box's socket ($ONEBIT_SOCKET, else admin.sock in the state directory)
`

// key is `1bit key`.
func (p program) key(ctx context.Context, args []string) int {
	return p.runActs(ctx, "key", keyUsage, map[string]act{
		"create": createKey, "list": listKeys, "show": showKey, "update": updateKey, "revoke": revokeKeys,
	}, args)
}

// keyOptions are those that create and update share.
func keyOptions(c *commandLine, k *admin.KeyChange) {
	c.list("model", &k.Models)
	c.list("endpoint", &k.Endpoints)
	c.list("collection", &k.Collections)
	c.BoolFunc("bind", "", func(text string) error {
		yes, err := strconv.ParseBool(text)
		k.Bind = &yes
		return err
	})
	number(c, "rpm", &k.RequestsPerMinute)
	number(c, "tokens-per-day", &k.TokensPerDay)
	number(c, "concurrency", &k.Concurrency)
	c.text("priority", &k.Priority)
	number(c, "weight", &k.Weight)
	c.text("privacy", &k.Privacy)
	c.moment("expires", &k.Expires)
}

func createKey(ctx context.Context, p program, args []string) error {
	c := newCommandLine("create")
	var k admin.NewKey
	keyOptions(c, &k.KeyChange)
	owner := c.String("for", "", "")
	c.BoolVar(&k.Admin, "admin", false, "")
	c.BoolVar(&k.Guest, "guest", false, "")
	l, err := c.open(args, 1, 1)
	if err != nil {
		return err
	}
	k.Name = &c.words[0]
	if *owner != "" {
		person, err := l.findPerson(ctx, *owner)
		if err != nil {
			return err
		}
		k.Owner = person.ID
	}
	var made admin.MadeKey
	if err := l.call(ctx, "POST", "/keys", k, &made); err != nil {
		return err
	}
	p.warn(made.Warnings)
	fmt.Fprintf(p.stderr, "1bit key: made %s; it is shown this once\n", made.ID)
	fmt.Fprintln(p.stdout, made.Secret)
	return nil
}

func listKeys(ctx context.Context, p program, args []string) error {
	l, err := newCommandLine("list").open(args, 0, 0)
	if err != nil {
		return err
	}
	var all struct{ Keys []admin.Key }
	if err := l.call(ctx, "GET", "/keys", nil, &all); err != nil {
		return err
	}
	var people struct{ People []admin.Person }
	if err := l.call(ctx, "GET", "/people", nil, &people); err != nil {
		return err
	}
	names := map[string]string{}
	for _, person := range people.People {
		names[person.ID] = person.Name
	}
	rows := [][]string{{"ID", "BEGINS", "NAME", "OF", "SCOPE", "PRIORITY", "WEIGHT", "EXPIRES", "USED"}}
	for _, k := range all.Keys {
		expires := date(k.Expires)
		if k.Revoked != nil {
			expires = "revoked"
		}
		rows = append(rows, []string{k.ID, k.Prefix, k.Name, names[k.Owner], keyScope(k), k.Priority, strconv.Itoa(k.Weight), expires, date(k.Used)})
	}
	return table(p.stdout, rows)
}

// keyScope says in few words what a key is good for.
func keyScope(k admin.Key) string {
	var words []string
	if k.Admin {
		words = append(words, "admin")
	}
	for _, list := range [][]string{k.Models, k.Endpoints, k.Collections} {
		words = append(words, list...)
	}
	if len(words) == 0 {
		return "all"
	}
	return strings.Join(words, ",")
}

func showKey(ctx context.Context, p program, args []string) error {
	c := newCommandLine("show")
	l, err := c.open(args, 1, 1)
	if err != nil {
		return err
	}
	k, err := l.findKey(ctx, c.words[0])
	if err != nil {
		return err
	}
	limit := func(n int64) string {
		if n == 0 {
			return "no limit"
		}
		return fmt.Sprint(n)
	}
	all := func(list []string) string {
		if len(list) == 0 {
			return "all"
		}
		return strings.Join(list, ", ")
	}
	return table(p.stdout, [][]string{
		{"id", k.ID}, {"name", k.Name}, {"begins", k.Prefix}, {"owner", k.Owner}, {"admin", fmt.Sprint(k.Admin)},
		{"models", all(k.Models)}, {"endpoints", all(k.Endpoints)}, {"collections", all(k.Collections)},
		{"requests a minute", limit(int64(k.RequestsPerMinute))}, {"tokens a day", limit(k.TokensPerDay)}, {"requests at once", limit(int64(k.Concurrency))},
		{"priority", "up to " + k.Priority}, {"weight", fmt.Sprint(k.Weight)}, {"privacy", k.Privacy}, {"created", date(&k.Created)}, {"expires", date(k.Expires)}, {"revoked", date(k.Revoked)}, {"used", date(k.Used)},
	})
}

func updateKey(ctx context.Context, p program, args []string) error {
	c := newCommandLine("update")
	var change admin.KeyChange
	keyOptions(c, &change)
	c.text("name", &change.Name)
	l, err := c.open(args, 1, 1)
	if err != nil {
		return err
	}
	k, err := l.findKey(ctx, c.words[0])
	if err != nil {
		return err
	}
	var changed admin.ChangedKey
	if err := l.call(ctx, "PATCH", "/keys/"+escaped(k.ID), change, &changed); err != nil {
		return err
	}
	p.warn(changed.Warnings)
	return nil
}

// warn prints what a key is not good for at the moment.
func (p program) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintf(p.stderr, "1bit key: warning: %s\n", w)
	}
}

func revokeKeys(ctx context.Context, p program, args []string) error {
	c := newCommandLine("revoke")
	l, err := c.open(args, 1, 1000)
	if err != nil {
		return err
	}
	for _, word := range c.words {
		k, err := l.findKey(ctx, word)
		if err != nil {
			return err
		}
		if err := l.call(ctx, "DELETE", "/keys/"+escaped(k.ID), nil, nil); err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "1bit key: revoked %s (%s)\n", k.Name, k.ID)
	}
	return nil
}
