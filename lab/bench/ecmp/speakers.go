package ecmp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/advertise/bgp"
	"github.com/fairlead/fairlead/core/route"
)

// order is one line of input for the process that speaks for all load balancers: what
// they must advertise. Its answer is a line with an error, or an empty one.
type order struct {
	// All is the number of prefixes that each load balancer advertises.
	All int
	// Less is the number of prefixes, from the first on, that the last load balancer does
	// not advertise.
	Less int
}

// servicePrefix returns the i-th prefix, balancerAddr the address that the i-th load
// balancer uses for its sessions and as its next hop.
func servicePrefix(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 128 + byte(i>>8), byte(i), 0}), 24)
}

func balancerAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 1, 1 + byte(i)}) }

// sessionsWithin is the time limit for sessions to come up.
const sessionsWithin = time.Minute

// Speakers configures the load balancers that a process speaks for, and their peers.
type Speakers struct {
	AS         uint32
	Reflectors []netip.Addr
	// First is the number of the first load balancer, Balancers how many there are.
	First, Balancers int
}

// Speak advertises routes for load balancers as ordered on in, until in ends.
func Speak(ctx context.Context, c Speakers, in io.Reader, out io.Writer) error {
	var peers []bgp.PeerConfig
	for _, a := range c.Reflectors {
		peers = append(peers, bgp.PeerConfig{Address: a})
	}
	speakers := make([]*bgp.Speaker, c.Balancers)
	for i := range speakers {
		s, err := bgp.NewSpeaker(bgp.SpeakerConfig{AS: c.AS, LocalAddress: balancerAddr(c.First + i), Peers: peers})
		if err != nil {
			return err
		}
		defer s.Close()
		speakers[i] = s
	}
	up, cancel := context.WithTimeout(ctx, sessionsWithin)
	defer cancel()
	for _, s := range speakers {
		if err := s.AwaitEstablished(up); err != nil {
			return err
		}
	}
	answer := json.NewEncoder(out)
	if err := answer.Encode(""); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		said := ""
		if err := c.obey(speakers, o); err != nil {
			said = err.Error()
		}
		if err := answer.Encode(said); err != nil {
			return err
		}
	}
	return nil
}

// obey lets all load balancers advertise concurrently.
func (c Speakers) obey(speakers []*bgp.Speaker, o order) error {
	errs := make([]error, len(speakers))
	var wg sync.WaitGroup
	for i, s := range speakers {
		first := 0
		if i == len(speakers)-1 {
			first = o.Less
		}
		wg.Go(func() { errs[i] = s.Set(routes(balancerAddr(c.First+i), first, o.All)) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("balancer %s: %w", balancerAddr(c.First+i), err)
		}
	}
	return nil
}

func routes(nextHop netip.Addr, first, end int) []route.Route {
	all := []route.Route{}
	for i := first; i < end; i++ {
		all = append(all, route.Route{Prefix: servicePrefix(i), NextHop: nextHop})
	}
	return all
}
