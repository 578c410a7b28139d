package sim

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/desired"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/lab/sim/traffic"
)

// twins are a load balancer of the simulator and the in-memory data plane with the same
// servers.
type twins struct {
	*Net[Nanoseconds]
	t       *testing.T
	dice    *rand.Rand
	plane   *fake.DataPlane
	lb      Node
	servers []Node
	client  Node
}

func newTwins(t *testing.T, b Balancer, seed uint64) *twins {
	t.Helper()
	w := &twins{Net: New[Nanoseconds](Config{}), t: t, dice: rand.New(rand.NewPCG(seed, 4)),
		plane: fake.NewAt(func() time.Time { return time.Time{} })}
	for range 8 {
		w.servers = append(w.servers, w.Server(Server{Name: "web"}))
	}
	b.Name, b.Servers, b.RingSize = "lb", w.some(), 251
	var err error
	if w.lb, err = w.Balancer(b); err != nil {
		t.Fatal(err)
	}
	w.client = w.Connections(Connections{Name: "users", To: w.lb, Load: traffic.Replay(nil)})
	w.upsert()
	return w
}

// some returns a random subset of the servers, sometimes draining.
func (w *twins) some() (of []Weighted) {
	for len(of) == 0 {
		for _, s := range w.servers {
			if w.dice.IntN(3) > 0 {
				of = append(of, Weighted{Node: s, Weight: 1 + w.dice.Uint32N(3), Draining: w.dice.IntN(5) == 0})
			}
		}
	}
	w.dice.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of
}

// upsert programs the load balancer's frontend in the data plane.
func (w *twins) upsert() {
	w.t.Helper()
	b := w.nodes[w.lb].balancer
	f := desired.Frontend{Key: w.key(), Method: b.Method, Scheduler: b.Scheduler, RingSize: b.RingSize, Survival: b.Survival}
	for _, m := range b.members {
		f.Backends = append(f.Backends, service.Backend{Addr: m.Addr, Weight: m.Weight, Since: m.Since, Drained: m.Drained})
	}
	slices.SortFunc(f.Backends, service.Backend.Compare)
	if err := w.plane.Upsert(f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *twins) key() service.Key {
	return service.Key{VIP: addressOf(w.lb).Addr(), Port: 80, Protocol: service.TCP}
}

// packet sends a packet of a flow to both, and compares where it goes, and which chain it
// gets.
func (w *twins) packet(number int, what carries) {
	w.t.Helper()
	flow := w.flowOf(w.client, number)
	p := w.pool.take()
	w.pool.all[p] = packet[Nanoseconds]{client: w.client, to: w.lb, flow: flow, via: none, carries: what, held: 1}
	b := w.nodes[w.lb].balancer
	var server netip.AddrPort
	var older []netip.AddrPort
	if id := w.choose(w.lb, b, p); id != 0 {
		server = addressOf(b.servers[id-1])
		e := w.pool.extra(p)
		for _, s := range e.chain[:e.chained] {
			older = append(older, addressOf(s))
		}
	}
	want, _ := w.plane.Forward(w.flows[flow].toward(w.lb), what == syn, 500)
	if server != want.Server || !slices.Equal(older, want.Older) {
		w.t.Fatalf("%s, %s: packet %d of flow %d goes to %s, then %v; the data plane sends it to %s, then %v",
			b.Scheduler, b.Survival, what, number, server, older, want.Server, want.Older)
	}
	w.pool.drop(p)
}

// TestChoicesAreADataPlanes compares every scheduler and consistency mode, while servers
// join, leave and drain.
func TestChoicesAreADataPlanes(t *testing.T) {
	for _, scheduler := range service.Schedulers {
		for _, survival := range service.Survivals {
			if survival != service.FlowTable && service.NeedsFlowTable(service.DR, scheduler) {
				continue
			}
			for seed := range uint64(5) {
				w := newTwins(t, Balancer{Method: service.DR, Scheduler: scheduler, Survival: survival}, seed)
				for i := range 2000 {
					w.packet(w.dice.IntN(300), []carries{syn, request, more}[w.dice.IntN(3)])
					if i%100 != 99 {
						continue
					}
					w.q.Now += 1e9
					if err := w.SetServers(w.lb, w.some()); err != nil {
						t.Fatal(err)
					}
					w.upsert()
				}
			}
		}
	}
}
