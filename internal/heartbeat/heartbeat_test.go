package heartbeat

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Rounds
		end := r.Begin("plan")
		time.Sleep(4 * time.Minute)
		endOther := r.Begin("routes")
		time.Sleep(59 * time.Second)
		if err := r.Stuck(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if err := r.Stuck(); err == nil || err.Error() != "plan: no progress for 5m0s" {
			t.Errorf("after 5 minutes: %v", err)
		}
		end()
		if err := r.Stuck(); err != nil {
			t.Error(err)
		}
		endOther()
		time.Sleep(time.Hour)
		if err := r.Stuck(); err != nil {
			t.Errorf("a loop without work is stuck: %v", err)
		}
		(*Rounds)(nil).Begin("none")()
		if err := (*Rounds)(nil).Stuck(); err != nil {
			t.Error(err)
		}
	})
}
