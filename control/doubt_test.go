package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/announce"
	"github.com/fairlead/fairlead/dataplane/memory"
)

// doubtful has a peer that is silent until it proves to live, if it does.
type doubtful struct {
	announce.Announcer
	silent time.Duration
	alive  time.Time
}

func (d *doubtful) Doubt(withdrawn time.Time) time.Time {
	if !d.alive.IsZero() && !time.Now().Before(d.alive) {
		return time.Time{}
	}
	return withdrawn.Add(d.silent)
}

// A balancer that stops forwards for longer where a peer may have died without a
// word; the world's Linger is a second.
func TestLingersForSilentPeers(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		silent, alive, limit time.Duration
		hurry                bool
		want                 time.Duration
	}{
		"none":                       {limit: time.Minute, want: time.Second},
		"one":                        {silent: 900 * time.Millisecond, alive: never, limit: time.Minute, want: 1900 * time.Millisecond},
		"one that is heard at last":  {silent: time.Minute, alive: 3 * time.Second, limit: time.Hour, want: 3 * time.Second},
		"one that is heard at once":  {silent: time.Minute, alive: time.Millisecond, limit: time.Hour, want: time.Second},
		"one without BFD":            {silent: 90 * time.Second, alive: never, limit: 25 * time.Second, want: 26 * time.Second},
		"one, and somebody in haste": {silent: 90 * time.Second, alive: never, limit: time.Hour, hurry: true, want: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hurry := make(chan struct{})
				d := &doubtful{silent: c.silent}
				w := newWorld(t, memory.New(), func(w *world, config *Config) {
					d.Announcer = config.Announcer
					config.Announcer = announce.Together{announce.Only(announce.ModeBGP, d), &announce.Fake{}}
					config.DrainTimeout, config.Hurry = c.limit, hurry
				})
				w.serve(web(1, 2))
				synctest.Wait()
				began := time.Now()
				d.alive = began.Add(c.alive)
				if c.hurry {
					time.AfterFunc(2*time.Second, func() { close(hurry) })
				}
				w.stop()
				if took := time.Since(began); took < c.want || took > c.want+doubtPace {
					t.Errorf("it stopped after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// So does one whose source gives up.
func TestLingersWithoutASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &doubtful{Announcer: &announce.Fake{}, silent: 3 * time.Second}
		w := newWorld(t, memory.New(), func(_ *world, c *Config) { c.Announcer, c.DrainTimeout = d, time.Minute })
		w.serve(web(1, 2))
		w.stop()
		w.loop.announced = []announce.Route{{}}
		began := time.Now()
		w.loop.withdrawAll()
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("it lingered for %v, want 4 s", took)
		}
	})
}
