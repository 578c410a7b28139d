package service

import "fmt"

func (v *validator) frontends(s *Service) {
	alone := len(s.Frontends) > 0
	for i := range s.Frontends {
		alone = alone && s.Frontends[i].Range()
	}
	v.check(!alone || s.Health.Kind == CheckNone || s.Health.Port != 0, "health.port",
		"a range of ports has none of its own to check; name one, or let the check be %s", CheckNone)
	for i := range s.Frontends {
		f := &s.Frontends[i]
		field := fmt.Sprintf("frontends[%d]", i)
		v.check(i == 0 || s.Frontends[i-1].Key.Compare(f.Key) < 0, field, "%s is out of order or given twice", f.Key)
		v.ports(s.Frontends[:i], f.Key, field)
		if err := CheckUnicast(f.VIP); err != nil {
			v.check(false, field+".vip", "%s", err)
			continue
		}
		for j, b := range f.Backends {
			v.backend(s.Method, f, j, b, fmt.Sprintf("%s.backends[%d]", field, j))
		}
	}
}

// ports validates a frontend's protocol and ports, also against the frontends before it.
func (v *validator) ports(before []Frontend, k Key, field string) {
	if k.Whole() {
		return
	}
	known := k.Protocol == TCP || k.Protocol == UDP || k.Protocol == SCTP
	v.check(known, field+".protocol", "%s is not served; want TCP, UDP or SCTP, or the whole address", k.Protocol)
	v.check(k.Port != 0, field+".port", "0 is out of range; want 1 to 65535")
	if !k.Range() {
		return
	}
	v.check(k.Last > k.Port, field+".last", "%d-%d is not a range of ports; want the lower port first, as in 8000-8999", k.Port, k.Last)
	for _, o := range before {
		v.check(!o.Overlaps(k), field+".port", "%s overlaps %s; a port can be of one range only", k, o.Key)
	}
}

func (v *validator) backend(m Method, f *Frontend, i int, b Backend, field string) {
	if err := CheckUnicast(b.Addr.Addr()); err != nil {
		v.check(false, field+".addr", "%s", err)
		return
	}
	v.check(i == 0 || f.Backends[i-1].Compare(b) < 0, field, "%s is out of order or given twice", b.Addr)
	if err := CheckPort(m, f.Key, b.Addr.Port()); err != nil {
		v.check(false, field+".port", "%s", err)
	}
	v.check(b.Weight <= MaxWeight, field+".weight", "%d is out of range; want 0 to %d", b.Weight, MaxWeight)
	v.check(b.Addr.Addr() != f.VIP, field+".addr", "%s is the VIP itself", f.VIP)
	v.check(b.Addr.Addr().Is4() == f.Backends[0].Addr.Addr().Is4(), field+".addr",
		"%s is of another family than its sibling %s", b.Addr.Addr(), f.Backends[0].Addr.Addr())
	v.check(m == Tunnel || b.Addr.Addr().Is4() == f.VIP.Is4(), field+".addr",
		"%s is of another family than the VIP %s, which only forwarding mode %s supports", b.Addr.Addr(), f.VIP, Tunnel)
}

// CheckPort returns why a backend cannot receive packets of a frontend on a port, or nil.
// With port 0, it receives them on the port that the client addressed.
func CheckPort(m Method, k Key, port uint16) error {
	switch {
	case k.Range() && port != 0:
		return fmt.Errorf("%d stands for every port of %s; want 0, which is the one that the client addressed", port, k)
	case k.Range(), port == k.Port:
		return nil
	case port == 0:
		return fmt.Errorf("0 is out of range; want 1 to 65535")
	case k.Protocol == SCTP:
		return fmt.Errorf("%d is another port than the frontend's, and SCTP's checksum is over both; want %d", port, k.Port)
	case m == DR:
		return fmt.Errorf("%d is another port than the frontend's, and forwarding mode %s does not rewrite packets; want %d, or forwarding mode %s",
			port, DR, k.Port, Tunnel)
	}
	return nil
}
