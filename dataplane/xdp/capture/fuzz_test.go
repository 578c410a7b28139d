package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// script is a Source with a fuzzer's frames.
type script struct {
	frames []Frame
	lost   uint64
}

func (s *script) Next(context.Context) (Frame, error) {
	if len(s.frames) == 0 {
		return Frame{}, io.EOF
	}
	f := s.frames[0]
	s.frames = s.frames[1:]
	s.lost += uint64(f.Number % 3)
	return f, nil
}

func (s *script) Lost() uint64 { return s.lost }

func scripted(b []byte) (frames []Frame) {
	for len(b) >= 8 {
		data := b[8:min(8+int(b[7]), len(b))]
		frames = append(frames, Frame{
			Time: time.Unix(int64(b[0]), 0), CPU: int(b[1] % 3), Number: uint64(b[2]), Interface: int(b[3] % 4), After: b[4]&1 == 1,
			Verdict: Verdict(b[5]), Length: len(data) + int(b[6]), Data: data,
		})
		b = b[8+len(data):]
	}
	return frames
}

// FuzzWrite verifies that the frames of a capture can be read back from its output, and
// the lost frames from its blocks.
func FuzzWrite(f *testing.F) {
	f.Add([]byte{1, 0, 1, 1, 0, 0, 0, 3, 'a', 'b', 'c', 2, 0, 1, 1, 1, 3, 0, 2, 'd', 'e'}, "eth0", false)
	f.Add([]byte{1, 0, 1, 3, 1, 200, 9, 0}, "", true)
	f.Fuzz(func(t *testing.T, b []byte, name string, after bool) {
		fuzzlimit.Time(t)
		src := &script{frames: scripted(b)}
		want := src.frames
		var out bytes.Buffer
		s, err := Write(t.Context(), &out, src, map[int]string{1: name}, Options{Before: true, After: after})
		if !errors.Is(err, io.EOF) || s.Frames != len(want) || s.Packets > s.Frames {
			t.Fatalf("%+v, %v, want %d frames", s, err, len(want))
		}
		r, err := pcapgo.NewNgReader(bytes.NewReader(out.Bytes()), pcapgo.DefaultNgReaderOptions)
		if err != nil {
			t.Fatal(err)
		}
		for i := range want {
			data, info, err := r.ReadPacketData()
			if err != nil {
				t.Fatalf("frame %d of %d: %v", i, len(want), err)
			}
			if !bytes.Equal(data, want[i].Data) || info.Length != want[i].Length {
				t.Fatalf("frame %d: %q of %d bytes, want %q of %d", i, data, info.Length, want[i].Data, want[i].Length)
			}
		}
	})
}

// FuzzLostIn verifies that any block is read within its bounds.
func FuzzLostIn(f *testing.F) {
	block := make([]byte, 20, 40)
	block = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(block, 5), 8)
	f.Add(binary.LittleEndian.AppendUint64(block, 7))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, block []byte) {
		fuzzlimit.Time(t)
		lost := binary.LittleEndian.AppendUint64(nil, LostIn(block))
		if LostIn(block) != 0 && !bytes.Contains(block, lost) {
			t.Errorf("%x is not in the block", lost)
		}
	})
}
