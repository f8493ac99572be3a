package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
)

// disk is a block device with a volatile cache, served to the emulator as a network block device. What the guest has
// written since its last flush is lost or kept at random when the power is cut, piece by piece and out of order, as on a
// real drive; what it has flushed stays.
type disk struct {
	mu      sync.Mutex
	stable  []byte // what survives
	current []byte // what the guest reads
	pending []write
	off     bool // the power is cut
	liar    bool // flushes do nothing: the control that must lose rows
	fuse    int  // so many more writes until the power is cut; 0: none
	rand    *rand.Rand
	cut     chan loss
}

// loss says what a cut met: how many writes were in the cache, and how many of them were lost, in whole or in part.
type loss struct{ cached, lost int }

type write struct {
	at   int64
	data []byte
}

// what the drive writes whole or not at all. ext4 relies on this much: it refuses to mount after half a commit block.
const sector = 4096

var errPower = errors.New("the power is off")

func newDisk(image string, r *rand.Rand) (*disk, error) {
	b, err := os.ReadFile(image)
	if err != nil {
		return nil, err
	}
	return &disk{stable: b, current: append([]byte(nil), b...), rand: r}, nil
}

// arm cuts the power at the n-th write from now on, and returns where it says so.
func (d *disk) arm(n int) <-chan loss {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fuse, d.cut = n, make(chan loss, 1)
	return d.cut
}

// blow ends the power. The caller holds mu.
func (d *disk) blow() loss {
	d.off = true
	cached, lost := len(d.pending), 0
	if d.liar {
		// in order, but the last third never left the cache
		keep := cached * 2 / 3
		for _, w := range d.pending[:keep] {
			copy(d.stable[w.at:], w.data)
		}
		return loss{cached, cached - keep}
	}
	share := d.rand.Float64()
	for _, w := range d.pending {
		whole := true
		for i := 0; i < len(w.data); i += sector {
			if d.rand.Float64() < share {
				whole = false
				continue
			}
			end := min(i+sector, len(w.data))
			copy(d.stable[w.at+int64(i):], w.data[i:end])
		}
		if !whole {
			lost++
		}
	}
	return loss{cached, lost}
}

// start gives the disk power again.
func (d *disk) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off, d.pending, d.fuse = false, nil, 0
	copy(d.current, d.stable)
}

// dead tells whether the power has been cut.
func (d *disk) dead() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.off
}

func (d *disk) read(p []byte, at int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return errPower
	}
	copy(p, d.current[at:])
	return nil
}

func (d *disk) write(p []byte, at int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return errPower
	}
	copy(d.current[at:], p)
	d.pending = append(d.pending, write{at, p})
	if d.fuse > 0 {
		if d.fuse--; d.fuse == 0 {
			d.cut <- d.blow()
			return errPower
		}
	}
	return nil
}

func (d *disk) flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.off {
		return errPower
	}
	if d.liar {
		return nil
	}
	for _, w := range d.pending {
		copy(d.stable[w.at:], w.data)
	}
	d.pending = nil
	return nil
}

// The numbers of the network block device protocol, and the little of it that the emulator needs.
const (
	magicServer   = 0x4e42444d41474943
	magicOption   = 0x49484156454f5054
	magicReply    = 0x3e889045565a9
	magicRequest  = 0x25609513
	magicResponse = 0x67446698

	optionGo = 7

	replyAck         = 1
	replyInfo        = 3
	replyUnsupported = 1<<31 | 1

	commandRead  = 0
	commandWrite = 1
	commandEnd   = 2
	commandFlush = 3

	exportFlags = 1 | 1<<2 // has flags, takes flushes
)

// serve answers one connection until it ends or the power does.
func (d *disk) serve(c net.Conn) error {
	defer c.Close()
	rw := bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c))
	if err := d.greet(rw); err != nil {
		return err
	}
	for {
		var q struct {
			Magic         uint32
			Flags, Kind   uint16
			Cookie, Start uint64
			Length        uint32
		}
		if err := binary.Read(rw, binary.BigEndian, &q); err != nil {
			return err
		}
		if q.Magic != magicRequest || q.Start+uint64(q.Length) > uint64(len(d.current)) {
			return fmt.Errorf("request %+v", q)
		}
		var answer []byte
		var err error
		switch q.Kind {
		case commandRead:
			answer = make([]byte, q.Length)
			err = d.read(answer, int64(q.Start))
		case commandWrite:
			data := make([]byte, q.Length)
			if _, err := io.ReadFull(rw, data); err != nil {
				return err
			}
			err = d.write(data, int64(q.Start))
		case commandFlush:
			err = d.flush()
		case commandEnd:
			return nil
		default:
			err = fmt.Errorf("command %d", q.Kind)
		}
		if err != nil {
			return err // no answer, as of a disk without power
		}
		if err := send(rw, uint32(magicResponse), uint32(0), q.Cookie, answer); err != nil {
			return err
		}
	}
}

// greet agrees on the one export that there is.
func (d *disk) greet(rw *bufio.ReadWriter) error {
	if err := send(rw, uint64(magicServer), uint64(magicOption), uint16(1)); err != nil {
		return err
	}
	var flags uint32
	if err := binary.Read(rw, binary.BigEndian, &flags); err != nil {
		return err
	}
	for {
		var o struct {
			Magic        uint64
			Kind, Length uint32
		}
		if err := binary.Read(rw, binary.BigEndian, &o); err != nil {
			return err
		}
		if o.Magic != magicOption || o.Length > 1<<16 {
			return fmt.Errorf("option %+v", o)
		}
		if _, err := io.CopyN(io.Discard, rw, int64(o.Length)); err != nil {
			return err
		}
		if o.Kind != optionGo {
			if err := send(rw, uint64(magicReply), o.Kind, uint32(replyUnsupported), uint32(0)); err != nil {
				return err
			}
			continue
		}
		return send(rw, uint64(magicReply), o.Kind, uint32(replyInfo), uint32(12), uint16(0), uint64(len(d.current)), uint16(exportFlags),
			uint64(magicReply), o.Kind, uint32(replyAck), uint32(0))
	}
}

func send(w *bufio.ReadWriter, parts ...any) error {
	for _, p := range parts {
		if err := binary.Write(w, binary.BigEndian, p); err != nil {
			return err
		}
	}
	return w.Flush()
}
