// The powercut program cuts the power of a small emulated machine while a program on it writes to a store, starts it
// again, and holds what is there against what had been acknowledged. Its last rounds use a disk that lies about its cache, and must
// lose rows: so a test that sees nothing is told from one that has nothing to see.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

type options struct {
	kernel, drivers string
	cuts            int
	seed            uint64
	patience        time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.kernel, "kernel", "", "the kernel to boot")
	flag.StringVar(&o.drivers, "drivers", "", "the folder with its modules, /lib/modules/VERSION")
	flag.IntVar(&o.cuts, "cuts", 20, "how many times the power is cut")
	flag.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of the random numbers")
	flag.DurationVar(&o.patience, "patience", 5*time.Minute, "how long one boot may take until it is given up")
	flag.Parse()
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, "powercut:", err)
		os.Exit(1)
	}
}

// rows counts the rows of each table.
type rows map[string]int

// lacks says what was acknowledged and is not there.
func (acked rows) lacks(have rows) (missing []string) {
	for table, n := range acked {
		if have[table] < n {
			missing = append(missing, fmt.Sprintf("%s: %d acknowledged, %d there", table, n, have[table]))
		}
	}
	return missing
}

// bench is everything that stays over the boots of one disk.
type bench struct {
	o       options
	dir     string
	initrd  string
	disk    *disk
	rand    *rand.Rand // of this goroutine and, while a disk is armed, of the disk
	started int
}

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "powercut-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{o: o, dir: dir, rand: rand.New(rand.NewPCG(o.seed, 1))}
	fmt.Println("powercut: seed", o.seed)
	if b.initrd, err = buildInitrd(ctx, dir, o.drivers); err != nil {
		return err
	}
	if err := b.format(ctx); err != nil {
		return err
	}
	missing, err := b.rounds(ctx, o.cuts)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("rows were lost: %s", strings.Join(missing, "; "))
	}
	fmt.Printf("powercut: %d cuts, no acknowledged row lost\n", o.cuts)
	return b.control(ctx)
}

// control shows that loss is seen: with a disk that lies, rows must be missing or the file damaged.
func (b *bench) control(ctx context.Context) error {
	if err := b.format(ctx); err != nil {
		return err
	}
	b.disk.liar = true
	missing, err := b.rounds(ctx, 1)
	if err == nil && len(missing) == 0 {
		return errors.New("a disk that forgets what it was told to keep lost no row: this test sees nothing")
	}
	fmt.Println("powercut: a disk that lies loses rows, as it must:", missing, err)
	return nil
}

// format makes an empty disk.
func (b *bench) format(ctx context.Context) error {
	image := filepath.Join(b.dir, "disk")
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(128<<20), f.Close()); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w\n%s", err, out)
	}
	b.disk, err = newDisk(image, b.rand)
	return err
}

// rounds cuts the power n times and checks after each, and returns what was missing.
func (b *bench) rounds(ctx context.Context, n int) ([]string, error) {
	acked := rows{}
	for i := range n + 1 {
		last := i == n
		have, now, err := b.boot(ctx, last)
		if err != nil {
			return nil, fmt.Errorf("boot %d: %w", i+1, err)
		}
		if missing := acked.lacks(have); len(missing) > 0 {
			return missing, nil
		}
		for table, n := range now {
			acked[table] = n
		}
		if acked["keys"] == 0 || acked["usage"] == 0 {
			return nil, errors.New("nothing was acknowledged")
		}
	}
	return nil, nil
}

// boot starts the machine. Unless it only checks, the power is cut after a random number of acknowledgements.
func (b *bench) boot(ctx context.Context, check bool) (have, acked rows, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.o.patience)
	defer cancel()
	b.started++
	began := time.Now()
	b.disk.start()
	socket := filepath.Join(b.dir, fmt.Sprintf("nbd-%d", b.started))
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_ = b.disk.serve(c) // ends with the power
		}
	}()
	m, out, err := b.machine(ctx, socket, check)
	if err != nil {
		return nil, nil, err
	}
	w := watch{bench: b, machine: m, acked: rows{}, check: check}
	err = w.follow(out)
	werr := m.Wait()
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("it took longer than %s; the console said:\n%s", b.o.patience, b.console())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w; the console said:\n%s", err, b.console())
	}
	if check && werr != nil {
		return nil, nil, werr
	}
	fmt.Printf("powercut: boot %d took %.0f s; there: %v; acknowledged: %v; the cut met %d cached writes and lost %d\n",
		b.started, time.Since(began).Seconds(), w.have, w.acked, w.cached, w.lost)
	return w.have, w.acked, nil
}

func (b *bench) console() string {
	text, err := os.ReadFile(filepath.Join(b.dir, "console"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-2000):])
}

func (b *bench) machine(ctx context.Context, socket string, check bool) (*exec.Cmd, io.Reader, error) {
	line := "console=ttyS0 quiet panic=-1"
	if check {
		line += " onebit.check"
	}
	m := exec.CommandContext(ctx, "qemu-system-x86_64", "-machine", "pc,accel=tcg", "-cpu", "max", "-smp", "1", "-m", "384",
		"-nodefaults", "-display", "none", "-no-reboot", "-kernel", b.o.kernel, "-initrd", b.initrd, "-append", line,
		"-drive", "if=virtio,format=raw,cache=writeback,file=nbd+unix:///?socket="+socket,
		"-serial", "file:"+filepath.Join(b.dir, "console"), "-serial", "stdio")
	m.Stderr = os.Stderr
	out, err := m.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	return m, out, m.Start()
}

// watch reads what the guest says, and cuts the power.
type watch struct {
	*bench
	machine     *exec.Cmd
	have, acked rows
	check       bool
	done        bool // the power is cut
	loss
}

func (w *watch) follow(out io.Reader) error {
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(out)
		for s.Scan() {
			lines <- strings.TrimSpace(s.Text())
		}
	}()
	left := -1
	var cut <-chan loss
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return w.ended()
			}
			if err := w.hear(line); err != nil {
				return errors.Join(err, w.machine.Process.Kill())
			}
			switch {
			case w.have == nil || w.check || left == 0:
			case left < 0:
				left = 10 + w.rand.IntN(150)
			case left == 1:
				// not at the moment of an acknowledgement, which is the end of a flush, but at any write between two
				cut = w.disk.arm(1 + w.rand.IntN(60))
				left = 0
			default:
				left--
			}
		case w.loss = <-cut:
			w.done = true
			if err := w.machine.Process.Kill(); err != nil {
				return err
			}
			cut = nil
		}
	}
}

func (w *watch) ended() error {
	if w.have == nil || !w.check && !w.done {
		return errors.New("the machine ended by itself")
	}
	return nil
}

func (w *watch) hear(line string) error {
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "boot", "end", "":
		return nil
	case "have":
		w.have = rows{}
		for field := range strings.FieldsSeq(rest) {
			table, count, _ := strings.Cut(field, "=")
			var n int
			if _, err := fmt.Sscan(count, &n); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
			w.have[table] = n
		}
	case "ack":
		var table string
		var n int
		if _, err := fmt.Sscanf(line, "ack %s %d", &table, &n); err != nil {
			return w.torn(line)
		}
		// a number cut in the middle is smaller than the whole one
		w.acked[table] = max(w.acked[table], n)
	default:
		return w.torn(line)
	}
	return nil
}

// torn lets a line pass that the cut has torn, and what a machine says whose disk has just gone.
func (w *watch) torn(line string) error {
	if w.disk.dead() {
		return nil
	}
	return fmt.Errorf("the guest said %q", line)
}
