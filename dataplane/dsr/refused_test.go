package dsr

import (
	"fmt"
	"os"
	"testing"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/internal/features"
	"github.com/fairlead/fairlead/lab/testkit/refusals"
)

// TestWithoutOptional serves backends on kernels without optional features.
func TestWithoutOptional(t *testing.T) {
	refusals.Optional(t, features.DSRAgent, refusals.Tests{
		Few: "^TestFromServer$",
		All: "^(TestTunnel|TestDSRNAT|TestFromServer|TestTraffic|TestSecondChance|TestDevicesComeAndGo)$",
	})
}

// TestWithoutEssential: an agent fails to start on kernels without essential features,
// while its predecessor's entries stay.
func TestWithoutEssential(t *testing.T) {
	if refusals.Attempt(func(at string) error {
		return refusals.InNamespace(at, func() error {
			fresh := Config{PinDir: fmt.Sprint("/sys/fs/bpf/fresh-", os.Getpid())}
			defer os.RemoveAll(fresh.PinDir)
			h, err := Open(fresh)
			if err == nil {
				err = h.Detach()
			}
			return err
		})
	}) {
		return
	}
	n := newNode(t)
	e := entry(service.Tunnel, vip, pod, service.TCP)
	if err := n.agent.Set([]Entry{e}); err != nil {
		t.Fatal(err)
	}
	refusals.Essential(t, features.DSRAgent, n.ns.Path(), func(t *testing.T) { wantEntries(t, n.agent, e) })
}
