package routing

import "time"

// hear puts an update behind those that wait.
func (n *network) hear(id int32, j job) {
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

// begin starts on the next job, at a moment.
func (n *network) begin(id int32, at int64) {
	n.to.At(at+int64(n.c.Prefixes)*int64(n.c.Path), event{kind: did, node: id})
}

// do ends a job: what it changes is told.
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
	before := k.told[i]
	if j.up {
		k.told[i] |= j.bit
	} else {
		k.told[i] &^= j.bit
	}
	sending := time.Duration(0)
	if (before == 0) != (k.told[i] == 0) {
		sending = n.pass(id, j.speaker)
	}
	at := n.to.Now() + int64(sending)
	if k.next < len(k.jobs) {
		n.begin(id, at)
		return
	}
	k.busy, k.idle = false, at
}

// pass tells peers how it is with a speaker now, and gives the work of that.
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
			work += n.say(id, p, speaker, work)
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

// interval draws the least time to the next update: up to a quarter is taken off.
func (n *network) interval() int64 {
	if n.c.MRAI == 0 {
		return 0
	}
	return int64(float64(n.c.MRAI) * float64(1-float64(n.random.Float()/4)))
}

// say tells a peer how it is with a speaker, unless it knows, and gives the work.
func (n *network) say(id int32, p int, speaker int32, after time.Duration) time.Duration {
	k := &n.nodes[id]
	at, i := &k.peers[p], speaker-k.first
	up := k.told[i] != 0
	if at.said[i] == up {
		return 0
	}
	at.said[i] = up
	work := time.Duration(n.c.Prefixes) * n.c.Send
	n.tell(at.to, job{speaker, at.bit, up}, after+work)
	return work
}

// flush tells a peer all that has waited for the end of its interval.
func (n *network) flush(id, p int32) {
	k := &n.nodes[id]
	if k.dead {
		return
	}
	at, work := &k.peers[p], time.Duration(0)
	for _, speaker := range at.later {
		work += n.say(id, int(p), speaker, work)
	}
	at.later, at.free = at.later[:0], n.to.Now()+n.interval()
}

// purge takes back all that a reflector below, which is gone, has told of so many
// speakers from the first on.
func (n *network) purge(id int32, bit uint8, first, speakers int32) {
	k := &n.nodes[id]
	waits := k.next < len(k.jobs) // which may be what it told
	for s := first; s < first+speakers; s++ {
		if waits || k.told[s-k.first]&bit != 0 {
			n.hear(id, job{s, bit, false})
		}
	}
}

// kill lets a reflector end. Those that it tells notice at once where they are
// told that its connections have ended, and else by its silence.
func (n *network) kill(id int32, silently bool) {
	k := &n.nodes[id]
	k.dead = true
	for _, p := range k.peers {
		after := n.c.Death + n.c.Link + n.c.Wake
		if silently {
			after = n.silence()
		}
		n.to.At(n.to.Now()+int64(after), event{kind: lost, node: p.to, peer: int32(len(k.told)), job: job{k.first, p.bit, false}})
	}
}
