package object_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/source/object"
)

// noon is when the slices of these tests begin; sec returns a time some seconds later.
var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func sec(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }

// ageSlice creates a slice at some second, of a generation, with endpoints like "1": ready,
// "1-": terminating, "1!": not ready; "6.1" is IPv6.
func ageSlice(name string, created float64, generation int64, endpoints string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Generation: generation, CreationTimestamp: metav1.NewTime(sec(created).Truncate(time.Second)),
			Labels: map[string]string{discoveryv1.LabelServiceName: "web"}, Annotations: map[string]string{},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
	}
	for word := range strings.FieldsSeq(endpoints) {
		host := strings.TrimRight(word, "-!")
		e := discoveryv1.Endpoint{Addresses: []string{"172.16.0." + host}}
		if six, ok := strings.CutPrefix(host, "6."); ok {
			s.AddressType, e.Addresses[0] = discoveryv1.AddressTypeIPv6, "2001:db8::"+six
		}
		leaving, out := strings.HasSuffix(word, "-"), strings.HasSuffix(word, "!")
		e.Conditions = discoveryv1.EndpointConditions{Ready: new(!leaving && !out), Serving: new(!out), Terminating: &leaving}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// watcher maintains the annotations of a Service's slices.
type watcher struct{ ages object.Ages }

// look follows the slices and writes what is due; it returns how many it wrote.
func (w *watcher) look(all []*discoveryv1.EndpointSlice, now time.Time) (written int) {
	var times []*object.Times
	for _, s := range all {
		times = append(times, object.ReadTimes(s))
	}
	w.ages = w.ages.Next(times, now)
	for i, s := range all {
		text, change := w.ages.Annotation(times[i])
		if !change {
			continue
		}
		written++
		if s.Annotations[object.AnnotationBackendTimestamps] = text; text == "" {
			delete(s.Annotations, object.AnnotationBackendTimestamps)
		}
	}
	return written
}

// read returns the times since which a balancer that reads the slices considers each backend as
// serving and draining.
func read(t *testing.T, all []*discoveryv1.EndpointSlice) map[netip.Addr][2]time.Time {
	t.Helper()
	in := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	in.Spec.Type, in.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Name: "http", Port: 80}}
	in.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	svc, faults := object.ReadService(in, object.Origin{Assigned: true})
	var its []*object.Object
	for _, s := range all {
		o, more := object.ReadSlice(s, object.Origin{Assigned: true})
		its, faults = append(its, o), append(faults, more...)
	}
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	j := object.Join(nil, svc, its, nil)
	for _, p := range j.Problems {
		if p.Field != "addressType" {
			t.Error(p)
		}
	}
	got := map[netip.Addr][2]time.Time{}
	for _, b := range j.Service.Frontends[0].Backends {
		got[b.Addr.Addr()] = [2]time.Time{b.Since, b.Drained}
	}
	return got
}

// said prints the annotations of slices, in seconds after noon.
func said(all []*discoveryv1.EndpointSlice) string {
	var words []string
	for _, s := range all {
		text, ok := s.Annotations[object.AnnotationBackendTimestamps]
		if !ok {
			continue
		}
		var parts []string
		for part := range strings.SplitSeq(text, ",") {
			addr, times, _ := strings.Cut(part, "=")
			var secs []string
			for at := range strings.SplitSeq(times, "/") {
				at, err := time.Parse(time.RFC3339, at)
				if err != nil {
					return text
				}
				secs = append(secs, fmt.Sprint(at.Sub(noon).Seconds()))
			}
			parts = append(parts, addr[strings.LastIndexAny(addr, ".:")+1:]+"="+strings.Join(secs, "/"))
		}
		words = append(words, s.Name+": "+strings.Join(parts, " "))
	}
	return strings.Join(words, "; ")
}

type step struct {
	at     float64 // seconds after noon, by the observer's clock
	slices []*discoveryv1.EndpointSlice
	want   string
	writes int
}

func TestAges(t *testing.T) {
	s := ageSlice
	of := func(all ...*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice { return all }
	for name, steps := range map[string][]step{
		"all there from the start": {{0, of(), "", 0}, {1, of(s("a", 0, 1, "1 2 3")), "", 0}, {9, of(s("a", 0, 1, "1 2 3")), "", 0}},
		"begun in the middle":      {{900, of(s("a", 0, 7, "1 2 3")), "", 0}},
		"one comes later":          {{0, of(s("a", 0, 1, "1")), "", 0}, {5.25, of(s("a", 0, 2, "1 2")), "a: 2=5.25", 1}, {6, of(s("a", 0, 3, "1 2")), "a: 2=5.25", 0}},
		"an empty slice fills":     {{0, of(s("a", 0, 1, "")), "", 0}, {2, of(s("a", 0, 2, "1! 2")), "a: 2=2", 1}, {3, of(s("a", 0, 3, "1 2")), "a: 1=3 2=2", 1}},
		"one drains and goes": {
			{0, of(s("a", 0, 1, "1 2")), "", 0}, {5, of(s("a", 0, 2, "1- 2")), "a: 1=0/5", 1},
			{6, of(s("a", 0, 3, "1- 2")), "a: 1=0/5", 0}, {7, of(s("a", 0, 4, "1! 2")), "", 1}, {8, of(s("a", 0, 5, "2")), "", 0},
		},
		"one is away and comes back": {{0, of(s("a", 0, 1, "1 2")), "", 0}, {5, of(s("a", 0, 2, "1! 2")), "", 0}, {9, of(s("a", 0, 3, "1 2")), "a: 1=9", 1}},
		"one drains and comes back":  {{0, of(s("a", 0, 1, "1 2")), "", 0}, {5, of(s("a", 0, 2, "1- 2")), "a: 1=0/5", 1}, {9, of(s("a", 0, 3, "1 2")), "a: 1=9", 1}},
		"all leave, and serve on until one comes": {
			{0, of(s("a", 0, 1, "1 2")), "", 0}, {5, of(s("a", 0, 2, "1- 2")), "a: 1=0/5", 1}, {6, of(s("a", 0, 3, "1- 2-")), "", 1},
			{8, of(s("a", 0, 4, "1- 2- 3")), "a: 1=0/8 2=0/8 3=8", 1},
		},
		"families drain apart": {{0, of(s("a", 0, 1, "1"), s("b", 0, 1, "6.1")), "", 0}, {5, of(s("a", 0, 2, "1-"), s("b", 0, 1, "6.1")), "", 0}},
		"one moves to a new slice": {
			{0, of(s("a", 0, 1, "1 2")), "", 0}, {5, of(s("a", 0, 2, "1 2 3")), "a: 3=5", 1},
			{9, of(s("a", 0, 3, "1"), s("b", 9, 1, "2 3 4")), "b: 2=0 3=5", 2},
		},
		"one is in two slices":             {{0, of(s("a", 0, 1, "1")), "", 0}, {9, of(s("a", 0, 1, "1"), s("b", 9, 1, "1-")), "b: 1=0", 1}},
		"a slice made in a second of news": {{0, of(s("a", 0, 1, "1")), "", 0}, {5.5, of(s("a", 0, 2, "1 2")), "a: 2=5.5", 1}, {5.75, of(s("a", 0, 2, "1 2"), s("b", 5.75, 1, "3")), "a: 2=5.5; b: 3=5.75", 1}},
		"a clock that is behind":           {{0, of(s("a", 0, 1, "1")), "", 0}, {5, of(s("a", 0, 2, "1 2")), "a: 2=5", 1}, {-60, of(s("a", 0, 3, "1 2 3")), "a: 2=5 3=5.001", 1}},
		"comes and goes between two looks": {{0, of(s("a", 0, 1, "1")), "", 0}, {5, of(s("a", 0, 3, "1 2-")), "a: 2=5/5.001", 1}},
	} {
		t.Run(name, func(t *testing.T) {
			var w watcher
			annotations := map[string]map[string]string{}
			for _, st := range steps {
				for _, s := range st.slices {
					if was, ok := annotations[s.Name]; ok {
						s.Annotations = was
					}
					annotations[s.Name] = s.Annotations
				}
				writes := w.look(st.slices, sec(st.at))
				if got := said(st.slices); got != st.want || writes != st.writes {
					t.Fatalf("at %v: said %q with %d writes, want %q with %d", st.at, got, writes, st.want, st.writes)
				}
				before := read(t, st.slices)
				for _, next := range []*watcher{&w, {}} { // the same one, and another that has just started
					if again := next.look(st.slices, sec(st.at+3600)); again != 0 || !maps.Equal(before, read(t, st.slices)) {
						t.Fatalf("at %v: %d more writes where nothing changed: %s", st.at, again, said(st.slices))
					}
				}
			}
		})
	}
}

// TestAgesFound checks that existing annotations stay if they are valid.
func TestAgesFound(t *testing.T) {
	for text, want := range map[string]string{
		"172.16.0.1=2026-11-22T12:00:07Z":                                 "a: 1=7",
		"172.16.0.1=2026-11-22T12:00:00Z":                                 "a: 1=0",
		"172.16.0.2=2026-11-22T12:00:07Z/2026-11-22T12:00:08Z":            "a: 2=7/8",
		"172.16.0.9=2026-11-22T12:00:07Z":                                 "",
		"172.16.0.3=2026-11-22T12:00:07Z,172.16.0.1=2026-11-22T12:00:01Z": "a: 1=1",
		"yesterday": "",
		"":          "",
	} {
		all := []*discoveryv1.EndpointSlice{ageSlice("a", 0, 5, "1 2 3!")}
		all[0].Annotations[object.AnnotationBackendTimestamps] = text
		new(watcher).look(all, sec(60))
		if got := said(all); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		read(t, all)
	}
	moved := []*discoveryv1.EndpointSlice{ageSlice("a", 0, 5, "1"), ageSlice("b", 9, 1, "2 3")}
	moved[0].Annotations[object.AnnotationBackendTimestamps] = "172.16.0.2=2026-11-22T12:00:07Z,172.16.0.3=2026-11-22T12:00:00Z/2026-11-22T12:00:08Z"
	new(watcher).look(moved, sec(60))
	if got := said(moved); got != "b: 2=7 3=0/8" {
		t.Errorf("who moved meanwhile: %q", got)
	}
}

// TestAgesOfHistories checks that balancers read the true times, whatever happens and
// whichever controller leads.
func TestAgesOfHistories(t *testing.T) {
	for seed := range uint64(150) {
		h := &history{t: t, rand: rand.New(rand.NewPCG(seed, 1)), pods: map[int]*pod{}, skewed: seed%2 == 1}
		for range 60 {
			h.live()
			h.check(seed)
			if t.Failed() {
				return
			}
		}
	}
}

// history is a random history of a Service.
type history struct {
	t       *testing.T
	rand    *rand.Rand
	now     float64 // true seconds
	skew    float64 // of the leader's clock
	skewed  bool
	pods    map[int]*pod
	slices  []*discoveryv1.EndpointSlice
	watcher watcher
	made    int // number of slices so far
}

// pod has a mark as in ageSlice, and the true times.
type pod struct {
	mark           string
	slice          int
	since, drained float64 // drained: 0 if it is not
}

// live lets some time pass in which some pods change, and then checks.
func (h *history) live() {
	h.now += 0.001 + float64(h.rand.IntN(3000))/1000
	for _, i := range h.rand.Perm(12)[:h.rand.IntN(5)] { // once each: changes between two checks are invisible
		h.change(i)
	}
	ready := false
	for _, p := range h.pods {
		ready = ready || p.mark == ""
	}
	for _, p := range h.pods {
		switch {
		case p.mark != "-" || !ready:
			p.drained = 0
		case p.drained == 0:
			p.drained = h.now
		}
	}
	h.pack()
	wrote := h.watcher.look(h.slices, sec(h.now+h.skew))
	if h.rand.IntN(8) == 0 {
		h.watcher = watcher{} // another leader from here on
	}
	if h.skewed && h.rand.IntN(6) == 0 { // another clock, or the clock was set
		h.skew = []float64{0, float64(h.rand.IntN(20) - 10), 3600, -3600}[h.rand.IntN(4)]
	}
	if again := h.watcher.look(h.slices, sec(h.now+h.skew)); again > 0 {
		h.t.Errorf("%d writes, and %d more for nothing", wrote, again)
	}
}

func (h *history) change(i int) {
	p, there := h.pods[i]
	switch {
	case !there:
		h.pods[i] = &pod{mark: []string{"", "!"}[h.rand.IntN(2)], slice: h.rand.IntN(3), since: h.now}
	case p.mark == "!" && h.rand.IntN(3) == 0, p.mark == "-":
		delete(h.pods, i)
	case p.mark == "!":
		p.mark, p.since = "", h.now
	case h.rand.IntN(4) == 0:
		p.slice = h.rand.IntN(3)
	default:
		p.mark = []string{"!", "-"}[h.rand.IntN(2)]
	}
}

// pack distributes the pods over slices; an empty slice is deleted.
func (h *history) pack() {
	var packed []*discoveryv1.EndpointSlice
	for n := range 3 {
		words := ""
		for _, i := range slices.Sorted(maps.Keys(h.pods)) {
			if h.pods[i].slice == n {
				words += fmt.Sprint(i+1, h.pods[i].mark, " ")
			}
		}
		at := slices.IndexFunc(h.slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name[:1] == fmt.Sprint(n) })
		switch {
		case words == "":
		case at < 0:
			h.made++
			packed = append(packed, ageSlice(fmt.Sprint(n, "-", h.made), h.now, 1, words))
		default:
			was := h.slices[at]
			s := ageSlice(was.Name, 0, was.Generation, words)
			if !reflect.DeepEqual(s.Endpoints, was.Endpoints) {
				s.Generation++
			}
			s.CreationTimestamp, s.Annotations = was.CreationTimestamp, was.Annotations
			packed = append(packed, s)
		}
	}
	h.slices = packed
}

// moment is a true time, and the time that was read.
type moment struct {
	is  float64
	got time.Time
}

func (h *history) check(seed uint64) {
	got := read(h.t, h.slices)
	var all []moment
	for i, p := range h.pods {
		if p.mark == "!" {
			continue
		}
		times := got[netip.AddrFrom4([4]byte{172, 16, 0, byte(i + 1)})]
		all = append(all, moment{p.since, times[0]})
		if times[1].IsZero() != (p.drained == 0) {
			h.t.Errorf("seed %d, %d%s: drains since %v, want %v", seed, i+1, p.mark, times[1], p.drained)
		}
		if p.drained != 0 {
			all = append(all, moment{p.drained, times[1]})
		}
	}
	for _, m := range all {
		// A slice's own time has a resolution of one second.
		if off := sec(m.is).Sub(m.got); !h.skewed && (off < -2*time.Millisecond || off > time.Second) {
			h.t.Errorf("seed %d: read %v, want %v", seed, m.got, sec(m.is))
		}
		for _, o := range all {
			if m.is < o.is && m.got.After(o.got) {
				h.t.Errorf("seed %d: what was at %v and %v is read as %v and %v", seed, m.is, o.is, m.got, o.got)
			}
		}
	}
}
