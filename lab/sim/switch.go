package sim

// Bytes that a frame of a switched LAN has, or costs, beside its packet: header
// and check; at least; preamble; the gap to the next.
const (
	etherHeader   = 18
	etherLeast    = 64
	etherPreamble = 8
	etherGap      = 12
)

// Port is a node at a switch.
type Port struct {
	Node Node
	Rate float64 // bits a second, in both directions
	// Queue is the limit of the queue at either end (0: DefaultQueue).
	Queue int
}

// SwitchedLAN joins nodes by a switch: full duplex, store and forward, a queue for
// each port. Frames have Ethernet's header, padding, preamble and gap. delay is
// that of a cable, in seconds. It gives the switch, at which packets that find a
// queue full are counted, and the lines in the order of the ports.
func (n *Net[T]) SwitchedLAN(name string, delay float64, ports []Port) (Node, []Line) {
	id, _ := n.add(name, switchNode)
	var lines []Line
	for _, p := range ports {
		lines = append(lines, n.join(p.Node, id, n.line(p.Rate, delay, true), p.Queue))
	}
	return id, lines
}

// onWire gives the bytes that a packet takes of a line's time, and how many of
// them come before its end is there.
func (l *line[T]) onWire(bytes int) (takes, arrives int) {
	if !l.ether {
		return bytes, bytes
	}
	arrives = etherPreamble + max(etherLeast, bytes+etherHeader)
	return arrives + etherGap, arrives
}
