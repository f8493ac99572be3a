package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/brutella/dnssd"
	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"

	"onebit/appliance/edge"
	"onebit/appliance/egress"
)

// roleEnv makes this test program play a machine of the network in TestDiscovery.
const roleEnv = "ONEBIT_TEST_EDGE_ROLE"

// machine is a process in a network of its own.
type machine struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out chan string
}

// newMachine starts this program again in a role, with no network but loopback.
func newMachine(t *testing.T, role string) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("networks of their own need root: run the tests as root to have this one")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestDiscovery$", "-test.v")
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
		t.Skip("this system allows no networks of their own")
	} else if err != nil {
		t.Fatal(err)
	}
	m := &machine{cmd: cmd, in: in, out: make(chan string, 100)}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	go func() {
		defer close(m.out)
		for s := bufio.NewScanner(out); s.Scan(); {
			if text, ok := strings.CutPrefix(s.Text(), "> "); ok {
				m.out <- text
			}
		}
	}()
	m.ip(t, "link", "set", "lo", "up")
	return m
}

// ip runs ip in the machine's network.
func (m *machine) ip(t *testing.T, args ...string) {
	t.Helper()
	all := append([]string{"-t", fmt.Sprint(m.cmd.Process.Pid), "-n", "ip"}, args...)
	if out, err := exec.Command("nsenter", all...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

func (m *machine) say(text string) { fmt.Fprintln(m.in, text) }

// hear waits for a line that begins with a text.
func (m *machine) hear(t *testing.T, begin string) string {
	t.Helper()
	limit := time.After(150 * time.Second) // what another machine remembers of a port lasts two minutes
	for {
		select {
		case line, ok := <-m.out:
			if !ok {
				t.Fatalf("the machine ended while %q was awaited", begin)
			}
			t.Log(line)
			if strings.HasPrefix(line, begin) {
				return line
			}
		case <-limit:
			t.Fatalf("%q was not heard in time", begin)
		}
	}
}

// join lays a cable between two machines.
func join(t *testing.T, a, b *machine) {
	t.Helper()
	a.ip(t, "link", "add", "v0", "type", "veth", "peer", "name", "v0", "netns", fmt.Sprint(b.cmd.Process.Pid))
	for i, m := range []*machine{a, b} {
		m.ip(t, "addr", "add", fmt.Sprintf("10.77.0.%d/24", i+1), "dev", "v0")
		m.ip(t, "link", "set", "v0", "up", "multicast", "on")
	}
}

// TestDiscovery looks for a box from another machine: nothing before it is claimed, then its name, its port and its
// kinds, and a good-bye when it stops.
func TestDiscovery(t *testing.T) {
	if play(t) {
		return
	}
	box, looker := newMachine(t, "box"), newMachine(t, "looker")
	join(t, box, looker)
	box.say("listen")
	fp := strings.Fields(box.hear(t, "listening"))[1]
	looker.say("silence")
	looker.hear(t, "silent")
	looker.say("find nobody.local")
	looker.hear(t, "not found: lookup nobody.local: DNS does not know it, and no machine near by answers to it")
	looker.say("browse")
	box.say("advertise")
	added := looker.hear(t, "add ")
	for _, want := range []string{"testbox", "host=testbox", "port=8443", "10.77.0.1"} {
		if !slices.Contains(strings.Fields(added), want) {
			t.Errorf("%q lacks %q", added, want)
		}
	}
	looker.say("find testbox.local")
	if found := strings.Fields(looker.hear(t, "found"))[1:]; len(found) == 0 || found[0] != "10.77.0.1" {
		t.Errorf("our own clients find the box at %q", found)
	}
	looker.say("text")
	text := strings.Fields(looker.hear(t, "text "))[1:]
	slices.Sort(text)
	if want := []string{"alpn=h2,h3", "auth=bearer", "fp=" + fp[:16], "path=/v1", "txtvers=1"}; !slices.Equal(text, want) {
		t.Errorf("the text is %q, want %q", text, want)
	}
	looker.say("kinds")
	if got, want := looker.hear(t, "kinds "), `kinds testbox._ai-gateway._tcp.local.`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	box.say("hide")
	looker.hear(t, "remove testbox")
	box.say("advertise")
	looker.hear(t, "add testbox")
	box.say("rename other")
	looker.hear(t, "remove testbox")
	looker.hear(t, "add other")
	box.say("config off 8443")
	looker.hear(t, "remove other")
	for _, port := range []string{"9443", "8444"} {
		box.say("config on " + port)
		for !strings.Contains(looker.hear(t, "add other"), "port="+port) { // one is told more than once
		}
	}
	box.say("stop")
	looker.hear(t, "remove other")
	box.hear(t, "stopped")
}

// TestDiscoveryTakenBack hides a box that has announced one service and not yet the next: it takes back what it said. What
// is announced is announced twice.
func TestDiscoveryTakenBack(t *testing.T) {
	box, looker := newMachine(t, "box"), newMachine(t, "looker")
	join(t, box, looker)
	box.say("listen")
	box.hear(t, "listening")
	looker.say("overhear _https._tcp.local. _responses._sub._ai-gateway._tcp.local.")
	looker.hear(t, "listening")
	box.say("advertise")
	looker.hear(t, "live _https._tcp.local.")
	box.say("hide")
	looker.hear(t, "gone _https._tcp.local.")
	box.say("advertise")
	for range 2 {
		looker.hear(t, "live _responses._sub._ai-gateway._tcp.local.")
	}
}

// TestDiscoveryConflict starts two boxes of one name: the second takes the next and answers to it.
func TestDiscoveryConflict(t *testing.T) {
	first, second := newMachine(t, "box"), newMachine(t, "box")
	join(t, first, second)
	for _, b := range []*machine{first, second} {
		b.say("listen")
		b.hear(t, "listening")
	}
	first.say("advertise")
	first.say("wait testbox.local")
	first.hear(t, "answers")
	second.say("advertise")
	second.say("serves testbox-2.local")
	second.hear(t, "serves")
}

// play makes this process the machine that another one started, if it is one.
func play(t *testing.T) bool {
	in := bufio.NewScanner(os.Stdin)
	switch os.Getenv(roleEnv) {
	case "box":
		playBox(t, in)
	case "looker":
		playLooker(t, in)
	default:
		return false
	}
	return true
}

func tell(format string, args ...any) { fmt.Printf("\n> "+format+"\n", args...) }

func playBox(t *testing.T, in *bufio.Scanner) {
	cfg := config()
	cfg.Host, cfg.Port, cfg.Discovery, cfg.Interfaces = "", 8443, true, []string{"v0"}
	cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	var b *running
	for in.Scan() {
		word, rest, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "listen":
			b = serve(t, cfg, says("here"))
			_, fp := b.Root()
			tell("listening %s", fp)
		case "advertise":
			b.Advertise(true)
		case "hide":
			b.Advertise(false)
		case "config": // discovery, port
			next := b.Manner()
			var err error
			on, port, _ := strings.Cut(rest, " ")
			next.Discovery = on == "on"
			if next.Port, err = strconv.Atoi(port); err != nil {
				t.Fatal(err)
			}
			if err := b.Take(next); err != nil {
				t.Fatal(err)
			}
		case "rename":
			if err := b.SetNames(rest, nil); err != nil {
				t.Fatal(err)
			}
		case "wait":
			until(t, func() bool { return resolve(t, rest) })
			tell("answers")
		case "serves":
			until(t, func() bool {
				r, _ := http.NewRequest("GET", "https://"+rest+"/", nil)
				res, err := client(t, "h2", "127.0.0.1:8443", poolOf(t, b)).Do(r)
				if err == nil {
					res.Body.Close()
				}
				return err == nil && res.StatusCode == 200
			})
			tell("serves")
		case "stop":
			b.stop()
			<-b.result
			tell("stopped")
		}
	}
}

func playLooker(t *testing.T, in *bufio.Scanner) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for in.Scan() {
		word, rest, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "find":
			found, err := egress.Resolve(ctx, rest)
			if err != nil {
				tell("not found: %v", err)
				continue
			}
			tell("found %s", strings.Trim(fmt.Sprint(found), "[]"))
		case "silence":
			if got := ask(t, time.Second, question("testbox.local.", dns.TypeA, dns.ClassINET), question("_ai-gateway._tcp.local.", dns.TypePTR, dns.ClassINET)); len(got) > 0 {
				t.Fatalf("the box speaks: %v", got)
			}
			tell("silent")
		case "browse":
			go dnssd.LookupType(ctx, "_ai-gateway._tcp.local.", func(e dnssd.BrowseEntry) {
				line := fmt.Sprintf("add %s host=%s port=%d", e.Name, e.Host, e.Port)
				for _, ip := range e.IPs {
					line += " " + ip.String()
				}
				tell("%s", line)
			}, func(e dnssd.BrowseEntry) { tell("remove %s", e.Name) })
		case "overhear": // types: what answers say of them to everybody
			go overhear(t, strings.Fields(rest))
		case "text":
			for _, r := range ask(t, time.Second, question("testbox._ai-gateway._tcp.local.", dns.TypeTXT, dns.ClassINET)) {
				if r, ok := r.(*dns.TXT); ok {
					tell("text %s", strings.Join(r.Txt, " "))
				}
			}
		case "kinds":
			var got []dns.RR
			until(t, func() bool {
				got = ask(t, time.Second, question("_responses._sub._ai-gateway._tcp.local.", dns.TypePTR, dns.ClassINET))
				return len(got) > 0
			})
			tell("kinds %s", got[0].(*dns.PTR).Ptr)
		}
	}
}

// overhear tells which pointers of some names the network's answers hold, over IPv4 and without a question.
func overhear(t *testing.T, names []string) {
	link, err := net.InterfaceByName("v0")
	if err != nil {
		t.Error(err)
		return
	}
	c, err := net.ListenMulticastUDP("udp4", link, dnssd.AddrIPv4LinkLocalMulticast)
	if err != nil {
		t.Error(err)
		return
	}
	tell("listening")
	buf := make([]byte, 9000)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		var m dns.Msg
		if m.Unpack(buf[:n]) != nil || !m.Response {
			continue
		}
		for _, r := range m.Answer {
			switch name := r.Header().Name; {
			case !slices.Contains(names, name):
			case r.Header().Ttl == 0:
				tell("gone %s", name)
			default:
				tell("live %s", name)
			}
		}
	}
}

// resolve asks whether a name is answered for.
func resolve(t *testing.T, name string) bool {
	return len(ask(t, 300*time.Millisecond, question(name+".", dns.TypeA, dns.ClassINET))) > 0
}

// ask puts questions to the network as a plain resolver does, and returns what is answered within a time.
func ask(t *testing.T, limit time.Duration, questions ...*dns.Msg) (out []dns.RR) {
	t.Helper()
	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	link, err := net.InterfaceByName("v0")
	if err != nil {
		t.Fatal(err)
	}
	if err := ipv4.NewPacketConn(c).SetMulticastInterface(link); err != nil {
		t.Fatal(err)
	}
	for _, q := range questions {
		b, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WriteTo(b, dnssd.AddrIPv4LinkLocalMulticast); err != nil {
			t.Fatal(err)
		}
	}
	c.SetReadDeadline(time.Now().Add(limit))
	buf := make([]byte, 9000)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return out
		}
		var m dns.Msg
		if m.Unpack(buf[:n]) == nil {
			out = append(out, m.Answer...)
		}
	}
}

// TestACMEAddress obtains a certificate for a public address. It runs in a network of its own, where this machine has
// one.
func TestACMEAddress(t *testing.T) {
	const address = "192.0.2.77"
	if os.Getenv(roleEnv) == "" {
		pebbleProgram(t)
		inNetwork(t, "TestACMEAddress")
		return
	}
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"addr", "add", address + "/32", "dev", "lo"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
	z, p := newZone(t), newPebble(t)
	cfg := config()
	cfg.Host, cfg.Names = "", []string{address}
	cfg.TLS = acme(edge.ACME{Directory: p.directory, Root: p.root, Challenges: []string{edge.ChallengeHTTP}, Profile: "shortlived"})
	checkPublic(t, cfg, p, z, address, 6)
}

// inNetwork runs a test of this program in a network of its own.
func inNetwork(t *testing.T, name string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("networks of their own need root: run the tests as root to have this one")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+name+"$", "-test.v")
	cmd.Env = append(os.Environ(), roleEnv+"=itself")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) {
		t.Skip("this system allows no networks of their own")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
		t.Errorf("%v\n%s", err, out)
	}
}
