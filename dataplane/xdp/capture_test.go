package xdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/capture"
	"github.com/fairlead/fairlead/dataplane/xdp/observe"
	"github.com/fairlead/fairlead/lab/testkit"
)

// pcapFile is a file that can be read while it is written.
type pcapFile struct{ testkit.Output }

// frames returns its current contents: "comment: bytes".
func (f *pcapFile) frames(t *testing.T) (comments []string, data [][]byte) {
	t.Helper()
	r, err := pcapgo.NewNgReader(strings.NewReader(f.String()), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		return nil, nil // nothing yet
	}
	for {
		frame, _, opts, err := r.ReadPacketDataWithOptions()
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			return comments, data
		}
		comments = append(comments, strings.Join(opts.Comments, "; "))
		data = append(data, frame)
	}
}

// startCapture captures until the returned function is called.
func startCapture(t *testing.T, d *DataPlane, o capture.Options) (f *pcapFile, end func() capture.Summary) {
	t.Helper()
	f = &pcapFile{}
	ctx, cancel := context.WithCancel(t.Context())
	type result struct {
		capture.Summary
		err error
	}
	done := make(chan result, 1)
	go func() {
		s, err := d.Capture(ctx, f, o)
		done <- result{s, err}
	}()
	var once sync.Once
	end = func() (s capture.Summary) {
		once.Do(func() {
			cancel()
			r := <-done
			must(t, r.err)
			s = r.Summary
		})
		return s
	}
	t.Cleanup(func() { end() })
	const loading = 9 * patience // the verifier checks all programs again
	testkit.Eventually(t, loading, func() error {
		select {
		case r := <-done:
			t.Fatal(r.err)
		default:
		}
		if f.String() == "" {
			return errors.New("the capture has not begun")
		}
		return nil
	})
	return f, end
}

// waitFrames waits until the file has this many wanted frames.
func waitFrames(t *testing.T, f *pcapFile, count int, wanted func([]byte) bool) {
	t.Helper()
	testkit.Eventually(t, patience, func() error {
		comments, data := f.frames(t)
		have := 0
		for _, b := range data {
			if wanted(b) {
				have++
			}
		}
		if have < count {
			return fmt.Errorf("%d frames of %d; in the file: %q", have, count, comments)
		}
		return nil
	})
}

func anyFrame([]byte) bool { return true }

// One packet is in the file twice, as received and as sent, byte for byte.
func TestCaptureBeforeAndAfter(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.5.1:8080"))
	w := n.wireEnd(t)
	f, end := startCapture(t, d, capture.Options{VIP: netip.MustParseAddr("10.1.1.1"), Before: true, After: true})
	in := packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80", flags: "S", payload: 100}.bytes(t)
	_, out := n.run(t, d, in)
	must(t, w.exchange(in, out))
	waitFrames(t, f, 2, anyFrame)
	if s := end(); s.Packets != 1 || s.Frames != 2 || s.Lost != 0 {
		t.Errorf("summary %+v", s)
	}
	comments, data := f.frames(t)
	if want := "packet 1: eth0 in|packet 1: eth0 out XDP_REDIRECT"; strings.Join(comments, "|") != want {
		t.Errorf("comments %q", comments)
	}
	if !bytes.Equal(data[0], in) || !bytes.Equal(data[1], out) {
		t.Errorf("in  %x\nis  %x\nout %x\nis  %x", in, data[0], out, data[1])
	}
	// The ordinary program is back: it forwards, and nothing is written.
	must(t, w.exchange(in, out))
	if comments, _ := f.frames(t); len(comments) != 2 {
		t.Errorf("after its end: %q", comments)
	}
	info, err := d.kernel.Balancer.Info()
	must(t, err)
	id, _ := info.ID()
	for _, name := range d.links.Names() {
		if now, err := d.links.Attached(name); err != nil || now != id {
			t.Errorf("%s has program %d, not %d: %v", name, now, id, err)
		}
	}
}

// During a capture, packets keep flowing, and so do the agent's changes.
func TestCaptureLosesNothing(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.5.1:8080"))
	w := n.wireEnd(t)
	in := packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80", flags: "S"}.bytes(t)
	_, out := n.run(t, d, in)
	for range 3 {
		_, end := startCapture(t, d, capture.Options{Before: true})
		must(t, w.exchange(in, out))
		if _, err := d.Capture(t.Context(), io.Discard, capture.Options{Before: true}); !errors.Is(err, observe.ErrCapturing) {
			t.Errorf("a second capture: %v", err)
		}
		end()
		must(t, w.exchange(in, out))
	}
	var packets uint64
	counters, err := d.Counters()
	must(t, err)
	for _, c := range counters {
		packets += c.Total.Packets
	}
	if packets != 7 { // one was a test run
		t.Errorf("counted %d packets", packets)
	}
}

// Only matching packets are copied, with any encapsulation.
func TestCaptureFilter(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	w := n.wireEnd(t)
	addr := netip.MustParseAddr
	packets := map[string][]byte{
		"web":   packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80"}.bytes(t),
		"other": packet{src: "192.0.2.8:1234", dst: "10.1.1.2:443"}.bytes(t),
		"six":   packet{src: "[2001:db8::7]:1234", dst: "[fd99::1]:80", udp: true}.bytes(t),
		"inner": packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80", outer: &outer{src: "172.16.9.9", dst: "172.16.0.7", ttl: 9}}.bytes(t),
	}
	for _, c := range []struct {
		name string
		o    capture.Options
		want []string
	}{
		{"all", capture.Options{}, []string{"web", "other", "six", "inner"}},
		{"vip", capture.Options{VIP: addr("10.1.1.1")}, []string{"web", "inner"}},
		{"vip6", capture.Options{VIP: addr("fd99::1")}, []string{"six"}},
		{"client", capture.Options{Client: addr("192.0.2.8")}, []string{"other"}},
		{"port", capture.Options{Port: 443}, []string{"other"}},
		{"vip and port", capture.Options{VIP: addr("10.1.1.1"), Port: 1234}, []string{"web", "inner"}},
		{"short", capture.Options{Snaplen: 20, VIP: addr("fd99::1")}, []string{"six"}},
		{"interface", capture.Options{Interface: "eth0", Client: addr("192.0.2.8")}, []string{"other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Before, c.o.After = true, true
			f, end := startCapture(t, d, c.o)
			for _, p := range packets {
				_, err := unix.Write(w.fd, p)
				must(t, err)
			}
			waitFrames(t, f, 2*len(c.want), func(b []byte) bool { return nameOfFrame(packets, b, c.o.Snaplen) != "" })
			end()
			got := map[string]int{}
			_, data := f.frames(t)
			for _, b := range data {
				got[nameOfFrame(packets, b, c.o.Snaplen)]++
			}
			if c.name == "all" {
				delete(got, "") // the kernel's own
			}
			want := map[string]int{}
			for _, name := range c.want {
				want[name] = 2 // unmodified: they are for no frontend
			}
			if !maps.Equal(got, want) {
				t.Errorf("captured %v, want %v", got, want)
			}
		})
	}
}

func nameOfFrame(packets map[string][]byte, b []byte, snaplen int) string {
	for name, p := range packets {
		if snaplen > 0 {
			p = p[:snaplen]
		}
		if bytes.Equal(p, b) {
			return name
		}
	}
	return ""
}

// A capture ends after Count packets, each with both its frames.
func TestCaptureCount(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	own, err := d.links.Attached("eth0")
	must(t, err)
	w := n.wireEnd(t)
	f, end := startCapture(t, d, capture.Options{VIP: netip.MustParseAddr("10.1.1.1"), Before: true, After: true, Count: 3})
	p := packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80"}.bytes(t)
	for range 5 {
		_, err := unix.Write(w.fd, p)
		must(t, err)
	}
	waitFrames(t, f, 6, anyFrame)
	testkit.Eventually(t, patience, func() error {
		now, err := d.links.Attached("eth0")
		if now != own {
			return errors.Join(errors.New("the capture is still running"), err)
		}
		return nil
	})
	if s := end(); s.Packets != 3 || s.Frames != 6 {
		t.Errorf("%+v", s)
	}
}

func TestCaptureRefuses(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for want, o := range map[string]capture.Options{
		"before, after: select": {},
		"snaplen: 70000":        {Before: true, Snaplen: 70000},
		`interface "eth9"`:      {Before: true, Interface: "eth9"},
	} {
		if _, err := d.Capture(t.Context(), io.Discard, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// If its lease is not renewed, because the agent was killed, a capture stops reporting,
// and packets keep flowing.
func TestCaptureFallsSilent(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, vips[false], service.TCP, servers[false]))
	w, err := d.observer.Watch(capture.Options{Before: true, After: true}, 0)
	must(t, err)
	defer func() { must(t, w.Close()) }()
	ordinary := d.kernel.Balancer
	d.kernel.Balancer = w.Program.Balancer
	defer func() { d.kernel.Balancer = ordinary }()
	var lengths []int // bytes of frames
	for i, lease := range []time.Duration{time.Hour, -time.Second, time.Hour} {
		must(t, w.Renew(lease))
		in := packet{src: clients[false], dst: vips[false], payload: 100 * i}
		row{name: fmt.Sprint("packet ", i), in: in, verdict: redirect, out: func(p *packet) {
			p.outer = &outer{src: owns[false], dst: addrOf(servers[false]), ttl: 64}
			sent(p)
		}}.check(t, n, d)
	}
	for range 4 {
		f, err := w.Next(t.Context())
		must(t, err)
		lengths = append(lengths, f.Length)
	}
	if want := []int{54, 74, 254, 274}; !slices.Equal(lengths, want) {
		t.Errorf("captured frames of %d bytes, want %d: those of the first and the last packet, before and after", lengths, want)
	}
}
