package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/api/v1alpha1"
	"github.com/fairlead/fairlead/core/problem"
	"github.com/fairlead/fairlead/internal/limit"
	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/crd"
	"github.com/fairlead/fairlead/source/object"
)

// Stdin is the path that stands for standard input in ReadOnce.
const Stdin = "-"

// Once is the content of manifests that are read once and not followed.
type Once struct {
	// Snapshot is what an agent would read, without Advertisements. For a cluster, it has
	// only Problems.
	source.Snapshot
	objects []*object.Object
}

// Reading selects what ReadOnce reads.
type Reading struct {
	// Paths are files and directories. They are read as if they were one directory.
	Paths []string
	// Stdin is the text of the path "-".
	Stdin []byte
	// Cluster means that the manifests are for a cluster: objects that are not for Fairlead
	// are ignored, and addresses and endpoints of Services come later.
	Cluster bool
}

// ReadOnce reads manifests as an agent that starts. Problems name the files by their paths.
// An error is only about a path.
func ReadOnce(r Reading) (*Once, error) {
	d := newFolder("")
	d.cluster = r.Cluster
	names := map[string]bool{}
	var strange []problem.Problem
	for _, path := range r.Paths {
		if path == Stdin {
			if len(r.Stdin) > limit.Text {
				return nil, &limit.TooLong{What: "stdin", Most: limit.Text}
			}
			d.files["stdin"] = readText("stdin", r.Stdin, r.Cluster)
			continue
		}
		more, err := manifestsIn(path, names)
		if err != nil {
			return nil, err
		}
		strange = append(strange, more...)
	}
	d.lookAtFiles(names, time.Now())
	d.strange = strange
	if !r.Cluster {
		return &Once{d.snapshot(), d.objects()}, nil
	}
	objects, problems := d.unique(d.objects())
	for _, name := range sortedKeys(d.files) {
		problems = append(problems, d.files[name].allProblems(name)...)
	}
	return &Once{source.Snapshot{Problems: append(problems, strange...)}, objects}, nil
}

func readText(name string, text []byte, cluster bool) *file {
	f := &file{cluster: cluster}
	f.take(parse(name, text, cluster), time.Time{})
	return f
}

// manifestsIn adds the files at a path to names.
func manifestsIn(path string, names map[string]bool) (strange []problem.Problem, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	path = filepath.Clean(path)
	if !info.IsDir() {
		names[path] = true
		if !IsManifest(filepath.Base(path)) {
			strange = append(strange, problem.Problem{Where: path, Message: "is not read from a folder: want a name that ends in .yaml, .yml or .json, and does not begin with a dot"})
		}
		return strange, nil
	}
	sub := newFolder(path)
	its, err := sub.list()
	if err != nil {
		return nil, err
	}
	if len(its) == 0 && len(sub.strange) == 0 {
		return nil, fmt.Errorf("%s: no manifests in this folder: files whose names end in .yaml, .yml or .json", path)
	}
	for name := range its {
		names[filepath.Join(path, name)] = true
	}
	for _, p := range sub.strange {
		p.Where = filepath.Join(path, p.Where)
		strange = append(strange, p)
	}
	return strange, nil
}

// objects returns the objects of all files.
func (d *folder) objects() (all []*object.Object) {
	for _, name := range sortedKeys(d.files) {
		all = append(all, d.files[name].objects...)
	}
	return all
}

// OfNode returns what a node with these labels advertises, and the problems of its peers.
// onPeers is called with the peers, and returns problems.
func (o *Once) OfNode(labels map[string]string, onPeers func([]crd.Peer) []problem.Problem) (source.Advertisements, []problem.Problem) {
	r := routing{labels: labels, onPeers: onPeers}
	return r.look(o.objects)
}

// OfAnyNode is OfNode for a node that all node selectors select.
func (o *Once) OfAnyNode(onPeers func([]crd.Peer) []problem.Problem) (source.Advertisements, []problem.Problem) {
	all := slices.Clone(o.objects)
	for i, one := range all {
		c := *one
		switch v := one.Value.(type) {
		case *v1alpha1.Advertisement:
			v = v.DeepCopy()
			v.Spec.NodeSelector = nil
			c.Value = v
		case *v1alpha1.BGPPeer:
			v = v.DeepCopy()
			v.Spec.NodeSelector = nil
			c.Value = v
		default:
			continue
		}
		all[i] = &c
	}
	r := routing{onPeers: onPeers}
	return r.look(all)
}

// Routing is a BGPPeer, an Advertisement or an AddressPool.
type Routing struct {
	*object.Object
	// Peers and Pools are what an Advertisement names.
	Peers, Pools []string
	// Pool is set for an AddressPool.
	Pool *crd.Pool
	// Selects reports whether it is for a node with these labels.
	Selects func(labels map[string]string) bool
}

// Routing returns the objects of a kind.
func (o *Once) Routing(kind string) (all []Routing) {
	for _, one := range o.objects {
		if one.Key.Kind != kind {
			continue
		}
		r := Routing{Object: one}
		switch v := one.Value.(type) {
		case *v1alpha1.Advertisement:
			r.Peers, r.Pools = v.Spec.Peers, v.Spec.Pools
			r.Selects = func(labels map[string]string) bool { return crd.Selects(v.Spec.NodeSelector, labels) }
		case *v1alpha1.BGPPeer:
			r.Selects = func(labels map[string]string) bool { return crd.Selects(v.Spec.NodeSelector, labels) }
		case *v1alpha1.AddressPool:
			p, _ := crd.ParsePool(v) // faults were reported
			r.Pool = &p
		}
		all = append(all, r)
	}
	return all
}

// Asks calls f for each Service that Fairlead balances, with its labels and its request for
// addresses.
func (o *Once) Asks(f func(s *object.Object, labels map[string]string, ask object.Ask)) {
	for _, one := range o.objects {
		if one.Ours() {
			ask := one.Ask()
			ask.Addresses = slices.DeleteFunc(slices.Clone(ask.Addresses), isStandIn)
			f(one, one.Labels(), ask)
		}
	}
}

// Network is a VirtualNetwork.
type Network struct {
	*object.Object
	Name string
	// Spec is the network as JSON.
	Spec []byte
}

// Networks returns the VirtualNetworks.
func (o *Once) Networks() (all []Network, err error) {
	for _, one := range o.objects {
		if w, ok := one.Value.(*v1alpha1.VirtualNetwork); ok {
			spec, wrong := json.Marshal(&w.Spec)
			err = errors.Join(err, wrong)
			all = append(all, Network{one, w.Name, spec})
		}
	}
	return all, err
}
