package bgp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pkt "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/fairlead/fairlead/advertise/bgp/internal/session"
	"github.com/fairlead/fairlead/advertise/bgp/internal/wire"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/lab/testkit/rawbgp"
)

// attacked is a reflector with a well-behaved load balancer and a router, all in this
// process, which must not be affected by what others do to the reflector.
type attacked struct {
	t         *testing.T
	port      uint16
	reflector *Reflector
	router    *Router
	good      *Speaker
	log       *lines
	sessions  string
	use       usage
}

// usage measures what a leak would increase.
type usage struct{ goroutines, files, heap int }

func used(t *testing.T) usage {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return usage{runtime.NumGoroutine(), len(files), int(heap())}
}

// lines counts log lines.
type lines struct {
	mu   sync.Mutex
	n    int
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return l.text.Write(b)
}

func (l *lines) count() (n, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n, l.text.Len()
}

const goodTable = "10.1.1.0/24 10.0.0.105"

// underAttack starts everything and waits for a steady state.
func underAttack(t *testing.T, port uint16, more ...func(*ReflectorConfig)) *attacked {
	t.Helper()
	a := &attacked{t: t, port: port, log: &lines{}}
	more = append([]func(*ReflectorConfig){func(c *ReflectorConfig) {
		c.Log = slog.New(slog.NewTextHandler(a.log, nil))
	}}, more...)
	a.reflector = startReflector(t, port, more...)
	a.router, _ = startRouter(t, port)
	a.good = startSpeaker(t, "127.21.1.1", port)
	if err := a.good.Set([]route.Route{routeVia(service, "10.0.0.105")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the good route", func() bool { return a.table() == goodTable })
	eventually(t, "BFD", func() bool { return a.good.Peers()[0].BFD == "up" && a.router.Peers()[0].BFD == "up" })
	time.Sleep(100 * time.Millisecond) // the first audits
	a.sessions, a.use = a.since(), used(t)
	return a
}

func (a *attacked) table() string {
	rs, _ := a.router.Routes()
	return show(rs)
}

func (a *attacked) since() string {
	g, r := a.good.Peers()[0], a.router.Peers()[0]
	return fmt.Sprint("good ", g.State, g.Since, g.Flaps, " router ", r.State, r.Since, r.Flaps)
}

// over checks that everything is as before the attack.
func (a *attacked) over() {
	a.t.Helper()
	eventually(a.t, "only the good route", func() bool { return a.table() == goodTable })
	if now := a.since(); now != a.sessions {
		a.t.Errorf("good sessions were %s, are %s", a.sessions, now)
	}
	var now usage
	back := func() bool {
		now = used(a.t)
		return now.goroutines <= a.use.goroutines+5 && now.files <= a.use.files+2 && now.heap < a.use.heap+8<<20
	}
	for end := time.Now().Add(20 * time.Second); !back() && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if !back() {
		a.t.Errorf("before the attack %+v, after it %+v", a.use, now)
	}
}

// connect opens a connection from the attacker.
func (a *attacked) connect(from string) net.Conn {
	a.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 20 * time.Second}
	c, err := d.Dial("tcp", netip.AddrPortFrom(reflectorAddr, a.port).String())
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { c.Close() })
	return c
}

// ending returns the first NOTIFICATION received on a connection, as "code/subcode", or
// "closed".
func ending(t *testing.T, c net.Conn) string {
	t.Helper()
	end := "closed"
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for r := wire.NewReader(c); ; {
		typ, body, err := r.Next()
		if code, sub := wire.NotificationCode(body); err == nil && typ == pkt.BGP_MSG_NOTIFICATION && end == "closed" {
			end = fmt.Sprintf("%d/%d", code, sub)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the connection stays open")
		}
		if err != nil {
			return end
		}
	}
}

// openOf returns an OPEN with these fields, and a capability for four-octet AS numbers.
func openOf(version byte, as uint16, hold uint16, id [4]byte, more ...byte) []byte {
	body := binary.BigEndian.AppendUint16([]byte{version}, as)
	body = binary.BigEndian.AppendUint16(body, hold)
	body = append(body, id[:]...)
	options := append([]byte{2, 6, 65, 4, 0, 0, byte(as >> 8), byte(as)}, more...)
	return rawbgp.Message(pkt.BGP_MSG_OPEN, slices.Concat(body, []byte{byte(len(options))}, options))
}

// Whatever is received before a session is established ends the connection, and nothing
// else.
func TestAttacksBeforeASession(t *testing.T) {
	a := underAttack(t, 20220, func(c *ReflectorConfig) { c.Groups[0].HoldTime = 3 * time.Second })
	id := [4]byte{127, 21, 1, 60}
	alive := rawbgp.Message(pkt.BGP_MSG_KEEPALIVE, nil)
	good := openOf(4, testAS, 90, id)
	tooLong := slices.Clone(good)
	binary.BigEndian.PutUint16(tooLong[16:], 5000)
	for name, c := range map[string]struct {
		say  []byte
		want string
	}{
		"nothing":                    {nil, "closed"},
		"half a header":              {good[:10], "closed"},
		"half an OPEN":               {good[:25], "closed"},
		"HTTP":                       {[]byte("GET / HTTP/1.1\r\nHost: reflector\r\n\r\n"), "1/1"},
		"version 3":                  {openOf(3, testAS, 90, id), "2/1"},
		"another AS":                 {openOf(4, 64999, 90, id), "2/2"},
		"the router ID 0.0.0.0":      {openOf(4, testAS, 90, [4]byte{}), "2/3"},
		"no hold time":               {openOf(4, testAS, 0, id), "2/6"},
		"a hold time of 2":           {openOf(4, testAS, 2, id), "2/6"},
		"capabilities beyond it":     {openOf(4, testAS, 90, id, 2, 200, 1, 4), ""},
		"an unknown parameter":       {openOf(4, testAS, 90, id, 99, 1, 1), ""},
		"an OPEN of 5,000 bytes":     {append(tooLong, make([]byte, 5000)...), "1/2"},
		"a length of 18":             {append(bytes.Repeat([]byte{255}, 16), 0, 18, 1), "1/2"},
		"KEEPALIVE first":            {alive, "5/1"},
		"UPDATE first":               {updateOf(usual, prefix24), "5/1"},
		"NOTIFICATION first":         {rawbgp.Message(pkt.BGP_MSG_NOTIFICATION, bytes.Repeat([]byte{6}, 4000)), ""},
		"OPEN twice":                 {slices.Concat(good, good), "5/2"},
		"OPEN and UPDATE":            {slices.Concat(good, updateOf(usual, prefix24)), "closed"},
		"another AS, then KEEPALIVE": {slices.Concat(openOf(4, 64999, 90, id), alive), "2/2"},
	} {
		id[3]++
		say := slices.Clone(c.say)
		if len(say) >= 28 && say[18] == pkt.BGP_MSG_OPEN && !bytes.Equal(say[24:28], make([]byte, 4)) {
			copy(say[24:28], id[:]) // the previous connection may still exist: router IDs must differ
		}
		conn := a.connect(netip.AddrFrom4(id).String())
		_, _ = conn.Write(say)
		if got := ending(t, conn); got != c.want && c.want != "" {
			t.Errorf("%s: it ends with %s, want %s", name, got, c.want)
		}
		conn.Close()
	}
	for _, p := range a.reflector.Peers() {
		if p.Flaps > 0 {
			t.Errorf("counted as a session: %+v", p)
		}
	}
	a.over()
}

// Unknown senders, and incomplete connections, take no resources from others: not in
// memory, in the log, or in the list of disconnected peers.
func TestManyConnections(t *testing.T) {
	a := underAttack(t, 20221, func(c *ReflectorConfig) { c.Groups[0].MaxPrefixes = 10 })
	cut := startStray(t, netip.MustParseAddr("127.21.1.99"), a.port)
	for i := range 3 {
		cut.say(updateOf(usual, []byte{32, 10, 4, 0, byte(i), 32, 10, 4, 1, byte(i), 32, 10, 4, 2, byte(i), 32, 10, 4, 3, byte(i)}))
	}
	eventually(t, "disconnected for", func() bool { return strings.Contains(cut.row(a.reflector).LastError, "disconnected for") })
	before, _ := a.log.count()
	for i := range 3000 { // more than are listed
		a.connect(fmt.Sprintf("127.22.%d.%d", i>>8, i&255)).Close()
	}
	var idle []net.Conn
	for i := range 150 { // more than may be pending
		idle = append(idle, a.connect(fmt.Sprintf("127.21.1.%d", 100+i)))
	}
	late := startStray(t, netip.MustParseAddr("127.21.1.2"), a.port)
	eventually(t, "a good one comes in", func() bool { return late.row(a.reflector).State == session.Established })
	if after, _ := a.log.count(); after-before > 3*logBurst {
		t.Errorf("%d lines were logged", after-before)
	}
	again := startStray(t, netip.MustParseAddr("127.21.1.99"), a.port)
	time.Sleep(300 * time.Millisecond)
	if row := again.row(a.reflector); row.State != session.Idle || !strings.Contains(row.LastError, "disconnected for") {
		t.Errorf("who was cut is back: %+v", row)
	}
	for _, c := range idle {
		c.Close()
	}
	late.c.Close()
	a.over()
}

// A malformed attribute that may be discarded must not hide other errors: the reflector
// must not pass on anything that makes the router end its session.
func TestOneBadAttributeHidesNoOther(t *testing.T) {
	a := underAttack(t, 20222)
	aggregator := []byte{0xc0, 7, 3, 1, 2, 3} // malformed
	nowhere := []byte{0x40, 3, 4, 0, 0, 0, 0}
	reach := func(hop []byte) []byte {
		v := slices.Concat([]byte{0, 2, 1, byte(len(hop))}, hop, []byte{0, 64, 0xfd, 0, 0, 9, 0, 0, 0, 0})
		return append([]byte{0x80, 14, byte(len(v))}, v...)
	}
	large := append([]byte{0xd0, 8, 0x20, 0}, make([]byte, 0x2000)...)
	from := netip.MustParseAddr("127.21.1.60")
	for name, bad := range map[string][]byte{
		"no attribute but that":     updateOf(aggregator, prefix24),
		"no NEXT_HOP":               updateOf(slices.Concat(origin, noPath, preferred, aggregator), prefix24),
		"no ORIGIN":                 updateOf(slices.Concat(noPath, viaStray, preferred, aggregator), prefix24),
		"no AS_PATH":                updateOf(slices.Concat(origin, viaStray, preferred, aggregator), prefix24),
		"the NEXT_HOP 0.0.0.0":      updateOf(slices.Concat(origin, noPath, nowhere, preferred, aggregator), prefix24),
		"an attribute beyond them":  updateOf(slices.Concat(usual, []byte{0xc0, 8, 200, 1}), prefix24),
		"an IPv6 next hop of zeros": updateOf(slices.Concat(usual, reach(make([]byte, 16))), nil),
		"the next hop ::1":          updateOf(slices.Concat(usual, reach(netip.IPv6Loopback().AsSlice())), nil),
		"the next hop ff02::1":      updateOf(slices.Concat(usual, reach(netip.MustParseAddr("ff02::1").AsSlice())), nil),
		"communities of 8 KiB":      updateOf(slices.Concat(usual, large), prefix24),
	} {
		from = from.Next()
		s := startStray(t, from, a.port)
		s.say(updateOf(usual, []byte{24, 10, 3, 9}))
		eventually(t, name+": its good route", func() bool { return strings.Contains(a.table(), "10.3.9.0/24") })
		s.say(updateOf(usual, prefix24), bad)
		s.say(updateOf(usual, []byte{24, 10, 3, 1}))
		want := goodTable + "; 10.3.1.0/24 10.0.0.166; 10.3.9.0/24 10.0.0.166"
		over := func() bool { return a.table() == want || s.row(a.reflector).State == session.Idle }
		if name == "an IPv6 next hop of zeros" || name == "the next hop ::1" || name == "the next hop ff02::1" {
			want = goodTable + "; 10.3.0.0/24 10.0.0.166; 10.3.1.0/24 10.0.0.166; 10.3.9.0/24 10.0.0.166"
		}
		eventually(t, name+": the bad route is withdrawn, or the session ended", over)
		t.Logf("%s: %s %s", name, a.table(), s.row(a.reflector).LastError)
		s.c.Close()
		eventually(t, name+": its end", func() bool { return a.table() == goodTable })
	}
	a.over()
}

// A second OPEN ends the session. Otherwise, the session would be watched twice.
func TestOpenInASession(t *testing.T) {
	a := underAttack(t, 20223)
	s := startStray(t, netip.MustParseAddr("127.21.1.60"), a.port)
	eventually(t, "session", func() bool { return s.row(a.reflector).State == session.Established })
	open := openOf(4, testAS, 90, [4]byte{127, 21, 1, 1})
	for range 200 {
		s.say(open, rawbgp.Message(pkt.BGP_MSG_KEEPALIVE, nil))
	}
	eventually(t, "its end", func() bool { return strings.Contains(s.row(a.reflector).LastError, "sent an OPEN twice") })
	s.c.Close()
	a.over()
}

// A NOTIFICATION is logged; a long one is truncated.
func TestLongNotification(t *testing.T) {
	a := underAttack(t, 20224)
	s := startStray(t, netip.MustParseAddr("127.21.1.60"), a.port)
	eventually(t, "session", func() bool { return s.row(a.reflector).State == session.Established })
	_, before := a.log.count()
	s.say(rawbgp.Message(pkt.BGP_MSG_NOTIFICATION, append([]byte{6, 2}, bytes.Repeat([]byte{7}, 4000)...)))
	eventually(t, "its end", func() bool { return strings.Contains(s.row(a.reflector).LastError, "administrative shutdown") })
	time.Sleep(100 * time.Millisecond)
	if _, after := a.log.count(); after-before > 3000 {
		t.Errorf("%d bytes were logged", after-before)
	}
	a.over()
}

// A neighbor that reconnects as fast as possible is slowed down; nobody else is affected.
func TestFlappingSessions(t *testing.T) {
	a := underAttack(t, 20225)
	hello := slices.Concat(openOf(4, testAS, 90, [4]byte{127, 21, 1, 60}), rawbgp.Message(pkt.BGP_MSG_KEEPALIVE, nil), updateOf(usual, prefix24))
	before, _ := a.log.count()
	var tried, up atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for range 4 {
		all.Go(func() {
			for time.Now().Before(end) {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.21.1.60")}, Timeout: time.Second}
				c, err := d.Dial("tcp", netip.AddrPortFrom(reflectorAddr, a.port).String())
				if err != nil {
					continue
				}
				tried.Add(1)
				_ = c.SetDeadline(time.Now().Add(time.Second))
				_, _ = c.Write(hello)
				b := make([]byte, 200)
				if n, _ := io.ReadAtLeast(c, b, 19); n >= 19 {
					up.Add(1)
				}
				c.Close()
			}
		})
	}
	all.Wait()
	t.Logf("%d connections, %d were answered", tried.Load(), up.Load())
	if most := int64(connectBurst + 3*connectsPerSecond + 5); up.Load() > most || tried.Load() < 2*most {
		t.Errorf("%d of %d connections were answered, want %d at most", up.Load(), tried.Load(), most)
	}
	if after, _ := a.log.count(); after-before > 20*connectBurst {
		t.Errorf("%d lines were logged", after-before)
	}
	a.over()
}

// A peer that continuously requests all routes gets them once per second, and one that
// reads nothing costs no more than the buffers of its connection.
func TestRouteRefreshFlood(t *testing.T) {
	const port, routes = 20226, 2000
	local, far := netip.MustParseAddr("127.21.4.11"), netip.MustParseAddr("127.21.4.12")
	listener := listenOnce(t, netip.AddrPortFrom(far, port))
	s := startSpeaker(t, local.String(), port, func(c *SpeakerConfig) { c.Peers = []PeerConfig{{Address: far, Port: port, AS: 65110}} })
	if err := s.Set(manyRoutes(routes)); err != nil {
		t.Fatal(err)
	}
	c := <-listener
	defer c.Close()
	open, _ := pkt.NewBGPOpenMessage(65110, 90, far, []pkt.OptionParameterInterface{pkt.NewOptionParameterCapability([]pkt.ParameterCapabilityInterface{
		pkt.NewCapFourOctetASNumber(65110), pkt.NewCapMultiProtocol(pkt.RF_IPv4_UC), pkt.NewCapRouteRefresh()})})
	hello, _ := open.Serialize()
	_, _ = c.Write(slices.Concat(hello, rawbgp.Message(pkt.BGP_MSG_KEEPALIVE, nil)))
	var announced atomic.Int64
	pause, took := make(chan bool), make(chan struct{})
	go func() {
		defer close(took)
		decoder := wire.Decoder{Families: map[pkt.Family]pkt.BGPAddPathMode{pkt.RF_IPv4_UC: pkt.BGP_ADD_PATH_NONE}, External: true}
		for r := wire.NewReader(c); ; {
			typ, body, err := r.Next()
			if err != nil {
				return
			}
			if typ == pkt.BGP_MSG_UPDATE {
				u, err := decoder.Update(body)
				if err != nil {
					t.Error(err)
				}
				announced.Add(int64(u.Routes()))
			}
			select {
			case <-pause:
				return
			default:
			}
		}
	}()
	eventually(t, "all routes", func() bool { return announced.Load() >= routes })
	time.Sleep(500 * time.Millisecond) // first audits
	before, began, had := used(t), time.Now(), announced.Load()
	flood := bytes.Repeat(rawbgp.Message(pkt.BGP_MSG_ROUTE_REFRESH, []byte{0, 1, 0, 1}), 1000)
	send := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			_ = c.SetWriteDeadline(time.Now().Add(5 * time.Second))
			if _, err := c.Write(flood); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	send(2500 * time.Millisecond)
	time.Sleep(time.Since(began) % time.Second)
	got, most := announced.Load()-had, int64(2+time.Since(began)/refreshEvery)*routes
	t.Logf("%d routes were sent within %s", got, time.Since(began))
	if got < routes || got > most {
		t.Errorf("%d routes were sent again, want %d to %d", got, routes, most)
	}
	close(pause) // now it does not read any more
	send(2 * time.Second)
	if now := used(t); now.heap > before.heap+16<<20 || now.goroutines > before.goroutines+5 {
		t.Errorf("before the flood %+v, now %+v", before, now)
	}
	if p := s.Peers()[0]; p.State != session.Established {
		t.Errorf("the session: %+v", p)
	}
	c.Close()
	<-took
}

// A peer that accepts the session and immediately drops it is not dialed continuously.
func TestFlappingPeerIsDialledLess(t *testing.T) {
	const port = 20228
	far := netip.MustParseAddr("127.21.4.14")
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(far, port)))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var sessions atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			sessions.Add(1)
			_, _ = c.Write(slices.Concat(openOf(4, testAS, 90, [4]byte{127, 21, 4, 14}), rawbgp.Message(pkt.BGP_MSG_KEEPALIVE, nil)))
			b := make([]byte, 400)
			for n := 0; n < 19+29; { // at least our OPEN and KEEPALIVE
				m, err := c.Read(b)
				if n += m; err != nil {
					break
				}
			}
			c.Close()
		}
	}()
	startSpeaker(t, "127.21.4.13", port, func(c *SpeakerConfig) { c.Peers = []PeerConfig{{Address: far, Port: port}} })
	time.Sleep(4 * time.Second)
	if n := sessions.Load(); n < 3 || n > 15 {
		t.Errorf("%d sessions within 4 s", n)
	}
}
