package bgp

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// A peer that floods a speaker with routes, or sends it garbage, costs neither memory nor
// the session.
func TestFlood(t *testing.T) {
	const port = 20193
	local, far := netip.MustParseAddr("127.21.4.1"), netip.MustParseAddr("127.21.4.2")
	// The flooding side is also a speaker, whose peer is under test.
	listener := listenOnce(t, netip.AddrPortFrom(far, port))
	var log testkit.Output
	s := startSpeaker(t, local.String(), port, func(c *SpeakerConfig) {
		c.Peers = []PeerConfig{{Address: far, Port: port, AS: 65110}}
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	ended := func(how string) bool {
		return strings.Contains(log.String(), "BGP session ended") && strings.Contains(log.String(), how)
	}
	c := <-listener
	defer c.Close()
	open, _ := pkt.NewBGPOpenMessage(65110, 90, far, []pkt.OptionParameterInterface{
		pkt.NewOptionParameterCapability([]pkt.ParameterCapabilityInterface{pkt.NewCapFourOctetASNumber(65110), pkt.NewCapMultiProtocol(pkt.RF_IPv4_UC)})})
	hello, _ := open.Serialize()
	send := func(b []byte) {
		t.Helper()
		if err := c.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	send(slices.Concat(hello, rawbgp.Message(pkt.BGP_MSG_KEEPALIVE, nil)))
	go func() { _, _ = io.Copy(io.Discard, c) }()
	eventually(t, "session", func() bool { return s.Peers()[0].State == session.Established })
	before := heap()
	var batch []byte
	for i := range 200_000 {
		b := rawbgp.Announce(netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)}), far, 1)
		if batch = append(batch, b...); len(batch) > 1<<16 {
			send(batch)
			batch = batch[:0]
		}
	}
	send(batch)
	send(rawbgp.Message(pkt.BGP_MSG_UPDATE, bytes.Repeat([]byte{0xff}, 500)))
	if err := s.Set([]route.Route{routeVia(service, "10.0.0.105")}); err != nil {
		t.Fatal(err)
	}
	// After all that, the session ends only when the peer requests it.
	send(rawbgp.Message(pkt.BGP_MSG_NOTIFICATION, []byte{pkt.BGP_ERROR_CEASE, pkt.BGP_ERROR_SUB_ADMINISTRATIVE_SHUTDOWN}))
	eventually(t, "the session ends", func() bool { return ended("") })
	if !ended("peer 127.21.4.2 closed the session: administrative shutdown") {
		t.Errorf("the session ended otherwise: %s", log.String())
	}
	eventually(t, "200,000 routes cost less than 4 MiB", func() bool { return int64(heap())-int64(before) <= 4<<20 })
	if rs := s.e.Routes(); len(rs) != 1 {
		t.Errorf("the table has %d routes; want ours", len(rs))
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// listenOnce returns the first connection.
func listenOnce(t *testing.T, at netip.AddrPort) chan net.Conn {
	t.Helper()
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan net.Conn, 1)
	go func() {
		defer l.Close()
		if c, err := l.Accept(); err == nil {
			came <- c
		}
	}()
	t.Cleanup(func() { l.Close() })
	return came
}
