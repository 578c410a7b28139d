package sim

// Bytes of a frame on a switched LAN, or its overhead, in addition to the packet: header
// and checksum, minimum size, preamble, and gap.
const (
	etherHeader   = 18
	etherLeast    = 64
	etherPreamble = 8
	etherGap      = 12
)

// Port is a node on a switch.
type Port struct {
	Node Node
	Rate float64 // bit/s, in both directions
	// Queue is the limit of the queue at either end (0: DefaultQueue).
	Queue int
}

// SwitchedLAN connects nodes by a switch: full duplex, store and forward, with a queue
// per port. Frames have Ethernet header, padding, preamble and gap. delay is the delay of
// a cable, in seconds. It returns the switch, which counts the packets that find a queue
// full, and the lines in the order of the ports.
func (n *Net[T]) SwitchedLAN(name string, delay float64, ports []Port) (Node, []Line) {
	id, _ := n.add(name, switchNode)
	var lines []Line
	for _, p := range ports {
		lines = append(lines, n.join(p.Node, id, n.line(p.Rate, delay, true), p.Queue))
	}
	return id, lines
}

// onWire returns the transmission time of a packet in bytes, including the gap, and how
// many of them pass before the packet has arrived.
func (l *line[T]) onWire(bytes int) (takes, arrives int) {
	if !l.ether {
		return bytes, bytes
	}
	arrives = etherPreamble + max(etherLeast, bytes+etherHeader)
	return arrives + etherGap, arrives
}
