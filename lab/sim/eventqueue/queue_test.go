package eventqueue

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// event is what the simulator schedules.
type event struct{ what int32 }

// slowQueue is the reference model of the queue: a list that is sorted for every event.
type slowQueue[T Time] struct {
	now T
	all []Entry[T, event]
}

func (q *slowQueue[T]) next(end T) (event, bool) {
	slices.SortFunc(q.all, func(a, b Entry[T, event]) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Seq, b.Seq))
	})
	if len(q.all) == 0 || q.all[0].At >= end {
		return event{}, false
	}
	first := q.all[0]
	q.all, q.now = q.all[1:], first.At
	return first.E, true
}

func TestQueueIsInOrder(t *testing.T) {
	t.Run("seconds", func(t *testing.T) {
		compareQueues(t, []float64{0, 0.001, 0.0004, 0.0014, 1e-6, 0.1 + 0.2, 0.3})
	})
	t.Run("nanoseconds", func(t *testing.T) { compareQueues(t, []int64{0, 1, 2, 3, 1000}) })
}

// compareQueues makes the same random requests to a queue and its reference model, with
// many ties.
func compareQueues[T Time](t *testing.T, delays []T) {
	for seed := range uint64(60) {
		dice := rand.New(rand.NewPCG(seed, 1))
		var fast Queue[T, event]
		var slow slowQueue[T]
		ask := func(what int32) {
			d := delays[dice.IntN(len(delays))]
			e := event{what: what}
			if dice.IntN(4) == 0 {
				fast.At(fast.Now+d, fast.Reserve(), e)
			} else {
				fast.After(fast.Lane(d), e)
			}
			slow.all = append(slow.all, Entry[T, event]{At: slow.now + d, Seq: fast.seq, E: e})
		}
		end := delays[len(delays)-1] * T(5)
		for step := range int32(2000) {
			if dice.IntN(100) < 52 {
				ask(step)
				continue
			}
			got, ok := fast.Next(end)
			want, wanted := slow.next(end)
			if ok != wanted || got != want || fast.Now != slow.now {
				t.Fatalf("seed %d, step %d: %+v %v, want %+v %v", seed, step, got, ok, want, wanted)
			}
		}
	}
}
