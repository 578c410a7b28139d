package networks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/lab/testkit"
	"github.com/fairlead/fairlead/lab/throughput"
	"github.com/fairlead/fairlead/vdn"
	"github.com/fairlead/fairlead/vdn/enforce"
)

// The share of UDP and TCP payload in full frames of 1514 bytes.
const (
	udpShare = float64(throughput.Datagram) / 1514
	tcpShare = 1448.0 / 1514
)

// window is how long a rate is measured, after waiting for begin.
const (
	begin  = 500 * time.Millisecond
	window = 2500 * time.Millisecond
)

// flow is traffic from one pod to another.
type flow struct {
	from, to string
	tcp      int    // number of connections; 0: UDP
	rate     uint64 // of UDP, in bit/s
}

// rates runs the flows and returns the rate that each pod receives: in bit/s on the wire,
// computed from the payload as if all frames were full.
func (w *world) rates(flows ...flow) map[string]float64 {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for _, f := range flows {
		all.Go(func() {
			if f.tcp > 0 {
				throughput.TCP(ctx, w.Host(f.from), w.at(f.to), f.tcp)
			} else if err := throughput.UDP(ctx, w.Host(f.from), w.at(f.to), f.rate); err != nil {
				w.t.Error(err)
			}
		})
	}
	time.Sleep(begin)
	before, start := w.received(), time.Now()
	time.Sleep(window)
	after, took := w.received(), time.Since(start)
	stop()
	all.Wait()
	rates := map[string]float64{}
	for name := range after {
		rates[name] = (after[name] - before[name]) * 8 / took.Seconds()
	}
	return rates
}

// received returns the number of frame bytes that have arrived at each pod, computed from
// their payload.
func (w *world) received() map[string]float64 {
	all := map[string]float64{}
	for name, s := range w.sinks {
		tcp, udp := s.Received()
		all[name] = float64(tcp)/tcpShare + float64(udp)/udpShare
	}
	return all
}

// eventuallyRates sends until the result is as wanted, because a busy machine may be too slow for
// a while.
func (w *world) eventuallyRates(wanted func(map[string]float64) error, flows ...flow) {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() error { return wanted(w.rates(flows...)) })
}

// within checks that a rate is within percent of the wanted one.
func within(what string, got float64, want vdn.Rate, percent float64) error {
	if off := 100 * (got/float64(want) - 1); off > percent || off < -percent {
		return fmt.Errorf("%s gets %.1f Mbit/s, want %s within %.0f %%", what, got/1e6, want, percent)
	}
	return nil
}

// least checks that a rate is at least percent of the wanted one.
func least(what string, got float64, want vdn.Rate, percent float64) error {
	if got < float64(want)*percent/100 {
		return fmt.Errorf("%s gets %.1f Mbit/s, want %.0f %% of %s", what, got/1e6, percent, want)
	}
	return nil
}

// hostMax sends three times the allowed rate from a pod, and then to it.
func maxRatePerHost(w *world) {
	const most vdn.Rate = 8_000_000
	w.apply(vdn.Slice{MaxRatePerHost: most, PeerNetworks: []uint16{2}}, vdn.Slice{PeerNetworks: []uint16{1}})
	before := w.drops(enforce.OverRate)
	w.eventuallyRates(func(got map[string]float64) error { return within("the receiver of a1's traffic", got["b2"], most, 10) },
		flow{from: "a1", to: "b2", rate: 3 * uint64(most)})
	if w.drops(enforce.OverRate) == before {
		w.t.Error("no drop is counted as over-rate")
	}
	w.eventuallyRates(func(got map[string]float64) error { return within("a1", got["a1"], most, 10) },
		flow{from: "b2", to: "a1", rate: 3 * uint64(most)})
	w.eventuallyRates(func(got map[string]float64) error { return within("a2 by TCP", got["a2"], most, 10) },
		flow{from: "a1", to: "a2", tcp: 4})
}

func sliceMax(w *world) {
	const most vdn.Rate = 16_000_000
	w.apply(vdn.Slice{MaxRate: most}, nothing)
	w.eventuallyRates(func(got map[string]float64) error { return within("science", got["a2"], most, 10) },
		flow{from: "a1", to: "a2", rate: 3 * uint64(most)})
}

// guarantee lets visitors attack science at full rate.
func guarantee(w *world) {
	const sure = uplink * 8 / 10
	science := vdn.Slice{GuaranteedRate: sure}
	if !w.means.Guarantee {
		err := w.all["n1"].Apply(w.t.Context(), w.Plan("n1", w.turn, science, nothing))
		if !errors.Is(err, enforce.ErrUnable) {
			w.t.Errorf("Apply with an unsupported guaranteed rate: %v, want ErrUnable", err)
		}
		return
	}
	w.apply(science, nothing)
	wanted := flow{from: "a1", to: "a2", tcp: 1}
	attack := []flow{{from: "b1", to: "b2", tcp: 32}, {from: "b1", to: "b2"}}
	w.eventuallyRates(func(got map[string]float64) error {
		return least("science without other traffic", got["a2"], uplink, 95)
	}, wanted)
	w.eventuallyRates(func(got map[string]float64) error {
		return errors.Join(least("science under attack", got["a2"], sure, 95),
			least("the attacker", got["b2"], uplink-sure, 50))
	}, append(attack, wanted)...)
	w.eventuallyRates(func(got map[string]float64) error {
		return least("visitors without other traffic", got["b2"], uplink, 95)
	}, attack...)
}
