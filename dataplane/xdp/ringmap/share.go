package ringmap

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// origin identifies everything from which a ring was made: rings of the same origin have the
// same slots.
type origin [sha256.Size]byte

// stored is a ring in the kernel, with the frontends that have it. Only the ring of a single
// frontend changes in place, unless it is narrow.
type stored struct {
	place
	slots
	from      origin
	frontends int
	chained   bool
}

// location is where a ring begins.
type location struct{ segment, first uint32 }

func (r Ring) location() location { return location{r.Entry.Segment, r.Entry.Slot} }

// sharing finds the stored rings.
type sharing struct {
	at     map[location]*stored
	from   map[origin]*stored
	words  uint32 // how many all of them have
	nobody uint64 // how many origins are not those of any request
	input  []byte // memory for origin
}

func newSharing() sharing {
	return sharing{at: map[location]*stored{}, from: map[origin]*stored{}}
}

// unknown returns an origin that no other ring has.
func (s *sharing) unknown() (from origin) {
	s.nobody++
	binary.LittleEndian.PutUint64(from[:], s.nobody)
	return from
}

// add records a ring of one frontend.
func (s *sharing) add(one *stored) {
	one.frontends = 1
	s.words += one.N
	s.at[location{one.segment, one.First}], s.from[one.from] = one, one
}

// find returns a frontend's ring, nil without one.
func (s *sharing) find(of Ring) *stored {
	one := s.at[of.location()]
	if of.Entry.Slots == 0 || one == nil || one.n != int(of.Entry.Slots) || one.narrow() != of.narrow() {
		return nil
	}
	return one
}

// changes records that a ring has another content.
func (s *sharing) changes(one *stored, from origin) {
	delete(s.from, one.from)
	one.from, s.from[from] = from, one
}

// leave records that a frontend no longer has a ring, and reports whether no other has it.
func (s *sharing) leave(of Ring) (one *stored, last bool) {
	if one = s.find(of); one == nil {
		return nil, false
	}
	return one, s.drop(one)
}

// drop records that a frontend no longer has one, and reports whether no other has it.
func (s *sharing) drop(one *stored) (last bool) {
	if one.frontends--; one.frontends > 0 {
		return false
	}
	s.words -= one.N
	delete(s.at, location{one.segment, one.First})
	if s.from[one.from] == one {
		delete(s.from, one.from)
	}
	return true
}

// origin returns what a request's ring is made from, and whether it may be that of another
// request, too. Frontends that track flows have servers of their own.
func (r *Rings) origin(q *Request) (from origin, shares bool) {
	if q.Past != nil || !entry.HasHistory(q.Entry) {
		return r.shared.unknown(), false
	}
	before := r.derived(q)
	if before != nil && r.sameContent(q) {
		return before.from, true
	}
	if q.Entry.Flags&bpf.BalancerFrontendFlagsFRONTEND_STATEFUL != 0 {
		return r.shared.unknown(), false
	}
	h := binary.LittleEndian.AppendUint32(r.shared.input[:0], q.Entry.RingSize)
	h = append(h, bit(q.chained())|bit(q.Protocol == service.UDP)<<1|bit(r.knows(q))<<2)
	if before != nil {
		h = append(h, before.from[:]...)
		h = appendMembers(h, q.Before.Members)
	}
	h = appendMembers(append(h, 0), q.Members)
	r.shared.input = h
	return sha256.Sum256(h), true
}

// sameContent reports whether a ring that follows another one is the same.
func (r *Rings) sameContent(q *Request) bool {
	return q.Before.Made && r.Lacking() == 0 && q.Protocol == q.Before.Protocol && q.chained() == q.Before.chained() &&
		slices.Equal(q.Members, q.Before.Members)
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// appendMembers appends everything about members on which a ring depends.
func appendMembers(h []byte, members []ring.Member) []byte {
	h = binary.LittleEndian.AppendUint32(h, uint32(len(members)))
	for i := range members {
		m := &members[i]
		addr := m.Addr.Addr().As16()
		h = binary.LittleEndian.AppendUint32(h, m.ID)
		h = binary.LittleEndian.AppendUint16(append(h, addr[:]...), m.Addr.Port())
		h = binary.LittleEndian.AppendUint32(h, m.Weight)
		h = appendTime(appendTime(h, m.Since), m.Drained)
	}
	return h
}

func appendTime(h []byte, t time.Time) []byte {
	if t.IsZero() {
		return binary.LittleEndian.AppendUint64(h, 0)
	}
	return binary.LittleEndian.AppendUint64(h, uint64(t.UnixNano()))
}
