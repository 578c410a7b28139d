package proxy

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/proxy"
	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/lab/cputime"
)

// memlock returns what the kernel accounts for a map, in bytes.
func memlock(t testing.TB, fd int) uint64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, is := strings.CutPrefix(lines.Text(), "memlock:"); is {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("the kernel does not say what a map takes")
	return 0
}

func benchPlane(b *testing.B) *DataPlane {
	c := config(b)
	c.MaxFrontends, c.MaxTargets = 0, 0
	return open(b, c)
}

func empty(b *testing.B, d *DataPlane) {
	b.Helper()
	if err := d.Apply(nil, d.Keys()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFill writes 50,000 Services with three endpoints and a node port each into an
// empty kernel and, alternating with that, writes as many entries and endpoints with
// nothing else: the floor.
func BenchmarkFill(b *testing.B) {
	d := benchPlane(b)
	set := many(50000)
	var keys []proxyServiceKey
	var values []proxyService
	raw, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Hash, KeySize: d.kernel.Services.KeySize(), ValueSize: d.kernel.Services.ValueSize(),
		MaxEntries: d.kernel.Services.MaxEntries(), Flags: d.kernel.Services.Flags(),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	for _, f := range set {
		keys, values = append(keys, toKey(f.Key)), append(values, proxyService{})
	}
	var whole, floor float64
	for b.Loop() {
		whole += seconds(func() { apply(b, d, set...) })
		b.StopTimer()
		empty(b, d)
		floor += seconds(func() {
			for i := 0; i < len(keys); i += lot {
				end := min(i+lot, len(keys))
				if _, err := raw.BatchUpdate(keys[i:end], values[i:end], nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		if _, err := raw.BatchDelete(keys, nil); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(whole/float64(b.N)*1e3, "cpu-ms/fill")
	b.ReportMetric(floor/float64(b.N)*1e3, "cpu-ms/floor")
	b.ReportMetric(whole/floor, "times-floor")
}

// BenchmarkAgain applies the same state again.
func BenchmarkAgain(b *testing.B) {
	d := benchPlane(b)
	set := many(50000)
	apply(b, d, set...)
	for b.Loop() {
		apply(b, d, set...)
	}
}

// BenchmarkChange changes one frontend among few and among many.
func BenchmarkChange(b *testing.B) {
	for _, services := range []int{10, 50000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) {
			d := benchPlane(b)
			set := many(services)
			apply(b, d, set...)
			f := set[6]
			two := [2]proxy.Choice{f.Inside, {Targets: f.Inside.Targets[:2]}}
			i := 0
			for b.Loop() {
				i++
				f.Inside = two[i%2]
				apply(b, d, f)
			}
		})
	}
}

// BenchmarkRestart reads what a predecessor left.
func BenchmarkRestart(b *testing.B) {
	d := benchPlane(b)
	apply(b, d, many(50000)...)
	for b.Loop() {
		if err := d.read(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkMemory measures the memory of agent and kernel for 50,000 Services.
func BenchmarkMemory(b *testing.B) {
	d := benchPlane(b)
	set := many(50000)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	apply(b, d, set...)
	agent := heap() - before
	runtime.KeepAlive(set)
	for b.Loop() {
	}
	b.ReportMetric(float64(agent)/1e6, "MB-agent")
	b.ReportMetric(float64(kernelMemory(b, d))/1e6, "MB-kernel")
}

// BenchmarkConnect connects UDP sockets, which sends no packet: to an address of no
// service, without and with attached programs, to a service among 50,000, and to one with
// affinity.
func BenchmarkConnect(b *testing.B) {
	at := netip.MustParseAddrPort("127.1.0.1:7001")
	connect := func(name string, to netip.AddrPort) {
		b.Run(name, func(b *testing.B) {
			s := newSocket(b, unix.AF_INET, unix.SOCK_DGRAM)
			address := s.sockaddr(to)
			used := seconds(func() {
				for b.Loop() {
					if err := unix.Connect(s.fd, address); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.ReportMetric(used/float64(b.N)*1e9, "cpu-ns/op")
		})
	}
	connect("nothing", at)
	d := benchPlane(b)
	apply(b, d, many(50000)...)
	plain, affine := frontend(key("10.96.0.1:80", service.UDP), at), frontend(key("10.96.0.2:80", service.UDP), at)
	affine.Affinity = time.Hour
	apply(b, d, plain, affine)
	connect("passed", at)
	connect("service", netip.AddrPortFrom(plain.Addr, plain.Port))
	connect("affinity", netip.AddrPortFrom(affine.Addr, affine.Port))
}

// seconds returns the CPU time of f, which does not depend on other load.
func seconds(f func()) float64 {
	before := cputime.Process()
	f()
	return (cputime.Process() - before).Seconds()
}
