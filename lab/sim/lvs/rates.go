package lvs

import "github.com/fairlead/fairlead/core/service"

// Offered rates at which the curves have points.
var (
	rates100  = append(thousands(1, 11, 1), thousands(12, 40, 2)...) // with one server
	rates100n = thousands(2, 30, 2)                                  // with several
	rates1000 = thousands(10, 120, 10)
)

func thousands(from, to, step int) (all []int) {
	for k := from; k <= to; k += step {
		all = append(all, 1000*k)
	}
	return all
}

// numbers contains the numbers of servers that the paper compares.
var numbers = []int{1, 4, 8, 12}

const (
	slow = 100  // Mbit/s of the LAN
	fast = 1000 //
)

// The paper says that every queue holds 100 packets. Its first losses with TUN and DR
// need 50, which is ns-2's default: see textFirstLoss.
const (
	stated = 100
	unset  = 50
)

// queueOf returns the queues of a method's runs in the paper.
func queueOf(m service.Method) int {
	if m == service.DSRNAT {
		return stated
	}
	return unset
}

// topology1 is the paper's first topology, with round robin.
func topology1(mega int, m service.Method, servers int) Setup {
	s := Setup{Topology: Shared, LAN: Mega100, Method: m, Scheduler: service.RoundRobin, Servers: servers, Queue: queueOf(m), Every: 0.001, Seconds: 5}
	if mega == fast {
		s.LAN, s.Every, s.Seconds = Mega1000, 0.0005, 2
	}
	return s
}

// The paper's forwarding methods, in the order of the curves of methods.
const (
	nat = iota
	tun
	dr
)

var methodNames = []string{"NAT", "TUN", "DR"}

var theMethods = []service.Method{service.DSRNAT, service.Tunnel, service.DR}

const queues50 = "the paper's TUN and DR ran with queues of 50 packets, ns-2's default, and NAT with the 100 of its text: only so do the first losses agree to the digit (text-first-loss)"

// The methods in titles.
const (
	modified  = "modified NAT"
	tunneling = "IP tunneling"
	routing   = "direct routing"
)

func remarks100(m service.Method) []string {
	if m == service.DSRNAT {
		return nil
	}
	return []string{queues50}
}

func remarks1000(m service.Method) []string { return append(remarks100(m), halfMillisecond) }

// methods returns the curves of all methods, of setups with one server.
func methods(of func(service.Method) Setup, rates []int, by Measure) (all []Series) {
	for i, m := range theMethods {
		all = append(all, over(methodNames[i], of(m), rates, by))
	}
	return all
}

// oneServer returns the setups of topology 1 with one server.
func oneServer(mega int) func(service.Method) Setup {
	return func(m service.Method) Setup { return topology1(mega, m, 1) }
}

// farms returns the curves of all numbers of servers. On the slow LAN, those with several
// servers have fewer rates.
func farms(mega int, m service.Method, of Measure) (all []Series) {
	rates := rates100n
	if mega == fast {
		rates = rates1000
	}
	for _, n := range numbers {
		name := map[int]string{1: "1 server", 4: "4 servers", 8: "8 servers", 12: "12 servers"}[n]
		all = append(all, over(name, topology1(mega, m, n), rates, of))
	}
	return all
}

// Indexes of the curves of farms.
const (
	one = iota
	four
	eight
	twelve
)
