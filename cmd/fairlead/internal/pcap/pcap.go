// Package pcap reads and writes the capture files of trace and capture. Errors name the
// flag whose value is wrong. What packets mean does not matter here. Tests are files and
// streams, also broken ones.
package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// maxFrame is the longest frame that tcpdump captures, in bytes.
const maxFrame = 1 << 18

// Frame extracts one frame from a capture.
func Frame(path string, number int) ([]byte, error) {
	if number < 1 {
		return nil, fmt.Errorf("--packet: %d: they are counted from 1", number)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--pcap: %w", err)
	}
	defer file.Close()
	src, link, err := open(file)
	if err != nil {
		return nil, fmt.Errorf("--pcap: %s: %w", path, err)
	}
	if link != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("--pcap: %s holds %s: capture Ethernet", path, link)
	}
	for n := 1; ; n++ {
		frame, _, err := src.ReadPacketData()
		if err == nil && len(frame) > maxFrame {
			err = fmt.Errorf("packet %d has %d bytes; no more than %d are read", n, len(frame), maxFrame)
		}
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("--packet: %s has only %d", path, n-1)
		}
		if err != nil {
			return nil, fmt.Errorf("--pcap: %s: %w", path, err)
		}
		if n == number {
			return frame, nil
		}
	}
}

// open opens either format, recognized by its first bytes.
func open(file io.ReadSeeker) (gopacket.PacketDataSource, layers.LinkType, error) {
	var magic [4]byte
	if _, err := io.ReadFull(file, magic[:]); err != nil {
		return nil, 0, fmt.Errorf("no capture: %w", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, 0, err
	}
	const section = 0x0a0d0d0a // type of pcapng's first block, the same in either byte order
	if binary.BigEndian.Uint32(magic[:]) == section {
		r, err := pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			return nil, 0, err
		}
		return r, r.LinkType(), nil
	}
	r, err := pcapgo.NewReader(file)
	if err != nil {
		return nil, 0, err
	}
	r.SetSnaplen(maxFrame) // the file's own limit may be higher
	return r, r.LinkType(), nil
}

// Write writes a file with one frame.
func Write(path string, frame []byte) error {
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	err := errors.Join(w.WriteFileHeader(maxFrame, layers.LinkTypeEthernet), w.WritePacket(gopacket.CaptureInfo{
		Timestamp: time.Now(), CaptureLength: len(frame), Length: len(frame),
	}, frame))
	if err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
