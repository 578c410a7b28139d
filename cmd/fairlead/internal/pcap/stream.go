package pcap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/dataplane/xdp/capture"
)

// The pcapng block types that are inspected (draft-ietf-opsawg-pcapng, 4).
const (
	blockStatistics = 5
	blockPacket     = 6
)

// CopyBlocks copies pcapng block by block, so that the file is valid wherever the stream
// ends, and counts frames. The last statistics block says how many were lost.
func CopyBlocks(ctx context.Context, out io.Writer, in io.Reader) (frames int, lost uint64, err error) {
	const head, most = 8, 1 << 20
	for {
		block := make([]byte, head)
		_, err := io.ReadFull(in, block)
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return frames, lost, nil
		}
		if err == nil {
			size := binary.LittleEndian.Uint32(block[4:])
			if size < head+4 || size > most {
				return frames, lost, fmt.Errorf("invalid capture from the agent: a block of %d bytes", size)
			}
			block = append(block, make([]byte, size-head)...)
			_, err = io.ReadFull(in, block[head:])
		}
		if ctx.Err() != nil {
			return frames, lost, nil
		}
		if err != nil {
			return frames, lost, fmt.Errorf("the capture broke off: %w", err)
		}
		switch binary.LittleEndian.Uint32(block) {
		case blockPacket:
			frames++
		case blockStatistics:
			lost = capture.LostIn(block)
		}
		if _, err := out.Write(block); err != nil {
			return frames, lost, fmt.Errorf("--write: %w", err)
		}
	}
}
