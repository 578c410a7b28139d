package ringmap

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/ring"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/xdp/entry"
)

// origin identifies everything from which a ring was made: rings of the same origin have the
// same slots.
type origin [sha256.Size]byte

// stored is a ring in the kernel, with the frontends that have it. Only the ring of a single
// frontend changes in place.
type stored struct {
	place
	from      origin
	frontends int
	chained   bool
}

// sharing finds the stored rings.
type sharing struct {
	at     map[place]*stored
	from   map[origin]*stored
	nobody uint64 // how many origins are not those of any request
	input  []byte // memory for origin
}

func newSharing() sharing {
	return sharing{at: map[place]*stored{}, from: map[origin]*stored{}}
}

// unknown returns an origin that no other ring has.
func (s *sharing) unknown() (from origin) {
	s.nobody++
	binary.LittleEndian.PutUint64(from[:], s.nobody)
	return from
}

// add records a ring of one frontend.
func (s *sharing) add(p place, from origin, chained bool) {
	one := &stored{place: p, from: from, frontends: 1, chained: chained}
	s.at[p], s.from[from] = one, one
}

// changes records that a ring has another content.
func (s *sharing) changes(one *stored, from origin) {
	delete(s.from, one.from)
	one.from, s.from[from] = from, one
}

// leave records that a frontend no longer has a ring, and reports whether no other has it.
func (s *sharing) leave(p place) (one *stored, last bool) {
	if one = s.at[p]; one == nil {
		return nil, false
	}
	if one.frontends--; one.frontends > 0 {
		return one, false
	}
	delete(s.at, p)
	if s.from[one.from] == one {
		delete(s.from, one.from)
	}
	return one, true
}

// origin returns what a request's ring is made from, and whether it may be shared.
func (r *Rings) origin(q *Request) (from origin, ok bool) {
	if q.Past != nil || !entry.HasHistory(q.Entry) {
		return r.shared.unknown(), false
	}
	before := r.shared.at[q.Before.place()]
	if before != nil && r.follows(q) && r.sameContent(q) {
		return before.from, true
	}
	h := binary.LittleEndian.AppendUint32(r.shared.input[:0], q.Entry.RingSize)
	h = append(h, bit(q.chained())|bit(q.Protocol == service.UDP)<<1|bit(r.knows(q))<<2)
	if before != nil && r.follows(q) {
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
