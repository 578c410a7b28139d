package authtag

import "testing"

// TestSum checks the vectors in the paper's appendix A and in its reference
// implementation: the key is 00 to 0f, the message 00, 01 and so on.
func TestSum(t *testing.T) {
	const k0, k1 = 0x0706050403020100, 0x0f0e0d0c0b0a0908
	message := make([]byte, 63)
	for i := range message {
		message[i] = byte(i)
	}
	for n, want := range map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462,
		15: 0xa129ca6149be45e5, 63: 0x958a324ceb064572,
	} {
		if got := Sum(k0, k1, message[:n]); got != want {
			t.Errorf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
}
