package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"onebit/e2e/rig"
)

const (
	chatBody  = `{"model":"bench","stream":true,"messages":[{"role":"user","content":"one word"}]}`
	crowdBody = `{"model":"bench","stream":true,"messages":[{"role":"user","content":"stream %d %d"}]}`
)

// client speaks one protocol over as many connections as it needs, at most n for HTTP/1.1 and one for the others.
func (p *peer) client(protocol string, n int) *http.Client {
	if protocol == "h3" && !p.plain {
		return &http.Client{Transport: &http3.Transport{TLSClientConfig: p.tls(), QUICConfig: &quic.Config{MaxIdleTimeout: time.Minute, KeepAlivePeriod: 10 * time.Second}}}
	}
	t := &http.Transport{TLSClientConfig: p.tls(), MaxIdleConnsPerHost: n, MaxConnsPerHost: n, Protocols: new(http.Protocols)}
	if protocol == "h2" && !p.plain {
		t.Protocols.SetHTTP2(true)
	} else {
		t.Protocols.SetHTTP1(true)
	}
	return &http.Client{Transport: t}
}

// ask sends one request and reads the answer to its end.
func (p *peer) ask(c *http.Client, body string) (n int64, err error) {
	r, err := http.NewRequest(http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	if p.key != "" {
		r.Header.Set("Authorization", "Bearer "+p.key)
	}
	res, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	n, err = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusOK {
		return n, fmt.Errorf("status %d", res.StatusCode)
	}
	return n, err
}

// measure asks in a closed loop, then with one client alone.
func (p *peer) measure(protocol string, o options) (f figures, err error) {
	c := p.client(protocol, o.clients)
	defer c.CloseIdleConnections()
	if _, err := p.ask(c, chatBody); err != nil {
		return f, err
	}
	var done atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	before := rig.Spent(p.pid)
	begin := time.Now()
	end := begin.Add(time.Duration(o.seconds) * time.Second)
	for range o.clients {
		group.Go(func() {
			for time.Now().Before(end) {
				if _, err := p.ask(c, chatBody); err != nil {
					failed.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	if e := failed.Load(); e != nil {
		return f, *e
	}
	f.rate = float64(done.Load()) / time.Since(begin).Seconds()
	f.cpu = float64((rig.Spent(p.pid) - before).Microseconds()) / float64(max(done.Load(), 1))
	var took []float64
	for len(took) < 400 {
		begin := time.Now()
		if _, err := p.ask(c, chatBody); err != nil {
			return f, err
		}
		took = append(took, float64(time.Since(begin).Nanoseconds())/1e3)
	}
	slices.Sort(took)
	f.p50, f.p99 = took[len(took)/2], took[len(took)*99/100]
	return f, nil
}

// crowd holds many streams open at the box, one event every 500 ms each, and tells what it takes.
func (w *world) crowd(protocol string) error {
	p := w.peers[slices.IndexFunc(w.peers, func(p *peer) bool { return p.name == "box" })]
	const perConnection = 100
	var clients []*http.Client
	for range (w.streams + perConnection - 1) / perConnection {
		clients = append(clients, p.client(protocol, perConnection))
	}
	defer func() {
		for _, c := range clients {
			c.CloseIdleConnections()
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(w.hold+60)*time.Second)
	defer cancel()
	body := fmt.Sprintf(crowdBody, 500, w.hold*2)
	var running, whole, events atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	for i := range w.streams {
		group.Go(func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/chat/completions", strings.NewReader(body))
			if err != nil {
				failed.Store(&err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+p.key)
			res, err := clients[i%len(clients)].Do(r)
			if err == nil && res.StatusCode != http.StatusOK {
				err = fmt.Errorf("status %d", res.StatusCode)
			}
			if err != nil {
				failed.Store(&err)
				return
			}
			defer res.Body.Close()
			running.Add(1)
			in := bufio.NewScanner(res.Body)
			for in.Scan() {
				if in.Text() == "data: [DONE]" {
					whole.Add(1)
				} else if strings.HasPrefix(in.Text(), "data: ") {
					events.Add(1)
				}
			}
		})
	}
	most := 0.0
	stop := make(chan struct{})
	go func() { group.Wait(); close(stop) }()
	for open := true; open; {
		select {
		case <-stop:
			open = false
		case <-time.After(500 * time.Millisecond):
			most = max(most, resident(w.box.Cmd.Process.Pid))
		}
	}
	fmt.Printf("%d streams over %s: %d ran, %d whole, %d events; the box held %.0f MB at most (bar: 200 MB)\n", w.streams, protocol, running.Load(), whole.Load(), events.Load(), most)
	if e := failed.Load(); e != nil {
		return *e
	}
	if whole.Load() != int64(w.streams) {
		return errors.New("some streams were not whole")
	}
	return nil
}

// ownCertificate makes a certificate for 127.0.0.1, for Caddy.
func ownCertificate(dir string) (cert, key string, roots *x509.CertPool, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return "", "", nil, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", nil, err
	}
	cert, key = filepath.Join(dir, "caddy.pem"), filepath.Join(dir, "caddy.key")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return cert, key, roots, errors.Join(
		os.WriteFile(cert, certPEM, 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}
