package sim

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/fairlead/fairlead/core/service"
)

// ConnTable is a load balancer's connection table, like that of IPVS
// (net/netfilter/ipvs/ip_vs_conn.c): buckets selected by the jhash of client, port and
// protocol, each with a chain of connections, the newest first.
type ConnTable struct {
	// Buckets is a power of two, 4096 in Linux (conn_tab_bits 12). With 0, lookups are
	// free.
	Buckets int
	Seed    uint32 // random at boot in the kernel
	// Looks is the time of the load balancer's Processor per connection visited in a
	// chain, in seconds, in addition to the time per packet.
	Looks float64
}

// Chains contains the statistics of a ConnTable.
type Chains struct {
	Connections int // currently in the table
	Longest     int // the maximum length of a chain so far
	// Lookups is the number of packet lookups, Looked the number of connections that they
	// visited.
	Lookups, Looked uint64
}

type chains struct {
	ConnTable
	Chains
	heads, lengths []int32 // of buckets; a head is the index in entries plus 1
	next, bucket   []int32 // of entries
}

func newChains(c *Balancer, byRing bool) (*chains, error) {
	t := c.Table
	switch {
	case t.Buckets == 0:
		return nil, nil
	case t.Buckets < 0 || t.Buckets&(t.Buckets-1) != 0 || t.Buckets > 1<<28:
		return nil, fmt.Errorf("balancer %s: its table has %d buckets: want a power of two up to 2^28", c.Name, t.Buckets)
	case byRing || c.PerPacket:
		return nil, fmt.Errorf("balancer %s: it remembers no flows, and has no table of them", c.Name)
	}
	return &chains{ConnTable: t, heads: make([]int32, t.Buckets), lengths: make([]int32, t.Buckets)}, nil
}

// Chains returns the statistics of a load balancer's table, or zeros if it has none.
func (n *Net[T]) Chains(of Node) Chains {
	if b := n.nodes[of].balancer; b != nil && b.chains != nil {
		return b.chains.Chains
	}
	return Chains{}
}

// bucketOf returns the bucket of a flow, like ip_vs_conn_hashkey on a little-endian
// machine.
func (n *Net[T]) bucketOf(b *balancer[T], f int32) int32 {
	way := n.flows[f].toward(b.address)
	addr, protocol := way.Client.Addr().As4(), uint32(6)
	if way.Key.Protocol == service.UDP {
		protocol = 17
	}
	hash := jhash3(binary.LittleEndian.Uint32(addr[:]), uint32(bits.ReverseBytes16(way.Client.Port())), protocol, b.chains.Seed)
	return int32(hash & uint32(b.chains.Buckets-1))
}

// walk counts the connections visited to find a flow, or to find that it is missing.
func (n *Net[T]) walk(b *balancer[T], f int32) (looked uint64) {
	c := b.chains
	for i := c.heads[n.bucketOf(b, f)] - 1; i >= 0; i = c.next[i] - 1 {
		looked++
		if b.entries[i].flow == f {
			break
		}
	}
	return looked
}

// lookUp is a packet's lookup in the table.
func (n *Net[T]) lookUp(b *balancer[T], f int32) {
	b.chains.Lookups++
	b.chains.Looked += n.walk(b, f)
}

// link adds an entry at the head of its chain.
func (c *chains) link(i, bucket int32) {
	for len(c.next) <= int(i) {
		c.next, c.bucket = append(c.next, 0), append(c.bucket, 0)
	}
	c.next[i], c.bucket[i] = c.heads[bucket], bucket
	c.heads[bucket] = i + 1
	c.lengths[bucket]++
	c.Connections++
	c.Longest = max(c.Longest, int(c.lengths[bucket]))
}

// unlink removes an entry from its chain.
func (c *chains) unlink(i int32) {
	at := &c.heads[c.bucket[i]]
	for *at != i+1 {
		at = &c.next[*at-1]
	}
	*at = c.next[i]
	c.lengths[c.bucket[i]]--
	c.Connections--
}

// jhash3 is the kernel's jhash_3words (include/linux/jhash.h): lookup3 by Bob Jenkins
// (http://burtleburtle.net/bob/c/lookup3.c) for three words.
func jhash3(a, b, c, seed uint32) uint32 {
	const first, length = 0xdeadbeef, 3 << 2
	seed += first + length
	a, b, c = a+seed, b+seed, c+seed
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return c
}
