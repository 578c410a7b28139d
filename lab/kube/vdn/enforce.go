package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// hostMax is the rate limit of network telescope for one host, in bit/s, as in networks.
const maxRatePerHost = 40e6

// view returns the controller's complete state.
func (w *world) view() (v vdn.View, err error) {
	said, err := w.ask("view")
	if err == nil {
		err = json.Unmarshal([]byte(said), &v)
	}
	return v, err
}

// dropped returns how much the nodes have dropped in a network, by reason.
func (w *world) dropped(network, reason string) (sum uint64, err error) {
	v, err := w.view()
	for _, n := range v.Nodes {
		for _, c := range n.Counters {
			if c.Network == network {
				sum += c.Drops[reason]
			}
		}
	}
	return sum, err
}

// curl runs curl in a pod.
func (w *world) curl(ctx context.Context, from, url string, args ...string) (string, error) {
	return w.Kubectl(ctx, append([]string{"exec", from, "--", "curl", "--silent", "--show-error", "--fail", url}, args...)...)
}

// rate returns how fast one pod receives 4 MB from another, in bit/s, from the first byte
// on.
func (w *world) rate(ctx context.Context, from, addr string) (float64, error) {
	said, err := w.curl(ctx, from, "http://"+addr+":8080/shell?cmd=yes%20fairlead%7Chead%20-c%204000000", "--max-time", "60",
		"--output", "/dev/null", "--write-out", "%{size_download} %{time_starttransfer} %{time_total}")
	if err != nil {
		return 0, err
	}
	var size, begin, end float64
	if _, err := fmt.Sscan(said, &size, &begin, &end); err != nil || size < 4e6 || end <= begin {
		return 0, fmt.Errorf("request from %s to %s: %q: %w", from, addr, said, err)
	}
	return size * 8 / (end - begin), nil
}

// capped checks that a pod receives at most one host's rate limit on its network, and
// much more on another.
func (w *world) capped(ctx context.Context) error {
	pods, err := w.pods(ctx, "telescope")
	if err != nil {
		return err
	}
	said, err := w.Kubectl(ctx, "get", "pod", pods[1], "--output", `jsonpath={.status.podIP} {.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
	if err != nil {
		return err
	}
	main, text, _ := strings.Cut(said, " ")
	var status []struct {
		Name string
		IPs  []string
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return err
	}
	at := map[string]string{}
	for _, s := range status {
		at[s.Name] = s.IPs[0]
	}
	return w.await(ctx, "a capped pod", func() error {
		free, err := w.rate(ctx, pods[0], main)
		slow, errToo := w.rate(ctx, pods[0], at["default/telescope"])
		drops, errDrops := w.dropped("telescope", enforce.OverRate)
		if err := errors.Join(err, errToo, errDrops); err != nil {
			return err
		}
		if slow > maxRatePerHost*1.25 || free < 2*slow || drops == 0 {
			return fmt.Errorf("%.0f Mbit/s, %d packets over the rate; by the cluster's network %.0f Mbit/s", slow/1e6, drops, free/1e6)
		}
		w.Say("a pod of 40 Mbit/s gets %.0f, and by the cluster's network %.0f; %d packets were over the rate", slow/1e6, free/1e6, drops)
		return nil
	})
}

// apart checks that pods of two networks can communicate only while both networks name
// each other.
func (w *world) apart(ctx context.Context) error {
	telescope, err := w.pods(ctx, "telescope")
	if err != nil {
		return err
	}
	science, err := w.addresses(ctx, "macvlan")
	if err != nil {
		return err
	}
	url := "http://" + science[0].String() + ":8080/hostname"
	talk := func(want bool) error {
		return w.await(ctx, "whether another network's pod answers", func() error {
			before, err := w.dropped("telescope", enforce.Isolated)
			if err != nil {
				return err
			}
			said, err := w.curl(ctx, telescope[0], url, "--max-time", "4")
			if want {
				return err
			}
			after, errToo := w.dropped("telescope", enforce.Isolated)
			if err == nil || errToo != nil || after <= before {
				return errors.Join(fmt.Errorf("it answers %q, %v; dropped before %d, after %d", said, err, before, after), errToo)
			}
			return nil
		})
	}
	reach := func(ofTelescope, ofScience string) error {
		for name, list := range map[string]string{"telescope": ofTelescope, "science": ofScience} {
			if _, err := w.Kubectl(ctx, "patch", "virtualnetwork", name, "--type=merge", "--patch", `{"spec":{"peerNetworks":[`+list+`]}}`); err != nil {
				return err
			}
		}
		return nil
	}
	for _, step := range []func() error{
		func() error { return talk(false) },
		func() error { return reach(`"science"`, `"nics","telescope"`) },
		func() error { return talk(true) },
		func() error { return reach("", `"nics","telescope"`) },
		func() error { return talk(false) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	w.Say("pods of two networks can connect while both list each other; other packets are dropped and counted")
	return nil
}
