package senders_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/agent/status"
	"github.com/fairlead/fairlead/lab/e2e/internal/fixture"
	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/topology"
)

// Two groups of load balancers: those of shop are dedicated.
const (
	web = iota
	shop
)

// senders is an environment with two groups of load balancers, each with a Service that
// lists them, and nodes that have backends of both.
type senders struct {
	*fixture.World
	specs []fixture.Spec
	// gone are load balancers that no Service lists.
	gone map[string]bool
	// key is the file of the node key, keys are its lines.
	key  string
	keys []string
	// traffic flows from the first scenario to the last.
	traffic []fixture.Traffic
}

const acceptFrom = "--accept-from=lb/fairlead.io/balancers=true"

func newSenders(t *testing.T) *senders {
	w := fixture.New(t, topology.Options{Services: make([]topology.ServiceOptions, 2), Nodes: 3, IPv6: true}, 2)
	s := &senders{World: w, gone: map[string]bool{}, key: filepath.Join(t.TempDir(), "key"), specs: []fixture.Spec{
		{Name: "ipip", Of: web, Host: 1},
		{Name: "gue", Of: web, Host: 2, Annotations: []string{"encapsulation: gue"}},
		{Name: "direct", Of: web, Host: 3, Annotations: []string{"forwarding-mode: dsr-nat"}},
		{Name: "dedicated", Of: shop, Host: 1},
	}}
	for _, key := range []string{"first", "second"} {
		s.keys = append(s.keys, key+strings.Repeat("-key", 8))
	}
	s.HandIn(t, s.specs...)
	for _, of := range []int{web, web, shop} {
		s.start(t, of)
	}
	return s
}

// start starts another load balancer. It is listed when it runs, like an endpoint in a
// cluster, and not before.
func (s *senders) start(t *testing.T, of int) topology.Pod {
	t.Helper()
	pod, err := s.AddBalancer(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	s.gone[pod.Name] = true
	if err := s.StartBalancer(pod, s.args(of)...); err != nil {
		t.Fatal(err)
	}
	s.Eventually(t, pod.Name, func(st status.Status) error {
		if len(st.Services) == 0 {
			return fmt.Errorf("%s has not begun", pod.Name)
		}
		return nil
	})
	delete(s.gone, pod.Name)
	s.name(t)
	s.awaitRouted(t, of)
	return pod
}

// args are the arguments of a group's load balancers.
func (s *senders) args(of int) []string {
	return append([]string{"--balancers", "lb/" + s.Services[of].Name}, s.keyArgs()...)
}

func (s *senders) keyArgs() []string {
	if _, err := os.Stat(s.key); err != nil {
		return nil
	}
	return []string{"--node-key-file", s.key}
}

func (s *senders) awaitRouted(t *testing.T, of int) {
	t.Helper()
	testkit.Eventually(t, fixture.Within, func() error {
		if want := s.NextHops(of); !s.RouterHas(of, want) {
			return fmt.Errorf("the router has not the next hops %v", want)
		}
		return nil
	})
}

// name writes the lists of load balancers, both groups' for all nodes.
func (s *senders) name(t *testing.T) {
	t.Helper()
	for of, group := range s.Services {
		var text strings.Builder
		fmt.Fprintf(&text, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: lb}\nspec: {clusterIP: None, ports: [{port: 179}]}\n", group.Name)
		for _, family := range []string{"IPv4", "IPv6"} {
			fmt.Fprintf(&text, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: %s-%s\n  namespace: lb\n", group.Name, strings.ToLower(family))
			fmt.Fprintf(&text, "  labels: {kubernetes.io/service-name: %s, fairlead.io/balancers: \"true\"}\naddressType: %s\nports: [{port: 179}]\nendpoints:\n", group.Name, family)
			for _, pod := range s.Balancers(of) {
				if addr := map[string]netip.Addr{"IPv4": pod.Addr, "IPv6": pod.Addr6}[family]; !s.gone[pod.Name] {
					fmt.Fprintf(&text, "  - addresses: [%q]\n    nodeName: %s\n", addr, pod.Node.Name)
				}
			}
		}
		if err := s.Write(of, group.Name+"-balancers.yaml", text.String()); err != nil {
			t.Error(err)
		}
	}
}

// again stops an agent gracefully and starts it with other arguments.
func (s *senders) again(t *testing.T, name string, start func() error) {
	t.Helper()
	old := s.Process(name)
	if err := old.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := old.Wait(); err != nil {
		t.Errorf("%s ends on SIGTERM with %v", name, err)
	}
	if err := start(); err != nil {
		t.Fatal(err)
	}
}

// nodes restarts the agents of all nodes with these arguments, one after the other, until
// good accepts the status of each.
func (s *senders) nodes(t *testing.T, good func(status.Status) error, args ...string) {
	t.Helper()
	for _, node := range s.Nodes {
		began := time.Now()
		s.again(t, node.Name, func() error { return s.StartNode(node, args...) })
		s.Eventually(t, node.Name, func(st status.Status) error {
			if st.Started.Before(began) || st.DSRAgent == nil || len(st.Services) == 0 {
				return fmt.Errorf("%s has not begun", node.Name)
			}
			return good(st)
		})
	}
}

// count returns the sum of a counter over all nodes.
func (s *senders) count(t *testing.T, counter string) (n uint64) {
	t.Helper()
	for _, node := range s.Nodes {
		st, err := s.Status(t, node.Name)
		if err != nil {
			t.Fatal(err)
		}
		n += st.DSRAgent.Counters[counter]
	}
	return n
}

// during is world.During, and also checks that no node rejects a packet in the meantime.
func (s *senders) during(t *testing.T, what string, do func()) {
	t.Helper()
	refused := []string{"dropped-unknown-balancer", "dropped-no-auth-tag", "dropped-wrong-auth-tag"}
	before := map[string]uint64{}
	for _, counter := range refused {
		before[counter] = s.count(t, counter)
	}
	fixture.During(t, s.traffic, what, do)
	for _, counter := range refused {
		if n := s.count(t, counter) - before[counter]; n > 0 {
			t.Errorf("%s: %s grew by %d", what, counter, n)
		}
	}
}

// TestSenders runs the scenarios of packets between nodes, one after the other in one
// network and under one load; each leaves it ready for the next.
func TestSenders(t *testing.T) {
	s := newSenders(t)
	for _, spec := range s.specs {
		s.traffic = append(s.traffic, s.Load(t, spec.Name, spec.HTTP(), 10, 20), s.Load(t, spec.Name+" over IPv6", spec.HTTP6(), 10, 20))
	}
	for _, story := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"anyone", s.anyone}, {"upgrade", s.upgrade}, {"unknown senders", s.unknownSenders}, {"come and go", s.comeAndGo},
		{"second chance", s.secondChance}, {"keys", s.rollOut}, {"forged", s.forged}, {"rotation", s.rotate}, {"second chance with keys", s.secondChance},
	} {
		if !t.Run(story.name, story.run) {
			return
		}
	}
}

// anyone checks that nodes without a list of load balancers report that.
func (s *senders) anyone(t *testing.T) {
	out, _, _ := s.Fairlead(t, "", "status", "--socket", socketOf(s.Nodes[0].Name))
	if !strings.Contains(out, "any: every host that reaches this node can tunnel packets") {
		t.Errorf("the status does not show the allowed senders:\n%s", out)
	}
	for _, six := range []bool{false, true} {
		if !s.asksPast(t, six, false) {
			t.Errorf("IPv6 %v: an unknown sender is rejected by a node without a list of senders", six)
		}
	}
}

// upgrade replaces the agents of the nodes with ones that check senders.
func (s *senders) upgrade(t *testing.T) {
	s.during(t, "nodes begin to check", func() {
		s.nodes(t, func(st status.Status) error {
			if h := st.DSRAgent; !h.ChecksSenders || len(h.Senders) != 6 {
				return fmt.Errorf("senders %v, checked: %v", h.Senders, h.ChecksSenders)
			}
			return nil
		}, acceptFrom)
	})
}

// unknownSenders sends tunneled packets from unknown senders straight to a backend.
func (s *senders) unknownSenders(t *testing.T) {
	for _, six := range []bool{false, true} {
		before := s.count(t, "dropped-unknown-balancer")
		if s.asksPast(t, six, false) {
			t.Errorf("IPv6 %v: an unknown sender gets a reply", six)
		}
		if s.count(t, "dropped-unknown-balancer") == before {
			t.Errorf("IPv6 %v: its packet is not counted", six)
		}
	}
	// Without a key, a host that can forge a load balancer's address is accepted as that
	// load balancer.
	if !s.asksPast(t, false, true) {
		t.Error("a forged load balancer address is rejected: want it accepted without a key")
	}
}

// secondChance checks that connections stay with their backends when others own their
// slots: through another node.
func (s *senders) secondChance(t *testing.T) {
	before := s.count(t, "second-chance")
	s.during(t, "a backend more", func() {
		added := s.NewServer(t, web)
		s.HandIn(t, s.specs...)
		for _, spec := range s.specs[:3] {
			s.InService(t, added, spec, func(b *status.Backend) bool { return b != nil && b.InService })
		}
	})
	testkit.Eventually(t, fixture.Within, func() error {
		if n := s.count(t, "second-chance") - before; n == 0 {
			return fmt.Errorf("no packet was forwarded to another node")
		}
		return nil
	})
}

// comeAndGo starts, restarts, removes and kills load balancers.
func (s *senders) comeAndGo(t *testing.T) {
	var added topology.Pod
	s.during(t, "a load balancer more, in each group", func() {
		added = s.start(t, web)
		s.start(t, shop)
	})
	s.during(t, "a load balancer that leaves", func() {
		s.Forget(added.Name)
		p := s.Process(added.Name)
		if err := p.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Errorf("%s ends on SIGTERM with %v", added.Name, err)
		}
		s.name(t)
		s.awaitRouted(t, web)
		if err := s.RemovePod(added.Name); err != nil {
			t.Fatal(err)
		}
	})
	node := s.Nodes[0]
	s.during(t, "a node's agent that dies", func() {
		p := s.Process(node.Name)
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if err := s.StartNode(node, acceptFrom); err != nil {
			t.Fatal(err)
		}
		s.Eventually(t, node.Name, func(st status.Status) error {
			if !st.DSRAgent.ChecksSenders {
				return fmt.Errorf("it accepts all senders")
			}
			return nil
		})
	})
}

// write changes the key file of all agents, like a Secret that changes.
func (s *senders) write(t *testing.T, keys ...string) {
	t.Helper()
	next := s.key + ".next"
	if err := os.WriteFile(next, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, s.key); err != nil {
		t.Fatal(err)
	}
}

// hasKeys returns a check of whether an agent uses this number of keys, and requires
// tags.
func hasKeys(keys int, required bool) func(status.Status) error {
	return func(st status.Status) error {
		if k := st.NodeKeys; k == nil || len(k.Accepts) != keys || k.Required != required {
			return fmt.Errorf("keys %+v, want %d of them, required: %v", st.NodeKeys, keys, required)
		}
		return nil
	}
}

// rollOut configures a key on nodes and load balancers, in any order, and then requires
// it.
func (s *senders) rollOut(t *testing.T) {
	s.write(t, s.keys[0])
	restart := func(pod topology.Pod) {
		began := time.Now()
		s.again(t, pod.Name, func() error { return s.StartBalancer(pod, s.args(pod.Service)...) })
		s.AwaitBack(t, pod, began)
	}
	s.during(t, "the first load balancer has a key", func() { restart(s.Balancers(web)[0]) })
	s.during(t, "the nodes have it", func() { s.nodes(t, hasKeys(1, false), append(s.keyArgs(), acceptFrom)...) })
	if s.count(t, "accepted-no-auth-tag") == 0 {
		t.Error("packets without a tag are not counted")
	}
	s.during(t, "all load balancers have it", func() {
		for _, pod := range slices.Concat(s.Balancers(web)[1:], s.Balancers(shop)) {
			restart(pod)
		}
	})
	s.during(t, "nobody sends without a tag", func() {
		testkit.Eventually(t, fixture.Within, func() error {
			before := s.count(t, "accepted-no-auth-tag")
			time.Sleep(300 * time.Millisecond) // of load
			if n := s.count(t, "accepted-no-auth-tag") - before; n > 0 {
				return fmt.Errorf("%d packets had no tag", n)
			}
			return nil
		})
	})
	s.during(t, "tags are required", func() {
		s.nodes(t, hasKeys(1, true), append(s.keyArgs(), acceptFrom, "--require-node-key")...)
	})
	if n := s.count(t, "accepted-wrong-auth-tag"); n > 0 {
		t.Errorf("%d tags were wrong", n)
	}
}

// forged sends packets with a load balancer's address.
func (s *senders) forged(t *testing.T) {
	for _, six := range []bool{false, true} {
		before := s.count(t, "dropped-no-auth-tag")
		if s.asksPast(t, six, true) {
			t.Errorf("IPv6 %v: a forged load balancer gets an answer", six)
		}
		if s.count(t, "dropped-no-auth-tag") == before {
			t.Errorf("IPv6 %v: its packet is not counted", six)
		}
	}
}

// rotate replaces the key in three steps, each of which reaches every agent by itself.
func (s *senders) rotate(t *testing.T) {
	agents := func(good func(status.Status) error) {
		t.Helper()
		var names []string
		for _, node := range s.Nodes {
			names = append(names, node.Name)
		}
		for _, pod := range slices.Concat(s.Balancers(web), s.Balancers(shop)) {
			names = append(names, pod.Name)
		}
		for _, name := range names {
			s.Eventually(t, name, good)
		}
	}
	before, err := s.Status(t, s.Nodes[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	first := before.NodeKeys.Sends
	s.during(t, "the next key is accepted", func() {
		s.write(t, s.keys[0], s.keys[1])
		agents(func(st status.Status) error {
			if len(st.NodeKeys.Accepts) != 2 || st.NodeKeys.Sends != first {
				return fmt.Errorf("keys %+v", st.NodeKeys)
			}
			return nil
		})
	})
	s.during(t, "the next key is sent", func() {
		s.write(t, s.keys[1], s.keys[0])
		agents(func(st status.Status) error {
			if len(st.NodeKeys.Accepts) != 2 || st.NodeKeys.Sends == first {
				return fmt.Errorf("keys %+v", st.NodeKeys)
			}
			return nil
		})
	})
	s.during(t, "the former key is forgotten", func() {
		s.write(t, s.keys[1])
		agents(func(st status.Status) error {
			if len(st.NodeKeys.Accepts) != 1 || st.NodeKeys.Sends == first {
				return fmt.Errorf("keys %+v", st.NodeKeys)
			}
			return nil
		})
	})
}
