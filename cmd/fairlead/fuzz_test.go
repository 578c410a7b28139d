package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fairlead/fairlead/dataplane/xdp"
	"github.com/fairlead/fairlead/dataplane/xdp/capture"
	"github.com/fairlead/fairlead/internal/pktgen"
	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// captures returns a frame, and it as pcap, as gzipped pcap, and as pcapng.
func captures(f testing.TB) (frame []byte, files [][]byte) {
	f.Helper()
	frame, err := pktgen.Packet{From: netip.MustParseAddrPort("192.0.2.7:1234"), To: netip.MustParseAddrPort("10.1.1.1:80"), Protocol: "tcp"}.Frame()
	if err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(f.TempDir(), "a.pcap")
	if err := writePcap(path, frame); err != nil {
		f.Fatal(err)
	}
	pcap, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	var zipped, ng bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(pcap)
	_ = z.Close()
	w, err := pcapgo.NewNgWriter(&ng, layers.LinkTypeEthernet)
	if err != nil {
		f.Fatal(err)
	}
	for range 2 {
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: len(frame), Length: len(frame)}, frame); err != nil {
			f.Fatal(err)
		}
	}
	_ = w.Flush()
	return frame, [][]byte{pcap, zipped.Bytes(), ng.Bytes()}
}

// FuzzPcap extracts a frame from an arbitrary file. An error names what is wrong. An
// accepted frame is within the limit, and is read back the same from the file written
// from it.
func FuzzPcap(f *testing.F) {
	_, files := captures(f)
	for _, text := range files {
		f.Add(text, 1)
		f.Add(text, 2)
		f.Add(text[:len(text)-3], 1)
	}
	f.Add([]byte{}, 1)
	f.Fuzz(func(t *testing.T, text []byte, number int) {
		fuzzlimit.Time(t)
		path := filepath.Join(t.TempDir(), "a")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		frame, err := frameOf(path, number)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "--p") {
				t.Errorf("%v names no flag", err)
			}
			return
		}
		if len(frame) > maxFrame {
			t.Fatalf("a frame of %d bytes", len(frame))
		}
		if err := writePcap(path, frame); err != nil {
			t.Fatal(err)
		}
		if again, err := frameOf(path, 1); err != nil || !bytes.Equal(again, frame) {
			t.Errorf("%d bytes are read as %d again: %v", len(frame), len(again), err)
		}
	})
}

// A frame is limited even in a file that decompresses to far more.
func TestFramesAreBounded(t *testing.T) {
	var pcap bytes.Buffer
	z := gzip.NewWriter(&pcap)
	head := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4)
	head = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(head, 2), 4)
	for _, n := range []uint32{0, 0, 1 << 31, 1, 0, 0, 64 << 20, 64 << 20} { // snaplen, Ethernet; a record's time and lengths
		head = binary.LittleEndian.AppendUint32(head, n)
	}
	_, _ = z.Write(head)
	zeros := make([]byte, 1<<20)
	for range 64 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	path := filepath.Join(t.TempDir(), "bomb.pcap.gz")
	if err := os.WriteFile(path, pcap.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if frame, err := frameOf(path, 1); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a frame of %d bytes of a file of %d: %v", len(frame), pcap.Len(), err)
	}
}

// FuzzCapture copies what an agent streams. The output consists of whole blocks from its
// beginning, packets or others.
func FuzzCapture(f *testing.F) {
	_, files := captures(f)
	f.Add(files[2])
	f.Add(files[2][:len(files[2])-5])
	f.Add([]byte{5, 0, 0, 0, 12, 0, 0, 0, 12, 0, 0, 0})
	f.Add([]byte{5, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, stream []byte) {
		fuzzlimit.Time(t)
		var out bytes.Buffer
		frames, _, err := copyBlocks(context.Background(), &out, bytes.NewReader(stream))
		if !bytes.HasPrefix(stream, out.Bytes()) {
			t.Fatal("what is written did not come")
		}
		packets := 0
		for b := out.Bytes(); len(b) > 0; {
			size := int(binary.LittleEndian.Uint32(b[4:]))
			if size < 12 || size > len(b) {
				t.Fatalf("a block of %d bytes of %d", size, len(b))
			}
			if binary.LittleEndian.Uint32(b) == blockPacket {
				packets++
			}
			capture.LostIn(b[:size])
			b = b[size:]
		}
		if packets != frames || err == nil && out.Len() != len(stream) {
			t.Errorf("%d frames are reported, %d written; %d of %d bytes, %v", frames, packets, out.Len(), len(stream), err)
		}
	})
}

// FuzzFlowQuery checks that a query is either rejected with an error that names the
// parameter, or has valid addresses and no negative number.
func FuzzFlowQuery(f *testing.F) {
	for _, q := range []string{"", "vip=10.1.1.1:80&limit=3", "client=::1&backend=[fd00::1]:80", "limit=-1", "vip=x", "vip=%zz"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		fuzzlimit.Time(t)
		values, _ := url.ParseQuery(query)
		q, err := flowQueryOf(values)
		if err != nil {
			key, _, _ := strings.Cut(err.Error(), ":")
			if !values.Has(key) {
				t.Errorf("%q: %v names no part of it", query, err)
			}
			return
		}
		if q.Limit < 0 || values.Get("vip") != "" != q.VIP.IsValid() && q.VIP.Port() != 0 {
			t.Errorf("%q is taken as %+v", query, q)
		}
	})
}

// FuzzStream decodes what an agent streams: events, up to the first invalid one.
func FuzzStream(f *testing.F) {
	f.Add([]byte(`{"reason":"no-frontend","data":"AAAA"} {}`))
	f.Add([]byte(`{"data":"!"}`))
	f.Add([]byte("[[[[[[["))
	f.Fuzz(func(t *testing.T, stream []byte) {
		fuzzlimit.Time(t)
		n := 0
		_ = each(t.Context(), bytes.NewReader(stream), func(xdp.Event) error { n++; return nil })
		if n > len(stream) {
			t.Errorf("%d events of %d bytes", n, len(stream))
		}
	})
}
