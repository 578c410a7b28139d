package metallb

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/addresspool"
	"github.com/fairlead/fairlead/importer"
)

// pool is where MetalLB takes addresses from.
type pool struct {
	name   string
	ranges []addresspool.Range
}

func (p pool) contains(a netip.Addr) bool {
	return slices.ContainsFunc(p.ranges, func(r addresspool.Range) bool { return r.Contains(a) })
}

func (r *reader) pool(what, name string, f field) {
	p := pool{name: name}
	for _, a := range f.get("addresses").items() {
		found, err := addressRange(a.text())
		if err != nil {
			r.lose(a.at(), what+": addresses", err.Error(), "")
			continue
		}
		p.ranges = append(p.ranges, found)
	}
	r.pools = append(r.pools, p)
	r.lose(f.at(), what, "a folder of manifests hands out no addresses: Services keep those that they have in their status or ask for by number",
		"on a cluster make an AddressPool of it, in a folder give a new Service its address by annotation fairlead.io/addresses")
}

// addressRange reads "10.1.1.0/24" or "10.1.1.5-10.1.1.9".
func addressRange(text string) (addresspool.Range, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return addresspool.RangeOf(p), nil // MetalLB looks over bits behind the length
	}
	return addresspool.ParseRange(text)
}

// advert is how pools are announced by BGP.
type advert struct {
	pools []string // none for all
	// length4 and length6 are how long the prefixes are that are announced.
	length4, length6 int
}

// notTaken is what becomes of what resources of ours could say: no such are
// written, as flags and annotations do for the rest.
const notTaken = "it is not carried over"

// advertLosses are fields of an advertisement without counterpart.
var advertLosses = map[string][2]string{
	"localPref":              {notTaken, "write an Announcement with localPreference"},
	"communities":            {notTaken, "write an Announcement with communities"},
	"nodeSelectors":          {notTaken, "write an Announcement with nodeSelector"},
	"peers":                  {notTaken, "write an Announcement with peers"},
	"serviceSelectors":       {notTaken, "write an Announcement with serviceSelector"},
	"ipAddressPoolSelectors": {"pools have no labels here; all are meant", "name the pools by ipAddressPools"},
}

func (r *reader) advert(what string, f field, pools []string) {
	a := advert{pools: pools, length4: 32, length6: 128}
	f.each(func(key string, value field) {
		switch why := advertLosses[key]; {
		case key == "aggregationLength":
			a.length4 = prefixLength(value, 32)
		case key == "aggregationLengthV6":
			a.length6 = prefixLength(value, 128)
		case why != [2]string{}:
			r.lose(value.at(), what+": "+key, why[0], why[1])
		}
	})
	r.adverts = append(r.adverts, a)
}

func prefixLength(f field, longest int) int {
	n, err := strconv.Atoi(f.text())
	if err != nil || n < 1 || n > longest {
		return longest
	}
	return n
}

// prefixes gives what is announced for addresses in place of themselves, and
// whether one is announced by itself, too.
func (r *reader) prefixes(vips []netip.Addr) (all []netip.Prefix, also bool) {
	for _, vip := range vips {
		alone, within := false, false
		for _, a := range r.adverts {
			if !r.covers(a, vip) {
				continue
			}
			length := a.length4
			if vip.Is6() {
				length = a.length6
			}
			p := netip.PrefixFrom(vip, length).Masked()
			alone, within = alone || p.IsSingleIP(), within || !p.IsSingleIP()
			if !p.IsSingleIP() && !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
		also = also || alone && within
	}
	return all, also
}

// covers says whether an advertisement is for an address.
func (r *reader) covers(a advert, vip netip.Addr) bool {
	return slices.ContainsFunc(r.pools, func(p pool) bool {
		return p.contains(vip) && (len(a.pools) == 0 || slices.Contains(a.pools, p.name))
	})
}

// peer is a BGP neighbour.
type peer struct {
	what    string
	at      importer.At
	own, as int
	address netip.AddrPort
	bfd     bool
}

// peerLosses are fields of a peer without counterpart.
var peerLosses = map[string][2]string{
	"localASN":               {"an agent has one AS", "set --as"},
	"sourceAddress":          {notTaken, "write a BGPPeer with sourceAddress in place of --peer"},
	"interface":              {notTaken, "write a BGPPeer with interface in place of --peer"},
	"holdTime":               {notTaken, "leave it out, as BFD is faster; or write a BGPPeer with holdTimeSeconds in place of --peer"},
	"keepaliveTime":          {notTaken, "leave it out, as BFD is faster; or write a BGPPeer with keepaliveSeconds in place of --peer"},
	"connectTime":            {notTaken, "leave it out; or write a BGPPeer with connectRetrySeconds in place of --peer"},
	"routerID":               {"each agent has its own", "set --router-id where the interface's address shall not be it"},
	"nodeSelectors":          {notTaken, "give --peer to the agents of those nodes alone; or write a BGPPeer with nodeSelector"},
	"password":               {"passwords are in files or Secrets", "write it into a file of mode 600 and add --password-file; or write a BGPPeer with passwordSecret"},
	"passwordSecret":         {"passwords are in files or Secrets", "write it into a file of mode 600 and add --password-file; or write a BGPPeer with passwordSecret"},
	"enableGracefulRestart":  {"a balancer that is gone must be left at once", "leave it out"},
	"vrf":                    {"an agent's sessions are in its own network namespace", "start it by ip vrf exec"},
	"disableMP":              {"both families go over one session", "leave it out"},
	"dualStackAddressFamily": {"both families go over one session anyway", "leave it out"},
}

func (r *reader) peer(what string, f field) {
	p := peer{what: what, at: f.at(), own: f.get("myASN").number(), as: f.get("peerASN").number(), bfd: f.get("bfdProfile").text() != ""}
	addr, err := netip.ParseAddr(f.get("peerAddress").text())
	port := f.get("peerPort").number()
	if port < 1 || port > 65535 {
		port = 179
	}
	p.address = netip.AddrPortFrom(addr, uint16(port))
	f.each(func(key string, value field) {
		why := peerLosses[key]
		switch {
		case key == "dynamicASN" && value.text() == "internal":
			p.as = p.own
		case key == "dynamicASN":
			r.lose(value.at(), what+": dynamicASN "+value.text(), "a peer's AS must be known", "name it behind the peer's address: --peer 10.0.0.1@65000")
		case why != [2]string{} && !(value.text() == "false" || value.text() == "" && value.node.Kind == 0):
			r.lose(value.at(), what+": "+key, why[0], why[1])
		}
	})
	if err != nil || p.own == 0 || p.as == 0 {
		r.lose(f.at(), what, "it lacks an address or an AS number of either side", "add --peer ADDRESS@AS to the agents")
		return
	}
	r.peers = append(r.peers, p)
}

// agent makes flags of the peers.
func (r *reader) agent() {
	if len(r.peers) == 0 {
		return
	}
	first := r.peers[0]
	r.Agent = append(r.Agent, "--as", strconv.Itoa(first.own))
	bfd := 0
	for _, p := range r.peers {
		if p.bfd {
			bfd++
		}
		if p.own != first.own {
			r.lose(p.at, p.what, fmt.Sprintf("an agent has one AS, here %d", first.own), "start other agents with --as "+strconv.Itoa(p.own))
			continue
		}
		text := p.address.Addr().String()
		if p.address.Port() != 179 {
			text = p.address.String()
		}
		if p.as != p.own {
			text += "@" + strconv.Itoa(p.as)
		}
		if !slices.Contains(r.Agent, text) {
			r.Agent = append(r.Agent, "--peer", text)
		}
	}
	switch bfd {
	case 0:
		r.Agent = append(r.Agent, "--bfd=false")
	case len(r.peers):
	default:
		r.lose(first.at, "BFD with some peers", "--peer watches all peers by BFD, or none", "let all have it, or pass --bfd=false, or write BGPPeers")
	}
}
