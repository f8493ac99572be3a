package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// sample is what one client or a group of them saw, times in nanoseconds.
type sample struct {
	first  []int64 // from a request to its first event
	events []int64 // from the sending of an event to its arrival, the first of each answer left out
	count  int     // events in all
	want   int     // events that the pace asks for
}

func (s *sample) add(o sample) {
	s.first = append(s.first, o.first...)
	s.events = append(s.events, o.events...)
	s.count += o.count
}

// client is one connection to a server. It reads answers with as little machinery as HTTP allows, and opens a new
// connection when the server closes its own.
type client struct {
	addr string
	conn net.Conn
	r    *bufio.Reader
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// ask sends one request and reads the answer to its end. What came before the deadline counts, also with an error.
func (c *client) ask(w wish, deadline time.Time) (s sample, err error) {
	if c.conn == nil {
		if c.conn, err = net.Dial("tcp", c.addr); err != nil {
			return s, err
		}
		c.r = bufio.NewReaderSize(c.conn, 64<<10)
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return s, err
	}
	body := w.body()
	request := fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAuthorization: Bearer sk-bench\r\nContent-Length: %d\r\n\r\n%s", c.addr, len(body), body)
	begin := time.Now()
	if _, err := c.conn.Write([]byte(request)); err != nil {
		c.close()
		return s, err
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.close()
		return s, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		c.close()
		return s, fmt.Errorf("status %d", res.StatusCode)
	}
	err = s.read(bufio.NewReaderSize(res.Body, 64<<10), begin, w)
	if err != nil || res.Close {
		c.close()
	}
	return s, err
}

// read takes the events of an answer.
func (s *sample) read(r *bufio.Reader, begin time.Time, w wish) error {
	got := 0
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			if got < w.events {
				return fmt.Errorf("after %d of %d events: %w", got, w.events, err)
			}
			return nil // the end of the body
		}
		at := bytes.Index(line, []byte(`"t=`))
		if at < 0 {
			continue
		}
		line = line[at+3:]
		got++
		s.count++
		now := time.Now()
		switch sent, err := strconv.ParseInt(string(line[:max(bytes.IndexByte(line, '"'), 0)]), 10, 64); {
		case err != nil:
			return err
		case got == 1:
			s.first = append(s.first, int64(now.Sub(begin)))
		case w.every > 0:
			s.events = append(s.events, now.UnixNano()-sent)
		}
	}
}

// alone sends short requests one after the other on one connection.
func (p *path) alone(n int) (sample, error) {
	c := client{addr: p.addr}
	defer c.close()
	var all sample
	for range n {
		s, err := c.ask(wish{events: 2}, time.Now().Add(20*time.Second))
		if err != nil {
			return all, err
		}
		all.add(s)
	}
	return all, nil
}

// paced lets clients stream at a pace, answers of a second each, begun one after the other. Whoever is late is cut off
// at the end.
func (p *path) paced(o options) sample {
	var all sample
	var mu sync.Mutex
	var group sync.WaitGroup
	begin := time.Now()
	end := begin.Add(time.Duration(o.seconds) * time.Second)
	w := wish{events: o.rate, every: time.Second / time.Duration(o.rate)}
	for i := range o.clients {
		group.Go(func() {
			c := client{addr: p.addr}
			defer c.close()
			time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(o.clients))))
			for time.Now().Before(end) {
				s, err := c.ask(w, end)
				mu.Lock()
				all.add(s)
				mu.Unlock()
				if err != nil {
					return // the end, or a server that fails: the count tells
				}
			}
		})
	}
	group.Wait()
	// they begin within the first second, and an answer lasts one pause less than it has events
	all.want = (o.clients*o.rate*o.seconds - o.clients*o.rate/2) * o.rate / (o.rate - 1)
	return all
}

// unpaced lets a few clients take events as fast as they come. It returns events and seconds.
func (p *path) unpaced() (events int, took float64) {
	const clients = 8
	length := 1500 * time.Millisecond
	var mu sync.Mutex
	var group sync.WaitGroup
	begin := time.Now()
	for range clients {
		group.Go(func() {
			c := client{addr: p.addr}
			defer c.close()
			s, _ := c.ask(wish{events: 1 << 20}, begin.Add(length)) // it ends with the time
			mu.Lock()
			events += s.count
			mu.Unlock()
		})
	}
	group.Wait()
	return events, time.Since(begin).Seconds()
}
