package capture

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// Summary is the result of a capture.
type Summary struct {
	Packets, Frames int
	// Lost frames arrived faster than they were written.
	Lost uint64
}

// Write writes the frames of src as pcapng until ctx ends or o.Count packets are written.
// Each direction is an interface of the file, named like "eth0 in" and "eth0 out XDP_TX".
// A packet's comment has the same name, and identifies the frame that belongs to it.
// names are the interfaces by index. Each frame is written to w soon after it arrives,
// even if no more follow.
func Write(ctx context.Context, w io.Writer, src Source, names map[int]string, o Options) (s Summary, err error) {
	f := &file{out: w, names: names, ids: map[string]int{}}
	if err := f.begin(); err != nil {
		return s, err
	}
	inside := map[int]packet{} // by CPU, which has one at a time
	for {
		frame, err := next(ctx, src, f)
		if s.Lost = src.Lost(); s.Lost != f.lost {
			if err := f.writeLost(s.Lost); err != nil {
				return s, err
			}
		}
		if ctx.Err() != nil {
			return s, f.flush()
		}
		if err != nil {
			return s, errors.Join(err, f.flush())
		}
		p := inside[frame.CPU]
		if p.index == 0 || p.number != frame.Number {
			if o.Count > 0 && s.Packets == o.Count {
				return s, f.flush()
			}
			s.Packets++
			p = packet{frame.Number, s.Packets}
			inside[frame.CPU] = p
		}
		s.Frames++
		if err := f.write(frame, p.index); err != nil {
			return s, err
		}
		if p.index == o.Count && (frame.After || !o.After) {
			return s, f.flush()
		}
	}
}

// packet is a captured packet: its number on its CPU, and its position in the file.
type packet struct {
	number uint64
	index  int
}

// pause is how long a frame waits to be written along with others.
const pause = 200 * time.Millisecond

// next returns the next frame, and flushes before it waits long.
func next(ctx context.Context, src Source, f *file) (Frame, error) {
	for {
		soon, cancel := context.WithTimeout(ctx, pause)
		frame, err := src.Next(soon)
		paused := soon.Err() != nil
		cancel()
		if err == nil || !paused || ctx.Err() != nil {
			return frame, err
		}
		if err := f.flush(); err != nil {
			return Frame{}, err
		}
	}
}

// file is the growing pcapng.
type file struct {
	out   io.Writer
	names map[int]string
	ng    *pcapgo.NgWriter
	ids   map[string]int // of the file's interfaces, by name
	lost  uint64         // as last written
}

// begin writes the header, so that an empty capture is a valid file too.
func (f *file) begin() (err error) {
	const none = "XDP" // the format requires one interface
	f.ng, err = pcapgo.NewNgWriterInterface(f.out, ngInterface(none), pcapgo.NgWriterOptions{
		SectionInfo: pcapgo.NgSectionInfo{Application: "fairlead capture"},
	})
	if err != nil {
		return fmt.Errorf("capture: write: %w", err)
	}
	return f.flush()
}

func ngInterface(name string) pcapgo.NgInterface {
	return pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet, TimestampResolution: 9}
}

func (f *file) flush() error {
	if err := f.ng.Flush(); err != nil {
		return fmt.Errorf("capture: write: %w", err)
	}
	if w, ok := f.out.(interface{ Flush() }); ok {
		w.Flush()
	}
	return nil
}

func (f *file) write(frame Frame, number int) error {
	name, known := f.names[frame.Interface]
	if !known {
		name = fmt.Sprintf("interface %d", frame.Interface)
	}
	way := name + " in"
	if frame.After {
		way = fmt.Sprintf("%s out %s", name, frame.Verdict)
	}
	id, err := f.id(way)
	if err == nil {
		err = f.ng.WritePacketWithOptions(gopacket.CaptureInfo{
			Timestamp: frame.Time, CaptureLength: len(frame.Data), Length: frame.Length, InterfaceIndex: id,
		}, frame.Data, pcapgo.NgPacketOptions{Comments: []string{fmt.Sprintf("packet %d: %s", number, way)}})
	}
	if err != nil {
		return fmt.Errorf("capture: write: %w", err)
	}
	return nil
}

func (f *file) id(way string) (int, error) {
	id, known := f.ids[way]
	if known {
		return id, nil
	}
	id, err := f.ng.AddInterface(ngInterface(way))
	f.ids[way] = id
	return id, err
}

// writeLost writes the number of frames lost so far, in the statistics of the first
// interface.
func (f *file) writeLost(n uint64) error {
	f.lost = n
	err := f.ng.WriteInterfaceStats(0, pcapgo.NgInterfaceStatistics{
		LastUpdate: time.Now(), PacketsDropped: n, PacketsReceived: pcapgo.NgNoValue64,
	})
	if err != nil {
		return fmt.Errorf("capture: write: %w", err)
	}
	return nil
}

// LostIn reads from its block what writeLost wrote.
func LostIn(block []byte) uint64 {
	const options, dropped = 20, 5 // isb_ifdrop
	for b := block[min(options, len(block)):]; len(b) >= 12; {
		code, size := binary.LittleEndian.Uint16(b), int(binary.LittleEndian.Uint16(b[2:]))
		if code == dropped && size == 8 {
			return binary.LittleEndian.Uint64(b[4:])
		}
		b = b[min(4+(size+3)&^3, len(b)):]
	}
	return 0
}
