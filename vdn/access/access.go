// Package access decides who may do what with a domain's networks. A token has a name
// and a role; what a role may do is decided here, without I/O (Identity.May). The file
// of tokens is read by keys.go, and who asks is found out by vdn/server.
package access

import (
	"fmt"
	"slices"
	"strings"
)

// Role is what a token is for.
type Role string

// The roles.
const (
	// Admin may do everything.
	Admin Role = "admin"
	// Tenant makes, changes and sees its own networks, and their attachments.
	Tenant Role = "tenant"
	// Node is for a machine: its own plan and reports, and leases of its own pods.
	Node Role = "node"
	// Reader sees everything, and changes nothing.
	Reader Role = "reader"
)

// Roles are all of them.
var Roles = []Role{Admin, Tenant, Node, Reader}

// Identity is who asks.
type Identity struct {
	// Name is the token's, for people and the audit log.
	Name string
	Role Role
	// Networks are a tenant's: names, or beginnings of names with "*" behind.
	Networks []string
	// Node is a node's name; "*" for any.
	Node string
}

// Anyone is who asks a controller without tokens.
var Anyone = Identity{Name: "anyone", Role: Admin}

// Verb is what somebody wants to do.
type Verb string

// The verbs.
const (
	Read   Verb = "read"
	Change Verb = "change" // make, change or delete
)

// Kind is what it is done with.
type Kind string

// The kinds.
const (
	Network    Kind = "network"
	Attachment Kind = "attachment"
	// OfNode is what a node does by itself: reports, its plan, garbage collection.
	OfNode Kind = "node"
	// Nodes is to forget one.
	Nodes Kind = "nodes"
	Peer  Kind = "peer"
	// View is everything at once; a tenant sees its own part (Identity.Sees).
	View Kind = "view"
)

// Action is one thing that somebody wants to do.
type Action struct {
	Verb Verb
	Kind Kind
	// Network is that of a network or attachment, Node that of an attachment or node;
	// empty for all of a list.
	Network, Node string
}

func (a Action) String() string {
	switch {
	case a.Kind == Network && a.Network != "":
		return fmt.Sprintf("%s network %s", a.Verb, a.Network)
	case a.Kind == Attachment && a.Network != "" && a.Node != "":
		return fmt.Sprintf("%s attachments of network %s on node %s", a.Verb, a.Network, a.Node)
	case a.Kind == Attachment && a.Network != "":
		return fmt.Sprintf("%s attachments of network %s", a.Verb, a.Network)
	case a.Kind == OfNode:
		return fmt.Sprintf("act as node %s", a.Node)
	case a.Kind == Nodes:
		return fmt.Sprintf("delete node %s", a.Node)
	case a.Kind == View:
		return "read the view of everything"
	}
	return fmt.Sprintf("%s %ss", a.Verb, a.Kind)
}

// Denied is that somebody may not do something.
type Denied struct {
	Who    Identity
	Action Action
	// Takes is what would be needed, in words.
	Takes string
}

func (d *Denied) Error() string {
	return fmt.Sprintf("request, Authorization: token %s (role %s) may not %s: that takes %s", d.Who.Name, d.Who.Role, d.Action, d.Takes)
}

// May says whether somebody may do something: nil, or a Denied.
func (i Identity) May(a Action) error {
	ok, takes := false, "role admin"
	switch i.Role {
	case Admin:
		ok = true
	case Reader:
		ok = a.Verb == Read
	case Tenant:
		ok, takes = i.tenantMay(a)
	case Node:
		ok, takes = i.nodeMay(a)
	}
	if ok {
		return nil
	}
	return &Denied{i, a, takes}
}

func (i Identity) tenantMay(a Action) (ok bool, takes string) {
	switch {
	case a.Kind == Network && a.Network == "", a.Kind == Attachment && a.Network == "", a.Kind == View:
		return a.Verb == Read, "role admin" // its own of them
	case a.Kind == Network, a.Kind == Attachment:
		return i.Sees(a.Network), fmt.Sprintf("role admin, or network %s among the token's networks (%s)", a.Network, strings.Join(i.Networks, ", "))
	case a.Kind == OfNode:
		return false, fmt.Sprintf("role node with node %s, or admin", a.Node)
	}
	return false, "role admin" + orReader(a)
}

func (i Identity) nodeMay(a Action) (ok bool, takes string) {
	switch {
	case a.Kind == Network && a.Network != "" && a.Verb == Read:
		return true, "" // what a pod is to be attached to
	case a.Kind == OfNode, a.Kind == Attachment && a.Node != "":
		return i.IsNode(a.Node), fmt.Sprintf("role node with node %s, or admin", a.Node)
	}
	return false, "role admin" + orReader(a)
}

func orReader(a Action) string {
	if a.Verb == Read {
		return " or reader"
	}
	return ""
}

// Sees says whether a network is in an identity's view.
func (i Identity) Sees(network string) bool {
	if i.Role != Tenant {
		return true
	}
	return slices.ContainsFunc(i.Networks, func(pattern string) bool {
		beginning, open := strings.CutSuffix(pattern, "*")
		return network == pattern || open && strings.HasPrefix(network, beginning)
	})
}

// IsNode says whether an identity acts for a node.
func (i Identity) IsNode(name string) bool {
	return i.Role == Node && (i.Node == "*" || i.Node == name)
}
