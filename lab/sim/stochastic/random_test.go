package stochastic

import "testing"

func TestStreamIsThePublishedOne(t *testing.T) {
	s := NewStream(1)
	for i, want := range []int32{729236, 1193744747, 30504276, 189241995, 947412623} {
		if got := s.bits(); got != want {
			t.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
}
