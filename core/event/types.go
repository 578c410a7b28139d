package event

import "slices"

// Type names a kind of change. The names are stable; Kubernetes Events have them as reasons.
type Type string

// Types.
const (
	AgentStarted         Type = "AgentStarted"
	AgentStopped         Type = "AgentStopped"
	PeerEstablished      Type = "PeerEstablished"
	PeerDown             Type = "PeerDown"
	PeerUnreachable      Type = "PeerUnreachable"
	PeerRejected         Type = "PeerRejected"
	BFDUp                Type = "BFDUp"
	BFDDown              Type = "BFDDown"
	BackendHealthy       Type = "BackendHealthy"
	BackendUnhealthy     Type = "BackendUnhealthy"
	BackendDrained       Type = "BackendDrained"
	BackendUndrained     Type = "BackendUndrained"
	FrontendStateChanged Type = "FrontendStateChanged"
	FrontendRejected     Type = "FrontendRejected"
	RouteAdvertised      Type = "RouteAdvertised"
	RouteChanged         Type = "RouteChanged"
	RouteWithdrawn       Type = "RouteWithdrawn"
	DrainStarted         Type = "DrainStarted"
	RoutesWithdrawn      Type = "RoutesWithdrawn"
	DrainCompleted       Type = "DrainCompleted"
	DrainTimedOut        Type = "DrainTimedOut"
	DrainDeferred        Type = "DrainDeferred"
	DrainEnded           Type = "DrainEnded"
	L2AddressClaimed     Type = "L2AddressClaimed"
	L2AddressReleased    Type = "L2AddressReleased"
	L2AddressConflict    Type = "L2AddressConflict"
	L2MemberUp           Type = "L2MemberUp"
	L2MemberSilent       Type = "L2MemberSilent"
	ConfigRejected       Type = "ConfigRejected"
	ConfigResolved       Type = "ConfigResolved"
	ReconcileFailed      Type = "ReconcileFailed"
	ReconcileRecovered   Type = "ReconcileRecovered"
	ProgramsReplaced     Type = "ProgramsReplaced"
	Degraded             Type = "Degraded"
	FeatureRestored      Type = "FeatureRestored"
	TableFilling         Type = "TableFilling"
	TableRelieved        Type = "TableRelieved"
	EventsDropped        Type = "EventsDropped"
)

// Description describes a Type.
type Description struct {
	Type Type
	// Kind is that of the objects.
	Kind     string
	Severity Severity
	// Action is what is in progress, if Kubernetes Events are created too.
	Action  string
	Meaning string
}

// Types describes all types, in the order of the documentation.
var Types = []Description{
	{AgentStarted, "Node", Normal, "", "the agent started; the cause names its release and roles"},
	{AgentStopped, "Node", Normal, "", "the agent stopped in order; without this event before AgentStarted, it was killed"},
	{PeerEstablished, "BGPPeer", Normal, "Peer", "the BGP session is established"},
	{PeerDown, "BGPPeer", Warning, "Peer", "an established BGP session ended, other than by a stop of the agent"},
	{PeerUnreachable, "BGPPeer", Warning, "", "a BGP session could not be established"},
	{PeerRejected, "BGPPeer", Warning, "", "the connection of a BGP neighbor was rejected"},
	{BFDUp, "BGPPeer", Normal, "", "BFD monitors the peer"},
	{BFDDown, "BGPPeer", Warning, "", "BFD lost the peer, which ends the BGP session"},
	{BackendHealthy, "Backend", Normal, "Probe", "the backend passes its health checks"},
	{BackendUnhealthy, "Backend", Warning, "Probe", "the backend fails its health checks; the cause is the error of the last one"},
	{BackendDrained, "Backend", Normal, "Drain", "an operator drains the backend: it gets no new flows ([drain](../drain.md#drain-a-backend)); the cause names who and why"},
	{BackendUndrained, "Backend", Normal, "Drain", "the backend takes new flows again, or no longer exists"},
	{FrontendStateChanged, "Service", Normal, "Program", "the state of a frontend changed; a Warning if it is no longer `active`"},
	{FrontendRejected, "Service", Warning, "Program", "the data plane does not support a frontend"},
	{RouteAdvertised, "Route", Normal, "", "the load balancer advertises the route"},
	{RouteChanged, "Route", Normal, "", "the load balancer advertises the route with other attributes"},
	{RouteWithdrawn, "Route", Normal, "", "the load balancer withdrew the route"},
	{DrainStarted, "Node", Normal, "Drain", "a drain began: the load balancer's routes ask routers to prefer other load balancers ([drain](../drain.md))"},
	{RoutesWithdrawn, "Node", Normal, "Drain", "the draining load balancer has withdrawn its routes, and waits for its tracked flows to end"},
	{DrainCompleted, "Node", Normal, "Drain", "the drain is complete, and no tracked flow was cut off"},
	{DrainTimedOut, "Node", Warning, "Drain", "the drain is complete, and tracked flows were left at the end of `--drain-timeout`"},
	{DrainDeferred, "Node", Warning, "Drain", "the load balancer should drain, and continues because it is the last active one"},
	{DrainEnded, "Node", Normal, "Drain", "the load balancer is in service again"},
	{L2AddressClaimed, "Route", Normal, "", "the node answers ARP or neighbor discovery for the address"},
	{L2AddressReleased, "Route", Normal, "", "the node no longer answers for the address"},
	{L2AddressConflict, "Route", Warning, "Answer", "a host that is not a member of the layer-2 group uses the address"},
	{L2MemberUp, "L2Member", Normal, "", "a member of the layer-2 group sends hellos"},
	{L2MemberSilent, "L2Member", Warning, "", "a member of the layer-2 group sends no hellos; others take over its addresses"},
	{ConfigRejected, "any", Warning, "Read", "a part of the configuration is rejected; its previous version stays in use"},
	{ConfigResolved, "any", Normal, "Read", "a rejected part of the configuration was fixed or removed"},
	{ReconcileFailed, "any", Warning, "Program", "a call failed while the desired state was applied; it is retried"},
	{ReconcileRecovered, "any", Normal, "Program", "what failed before succeeded, or is no longer desired"},
	{ProgramsReplaced, "Node", Normal, "", "the agent replaced the programs that an earlier process had attached"},
	{Degraded, "Node", Warning, "Load", "the kernel rejects an optional feature; the cause names what is lost ([kernel features](../kernel-features.md))"},
	{FeatureRestored, "Node", Normal, "", "an optional feature that was unavailable before a restart is available"},
	{TableFilling, "Node", Warning, "Program", "a table of the data plane is at least 80 % full"},
	{TableRelieved, "Node", Normal, "Program", "a table that was filling is less than 70 % full"},
	{EventsDropped, "Node", Warning, "", "more happened at once than the journal records; the count is that of dropped events"},
}

// Describe returns the description of a type.
func Describe(t Type) (Description, bool) {
	i := slices.IndexFunc(Types, func(d Description) bool { return d.Type == t })
	if i < 0 {
		return Description{}, false
	}
	return Types[i], true
}

func (t Type) severity() Severity {
	if d, ok := Describe(t); ok {
		return d.Severity
	}
	return Normal
}
