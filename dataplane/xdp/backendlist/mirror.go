package backendlist

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/xdp/bpf"
)

// mirrorMax is how many entries all lists together have while map members has them, too, if it has
// room for that.
const mirrorMax = 65536

func (l *Lists) fitsMirror() bool { return l.count < min(mirrorMax+1, l.max) }

// Lead is the key of an entry of map members that says that the lists are newer. A build without lists
// removes it, as an entry of no frontend.
var Lead = bpf.BalancerMemberKey{Frontend: math.MaxUint32, Server: math.MaxUint32}

// Mirror is the content of map members. A build without lists frees the servers of frontends that
// have no entries there, and voids the flows to them.
type Mirror map[bpf.BalancerMemberKey]bpf.BalancerMember

// Add adds a frontend's list.
func (m Mirror) Add(frontend uint32, entries []Entry) Mirror {
	for _, e := range entries {
		m[bpf.BalancerMemberKey{Frontend: frontend, Server: e.Server}] = e.BalancerMember
	}
	return m
}

// ReadMirror reads map members.
func (l *Lists) ReadMirror() (Mirror, error) {
	m := Mirror{}
	err := bpf.ReadHash(l.maps.Members, func(k bpf.BalancerMemberKey, e bpf.BalancerMember) { m[k] = e })
	if err != nil {
		return nil, fmt.Errorf("read map members: %w", err)
	}
	return m, nil
}

// Adopt makes lists of what a build without them has left in map members.
func (l *Lists) Adopt() error {
	if err := l.Open(); err != nil {
		return err
	}
	left, err := l.ReadMirror()
	if _, lead := left[Lead]; err != nil || lead || len(left) == 0 {
		return err
	}
	all := map[uint32][]Entry{}
	for k, e := range left {
		all[k.Frontend] = append(all[k.Frontend], Entry{k.Server, e})
	}
	for id := range uint32(l.words.Len()) {
		if err := l.Set(id, all[id]); err != nil {
			return err
		}
	}
	return nil
}

// SyncMirror makes map members equal to the lists, or empty if they are too long, from now on.
func (l *Lists) SyncMirror() error {
	have, err := l.ReadMirror()
	if err != nil {
		return err
	}
	want := Mirror{Lead: {}}
	if l.keeps = l.fitsMirror(); l.keeps {
		for id, entries := range l.All() {
			want.Add(id, entries)
		}
	}
	return l.writeMirror(have, want)
}

// mirror repeats a change of a list in map members.
func (l *Lists) mirror(frontend uint32, was, now []Entry) error {
	if !l.keeps {
		return nil
	}
	if !l.fitsMirror() {
		return l.SyncMirror()
	}
	return l.writeMirror(Mirror{}.Add(frontend, was), Mirror{}.Add(frontend, now))
}

// writeMirror writes what differs, first what is new, if there is room.
func (l *Lists) writeMirror(have, want Mirror) error {
	var keys []bpf.BalancerMemberKey
	var values []bpf.BalancerMember
	for k, m := range want {
		if was, ok := have[k]; !ok || was != m {
			keys, values = append(keys, k), append(values, m)
		}
	}
	put := func() (err error) {
		if len(keys) > 0 {
			_, err = l.maps.Members.BatchUpdate(keys, values, nil)
		}
		return err
	}
	err := put()
	for k := range have {
		if _, stays := want[k]; stays {
			continue
		}
		if err := bpf.IgnoreAbsent(l.maps.Members.Delete(k)); err != nil {
			return fmt.Errorf("write map members: %w", err)
		}
		if errors.Is(err, unix.E2BIG) {
			err = put()
		}
	}
	if err != nil {
		return fmt.Errorf("write map members: %w", err)
	}
	return nil
}
