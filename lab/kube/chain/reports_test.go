package chain

import "testing"

// dedicated has a load balancer of its own for one Service, in place of that of a node. The
// conditions of each Service count the load balancers that serve it.
func (w *world) dedicated(t *testing.T) {
	shared := w.serving(t, "shared", "s1")
	w.reported(t, "shared", "True AllNodes: 2/2 nodes")
	must(t, w.processes["n2"].Stop(within))
	w.service(t, "own", `fairlead.io/dedicated: "true"`)
	w.endpoints(t, "own", "s2")
	w.agent(t, "n2", "--dedicated-service", "default/own")
	own := w.address(t, "own")
	w.routed(t, own, "n2")
	w.routed(t, shared, "n1")
	w.answered(t, own, "s2")
	w.reported(t, "own", "True AllNodes: 1/1 nodes")
	w.reported(t, "shared", "True AllNodes: 1/1 nodes")
	must(t, w.processes["n2"].Stop(within))
	w.reported(t, "own", "Unknown NoNodeReports: no load balancer reports it")
	w.agent(t, "n2")
	w.drop(t, "own")
	w.routed(t, shared, "n1", "n2")
	w.reported(t, "shared", "True AllNodes: 2/2 nodes")
	w.drop(t, "shared")
	w.routed(t, shared)
}

// killed ends the agent of a node without warning: the conditions of Services say that it does not
// report, until it returns.
func (w *world) killed(t *testing.T) {
	vip := w.serving(t, "web", "s1")
	w.reported(t, "web", "True AllNodes: 2/2 nodes")
	w.kill(t, "n2")
	must(t, w.Apply(t.Context(), // instead of the 150 seconds
		"{apiVersion: fairlead.io/v1alpha1, kind: NodeHeartbeat, metadata: {name: n2, namespace: fairlead}, status: {durationSeconds: 1}}"))
	w.reported(t, "web", "False SomeNodes: 1/2 nodes; n2: has not reported since 20")
	w.agent(t, "n2")
	w.reported(t, "web", "True AllNodes: 2/2 nodes")
	w.drop(t, "web")
	w.routed(t, vip)
}
