package routing

import "time"

// enqueue adds an update to the queue.
func (n *network) enqueue(id int32, j job) {
	k := &n.nodes[id]
	if k.dead {
		return
	}
	k.jobs = append(k.jobs, j)
	if !k.busy {
		k.busy = true
		n.begin(id, max(n.to.Now(), k.idle))
	}
}

// begin starts the next job at the given time.
func (n *network) begin(id int32, at int64) {
	n.to.At(at+int64(n.c.Prefixes)*int64(n.c.Path), event{kind: did, node: id})
}

// do ends a job and propagates what it changed.
func (n *network) do(id int32) {
	k := &n.nodes[id]
	if k.dead {
		return
	}
	j := k.jobs[k.next]
	if k.next++; k.next == len(k.jobs) {
		k.jobs, k.next = k.jobs[:0], 0
	}
	k.taken++
	i := j.speaker - k.first
	before := k.has[i]
	if j.up {
		k.has[i] |= j.bit
	} else {
		k.has[i] &^= j.bit
	}
	sending := time.Duration(0)
	if (before == 0) != (k.has[i] == 0) {
		sending = n.pass(id, j.speaker)
	}
	at := n.to.Now() + int64(sending)
	if k.next < len(k.jobs) {
		n.begin(id, at)
		return
	}
	k.busy, k.idle = false, at
}

// pass propagates the state of a speaker to the peers, and returns the work for that.
func (n *network) pass(id, speaker int32) (work time.Duration) {
	k := &n.nodes[id]
	if k.router != nil {
		k.router.note(speaker)
		return 0
	}
	if n.c.ToSpeakers {
		work = time.Duration(k.below*n.c.Prefixes) * n.c.Send
	}
	for p := range k.peers {
		at := &k.peers[p]
		switch now := n.to.Now(); {
		case at.free <= now:
			work += n.send(id, p, speaker, work)
			at.free = now + n.interval()
		default:
			if len(at.later) == 0 {
				n.to.At(at.free, event{kind: flushes, node: id, peer: int32(p)})
			}
			at.later = append(at.later, speaker)
		}
	}
	return work
}

// interval draws the time to the next update: MRAI, reduced by up to a quarter.
func (n *network) interval() int64 {
	if n.c.MRAI == 0 {
		return 0
	}
	return int64(float64(n.c.MRAI) * float64(1-float64(n.random.Float()/4)))
}

// send sends a peer the state of a speaker, unless the peer has it, and returns the work.
func (n *network) send(id int32, p int, speaker int32, after time.Duration) time.Duration {
	k := &n.nodes[id]
	at, i := &k.peers[p], speaker-k.first
	up := k.has[i] != 0
	if at.sent[i] == up {
		return 0
	}
	at.sent[i] = up
	work := time.Duration(n.c.Prefixes) * n.c.Send
	n.deliver(at.to, job{speaker, at.bit, up}, after+work)
	return work
}

// flush sends a peer everything that waited for the end of its interval.
func (n *network) flush(id, p int32) {
	k := &n.nodes[id]
	if k.dead {
		return
	}
	at, work := &k.peers[p], time.Duration(0)
	for _, speaker := range at.later {
		work += n.send(id, int(p), speaker, work)
	}
	at.later, at.free = at.later[:0], n.to.Now()+n.interval()
}

// purge withdraws everything received from a failed reflector below, for the given
// speakers.
func (n *network) purge(id int32, bit uint8, first, speakers int32) {
	k := &n.nodes[id]
	waits := k.next < len(k.jobs) // queued updates may be from that reflector
	for s := first; s < first+speakers; s++ {
		if waits || k.has[s-k.first]&bit != 0 {
			n.enqueue(id, job{s, bit, false})
		}
	}
}

// kill ends a reflector. Its peers notice when they are notified that the connection has
// ended, or otherwise by its silence.
func (n *network) kill(id int32, silently bool) {
	k := &n.nodes[id]
	k.dead = true
	for _, p := range k.peers {
		after := n.c.Death + n.c.Link + n.c.Wake
		if silently {
			after = n.silence()
		}
		n.to.At(n.to.Now()+int64(after), event{kind: lost, node: p.to, peer: int32(len(k.has)), job: job{k.first, p.bit, false}})
	}
}
