//go:build linux

package e2e_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tool returns the path of a program that a test is about. Where it is missing the test is skipped; make test-all
// installs what is missing.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("ONEBIT_ALL") != "" {
		t.Fatalf("%s is missing: install it (make test-all does)", name)
	}
	t.Skipf("%s is missing: install it, or run make test-all, which does", name)
	return ""
}

// told runs a command in the repository's root and returns what it says.
func told(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestUnitsAreTight holds the units to what systemd thinks of them.
func TestUnitsAreTight(t *testing.T) {
	analyze := tool(t, "systemd-analyze")
	for unit, most := range map[string]float64{"1bit": 2.0, "1bit-engines": 3.5} {
		out := told(t, nil, analyze, "security", "--offline=true", "--no-pager", "appliance/systemd/"+unit+".service")
		m := regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("%s: no score in %s", unit, out)
		}
		score, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f of at most %.1f", unit, score, most)
		if score > most {
			t.Errorf("%s: %.1f, want at most %.1f\n%s", unit, score, most, out)
		}
		// what it does not know it says; that the program is not installed is known
		said, _ := exec.Command(analyze, "verify", "--man=no", "../appliance/systemd/"+unit+".service").CombinedOutput()
		for line := range strings.Lines(string(said)) {
			if strings.Contains(line, unit+".service") && !strings.Contains(line, "is not executable") {
				t.Errorf("%s", line)
			}
		}
	}
}

// TestUnitsLetWorkersCompile: where children compile, systemd does not forbid it, and they may confine themselves.
func TestUnitsLetWorkersCompile(t *testing.T) {
	for unit, lines := range map[string][]string{
		"1bit": {
			"MemoryDenyWriteExecute=no", "OOMPolicy=continue", "CPUWeight=200",
			"SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp",
		},
		"1bit-engines": {"MemoryDenyWriteExecute=no", "OOMPolicy=continue", "MemoryMax=95%", "TasksMax=32768", "CPUWeight=50"},
	} {
		text := "\n" + file(t, "../appliance/systemd/"+unit+".service")
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s.service has no %s", unit, line)
			}
		}
	}
}

// files lists the files below a folder.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	out := told(t, nil, "find", dir, "-mindepth", "1", "-printf", `%P %m %y\n`)
	for line := range strings.Lines(out) {
		all = append(all, strings.TrimSpace(line))
	}
	slices.Sort(all)
	return all
}

// TestInstallAndUninstall into a folder: what was there before, and the state, is left.
func TestInstallAndUninstall(t *testing.T) {
	dest := t.TempDir()
	kept := []string{"var/lib/1bit/1bit.db", "opt/bin/other"}
	for _, name := range kept {
		path := filepath.Join(dest, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := files(t, dest)
	env := []string{"BIN=" + binary, "DESTDIR=" + dest, "PREFIX=/opt"}
	told(t, env, "make", "--no-print-directory", "install", "PREFIX=/opt", "DESTDIR="+dest)
	if out := told(t, nil, filepath.Join(dest, "opt/bin/1bit"), "version"); out == "" {
		t.Error("the program says nothing")
	}
	for _, unit := range []string{"1bit", "1bit-engines"} {
		text := file(t, filepath.Join(dest, "opt/lib/systemd/system", unit+".service"))
		if !strings.Contains(text, "ExecStart=/opt/bin/1bit ") || strings.Contains(text, "/usr/") {
			t.Errorf("%s starts another program:\n%s", unit, text)
		}
	}
	told(t, env, "make", "--no-print-directory", "uninstall", "PREFIX=/opt", "DESTDIR="+dest)
	if after := files(t, dest); !slices.Equal(before, after) {
		t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// TestInstallOnAMachine does it to this machine itself, in a mount namespace that is thrown away.
func TestInstallOnAMachine(t *testing.T) {
	if os.Getuid() != 0 || exec.Command("unshare", "--mount", "true").Run() != nil {
		t.Skip("only root may make a mount namespace here: run this test as root")
	}
	script := `set -eu
for dir in /usr/local /var /run; do mount -t tmpfs none $dir; done
mkdir -p /usr/local/bin /var/lib/1bit && touch /var/lib/1bit/1bit.db
bash appliance/package/install.sh install >&2
test -x /usr/local/bin/1bit
bash appliance/package/install.sh uninstall >&2
find /usr/local /var /run -mindepth 1 | LC_ALL=C sort | tr '\n' ' '`
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "BIN="+binary)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	const want = "/usr/local/bin /usr/local/lib /usr/local/lib/systemd /usr/local/lib/systemd/system /usr/local/lib/sysusers.d /usr/local/share /usr/local/share/doc /var/lib /var/lib/1bit /var/lib/1bit/1bit.db "
	if string(out) != want {
		t.Errorf("left is %q, want %q", out, want)
	}
}

// debianPackage builds a package in dir.
func debianPackage(t *testing.T, dir, name string) string {
	t.Helper()
	tool(t, "dpkg-deb")
	licenses, program, out := filepath.Join(dir, "licenses"), filepath.Join(dir, "program"), filepath.Join(dir, name)
	if err := os.MkdirAll(licenses, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(licenses, "go.txt"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho 1bit v1.2.3\n"), 0o755); err != nil { // small: packing takes its time
		t.Fatal(err)
	}
	told(t, []string{"VERSION=v1.2.3-4-gabc", "SOURCE_DATE_EPOCH=1800000000"}, "bash", "appliance/package/debian/build.sh", "amd64", program, licenses, out)
	return out
}

// TestDebianPackageOnAMachine installs, removes and purges the package on this machine itself, with its dependencies and
// its scripts as they are, below an overlay that is thrown away.
func TestDebianPackageOnAMachine(t *testing.T) {
	deb := debianPackage(t, t.TempDir(), "1.deb")
	script := `set -eu
at=$(mktemp -d)
mount -t tmpfs none $at
mkdir $at/upper $at/work $at/root
mount -t overlay overlay -o lowerdir=/,upperdir=$at/upper,workdir=$at/work $at/root || exit 77
mount --bind /dev $at/root/dev
mount -t tmpfs none $at/root/run # no systemd runs there
cp "$1" $at/root/tmp/1.deb
cat > $at/root/tmp/try <<'TRY'
set -eu
dpkg -s systemd procps >/dev/null || exit 78
mkdir -p /var/lib/1bit && touch /var/lib/1bit/1bit.db
dpkg -i /tmp/1.deb >/dev/null
/usr/bin/1bit version
getent passwd onebit onebit-engines | cut -d: -f1,6,7
dpkg -r 1bit >/dev/null
ls /usr/bin/1bit /usr/lib/systemd/system/1bit.service 2>/dev/null || true
ls /etc/default/1bit
dpkg -P 1bit >/dev/null
ls /etc/default/1bit /var/cache/1bit-engines 2>/dev/null || true
ls /var/lib/1bit
TRY
chroot $at/root sh /tmp/try
`
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", deb)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); os.Getuid() != 0 || (ok && (failed.ExitCode() == 77 || failed.ExitCode() == 78)) {
		t.Skipf("it takes root, an overlay and a Debian with systemd and procps here: %s", errs.String())
	}
	want := `1bit v1.2.3
onebit:/var/lib/1bit:/usr/sbin/nologin
onebit-engines:/:/usr/sbin/nologin
/etc/default/1bit
1bit.db
`
	if err != nil || out.String() != want {
		t.Errorf("%v: it says\n%swant\n%s%s", err, out.String(), want, errs.String())
	}
}

// TestDebianPackage builds the package twice, looks into it, and installs and removes it below another root.
func TestDebianPackage(t *testing.T) {
	dir := t.TempDir()
	first, second := debianPackage(t, dir, "1.deb"), debianPackage(t, dir, "2.deb")
	if file(t, first) != file(t, second) {
		t.Error("two packages of the same input differ")
	}
	about := told(t, nil, "dpkg-deb", "-I", first)
	for _, want := range []string{"Package: 1bit\n", "Version: 1.2.3+4+gabc\n", "Architecture: amd64\n", "Depends: systemd | systemd-standalone-sysusers, procps\n", "postinst", "prerm", "conffiles"} {
		if !strings.Contains(about, want) {
			t.Errorf("no %q in %s", want, about)
		}
	}
	list := told(t, nil, "dpkg-deb", "-c", first)
	for _, want := range []string{
		`-rwxr-xr-x root/root .* ./usr/bin/1bit\n`, `-rw-r--r-- root/root .* ./usr/lib/systemd/system/1bit.service\n`,
		`./usr/lib/systemd/system/1bit-engines.service\n`, `./usr/lib/sysusers.d/1bit.conf\n`, `./etc/default/1bit\n`, `./usr/share/doc/1bit/copyright\n`,
	} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("no %q in %s", want, list)
		}
	}
	scripts := filepath.Join(dir, "scripts")
	told(t, nil, "dpkg-deb", "-e", first, scripts)
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		told(t, nil, "sh", "-n", filepath.Join(scripts, name))
	}
	if os.Getuid() != 0 {
		t.Log("not installed below another root: that takes root")
		return
	}
	root := filepath.Join(dir, "root")
	for _, name := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/1bit"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"var/lib/dpkg/status", "var/lib/1bit/1bit.db"} {
		if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dpkg := []string{"--root=" + root, "--force-depends", "--force-script-chrootless", "--log=/dev/null"}
	// the users of this machine are not to be changed: the scripts find other programs
	fake := filepath.Join(dir, "fake")
	if err := os.MkdirAll(fake, 0o755); err != nil {
		t.Fatal(err)
	}
	said := filepath.Join(dir, "said")
	for _, name := range []string{"systemd-sysusers", "systemctl"} {
		if err := os.WriteFile(filepath.Join(fake, name), []byte("#!/bin/sh\necho "+name+" \"$@\" >> "+said+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=" + fake + ":" + os.Getenv("PATH")}
	told(t, env, "dpkg", append(dpkg, "--install", first)...)
	if out := told(t, nil, filepath.Join(root, "usr/bin/1bit"), "version"); out == "" {
		t.Error("the program says nothing")
	}
	if got := file(t, said); got != "systemd-sysusers --root="+root+" 1bit.conf\n" {
		t.Errorf("installing did %s", got)
	}
	told(t, env, "dpkg", append(dpkg, "--purge", "1bit")...)
	var left []string
	for _, f := range files(t, root) {
		if strings.HasSuffix(f, " f") && !strings.HasPrefix(f, "var/lib/dpkg/") {
			left = append(left, f)
		}
	}
	if !slices.Equal(left, []string{"var/lib/1bit/1bit.db 600 f"}) {
		t.Errorf("left is %q", left)
	}
}
