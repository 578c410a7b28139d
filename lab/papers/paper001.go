package papers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/lab/sim/lvs"
)

const (
	simulationID = "001"
	theirNS2     = "ns-2 with the author's IPVS agent; clients on links of 10 Mbit/s, a shared LAN, queues of 100 packets (TUN and DR evidently 50)"
	ourNS2       = "lab/sim with the product's schedulers and the clock compat, which has ns-2's results to the digit; 20 seeds a repetition; docs/simulator.md"
)

// printedFigure is what the paper's text says about a figure.
type printedFigure struct {
	claim  string
	values []Value
	curves []Line
}

// simulation returns paper 001: the simulator has the claims of each figure, with their
// bounds, and here is what the text says.
func simulation() Paper {
	p := Paper{ID: simulationID, Title: "Implementation, Simulation of Linux Virtual Server in ns-2", Rows: []Row{
		{Item: "fig1", Title: "Structure of a virtual server", Drawing: "clients, a load balancer, servers"},
		{Item: "fig2", Title: "LVS via NAT", Drawing: "the forwarding modes nat and fullnat"},
		{Item: "fig3", Title: "LVS via IP tunneling", Drawing: "the forwarding mode tunnel"},
		{Item: "fig4", Title: "LVS via direct routing", Drawing: "the IPVS data plane supports it; the XDP data plane has dsr-nat for the same purpose"},
		{Item: "table1", Title: "Comparison of the three methods", Drawing: "requirements on servers and networks: docs/concepts/forwarding-modes.md has the same table for Fairlead"},
		{Item: "fig5", Title: "Structure of a node in ns-2", Drawing: "ns-2's classes"},
		{Item: "fig6", Title: "Basic topology", Drawing: "the networks of lab/sim/lvs"},
		{Item: "fig7", Title: "Topology 1", Drawing: "simulated as topology 1"},
		{Item: "fig21", Title: "Topology 2", Drawing: "simulated as topology 2"},
		{Item: "fig26", Title: "Hierarchical virtual server", Drawing: "simulated as hierarchy"},
	}}
	for _, f := range lvs.Figures() {
		p.Rows = append(p.Rows, simulatedRow(f))
	}
	slices.SortFunc(p.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.figureNumber(), b.figureNumber()), cmp.Compare(a.Item, b.Item))
	})
	return p
}

func simulatedRow(f lvs.Figure) Row {
	has := printedFigures[f.Name]
	claim := has.claim
	if claim == "" {
		claim = "(Ours, not the paper's.) " + f.Title + "."
	}
	return Row{
		Item: f.Name, Title: f.Title, Claim: claim, Values: has.values, Theirs: theirNS2, Ours: ourNS2, Note: strings.Join(f.Remarks, "; "), Experiment: simulator, Figure: f.Name,
		Plot: Plot{X: f.X, Y: f.Y, Theirs: has.curves},
	}
}

// printedFigures contains what the paper prints, by figure.
var printedFigures = map[string]printedFigure{
	"fig8": {"Throughput peaks at 9,000 requests per second with every method, and beyond 22,000 it is steady at 5,000 (NAT) and 4,000 (TUN, DR).",
		[]Value{{"peak at", 9000, "requests/s"}, {"NAT, beyond 22,000", 5000, "replies/s"}, {"TUN and DR, beyond 22,000", 4000, "replies/s"}},
		[]Line{printed("NAT", 22e3, 5000, 30e3, 5000), printed("TUN and DR", 22e3, 4000, 30e3, 4000)}},
	"fig9": {"The load balancer loses nothing below 6,000 requests per second, about 5,000 at 22,000, and then every further one.",
		[]Value{{"NAT, at 22,000", 5000, "packets/s"}}, []Line{printed("NAT", 0, 0, 6e3, 0, 22e3, 5000)}},
	"fig10":       {"The server receives no more beyond 22,000 requests per second.", nil, nil},
	"fig11":       {"Losses of the server grow up to 22,000 requests per second and then are steady.", nil, nil},
	"fig12":       {"4 servers have more replies than 8, 8 more than 12, and 12 more than 1.", []Value{{"12 servers, at 30,000", 8500, "replies/s"}}, []Line{printed("12 servers", 30e3, 8500)}},
	"fig13":       {"More servers make the load balancer lose more.", []Value{{"12 servers, at 30,000", 21100, "packets/s"}}, []Line{printed("12 servers", 30e3, 21100)}},
	"fig14":       {"Losses of the servers fall sharply with more servers.", []Value{{"12 servers, at 30,000", 160, "packets/s"}}, []Line{printed("12 servers", 30e3, 160)}},
	"fig15":       {"With IP tunneling, 8 servers have the most replies, and 12 fewer.", nil, nil},
	"fig16":       {"With direct routing, 8 servers have the most replies, and 12 fewer.", nil, nil},
	"fig17":       {"On a LAN of 1000M throughput is much higher than on 100M, and steady beyond 30,000 requests per second.", []Value{{"steady from", 30000, "requests/s"}}, nil},
	"fig18":       {"The load balancer loses packets on a LAN of 1000M, too.", nil, nil},
	"fig19":       {"The server loses packets on a LAN of 1000M, too.", nil, nil},
	"fig20":       {"On a LAN of 1000M one server has the most replies, and more servers have fewer.", nil, nil},
	"fig22":       {"With topology 2 NAT has the highest throughput, TUN and DR are similar, and only the load balancer loses packets.", nil, nil},
	"fig23":       {"Weighted round robin has a much higher throughput than round robin.", nil, nil},
	"fig24":       {"LC is better than RR (the figure repeats the caption of Fig. 23; the text says: “Figure below illustrates this”).", nil, nil},
	"fig25":       {"Least connection has a higher throughput than round robin at all times.", nil, nil},
	"fig27":       {"A hierarchy of load balancers has a higher throughput than a flat virtual server.", nil, nil},
	"fig28":       {"In a hierarchy, the first load balancer loses much less.", nil, nil},
	"fig29":       {"In a hierarchy, the servers lose more, but the difference is small.", nil, nil},
	"fig30":       {"With IP tunneling the situation is almost that with NAT: more servers make the load balancer lose more.", nil, nil},
	"fig31":       {"With IP tunneling the situation is almost that with NAT: losses of the servers fall sharply with more servers.", nil, nil},
	"fig32":       {"With direct routing the situation is almost that with NAT: more servers make the load balancer lose more.", nil, nil},
	"fig33":       {"With direct routing the situation is almost that with NAT: losses of the servers fall sharply with more servers.", nil, nil},
	"fig34":       {"On 1000M, more servers make the load balancer lose more.", nil, nil},
	"fig35":       {"On 1000M, more servers make the servers lose more.", nil, nil},
	"fig36":       {"On 1000M with IP tunneling, more servers have fewer replies.", nil, nil},
	"fig37":       {"On 1000M with IP tunneling, more servers make the load balancer lose more.", nil, nil},
	"fig38":       {"On 1000M with IP tunneling, more servers make the servers lose more.", nil, nil},
	"fig39":       {"On 1000M with direct routing, more servers make the load balancer lose more.", nil, nil},
	"fig40":       {"On 1000M with direct routing, more servers make the servers lose more.", nil, nil},
	"fig41":       {"With topology 2, the load balancer is the only one that loses packets.", nil, nil},
	"fig42":       {"Round robin sends both servers the same; weighted round robin by weight, 1 to 3.", nil, nil},
	"fig43":       {"With round robin, the server with the smaller queue loses much more.", nil, nil},
	"fig44":       {"Round robin splits requests equally, least connection does not.", nil, nil},
	"fig44-1000m": {"(The figure at 1000M, as its caption says.) Round robin splits requests equally, least connection does not.", nil, nil},
	"fig45-1000m": {"(The figure at 1000M, as its caption says.) Losses of the servers with RR and LC.", nil, nil},
	"fig45":       {"(No claim in the text.) Losses of the servers with RR and LC.", nil, nil},
	"text-first-loss": {"The first packet is lost later with NAT than with TUN and DR.", []Value{
		{"100M, 9,000 requests/s, NAT", 2.7124, "s"}, {"100M, 9,000 requests/s, TUN", 1.0754, "s"}, {"100M, 9,000 requests/s, DR", 1.1604, "s"},
		{"1000M, 70,000 requests/s, NAT", 1.3884, "s"}, {"1000M, 70,000 requests/s, TUN", 1.0399, "s"}, {"1000M, 70,000 requests/s, DR", 1.038527, "s"}}, nil},
	"text-round-trip":  {"NAT and DR have the same round trip, and TUN a slightly longer one.", []Value{{"NAT and DR", 0.007233, "s"}, {"TUN", 0.007242, "s"}}, nil},
	"text-200-servers": {"The four schedulers have the same round trip with 200 servers.", []Value{{"RR, WRR, LC, WLC", 0.006891, "s"}}, nil},
}

// figureNumber orders fig2 before fig10, and what has no number last.
func (r *Row) figureNumber() int {
	n := 1000
	_, _ = fmt.Sscanf(r.Item, "fig%d", &n)
	return n
}
