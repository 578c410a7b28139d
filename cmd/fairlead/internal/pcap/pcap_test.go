package pcap

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

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
	if err := Write(path, frame); err != nil {
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
		frame, err := Frame(path, number)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "--p") {
				t.Errorf("%v names no flag", err)
			}
			return
		}
		if len(frame) > maxFrame {
			t.Fatalf("a frame of %d bytes", len(frame))
		}
		if err := Write(path, frame); err != nil {
			t.Fatal(err)
		}
		if again, err := Frame(path, 1); err != nil || !bytes.Equal(again, frame) {
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
	if frame, err := Frame(path, 1); err == nil || !strings.Contains(err.Error(), path) {
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
		frames, _, err := CopyBlocks(context.Background(), &out, bytes.NewReader(stream))
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

// A frame that trace writes can be read back.
func TestPcapThereAndBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.pcap")
	frame := bytes.Repeat([]byte{1, 2, 3}, 20)
	if err := Write(path, frame); err != nil {
		t.Fatal(err)
	}
	if got, err := Frame(path, 1); err != nil || !bytes.Equal(got, frame) {
		t.Errorf("%x, %v", got, err)
	}
	if _, err := Frame(path, 2); err == nil || !strings.Contains(err.Error(), "has only 1") {
		t.Errorf("the second of one: %v", err)
	}
	if _, err := Frame(path, 0); err == nil {
		t.Error("the zeroth passes")
	}
}

// A stream that ends in the middle of a block results in a valid file.
func TestCopyBlocks(t *testing.T) {
	packet := append([]byte{6, 0, 0, 0, 16, 0, 0, 0, 1, 2, 3, 4}, 16, 0, 0, 0)
	whole := bytes.Repeat(packet, 3)
	var out bytes.Buffer
	if n, _, err := CopyBlocks(t.Context(), &out, bytes.NewReader(whole)); n != 3 || err != nil || !bytes.Equal(out.Bytes(), whole) {
		t.Errorf("%d, %v", n, err)
	}
	out.Reset()
	if n, _, err := CopyBlocks(t.Context(), &out, bytes.NewReader(whole[:40])); n != 2 || err == nil || !bytes.Equal(out.Bytes(), whole[:32]) {
		t.Errorf("cut off: %d, %v, %d bytes", n, err, out.Len())
	}
	if _, _, err := CopyBlocks(t.Context(), &out, strings.NewReader("HTTP/1.1 200 OK and so on")); err == nil {
		t.Error("no capture passes")
	}
}
