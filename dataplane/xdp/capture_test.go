package xdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fairlead/fairlead/dataplane/xdp/capture"
	"github.com/fairlead/fairlead/internal/testkit"
	"github.com/fairlead/fairlead/service"
)

// pcapFile is a file that may be read while it is written.
type pcapFile struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (f *pcapFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.b.Write(p)
}

// frames gives what is in it so far: "comment: bytes".
func (f *pcapFile) frames(t *testing.T) (comments []string, data [][]byte) {
	t.Helper()
	f.mu.Lock()
	b := bytes.Clone(f.b.Bytes())
	f.mu.Unlock()
	r, err := pcapgo.NewNgReader(bytes.NewReader(b), pcapgo.DefaultNgReaderOptions)
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

// startCapture captures until the function that it gives is called.
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
	testkit.Eventually(t, 30*time.Second, func() error {
		select {
		case r := <-done:
			t.Fatal(r.err)
		default:
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.b.Len() == 0 {
			return errors.New("the capture has not begun")
		}
		return nil
	})
	return f, end
}

// One packet is in the file twice, as it came and as it left, byte for byte.
func TestCaptureBeforeAndAfter(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	upsert(t, d, frontend(service.Tunnel, "10.1.1.1:80", service.TCP, "172.16.5.1:8080"))
	f, end := startCapture(t, d, capture.Options{Before: true, After: true})
	in := packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80", flags: "S", payload: 100}.bytes(t)
	_, out := n.run(t, d, in)
	testkit.Eventually(t, 30*time.Second, func() error {
		if comments, _ := f.frames(t); len(comments) < 2 {
			return fmt.Errorf("in the file: %q", comments)
		}
		return nil
	})
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
	// Nobody looks any more: the program is as fast as before, and alone.
	n.run(t, d, in)
	if comments, _ := f.frames(t); len(comments) != 2 {
		t.Errorf("after its end: %q", comments)
	}
}

// Only what a filter lets through is copied, in whatever it is wrapped.
func TestCaptureFilter(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	both(t, d, frontend(service.Tunnel, "10.1.1.1:80", 0, "172.16.5.1:8080"))
	both(t, d, frontend(service.Tunnel, "[fd99::1]:80", 0, "[fd05::1]:8080"))
	addr := netip.MustParseAddr
	packets := map[string][]byte{
		"web":   packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80"}.bytes(t),
		"other": packet{src: "192.0.2.8:1234", dst: "10.1.1.2:443"}.bytes(t),
		"six":   packet{src: "[2001:db8::7]:1234", dst: "[fd99::1]:80", udp: true}.bytes(t),
		"inner": packet{src: "192.0.2.7:1234", dst: "10.1.1.1:80", outer: &outer{src: "172.16.9.9", dst: "172.16.0.2", ttl: 9}}.bytes(t),
	}
	for _, c := range []struct {
		name string
		o    capture.Options
		want map[string]int
	}{
		{"all", capture.Options{}, map[string]int{"web": 2, "other": 2, "six": 2, "inner": 2}},
		{"vip", capture.Options{VIP: addr("10.1.1.1")}, map[string]int{"web": 2, "inner": 2}},
		{"vip6", capture.Options{VIP: addr("fd99::1")}, map[string]int{"six": 2}},
		{"client", capture.Options{Client: addr("192.0.2.8")}, map[string]int{"other": 2}},
		{"port", capture.Options{Port: 443}, map[string]int{"other": 2}},
		{"both", capture.Options{VIP: addr("10.1.1.1"), Port: 1234}, map[string]int{"web": 2, "inner": 2}},
		{"short", capture.Options{Snaplen: 20, VIP: addr("fd99::1")}, map[string]int{"six": 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Before, c.o.After = true, true
			// The last is the only one that the end of is known by.
			f, end := startCapture(t, d, c.o)
			for _, p := range packets {
				n.run(t, d, p)
			}
			want := 0
			for _, n := range c.want {
				want += n
			}
			testkit.Eventually(t, 30*time.Second, func() error {
				if _, data := f.frames(t); len(data) < want {
					return fmt.Errorf("%d frames of %d", len(data), want)
				}
				return nil
			})
			end()
			got := map[string]int{}
			_, data := f.frames(t)
			for _, b := range data {
				got[nameOfFrame(packets, b, c.o.Snaplen)]++
			}
			delete(got, "") // after
			for name, n := range c.want {
				if got[name] < n/2 || len(data) != want {
					t.Errorf("%s: %v of %d frames, want %v", name, got, len(data), c.want)
				}
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

func TestCaptureRefuses(t *testing.T) {
	n := newNet(t)
	d := n.open(t, config())
	for want, o := range map[string]capture.Options{
		"before, after: ask for one": {},
		"snaplen: 70000":             {Before: true, Snaplen: 70000},
		`interface "eth9"`:           {Before: true, Interface: "eth9"},
	} {
		if _, err := d.Capture(t.Context(), io.Discard, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
