package sim

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/core/service"
)

// topology1 is the paper's first topology: clients connected by lines of 10 Mbit/s to the
// load balancer, which shares a LAN with its servers. Replies return through the LAN.
func topology1[T Time](t *testing.T, clients, servers int, rate, every float64, m service.Method) (n *Net[T], lb Node, all []Node, users []Node) {
	t.Helper()
	n = New[T](Config{Seed: 1})
	farm := make([]Weighted, servers)
	for i := range farm {
		farm[i].Node = n.Server(Server{Name: fmt.Sprint("server", i)})
		all = append(all, farm[i].Node)
	}
	lb, err := n.Balancer(Balancer{Name: "lb", Method: m, Scheduler: service.RoundRobin, Servers: farm})
	if err != nil {
		t.Fatal(err)
	}
	at := []Attached{{Node: lb}}
	for _, s := range all {
		at = append(at, Attached{Node: s})
	}
	n.SharedLAN(rate, 0.001, at)
	for i := range clients {
		c := n.Client(Client{Name: fmt.Sprint("client", i), To: lb, Start: 1, Every: every})
		n.Link(c, lb, 10e6, 0.001, 0)
		users = append(users, c)
	}
	return n, lb, all, users
}

// TestGolden compares with the results of ns-2 2.35, to the last digit.
func TestGolden(t *testing.T) {
	const fast, faster = 100e6, 1000e6
	for _, c := range []struct {
		name             string
		clients, servers int
		rate, every      float64
		method           service.Method
		replies          []uint64 // of seconds 1, 2, …
		rtt              string   // mean over the seconds of replies
		lbLoss, loss     string
	}{
		{"6 clients", 6, 1, fast, 0.001, service.NAT, []uint64{5960}, "0.007233", "NaN", "NaN"},
		{"200 servers", 1, 200, fast, 0.001, service.NAT, []uint64{994}, "0.006891", "NaN", "NaN"},
		{"9 clients", 9, 1, fast, 0.001, service.NAT, []uint64{8423, 8486, 8375}, "", "2.712400", "1.187042"},
		{"30 clients", 30, 1, fast, 0.001, service.NAT, []uint64{5325, 5426, 4948, 3968, 4744}, "", "1.013400", ""},
		{"4 clients, 2 servers", 4, 2, fast, 0.001, service.NAT, []uint64{3762, 3824}, "", "NaN", "NaN"},
		{"16 clients, 4 servers", 16, 4, fast, 0.001, service.NAT, []uint64{9722, 9434, 9458}, "", "", ""},
		{"30 clients, 12 servers", 30, 12, fast, 0.001, service.NAT, []uint64{8461, 8866, 8504}, "", "", ""},
		{"gigabit, 4 servers", 45, 4, faster, 0.0005, service.NAT, []uint64{56501, 57726}, "", "", ""},
		{"gigabit, 12 servers", 45, 12, faster, 0.0005, service.NAT, []uint64{39528, 39675}, "", "", ""},
		{"gigabit, 4 servers, tunnel", 45, 4, faster, 0.0005, service.Tunnel, []uint64{50803, 51592}, "", "", ""},
		{"gigabit", 35, 1, faster, 0.0005, service.NAT, []uint64{56846}, "", "1.388400", "1.391543"},
		{"6 clients, tunnel", 6, 1, fast, 0.001, service.Tunnel, []uint64{5958, 6002}, "0.007242", "NaN", "NaN"},
		{"9 clients, tunnel", 9, 1, fast, 0.001, service.Tunnel, nil, "", "1.839400", ""},
		{"gigabit, tunnel", 35, 1, faster, 0.0005, service.Tunnel, nil, "", "1.183400", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, lb, servers, clients := topology1[Seconds](t, c.clients, c.servers, c.rate, c.every, c.method)
			if err := n.Run(float64(1 + max(1, len(c.replies)))); err != nil {
				t.Fatal(err)
			}
			var delay float64
			var got uint64
			replies := make([]uint64, len(c.replies)+1)
			for _, k := range clients {
				for i, bin := range n.Bins(k) {
					if i < len(replies) {
						replies[i] += bin.Got
						got += bin.Got
						delay += bin.Delay
					}
				}
			}
			for i, want := range c.replies {
				if replies[i+1] != want {
					t.Errorf("second %d has %d replies, want %d", i+1, replies[i+1], want)
				}
			}
			same(t, "mean round trip", delay/float64(got), c.rtt)
			same(t, "first loss at the balancer", n.FirstLoss(lb), c.lbLoss)
			same(t, "first loss at the server", n.FirstLoss(servers[0]), c.loss)
			if b := n.Balance(); b.Made+b.Copied != b.Consumed+b.Lost+b.InFlight {
				t.Errorf("packets got lost in the books: %+v", b)
			}
		})
	}
}

func same(t *testing.T, what string, got float64, want string) {
	t.Helper()
	if text := fmt.Sprintf("%.6f", got); want != "" && text != want {
		t.Errorf("%s is %s, want %s", what, text, want)
	}
}

func BenchmarkSaturated(b *testing.B) {
	for _, servers := range []int{1, 12} {
		b.Run(fmt.Sprint("compat/", servers), func(b *testing.B) { saturated[Seconds](b, servers) })
		b.Run(fmt.Sprint("scale/", servers), func(b *testing.B) { saturated[Nanoseconds](b, servers) })
	}
}

// saturated simulates one second with 30,000 requests per iteration.
func saturated[T Time](b *testing.B, servers int) {
	n, _, _, _ := topology1[T](&testing.T{}, 30, servers, 100e6, 0.001, service.NAT)
	if err := n.Run(1.5); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for i := range b.N {
		if err := n.Run(2.5 + float64(i)); err != nil {
			b.Fatal(err)
		}
	}
}
