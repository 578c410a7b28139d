// Package stochastic contains the simulator's streams of random numbers and the
// distributions that are drawn from them, the same on any machine.
//
// What does not belong here: what is drawn for which purpose (sim and traffic).
package stochastic

// Stream is a stream of random numbers from L'Ecuyer's MRG32k3a (Operations Research
// 47(1), 1999), the generator of ns-2. The same seed gives the same numbers on any
// machine.
type Stream struct{ a, b [3]int64 }

// Constants of the generator, as published.
const (
	m1, m2               = 4294967087, 4294944443
	a12, a13n, a21, a23n = 1403580, 810728, 527612, 1370589
)

// NewStream returns the stream whose six state numbers are all equal to the seed, which
// is at least 1.
func NewStream(seed uint32) *Stream {
	s := int64(max(seed, 1))
	return &Stream{[3]int64{s, s, s}, [3]int64{s, s, s}}
}

// Float returns a number between 0 and 1, both excluded.
func (s *Stream) Float() float64 {
	p := (a12*s.a[1] - a13n*s.a[0]) % m1
	if p < 0 {
		p += m1
	}
	s.a = [3]int64{s.a[1], s.a[2], p}
	q := (a21*s.b[2] - a23n*s.b[0]) % m2
	if q < 0 {
		q += m2
	}
	s.b = [3]int64{s.b[1], s.b[2], q}
	d := p - q
	if d <= 0 {
		d += m1
	}
	return float64(d) * (1.0 / (m1 + 1))
}

// Below returns an integer from 0 to n-1, as ns-2 does: the remainder of 31 bits.
func (s *Stream) Below(n int) int { return int(s.bits()) % n }

func (s *Stream) bits() int32 { return int32(s.Float() * (1 << 31)) }

// StreamOf returns the stream for one user of a seed. All six state numbers differ, so
// that adjacent streams are independent.
func StreamOf(seed, user uint32) *Stream {
	z := uint64(max(seed, 1))<<32 | uint64(user)
	next := func(below uint64) int64 { // SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)
		z += 0x9e3779b97f4a7c15
		x := (z ^ z>>30) * 0xbf58476d1ce4e5b9
		x = (x ^ x>>27) * 0x94d049bb133111eb
		return 1 + int64((x^x>>31)%(below-1))
	}
	return &Stream{[3]int64{next(m1), next(m1), next(m1)}, [3]int64{next(m2), next(m2), next(m2)}}
}
