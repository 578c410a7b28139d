// Package access authorizes requests to the VDN controller. A token has a name and a role.
// This package decides, without I/O, which actions a role permits (Identity.May); keys.go
// reads the token file, and vdn/server authenticates the client.
package access

import (
	"fmt"
	"slices"
	"strings"
)

// Role defines what a token permits.
type Role string

// Supported roles.
const (
	// Admin permits everything.
	Admin Role = "admin"
	// Tenant permits creating, changing and reading the token's networks and their
	// attachments.
	Tenant Role = "tenant"
	// Node is for machines: a node's plan and reports, and the leases of its pods.
	Node Role = "node"
	// Reader permits reading everything and changing nothing.
	Reader Role = "reader"
)

// Roles lists all roles.
var Roles = []Role{Admin, Tenant, Node, Reader}

// Identity is an authenticated client.
type Identity struct {
	// Name is the token's name, for messages and the audit log.
	Name string
	Role Role
	// Networks are the networks of a tenant: names, or name prefixes followed by "*".
	Networks []string
	// Node is the name of a node; "*" matches any node.
	Node string
}

// Anyone is the identity of every client of a controller without tokens.
var Anyone = Identity{Name: "anyone", Role: Admin}

// Verb is the operation of an Action.
type Verb string

// Supported verbs.
const (
	Read   Verb = "read"
	Change Verb = "change" // create, change or delete
)

// Kind is the kind of object that an Action applies to.
type Kind string

// Supported kinds.
const (
	Network    Kind = "network"
	Attachment Kind = "attachment"
	// OfNode covers a node's own operations: reports, its plan, garbage collection.
	OfNode Kind = "node"
	// Nodes covers deleting a node.
	Nodes Kind = "nodes"
	Peer  Kind = "peer"
	// View is the view of the entire domain; a tenant sees its own part (Identity.Sees).
	View Kind = "view"
)

// Action is one operation to authorize.
type Action struct {
	Verb Verb
	Kind Kind
	// Network is the network of a network or attachment action, Node the node of an
	// attachment or node action. Both are empty for an entire list.
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

// Denied is the error for an action that is not permitted.
type Denied struct {
	Who    Identity
	Action Action
	// Takes describes the role that the action requires.
	Takes string
}

func (d *Denied) Error() string {
	return fmt.Sprintf("request, Authorization: token %s (role %s) may not %s: that requires %s", d.Who.Name, d.Who.Role, d.Action, d.Takes)
}

// May reports whether an identity may perform an action: nil, or a Denied error.
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
		return a.Verb == Read, "role admin" // limited to its own objects
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
		return true, "" // the network that a pod attaches to
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

// Sees reports whether a network is visible to an identity.
func (i Identity) Sees(network string) bool {
	if i.Role != Tenant {
		return true
	}
	return slices.ContainsFunc(i.Networks, func(pattern string) bool {
		beginning, open := strings.CutSuffix(pattern, "*")
		return network == pattern || open && strings.HasPrefix(network, beginning)
	})
}

// IsNode reports whether an identity acts for a node.
func (i Identity) IsNode(name string) bool {
	return i.Role == Node && (i.Node == "*" || i.Node == name)
}
