package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"onebit/engine/backend"
	owner "onebit/engine/keeper"
	"onebit/engine/sandbox"
)

const enginesUsage = `usage: 1bit engines [options]

Starts and owns the model servers of a box that runs as another user, each in a sandbox and as a user of its own. The
box finds it by the variable ONEBIT_ENGINES. The system's service manager starts it; see appliance/BOX.md.

      --socket PATH       where the box asks ($RUNTIME_DIRECTORY/engines.sock, else /run/1bit-engines/engines.sock)
      --client USER       whose box is served: a name or a number (our own)
      --users FIRST-LAST  numbers of users that belong to nobody, for the servers; takes the rights to become others
      --scratch DIR       a folder that all users may write, for caches of drivers ($CACHE_DIRECTORY, else none)
      --slots DIR         a folder for the state of slots, which the client may see; the box finds it by the variable
                          ONEBIT_SLOTS (slots in the scratch folder, else none)
  -h, --help              this text
`

// systemPrograms is the state directory of servers that root has installed for all.
const systemPrograms = "/var/lib/1bit-engines"

// enginesSocket is where an installed box asks for model servers.
const enginesSocket = "/run/1bit-engines/engines.sock"

// enginesOptions is the command line of `1bit engines`.
type enginesOptions struct {
	socket, scratch, slots string

	client int
	users  owner.Users
}

// engines is `1bit engines`.
func (p program) engines(ctx context.Context, args []string) int {
	o, err := parseEngines(args, os.Getenv)
	if errors.Is(err, errHelp) {
		fmt.Fprint(p.stdout, enginesUsage)
		return 0
	}
	if err == nil {
		var stop context.CancelFunc
		ctx, stop = untilSignal(ctx)
		defer stop()
		err = p.keep(ctx, o)
	}
	if err != nil {
		return p.fail("engines", err)
	}
	return 0
}

func parseEngines(args []string, getenv func(string) string) (enginesOptions, error) {
	o := enginesOptions{socket: enginesSocket, client: os.Getuid(), scratch: getenv("CACHE_DIRECTORY")}
	if dir := getenv("RUNTIME_DIRECTORY"); dir != "" {
		o.socket = filepath.Join(dir, "engines.sock")
	}
	for ; len(args) > 0; args = args[2:] {
		name := args[0]
		if name == "-h" || name == "--help" {
			return o, errHelp
		}
		if len(args) == 1 || args[1] == "" {
			return o, fmt.Errorf("%s needs a value, or is no option", name)
		}
		var err error
		switch value := args[1]; name {
		case "--socket":
			o.socket = value
		case "--scratch":
			o.scratch, err = filepath.Abs(value)
		case "--slots":
			o.slots, err = filepath.Abs(value)
		case "--client":
			o.client, err = userNumber(value)
		case "--users":
			o.users, err = userRange(value)
		default:
			err = errors.New("there is no such option")
		}
		if err != nil {
			return o, fmt.Errorf("%s: %w", name, err)
		}
	}
	if o.slots == "" && o.scratch != "" {
		o.slots = filepath.Join(o.scratch, "slots")
	}
	return o, nil
}

// userNumber finds a user by name or number.
func userNumber(text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 {
		return n, nil
	}
	u, err := user.Lookup(text)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(u.Uid)
}

// userRange reads FIRST-LAST.
func userRange(text string) (owner.Users, error) {
	from, to, ok := strings.Cut(text, "-")
	first, err := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if !ok || err != nil || err2 != nil || last < first {
		return owner.Users{}, fmt.Errorf("%q is not FIRST-LAST", text)
	}
	return owner.Users{First: first, Count: last - first + 1}, nil
}

// keep owns model servers until ctx ends.
func (p program) keep(ctx context.Context, o enginesOptions) error {
	machine, err := backend.ThisMachine()
	if err != nil {
		return err
	}
	log := p.log(slog.LevelInfo)
	p.noNewCode(log)
	machine.Installed = programsIn(systemPrograms)
	c := backend.Confinement{Executable: machine.Executable, Environ: os.Environ(), Fresh: o.users.Count > 0, Log: log}
	machine.Ask = c.Ask
	if o.users.Count > 1 { // the first is for questions
		asking := c
		asking.As = &backend.Identity{UID: uint32(o.users.First), GID: uint32(o.users.First)}
		machine.Ask = asking.Ask
		o.users.First, o.users.Count = o.users.First+1, o.users.Count-1
	}
	c.Scratch = o.scratch
	for _, missing := range sandbox.Supported().Missing() {
		log.Warn("the sandbox of model servers has holes on this kernel", "why", missing)
	}
	if o.users.Count == 0 {
		log.Warn("all model servers run as one user: --users gives each its own")
	}
	if o.slots != "" {
		if err := slotsFor(o); err != nil {
			log.Warn("the state of slots is not kept", "why", err)
			o.slots = ""
		}
	}
	k, err := owner.New(owner.Config{Machine: machine, Confinement: c, Client: o.client, Users: o.users, Append: groupOfTheBox(), Slots: o.slots, Log: log})
	if err != nil {
		return err
	}
	if err := os.Remove(o.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the old socket: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: o.socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("opening the socket: %w", err)
	}
	if err := os.Chmod(o.socket, 0o660); err != nil { // the kernel says who connects; this keeps others from trying
		return errors.Join(fmt.Errorf("opening the socket to its group: %w", err), l.Close())
	}
	log.Info("model servers can be asked for", "socket", o.socket, "client", o.client, "users", o.users.Count, "kernel", sandbox.Supported().String())
	theSystem(os.Getenv).say("READY=1")
	return k.Serve(ctx, l)
}

// slotsMode lets the client look into the folder for the state of slots, and make nothing in it: the folders of models are
// made for it.
const slotsMode = 0o750

// slotsFor makes the folder for the state of slots, for the client's group.
func slotsFor(o enginesOptions) error {
	group, err := groupOf(o.client)
	switch {
	case err != nil:
		return err
	case group == 0 && o.users.Count > 0:
		return errors.New("the client has the group of root, which no model server may have")
	}
	if err := os.Mkdir(o.slots, slotsMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := os.OpenRoot(o.slots) // it may lie where others can make names: by the folder itself all is done
	if err != nil {
		return err
	}
	defer root.Close()
	return errors.Join(root.Chown(".", -1, group), root.Chmod(".", slotsMode)) // of a folder that is not ours neither works
}

// groupOf is the group that we share with a client: our own, or the client's where ours is root's.
func groupOf(client int) (int, error) {
	if group := os.Getegid(); group != 0 {
		return group, nil
	}
	who, err := user.LookupId(strconv.Itoa(client))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(who.Gid)
}

// noNewCode keeps this process, and none that it starts, from running what it has written to memory.
func (p program) noNewCode(log *slog.Logger) {
	if !p.own {
		return
	}
	if err := sandbox.NoNewCode(); err != nil {
		log.Info("this process may make code of data: the system cannot keep it alone from that", "why", err)
		return
	}
	log.Info("this process makes no code of data from here on")
}

// sandboxExec is what model servers begin as.
func (p program) sandboxExec(args []string) int {
	if err := sandbox.Run(args); err != nil {
		return p.fail(sandbox.Command, err)
	}
	return 0
}
