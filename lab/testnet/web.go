package testnet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// Patience is how long a test waits for something that takes milliseconds.
const Patience = 30 * time.Second

// Body is data without repetitions.
func Body(n int) []byte {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
	return b
}

// Serve runs a web server at an address: / returns its name and the client's address that
// it sees, GET /body/N a body of N bytes, PUT /sum the hash of the request's body. On the
// same UDP port it answers with name and client address, followed by the datagram. The
// returned Closer closes it.
func Serve(t testing.TB, ns *netns.NS, at netip.AddrPort, name string) io.Closer {
	t.Helper()
	var tcp net.Listener
	var udp net.PacketConn
	testkit.Do(t, ns, func() (err error) {
		if tcp, err = net.Listen("tcp", at.String()); err != nil {
			return err
		}
		udp, err = net.ListenPacket("udp", at.String())
		return err
	})
	server := &http.Server{Handler: handler(name)}
	go server.Serve(tcp)
	go answerDatagrams(udp, name)
	t.Cleanup(func() { server.Close(); udp.Close() })
	return udp
}

func handler(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, name, " ", r.RemoteAddr) })
	mux.HandleFunc("GET /body/{n}", func(rw http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.PathValue("n"))
		if err != nil {
			http.Error(rw, err.Error(), http.StatusBadRequest)
			return
		}
		rw.Write(Body(n))
	})
	mux.HandleFunc("PUT /sum", func(rw http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		io.Copy(sum, r.Body)
		fmt.Fprintf(rw, "%x", sum.Sum(nil))
	})
	return mux
}

func answerDatagrams(udp net.PacketConn, name string) {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := udp.ReadFrom(buf)
		if err != nil {
			return
		}
		udp.WriteTo(fmt.Append(nil, name, " ", from, " ", string(buf[:n])), from)
	}
}

// Dial opens a connection from a namespace, within Patience.
func Dial(ns *netns.NS, network string, to netip.AddrPort) (conn net.Conn, err error) {
	err = ns.Do(func() error {
		conn, err = (&net.Dialer{Timeout: Patience}).Dial(network, to.String())
		return err
	})
	if err == nil {
		conn.SetDeadline(time.Now().Add(Patience))
	}
	return conn, err
}

// Browser is an HTTP client in a namespace, with one connection.
func Browser(t testing.TB, ns *netns.NS) *http.Client {
	tr := &http.Transport{
		MaxConnsPerHost: 1,
		DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
			return Dial(ns, network, netip.MustParseAddrPort(addr))
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: Patience}
}

// Ask returns the server's name, and the client's address that it sees. Without an answer
// the test fails with its state.
func Ask(t testing.TB, c *http.Client, at netip.AddrPort, state func() string) (name string, seen netip.Addr) {
	t.Helper()
	resp, err := c.Get("http://" + at.String() + "/")
	name, from, _ := strings.Cut(string(read(t, resp, err, state)), " ")
	return name, netip.MustParseAddrPort(from).Addr()
}

func read(t testing.TB, resp *http.Response, err error, state func() string) []byte {
	t.Helper()
	if err != nil {
		t.Fatalf("%v\n%s", err, state())
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%v after %d bytes\n%s", err, len(b), state())
	}
	return b
}

// WantBodies downloads and uploads a body of this size.
func WantBodies(t testing.TB, c *http.Client, at netip.AddrPort, size int, state func() string) {
	t.Helper()
	Around(t, c, at, size, func() {}, state)
	req, err := http.NewRequest("PUT", "http://"+at.String()+"/sum", bytes.NewReader(Body(size)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if got, want := string(read(t, resp, err, state)), fmt.Sprintf("%x", sha256.Sum256(Body(size))); got != want {
		t.Fatalf("the server got a body of hash %s, want %s", got, want)
	}
}

// Around downloads a body of this size, and calls f when half of it has arrived.
func Around(t testing.TB, c *http.Client, at netip.AddrPort, size int, f func(), state func() string) {
	t.Helper()
	resp, err := c.Get(fmt.Sprintf("http://%s/body/%d", at, size))
	if err != nil {
		t.Fatalf("%v\n%s", err, state())
	}
	defer resp.Body.Close()
	first := make([]byte, size/2)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatalf("%v\n%s", err, state())
	}
	f()
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(append(first, rest...), Body(size)) {
		t.Fatalf("%d bytes, %v; want all %d\n%s", len(first)+len(rest), err, size, state())
	}
}

// Datagram sends a datagram repeatedly, as any UDP client must, until an answer arrives,
// and returns that.
func Datagram(t testing.TB, conn net.Conn, question []byte, state func() string) (answer []byte) {
	t.Helper()
	return datagram(t, conn, question, func([]byte) bool { return true }, state)
}

// datagram is Datagram that ignores some answers.
func datagram(t testing.TB, conn net.Conn, question []byte, takes func([]byte) bool, state func() string) (answer []byte) {
	t.Helper()
	buf := make([]byte, 1<<16)
	testkit.Eventually(t, Patience, func() error {
		if _, err := conn.Write(question); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(time.Second))
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, state())
			}
			if answer = buf[:n]; takes(answer) {
				return nil
			}
		}
	})
	return answer
}

// asked counts the queries of AskDatagram.
var asked atomic.Uint64

// AskDatagram is Datagram to a server of Serve: it returns what Ask returns, and whether
// the query, of at least 8 bytes, was returned completely. Each query begins with its own
// number: late answers to earlier ones are ignored.
func AskDatagram(t testing.TB, conn net.Conn, question []byte, state func() string) (name string, seen netip.Addr, whole bool) {
	t.Helper()
	question = slices.Clone(question)
	const number = 8
	binary.BigEndian.PutUint64(question, asked.Add(1))
	var parts [][]byte
	datagram(t, conn, question, func(answer []byte) bool {
		parts = bytes.SplitN(answer, []byte(" "), 3)
		return len(parts) == 3 && bytes.HasPrefix(parts[2], question[:number])
	}, state)
	return string(parts[0]), netip.MustParseAddrPort(string(parts[1])).Addr(), bytes.Equal(parts[2], question)
}
