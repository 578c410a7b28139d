package metallb

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/addresspool"
	"github.com/fairlead/fairlead/source/importer"
)

// pool is a converted address pool.
type pool struct {
	name   string // in Fairlead
	labels map[string]string
}

// topPriority is above all priorities. In MetalLB the lowest takes precedence, except 0; in
// Fairlead the highest.
const topPriority = 1 << 20

func (r *reader) pool(what, name string, f field, labels map[string]string) {
	var ranges []string
	for _, a := range f.get("addresses").items() {
		found, err := addressRange(a.text())
		if err != nil {
			r.lose(a.at(), what+": addresses", err.Error(), "")
			continue
		}
		ranges = append(ranges, found)
	}
	var s spec
	s.set("addresses", ranges)
	s.copies(f, map[string]string{"autoAssign": "autoAssign", "avoidBuggyIPs": "avoidBuggyIPs"})
	to := f.get("serviceAllocation")
	if p := to.get("priority").number(); p > 0 {
		s.set("priority", max(topPriority-p, 1))
	}
	s.copies(to, map[string]string{"namespaces": "namespaces"})
	for _, key := range []string{"namespaceSelector", "serviceSelector"} {
		all := to.get(key + "s").items()
		if len(all) > 1 {
			r.lose(to.get(key+"s").at(), what+": "+key+"s", "a pool has one selector", "join them in spec."+key+" by matchExpressions; the first is taken")
		}
		if len(all) > 0 {
			s.set(key, all[0])
		}
	}
	ours := r.unique("AddressPool", importer.UniqueName(map[string]bool{}, name))
	if len(ranges) > 0 && r.add(f.at(), what, "AddressPool", ours, &s) {
		r.pools = append(r.pools, pool{ours, labels})
		r.poolNames[name] = ours
	}
}

// addressRange normalizes "10.1.1.0/24" or "10.1.1.5-10.1.1.9".
func addressRange(text string) (string, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked().String(), nil // MetalLB ignores host bits
	}
	r, err := addresspool.ParseRange(text)
	return r.String(), err
}

// advert is an advertisement of pools by BGP or layer 2. It is converted when everything
// that it may refer to is known.
type advert struct {
	what, name string
	field
	pools  []string // only the pool that contains it, if any
	layer2 bool
}

// advertFields are fields that are copied unchanged.
var advertFields = map[string]string{
	"aggregationLength": "aggregationLength", "aggregationLengthV6": "aggregationLengthV6", "localPref": "localPreference",
}

func (r *reader) advertise(a advert) {
	var s spec
	s.set("mode", "BGP")
	if a.layer2 {
		s.node.Content[1].Value = "Layer2"
	}
	pools, meant := r.poolsOf(a)
	if !meant {
		return
	}
	if len(pools) > 0 {
		s.set("pools", pools)
	}
	if !a.layer2 {
		s.copies(a.field, advertFields)
		if all := r.communities(a); len(all) > 0 {
			s.set("communities", all)
		}
		if peers := a.get("peers").texts(); len(peers) > 0 {
			var names []string
			for _, p := range peers {
				names = append(names, r.peerNames[p]...)
			}
			if len(names) == 0 {
				r.lose(a.get("peers").at(), a.what+": peers", "none of them is among what is written here", "the Advertisement is left out")
				return
			}
			s.set("peers", names)
		}
	}
	s.set("trafficPolicy", "FromService")
	var all []*spec
	for _, one := range s.selectors("nodeSelector", a.get("nodeSelectors")) {
		all = append(all, one.selectors("serviceSelector", a.get("serviceSelectors"))...)
	}
	r.addEach(a.at(), a.what, "Advertisement", importer.UniqueName(map[string]bool{}, a.name), all)
	r.interfacesOf(a)
}

// poolsOf returns the pools of an advertisement, none for all, and whether it applies to
// any.
func (r *reader) poolsOf(a advert) (names []string, meant bool) {
	named := slices.Concat(a.pools, a.get("ipAddressPools").texts())
	for _, name := range named {
		if ours := r.poolNames[name]; ours == "" {
			r.lose(a.at(), a.what+": ipAddressPools", "pool "+name+" is not among what is written here", "")
		} else if !slices.Contains(names, ours) {
			names = append(names, ours)
		}
	}
	selectors := a.get("ipAddressPoolSelectors")
	for _, s := range selectors.items() {
		for _, p := range r.pools {
			yes, known := selects(s, p.labels)
			if !known {
				r.lose(s.at(), a.what+": ipAddressPoolSelectors", "pools have no labels here, and matchExpressions are not looked at", "name the pools by spec.pools")
				break
			}
			if yes && !slices.Contains(names, p.name) {
				names = append(names, p.name)
			}
		}
	}
	all := len(named) == 0 && len(selectors.items()) == 0
	if !all && len(names) == 0 {
		r.lose(a.at(), a.what, "it is for none of the pools that are written here", "it is left out")
	}
	return names, all || len(names) > 0
}

// communities returns the communities of an advertisement, by value.
func (r *reader) communities(a advert) (all []string) {
	for _, c := range a.get("communities").items() {
		text := c.text()
		if value, ok := r.aliases[text]; ok {
			text = value
		}
		text = strings.TrimPrefix(text, "large:")
		if !strings.Contains(text, ":") {
			r.lose(c.at(), a.what+": communities", "no Community has the name "+text, "add its value to spec.communities")
			continue
		}
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// interfacesOf records the interfaces for layer 2.
func (r *reader) interfacesOf(a advert) {
	if !a.layer2 {
		return
	}
	named := a.get("interfaces").texts()
	if len(named) == 0 {
		r.lose(a.at(), a.what, "MetalLB answers on all interfaces of a node, an agent only on those of its configuration",
			"add --l2-interfaces INTERFACE to the agents, and --l2-members or --balancers")
		return
	}
	r.lose(a.get("interfaces").at(), a.what+": interfaces", "an agent answers on the same for all addresses",
		"see to it that --l2-interfaces names those that are meant, and add --l2-members or --balancers")
	for _, name := range named {
		if !slices.Contains(r.interfaces, name) {
			r.interfaces = append(r.interfaces, name)
		}
	}
}

// peerLosses are fields of a peer without a counterpart.
var peerLosses = map[string][2]string{
	"localASN":               {"an agent has one AS", "set --local-asn"},
	"routerID":               {"each agent has its own", "set --router-id where the interface's address shall not be it"},
	"password":               {"passwords are in Secrets", "write it into a Secret, under the key password, and name that as spec.passwordSecretRef"},
	"enableGracefulRestart":  {"a balancer that is gone must be left at once", "leave it out"},
	"vrf":                    {"an agent's sessions are in its own network namespace", "start it by ip vrf exec"},
	"disableMP":              {"both families go over one session", "leave it out"},
	"dualStackAddressFamily": {"both families go over one session anyway", "leave it out"},
}

// peer is a BGP neighbor. It is converted when all profiles are known.
type peer struct {
	what, name string
	field
}

// peerFields are fields that are copied unchanged.
var peerFields = map[string]string{"peerAddress": "peerAddress", "peerPort": "port", "sourceAddress": "sourceAddress", "interface": "interface"}

// addPeer creates a BGPPeer; own is the AS of the agents.
func (r *reader) addPeer(p peer, own int) {
	as := p.get("peerASN").number()
	p.each(func(key string, value field) {
		why := peerLosses[key]
		switch {
		case key == "dynamicASN" && value.text() == "internal":
			as = own
		case key == "dynamicASN":
			r.lose(value.at(), p.what+": dynamicASN "+value.text(), "a peer's AS must be known", "write the BGPPeer by hand, with peerASN")
		case why != [2]string{} && !(value.text() == "false" || value.text() == "" && value.node.Kind == 0):
			r.lose(value.at(), p.what+": "+key, why[0], why[1])
		}
	})
	if mine := p.get("myASN").number(); mine != own {
		r.lose(p.at(), p.what, fmt.Sprintf("an agent has one AS, here %d", own), fmt.Sprintf("start other agents with --local-asn %d", mine))
		return
	}
	if as == 0 || p.get("peerAddress").text() == "" && p.get("interface").text() == "" {
		r.lose(p.at(), p.what, "it lacks an address or an AS number of either side", "write the BGPPeer by hand")
		return
	}
	var s spec
	s.copies(p.field, peerFields)
	s.set("peerASN", as)
	r.seconds(&s, p, "holdTime", "holdTimeSeconds")
	r.seconds(&s, p, "keepaliveTime", "keepaliveSeconds")
	r.seconds(&s, p, "connectTime", "connectRetrySeconds")
	if secret := p.get("passwordSecret", "name"); secret.text() != "" {
		s.set("passwordSecretRef", secret.text())
		r.lose(secret.at(), p.what+": passwordSecret", "Secrets are not copied", "copy it to the agents' namespace, where they may get it (docs/kubernetes.md), or into the folder")
	}
	r.bfd(&s, p)
	r.peerNames[p.name] = r.addEach(p.at(), p.what, "BGPPeer", importer.UniqueName(map[string]bool{}, p.name), s.selectors("nodeSelector", p.get("nodeSelectors")))
}

// seconds copies a duration.
func (r *reader) seconds(s *spec, p peer, key, ours string) {
	f := p.get(key)
	if f.text() == "" {
		return
	}
	d, err := time.ParseDuration(f.text())
	if err != nil || d%time.Second != 0 {
		r.lose(f.at(), p.what+": "+key, fmt.Sprintf("%q is no time in whole seconds", f.text()), "set spec."+ours)
		return
	}
	s.set(ours, int(d/time.Second))
}

// bfd copies a BFD profile.
func (r *reader) bfd(s *spec, p peer) {
	name := p.get("bfdProfile").text()
	profile, known := r.profiles[name]
	switch {
	case name == "":
		s.set("bfd", map[string]bool{"enabled": false})
		return
	case !known:
		r.lose(p.get("bfdProfile").at(), p.what+": bfdProfile", "there is no BFDProfile "+name+" here", "BFD runs by its defaults: set spec.bfd.intervalMilliseconds")
	}
	var ours spec
	receive, transmit := profile.get("receiveInterval").number(), profile.get("transmitInterval").number()
	if both := max(receive, transmit); both > 0 {
		ours.set("intervalMilliseconds", both)
	}
	if n := profile.get("detectMultiplier").number(); n > 0 {
		ours.set("detectMultiplier", n)
	}
	if len(ours.node.Content) > 0 {
		s.set("bfd", &ours.node)
	}
}

// bfdProfile records a BFD profile.
func (r *reader) bfdProfile(what, name string, f field) {
	r.profiles[name] = f
	f.each(func(key string, value field) {
		switch key {
		case "echoInterval", "echoMode", "passiveMode", "minimumTtl":
			if value.text() != "false" {
				r.lose(value.at(), what+": "+key, "BFD here has no such choice", "leave it out")
			}
		}
	})
	if receive, transmit := f.get("receiveInterval").number(), f.get("transmitInterval").number(); receive != transmit && receive > 0 && transmit > 0 {
		r.lose(f.at(), what, "a peer has one interval both ways", "the longer is taken")
	}
}

// finishRouting converts what requires everything to be known, and adds the agents' flags.
func (r *reader) finishRouting() {
	own := 0
	for _, p := range r.peers {
		if own == 0 {
			own = p.get("myASN").number()
		}
	}
	for _, p := range r.peers {
		r.addPeer(p, own)
	}
	for _, a := range r.adverts {
		r.advertise(a)
	}
	if own != 0 {
		r.Agent = append(r.Agent, "--local-asn", strconv.Itoa(own))
	}
	if len(r.interfaces) > 0 {
		r.Agent = append(r.Agent, "--l2-interfaces", strings.Join(r.interfaces, ","))
	}
}
