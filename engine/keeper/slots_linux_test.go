package keeper_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"onebit/engine"
	"onebit/engine/backend"
	"onebit/engine/keeper"
	"onebit/engine/sandbox"
)

// slotFolder is a folder for the state of slots with the group of a client.
func slotFolder(t *testing.T, group int) string {
	t.Helper()
	dir := filepath.Dir(public(t, "x", nil, 0o600)) // others may pass
	slots := filepath.Join(dir, "slots")
	if err := errors.Join(os.Mkdir(slots, 0o750), os.Chown(slots, -1, group)); err != nil {
		t.Fatal(err)
	}
	return slots
}

// relay sends a request to a child and decodes the answer.
func relay(t *testing.T, c *backend.Child, path, body string) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://child"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Relay(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	var v map[string]any
	if err != nil || r.StatusCode != http.StatusOK || json.Unmarshal(b, &v) != nil {
		t.Fatalf("%s: %d %s, %v", path, r.StatusCode, b, err)
	}
	return v
}

// TestStateOfSlotsOutlivesItsUser: what a process has saved is taken back by one that runs as somebody else, and the
// client may look at it and remove it; nobody else may.
func TestStateOfSlotsOutlivesItsUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may run processes as other users: run this test as root, as make test-all does in a container")
	}
	if sandbox.Supported().Landlock == 0 {
		t.Skip("this kernel cannot keep a model server to one folder")
	}
	const first, group = 70970, 70990
	slots, out := slotFolder(t, group), &safe{}
	socket := startWith(t, config{program: copyOfUs(t), users: keeper.Users{First: first, Count: 2}, client: 0, slots: slots})
	o := backend.Options{Model: tiny(t), Alias: "tiny", Device: engine.CPU, SlotDir: filepath.Join(slots, "tiny")}
	one, two := childWith(t, socket, o, out), childWith(t, socket, o, out)
	const prompt = `{"prompt":[41,42,43,44,45,46,47,48],"n_predict":1,"id_slot":0}`
	for i, c := range []*backend.Child{one, two} {
		if i == 1 {
			if n := relay(t, c, "/slots/0?action=restore", `{"filename":"state"}`)["n_restored"]; n != 8.0 {
				t.Errorf("%v tokens were restored", n)
			}
		}
		relay(t, c, "/completion", prompt)
		if n := relay(t, c, "/slots/0?action=save", `{"filename":"state"}`)["n_saved"]; n != 8.0 {
			t.Errorf("%v tokens were saved", n)
		}
		for path, want := range map[string]struct {
			mode os.FileMode
			uid  uint32
		}{o.SlotDir: {os.ModeDir | 0o770, 0}, filepath.Join(o.SlotDir, "state"): {0o660, uint32(first + i)}} {
			info, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if stat := info.Sys().(*syscall.Stat_t); info.Mode() != want.mode || stat.Uid != want.uid || stat.Gid != group {
				t.Errorf("%s: %v of %d:%d, want %v of %d:%d", path, info.Mode(), stat.Uid, stat.Gid, want.mode, want.uid, group)
			}
		}
	}
	childWith(t, startWith(t, config{program: copyOfUs(t), users: keeper.Users{First: 70980, Count: 1}, client: 0, slots: slots}),
		backend.Options{Model: o.Model, Alias: "tiny", Device: engine.CPU}, out)
	for _, want := range []string{"user: 70970 70990 []", "user: 70971 70990 []", "user: 70980 70980 []"} { // who keeps no state has a group of its own
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}

// TestStateOfSlotsWithoutUsers: processes that run as the keeper keep state the same way.
func TestStateOfSlotsWithoutUsers(t *testing.T) {
	if sandbox.Supported().Landlock == 0 {
		t.Skip("this kernel cannot keep a model server to one folder")
	}
	slots := slotFolder(t, os.Getgid())
	socket := startWith(t, config{program: os.Args[0], client: os.Getuid(), slots: slots})
	c := childWith(t, socket, backend.Options{Model: tiny(t), Alias: "tiny", Device: engine.CPU, SlotDir: filepath.Join(slots, "tiny")}, &safe{})
	relay(t, c, "/completion", `{"prompt":[41,42,43],"n_predict":1,"id_slot":0}`)
	relay(t, c, "/slots/0?action=save", `{"filename":"state"}`)
	if n := relay(t, c, "/slots/1?action=restore", `{"filename":"state"}`)["n_restored"]; n != 3.0 {
		t.Errorf("%v tokens were restored", n)
	}
	if info, err := os.Stat(filepath.Join(slots, "tiny", "state")); err != nil || info.Mode() != 0o660 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestKeeperKeepsSlotsInOnePlace: a client cannot have anything else opened.
func TestKeeperKeepsSlotsInOnePlace(t *testing.T) {
	if sandbox.Supported().Landlock == 0 {
		t.Skip("this kernel cannot keep a model server to one folder")
	}
	model, slots := tiny(t), slotFolder(t, os.Getgid())
	with := startWith(t, config{program: os.Args[0], client: os.Getuid(), slots: slots})
	without := start(t, os.Args[0], keeper.Users{}, os.Getuid())
	if err := os.Symlink("/tmp", filepath.Join(slots, "link")); err != nil {
		t.Fatal(err)
	}
	plan := func(socket, dir string) error {
		_, err := keeper.Client{Socket: socket}.Plan(t.Context(), backend.Options{Model: model, Device: engine.CPU, SlotDir: dir})
		return err
	}
	for _, c := range []struct{ socket, dir, want string }{
		{with, "/tmp", "not in the folder"},
		{with, slots, "not in the folder"},
		{with, filepath.Join(slots, "a", "b"), "not in the folder"},
		{with, slots + "/../x", "no absolute path"},
		{with, "slots/a", "no absolute path"},
		{with, filepath.Join(slots, "link"), "no folder"},
	} {
		if err := plan(c.socket, c.dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.dir, err, c.want)
		}
	}
	if err := plan(without, filepath.Join(slots, "b")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(slots, "b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a keeper that keeps no state made a folder: %v", err)
	}
	if err := plan(with, filepath.Join(slots, "a")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(slots, "a")); err != nil || info.Mode() != os.ModeDir|0o770 {
		t.Errorf("%v, %v", info, err)
	}
	for _, c := range []config{{program: os.Args[0], slots: filepath.Join(slots, "absent")}, {program: os.Args[0], slots: model}} {
		if _, _, err := open(filepath.Join(t.TempDir(), "s"), c); err == nil || !strings.Contains(err.Error(), "state of slots") {
			t.Errorf("%s: %v", c.slots, err)
		}
	}
	if os.Getuid() == 0 {
		if _, _, err := open(filepath.Join(t.TempDir(), "s"), config{program: os.Args[0], slots: slots, users: keeper.Users{First: 70950, Count: 1}}); err == nil || !strings.Contains(err.Error(), "group of root") {
			t.Errorf("the group of root: %v", err)
		}
	}
}
