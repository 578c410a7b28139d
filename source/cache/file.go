package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/core/route"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/atomicfile"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
)

// version is the version of the file format; other versions are not read. It must be raised
// whenever a value of package service changes its meaning or gains a required field.
// TestFormat detects this.
const version = 1

// state is the content of the file, as JSON. The file's modification time is when the
// cluster was last read; it is updated even if nothing else changes.
type state struct {
	Version  int                `json:"version"`
	Services []*service.Service `json:"services"`
	// Balancers are all known balancers; which of them drained is not cached.
	Balancers []netip.Addr `json:"balancers,omitempty"`
	// Senders is null in the file of a release without senders.
	Senders     []netip.Addr         `json:"senders"`
	Quarantines []service.Quarantine `json:"quarantines,omitempty"`
	// Announced is the result of Advertisements for each VIP; Chosen is true if there are
	// any.
	Announced []announced `json:"announced,omitempty"`
	Chosen    bool        `json:"chosen"`
	Peers     []peer      `json:"peers,omitempty"`
	at        time.Time
	said      map[about]announced // index of Announced
}

// peer stores the port separately, because an Address without an IP address loses it as
// text.
type peer struct {
	crd.Peer
	Port uint16
}

type about struct {
	service service.ID
	vip     netip.Addr
}

type announced struct {
	Service service.ID    `json:"service"`
	VIP     netip.Addr    `json:"vip"`
	Offers  []route.Offer `json:"offers,omitempty"`
	Why     string        `json:"why,omitempty"`
}

func stateOf(s source.Snapshot, peers []crd.Peer) *state {
	st := &state{Version: version, Services: s.Services, Balancers: s.Balancers, Senders: s.Senders, Quarantines: s.Quarantines, Chosen: s.Advertisements != nil}
	for _, p := range peers {
		st.Peers = append(st.Peers, peer{p, p.Address.Port()})
	}
	if !st.Chosen {
		return st
	}
	for _, one := range s.Services {
		var vips []netip.Addr
		for _, f := range one.Frontends {
			if !slices.Contains(vips, f.VIP) {
				vips = append(vips, f.VIP)
			}
		}
		for _, vip := range vips {
			offers, why := s.Advertisements.Offers(one, vip)
			st.Announced = append(st.Announced, announced{one.ID, vip, offers, why})
		}
	}
	return st
}

// snapshot returns the cached state as a source does.
func (st *state) snapshot(problems []problem.Problem) source.Snapshot {
	s := source.Snapshot{Services: st.Services, Balancers: st.Balancers, Senders: st.Senders, Quarantines: st.Quarantines, Problems: problems}
	if st.Chosen {
		s.Advertisements = st
	}
	return s
}

// Offers implements source.Advertisements.
func (st *state) Offers(s *service.Service, vip netip.Addr) ([]route.Offer, string) {
	a := st.said[about{s.ID, vip}]
	return a.Offers, a.Why
}

func (st *state) peers() (all []crd.Peer) {
	for _, p := range st.Peers {
		p.Address = netip.AddrPortFrom(p.Address.Addr(), p.Port)
		all = append(all, p.Peer)
	}
	return all
}

// write replaces a file atomically. Only the owner may read it.
func (st *state) write(file string) error {
	text, err := json.Marshal(st)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, 0o600, bytes.NewReader(text))
}

// writeAt writes a file with a modification time.
func (st *state) writeAt(file string, at time.Time) error {
	if err := st.write(file); err != nil {
		return err
	}
	return os.Chtimes(file, at, at)
}

// read returns the content of the file, or why it cannot be used.
func (s *Source) read() (*state, error) {
	st, err := parse(s.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("no agent with this socket has kept anything")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.File, err)
	}
	if age := time.Since(st.at); age > s.Limit {
		return nil, fmt.Errorf("%s is of %s ago, and may be of %s (--state-cache-max-age)", s.File, age.Round(time.Second), s.Limit)
	}
	for _, one := range st.Services {
		if one == nil {
			return nil, fmt.Errorf("%s: one of its Services is none", s.File)
		}
		if wrong := one.Validate(); len(wrong) > 0 {
			return nil, fmt.Errorf("%s: Service %s: %w", s.File, one.ID, wrong[0])
		}
	}
	return st, nil
}

func parse(file string) (*state, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	st := &state{at: info.ModTime(), said: map[about]announced{}}
	if err := json.Unmarshal(text, st); err != nil {
		return nil, err
	}
	if st.Version != version {
		return nil, fmt.Errorf("version %d, not %d", st.Version, version)
	}
	for _, a := range st.Announced {
		st.said[about{a.Service, a.VIP}] = a
	}
	return st, nil
}

func withoutPasswords(peers []crd.Peer) (all []crd.Peer) {
	for _, p := range peers {
		if p.PasswordSecretRef == "" { // no session without its password
			all = append(all, p)
		}
	}
	return all
}

// samePeers reports whether the cached part of the peers is the same.
func samePeers(kept, now []crd.Peer) bool { return slices.Equal(kept, withoutPasswords(now)) }
