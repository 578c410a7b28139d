package cni

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/fairlead/fairlead/lab/netns"
	"github.com/fairlead/fairlead/lab/testkit"
)

// ofPod returns args with a pod's Kubernetes metadata.
func ofPod(conf, container, uid string, ns *netns.NS) *skel.CmdArgs {
	a := args(conf, container, ns.Path())
	a.Args = "K8S_POD_NAMESPACE=lab;K8S_POD_NAME=db-0;K8S_POD_UID=" + uid
	return a
}

// keeps attaches a pod, restarts it twice while the controller is down, and returns its
// last result.
func (r *rig) keeps(network string, place *[3]*netns.NS) *current.Result {
	r.t.Helper()
	conf := r.conf(network)
	for i := range place {
		place[i] = testkit.NetNS(r.t)
	}
	first, err := Add(ofPod(conf, "one", "1", place[0]))
	must(r.t, err)
	r.stop()
	_, err = Add(ofPod(conf, "other", "2", testkit.NetNS(r.t)))
	refusedWith(r.t, err, types.ErrTryAgainLater, "cannot reach the VDN controller at http://"+r.address)
	must(r.t, Del(ofPod(conf, "one", "1", place[0])))
	// Another pod cannot use the lease, nor can this pod at another interface.
	_, err = Add(ofPod(conf, "other", "2", testkit.NetNS(r.t)))
	refusedWith(r.t, err, types.ErrTryAgainLater, "cannot reach")
	other := ofPod(conf, "two", "1", place[1])
	other.IfName = "net7"
	_, err = Add(other)
	refusedWith(r.t, err, types.ErrTryAgainLater, "cannot reach")
	var last *current.Result
	for i, name := range []string{"two", "three"} {
		ns := place[i+1]
		last, err = Add(ofPod(conf, name, "1", ns))
		must(r.t, err)
		if got, want := fmt.Sprint(hosts(last), last.Interfaces[0].Mac), fmt.Sprint(hosts(first), first.Interfaces[0].Mac); got != want {
			r.t.Errorf("%s has %s, and had %s", name, got, want)
		}
		must(r.t, Check(args(with(r.t, conf, last), name, ns.Path())))
		if name == "two" {
			must(r.t, Del(ofPod(conf, name, "1", ns)))
		}
	}
	return last
}

// TestAPodRestartsWithoutController checks that a pod keeps its lease across restarts and
// that the controller learns of it once it is back.
func TestAPodRestartsWithoutController(t *testing.T) {
	for _, network := range []string{"science", "whole"} {
		t.Run(network, func(t *testing.T) {
			r := newRig(t)
			var place [3]*netns.NS
			last := r.keeps(network, &place)
			// A repeated DEL of an old container does not release the lease.
			must(t, Del(ofPod(r.conf(network), "one", "1", place[0])))
			r.start()
			must(t, Del(ofPod(r.conf(network), "two", "1", place[1])))
			// The runtime has only the last container: GC must not collect its lease.
			must(t, GC(args(r.conf(network, `"cni.dev/valid-attachments":[{"containerID":"three","ifname":"net1"}]`), "", "")))
			if ids := r.leases(); !slices.Equal(ids, []string{"three.net1"}) {
				t.Errorf("leases are %q", ids)
			}
			a, err := r.vdn.Attachment(t.Context(), "three.net1")
			must(t, err)
			if a.Addresses[0].Addr() != hosts(last)[0] || a.NetNS != place[2].Path() || a.OwnerUID != "1" || a.Phase != "up" {
				t.Errorf("the controller has %+v", a)
			}
			must(t, Check(args(with(t, r.conf(network), last), "three", place[2].Path())))
			must(t, Del(ofPod(r.conf(network), "three", "1", place[2])))
			r.nothingLeft()
		})
	}
}

// TestAPodRestartsAndGoes checks that a lease is released even if the controller never
// learns its last name.
func TestAPodRestartsAndGoes(t *testing.T) {
	r := newRig(t)
	var place [3]*netns.NS
	r.keeps("science", &place)
	must(t, Del(ofPod(r.conf("science"), "three", "1", place[2])))
	r.start()
	if ids := r.leases(); !slices.Equal(ids, []string{"one.net1"}) {
		t.Errorf("leases are %q", ids)
	}
	must(t, GC(args(r.conf("science"), "", "")))
	r.nothingLeft()
}

// TestARestartedPodIsEnforced checks that the daemon enforces it, even after a restart, and
// that it informs the controller without another plugin call.
func TestARestartedPodIsEnforced(t *testing.T) {
	r := newRig(t)
	stop := r.daemon(true)
	var place [3]*netns.NS
	r.keeps("science", &place)
	for range 2 {
		testkit.Eventually(t, within, func() error {
			s := r.running.Status()
			if !slices.Equal(s.Adopted, []string{"three.net1"}) || s.Error != "" || s.Reachable {
				return fmt.Errorf("the daemon says %+v", s)
			}
			return r.enforced("three.net1")
		})
		stop()
		stop = r.daemon(true)
	}
	r.start()
	testkit.Eventually(t, within, func() error {
		if ids := r.leases(); !slices.Equal(ids, []string{"three.net1"}) {
			return fmt.Errorf("leases are %q", ids)
		}
		if s := r.running.Status(); len(s.Adopted) > 0 || s.Error != "" || s.Attachments != 1 {
			return fmt.Errorf("the daemon says %+v", s)
		}
		return r.enforced("three.net1")
	})
	must(t, Del(ofPod(r.conf("science"), "three", "1", place[2])))
	r.nothingLeft()
	stop()
}

// enforced returns why an attachment is not enforced.
func (r *rig) enforced(id string) error {
	counters, err := r.enforcer.Counters(r.t.Context())
	if err != nil {
		return err
	}
	var all []string
	for _, c := range counters {
		if c.Attachment == id {
			return nil
		}
		all = append(all, c.Attachment)
	}
	return errors.New("enforced are " + strings.Join(all, ", "))
}
