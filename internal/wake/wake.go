// Package wake wakes a goroutine that waits on a channel.
package wake

// Up requests a wake-up through a channel with room for one. It does not block: a request
// that is already pending is enough.
func Up(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
