package openvswitch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/vdn"
)

// slotsOf assigns attachments slots below 1 << 16 that depend only on their IDs, except on
// collisions.
func slotsOf(local []vdn.Attachment) map[uint32]vdn.Attachment {
	local = slices.SortedFunc(slices.Values(local), func(a, b vdn.Attachment) int { return cmp.Compare(a.ID, b.ID) })
	slots := map[uint32]vdn.Attachment{}
	for _, a := range local {
		h := fnv.New32a()
		h.Write([]byte(a.ID))
		slot := h.Sum32() & 0xffff
		for used := true; used; {
			if _, used = slots[slot]; used {
				slot = (slot + 1) & 0xffff
			}
		}
		slots[slot] = a
	}
	return slots
}

// burstShare divides a second's rate to get the burst: 100 ms, as in package kernel.
const burstShare = 10

// spec returns a meter in the syntax of ovs-ofctl.
func spec(id uint32, most vdn.Rate) string {
	kbps := max(uint64(most)/1000, 1)
	return fmt.Sprintf("meter=%d kbps burst stats bands=type=drop rate=%d burst_size=%d", id, kbps, max(kbps/burstShare, 16))
}

// writeMeters adds missing meters and changes those that differ.
func (s *Switch) writeMeters(ctx context.Context, wanted map[uint32]vdn.Rate) error {
	held, err := dump(ctx, s, "dump-meters", metersIn)
	if err != nil {
		return err
	}
	var errs []error
	for id, most := range wanted {
		have, there := held[id]
		want := spec(id, most)
		switch {
		case there && have == rateIn(want):
			continue
		case there:
			_, err = s.ofctl(ctx, "", "mod-meter", s.cfg.Bridge, want)
		default:
			_, err = s.ofctl(ctx, "", "add-meter", s.cfg.Bridge, want)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeMeters removes all meters that are not wanted.
func (s *Switch) removeMeters(ctx context.Context, wanted map[uint32]vdn.Rate) error {
	held, err := dump(ctx, s, "dump-meters", metersIn)
	errs := []error{err}
	for id := range held {
		if _, keep := wanted[id]; !keep {
			_, err := s.ofctl(ctx, "", "del-meter", s.cfg.Bridge, fmt.Sprintf("meter=%d", id))
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// metersIn parses the output of ovs-ofctl dump-meters: the rates in kbit/s.
func metersIn(out string) map[uint32]uint64 {
	held := map[uint32]uint64{}
	eachMeter(out, func(id uint32, text string) { held[id] = rateIn(text) })
	return held
}

// eachMeter calls see for each meter of a dump, with all of its lines.
func eachMeter(out string, see func(id uint32, text string)) {
	var id uint64
	var text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			see(uint32(id), text.String())
		}
		text.Reset()
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "meter"); ok && rest != "" && (rest[0] == '=' || rest[0] == ':') {
			flush()
			number, more, _ := strings.Cut(rest[1:], " ")
			id, _ = strconv.ParseUint(number, 10, 32)
			text.WriteString(more + " ")
			continue
		}
		if text.Len() > 0 {
			text.WriteString(line + " ")
		}
	}
	flush()
}

func rateIn(text string) uint64 { return numberAfter(text, "rate=") }

// numberAfter returns the last number that follows a name, or 0.
func numberAfter(text, name string) uint64 {
	i := strings.LastIndex(text, name)
	if i < 0 {
		return 0
	}
	rest := text[i+len(name):]
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		rest = rest[:end]
	}
	n, _ := strconv.ParseUint(rest, 10, 64)
	return n
}
