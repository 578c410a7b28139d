package sim

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/fairlead/fairlead/core/service"
)

// ConnTable is a balancer's table of connections as IPVS has it
// (net/netfilter/ipvs/ip_vs_conn.c): buckets by jhash of client, port and protocol,
// with a chain of connections each, the newest first.
type ConnTable struct {
	// Buckets is a power of two, 4096 in Linux (conn_tab_bits 12); 0: flows are found
	// at once, wherever they are.
	Buckets int
	Seed    uint32 // the kernel's is drawn at its start
	// Looks is what each connection that is looked at takes of the balancer's
	// Processor, in seconds, beside what a packet takes.
	Looks float64
}

// Chains is what became of a ConnTable.
type Chains struct {
	Connections int // that are in it
	Longest     int // that a chain has been, in connections
	// Lookups are those of packets, and Looked the connections that they looked at.
	Lookups, Looked uint64
}

type chains struct {
	ConnTable
	Chains
	heads, lengths []int32 // of buckets; a head is 1 more than the place in entries
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

// Chains gives what became of a balancer's table; all 0 where it has none of those.
func (n *Net[T]) Chains(of Node) Chains {
	if b := n.nodes[of].balancer; b != nil && b.chains != nil {
		return b.chains.Chains
	}
	return Chains{}
}

// bucketOf gives the bucket of a flow, as ip_vs_conn_hashkey does on a little-endian
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

// walk counts the connections that are looked at to find a flow, or to find that it
// is not there.
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

// lookUp is a packet's look into the table.
func (n *Net[T]) lookUp(b *balancer[T], f int32) {
	b.chains.Lookups++
	b.chains.Looked += n.walk(b, f)
}

// link puts an entry at the head of its chain.
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

// unlink takes an entry out of its chain.
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
// (http://burtleburtle.net/bob/c/lookup3.c) of three words.
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
