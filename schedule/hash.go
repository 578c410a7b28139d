package schedule

// Hash gives a flow's place on a ring: the same number as flow_hash in
// bpf/include/hash.h. It must never change: balancers of two versions share
// their flows.
func Hash(f Flow) uint32 {
	c, v := f.Client.Addr().As16(), f.VIP.As16()
	h := uint64(0)
	for i := 0; i < 16; i += 8 {
		h = step(h, be64(c[i:]))
		h = step(h, be64(v[i:]))
	}
	h = step(h, uint64(f.Client.Port())<<32|uint64(f.Port)<<16|uint64(f.Protocol))
	return uint32(h >> 32)
}

func step(h, word uint64) uint64 {
	h = (h ^ word) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

func be64(b []byte) (v uint64) {
	for _, x := range b[:8] {
		v = v<<8 | uint64(x)
	}
	return v
}
