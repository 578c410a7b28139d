package object

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/core/service"
)

// Ask is a Service's request for addresses.
type Ask struct {
	// Addresses are the requested addresses; none for any.
	Addresses []netip.Addr
	// Pools are the only permitted pools; none for all.
	Pools      []string
	SharingKey string
	// Ports are the ports that it serves, as keys without addresses.
	Ports []service.Key
}

// ReadAsk reads only a Service's request for addresses. The error names the invalid field.
func ReadAsk(s *corev1.Service) (Ask, error) {
	var set settings
	var errs []error
	for _, name := range []string{AnnotationAddresses, AnnotationAddressPool, AnnotationAddressSharingKey, AnnotationPortRanges} {
		if value, ok := s.Annotations[name]; ok {
			if err := setters[name](&set, value); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", annotation(name), err))
			}
		}
	}
	if _, ok := s.Annotations[AnnotationAddresses]; !ok && s.Spec.LoadBalancerIP != "" {
		a, err := parseAddr(s.Spec.LoadBalancerIP)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.loadBalancerIP: %w", err))
		}
		set.addresses = []netip.Addr{a}
	}
	ports, faults := readPorts(s.Spec.Ports)
	ports, more := set.ranges.apply(ports)
	for _, f := range append(faults, more...) {
		errs = append(errs, fmt.Errorf("%s: %s", f.Field, f.Message))
	}
	return askOf(&set, set.addresses, ports), errors.Join(errs...)
}

func askOf(set *settings, addresses []netip.Addr, ports []listenerPort) Ask {
	ask := Ask{Addresses: addresses, Pools: set.pools, SharingKey: set.sharingKey}
	for _, p := range ports {
		ask.Ports = append(ask.Ports, service.Key{Port: p.number, Last: cmp.Or(p.last, p.number), Protocol: p.protocol})
	}
	return ask
}

// Ask returns what a Service that is ours requests, with the addresses that it has.
func (o *Object) Ask() Ask { return o.service.ask }

// Labels returns the labels of a Service that is ours.
func (o *Object) Labels() map[string]string { return o.service.template.Labels }

func parsePool(v string) (string, error) {
	if v == "" {
		return "", errors.New("an empty name is no pool's; want one like \"web\"")
	}
	return v, nil
}
