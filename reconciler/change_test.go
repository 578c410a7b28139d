package reconciler

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/dataplane/fake"
)

// TestChanges: a new Service is planned, programmed and advertised; without it, its route is
// withdrawn, and its frontend removed. Passes that change nothing are not delivered.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var all []Change
		w := newWorld(t, fake.New(), func(_ *world, c *Config) {
			c.OnChange = func(one Change) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, one)
			}
		})
		defer func() { w.stop() }()
		want := func(what string, learned bool, steps ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			var got []string
			for _, c := range all {
				if c.Learned.IsZero() == learned || c.Learned.After(c.Began) || c.Ended.Before(c.Began) {
					t.Errorf("%s: learned at %s, began %s, ended %s", what, c.Learned, c.Began, c.Ended)
				}
				for _, s := range c.Steps {
					got = append(got, fmt.Sprint(s.Kind, " ", s.Service.Name, " ", len(s.Routes), " ", s.Err))
				}
			}
			if all = nil; !slices.Equal(got, steps) {
				t.Errorf("%s:\n got %q\nwant %q", what, got, steps)
			}
		}
		w.serve(web(1, 2))
		want("new", true, "plan  0 <nil>", "program web1 0 <nil>", "advertise  1 <nil>")
		w.serve(web(1, 2))
		want("the same again", true)
		w.setFail(func() bool { return true })
		w.serve(web(1, 2), web(2, 2))
		want("the announcer fails", true, "plan  0 <nil>", "program web2 0 <nil>", "advertise  1 no")
		w.setFail(func() bool { return false })
		time.Sleep(time.Minute)
		want("a retry", false, "plan  0 <nil>", "advertise  1 <nil>")
		w.serve(web(1, 2))
		want("without one", true, "plan  0 <nil>", "withdraw  1 <nil>")
		time.Sleep(time.Hour)
		want("after lingering", false, "plan  0 <nil>", "remove  0 <nil>")
	})
}

// TestManySteps: the steps of frontends are limited.
func TestManySteps(t *testing.T) {
	l := New(Config{OnChange: func(Change) {}})
	l.beginChange()
	for range maxSteps + 3 {
		l.stepFrontend(time.Now(), StepProgram, service.Key{}, errors.New("no"))
	}
	l.step(time.Now(), Step{Kind: StepAdvertise})
	if c := l.change; len(c.Steps) != maxSteps+1 || c.Omitted != 3 {
		t.Errorf("%d steps and %d omitted ones", len(c.Steps), c.Omitted)
	}
}
