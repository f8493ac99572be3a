package main

import (
	"context"
	"fmt"
	"time"

	"onebit/appliance/admin"
	"onebit/appliance/auth"
)

const personUsage = `usage: 1bit person list
       1bit person invite [--role ROLE] [--name NAME] [--expires WHEN] [--until WHEN]
       1bit person add NAME [--role ROLE] [--until WHEN]
       1bit person disable|enable NAME
       1bit person rm NAME

The people of the box that runs on this machine. invite prints a code, which lets one newcomer in who then chooses a
password or a passkey. add makes a person without one, to own keys. disable cuts what runs of theirs within a second.
rm takes their keys and their history along.

  --role ROLE      admin, member or guest; member unless it is given
  --name NAME      the newcomer's name; they choose when it is not given
  --expires WHEN   how long the invite is good: 12h, 7d, 2027-01-31; seven days unless it is given
  --until WHEN     when the person's access ends
  --socket PATH    the box's socket ($ONEBIT_SOCKET, else admin.sock in the state directory)
`

// person is `1bit person`.
func (p program) person(ctx context.Context, args []string) int {
	return p.runActs(ctx, "person", personUsage, map[string]act{
		"list": listPeople, "add": addPerson, "invite": invitePerson, "rm": removePerson,
		"disable": func(ctx context.Context, p program, args []string) error { return disablePerson(ctx, args, true) },
		"enable":  func(ctx context.Context, p program, args []string) error { return disablePerson(ctx, args, false) },
	}, args)
}

func listPeople(ctx context.Context, p program, args []string) error {
	l, err := newCommandLine("list").open(args, 0, 0)
	if err != nil {
		return err
	}
	var all struct{ People []admin.Person }
	if err := l.call(ctx, "GET", "/people", nil, &all); err != nil {
		return err
	}
	rows := [][]string{{"ID", "NAME", "ROLE", "SINCE", "UNTIL", "STATE"}}
	for _, person := range all.People {
		state := "active"
		switch {
		case person.Disabled:
			state = "disabled"
		case person.Expires != nil && person.Expires.Before(time.Now()):
			state = "expired"
		}
		rows = append(rows, []string{person.ID, person.Name, person.Role, date(&person.Created), date(person.Expires), state})
	}
	return table(p.stdout, rows)
}

func addPerson(ctx context.Context, p program, args []string) error {
	c := newCommandLine("add")
	var n admin.NewPerson
	c.StringVar(&n.Role, "role", "", "")
	c.moment("until", &n.Expires)
	l, err := c.open(args, 1, 1)
	if err != nil {
		return err
	}
	n.Name = c.words[0]
	var made admin.Person
	if err := l.call(ctx, "POST", "/people", n, &made); err != nil {
		return err
	}
	fmt.Fprintln(p.stdout, made.ID)
	return nil
}

func invitePerson(ctx context.Context, p program, args []string) error {
	c := newCommandLine("invite")
	var n admin.NewInvite
	c.StringVar(&n.Role, "role", "", "")
	c.StringVar(&n.Name, "name", "", "")
	c.moment("expires", &n.Expires)
	c.moment("until", &n.Until)
	l, err := c.open(args, 0, 0)
	if err != nil {
		return err
	}
	var made admin.MadeInvite
	if err := l.call(ctx, "POST", "/invites", n, &made); err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "1bit person: an invite for one %s, good until %s:\n", made.Role, date(&made.Expires))
	return p.showCode(made.Code, made.URL)
}

// showCode prints a code, and where to use it; people get a picture of that too.
func (p program) showCode(code, url string) error {
	if url == "" {
		fmt.Fprintln(p.stdout, code)
		return nil
	}
	if isTerminal(p.stdout) {
		picture, err := auth.DrawQR(auth.NewSecret(url))
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stderr, "\n%s\n", picture)
	}
	fmt.Fprintf(p.stdout, "%s\n%s\n", code, url)
	return nil
}

func removePerson(ctx context.Context, _ program, args []string) error {
	return changePerson(ctx, "rm", args, "DELETE", nil)
}

func disablePerson(ctx context.Context, args []string, off bool) error {
	return changePerson(ctx, "disable", args, "PATCH", admin.PersonChange{Disabled: &off})
}

// changePerson asks for something about the person that the command line names.
func changePerson(ctx context.Context, name string, args []string, method string, body any) error {
	c := newCommandLine(name)
	l, err := c.open(args, 1, 1)
	if err != nil {
		return err
	}
	person, err := l.findPerson(ctx, c.words[0])
	if err != nil {
		return err
	}
	return l.call(ctx, method, "/people/"+escaped(person.ID), body, nil)
}

const adminUsage = `usage: 1bit admin recover [--socket PATH]

Makes the box that runs on this machine show a code, with which an admin who is locked out gets back in at its page
/recover, with a new password and a new recovery key. Nothing is deleted. On a box that belongs to nobody yet, the code
claims it. The code is good once, for half an hour, and it replaces the code before it.
`

// admin is `1bit admin`.
func (p program) admin(ctx context.Context, args []string) int {
	return p.runActs(ctx, "admin", adminUsage, map[string]act{"recover": recoverAdmin}, args)
}

func recoverAdmin(ctx context.Context, p program, args []string) error {
	l, err := newCommandLine("recover").open(args, 0, 0)
	if err != nil {
		return err
	}
	var armed admin.ArmedCode
	if err := l.call(ctx, "POST", "/claim-code", struct{}{}, &armed); err != nil {
		return err
	}
	what := "to claim the box with"
	if armed.Claimed {
		what = "by which an admin gets back in"
	}
	fmt.Fprintf(p.stderr, "1bit admin: a code %s, good until %s:\n", what, armed.Expires.Local().Format("15:04"))
	return p.showCode(armed.Code, armed.URL)
}
