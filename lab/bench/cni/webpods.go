package cni

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fairlead/fairlead/lab"
	"github.com/fairlead/fairlead/lab/bench"
	"github.com/fairlead/fairlead/lab/budget"
	"github.com/fairlead/fairlead/lab/cluster"
	"github.com/fairlead/fairlead/lab/cputime"
	"github.com/fairlead/fairlead/lab/sandbox"
)

// The web server, and the client that makes requests.
const (
	webServer = "nginx"
	webClient = "wrk"
)

// webText is the configuration of nginx: one process, which writes nothing.
const webText = `daemon off; master_process off; pid %[1]s/nginx.pid; worker_rlimit_nofile 8192;
events { worker_connections 4096; }
http {
	access_log off; keepalive_timeout 1h; keepalive_requests 1000000000;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	%[2]s
}
`

// startNginx runs nginx in a host with the rest of its configuration.
func startNginx(h *lab.Host, text string) (*lab.Process, error) {
	folder := filepath.Join(sandbox.WorkDir, "nginx-"+h.Name())
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, webText, folder, text), 0o644); err != nil {
		return nil, err
	}
	return h.Start(exec.Command(webServer, "-p", folder, "-c", file, "-e", filepath.Join(folder, "error.log")))
}

// webPod is a web server.
type webPod struct {
	addr    netip.Addr
	process *lab.Process
}

// addPods creates the web pods in a network. Each answers with its own address, as the
// papers' do.
func (w *web) addPods(ctx context.Context, kind string) error {
	for i := range slices.Max(w.o.Pods) {
		pod, err := w.bridged(ctx, w.Busan, kind, fmt.Sprintf("web%d-%s", i+1, kind), firstServer+i, false)
		if err != nil {
			return err
		}
		if err := pod.host.Offload(podDev, false); err != nil {
			return err
		}
		p, err := startNginx(pod.host, fmt.Sprintf("server { listen %d backlog=4096; location / { return 200 %q; } }", webPort, pod.addr))
		if err != nil {
			return err
		}
		w.pods[kind] = append(w.pods[kind], webPod{pod.addr, p})
	}
	return nil
}

// startProxy runs nginx as a load balancer in its pod.
func (b *balanced) startProxy(pods []int) error {
	h := b.pod.host
	lo, err := h.Netlink().LinkByName("lo")
	if err != nil {
		return err
	}
	if err := h.Netlink().AddrAdd(lo, &netlink.Addr{IPNet: lab.IPNet(netip.PrefixFrom(b.vip, 32))}); err != nil {
		return err
	}
	var text strings.Builder
	for _, n := range pods {
		fmt.Fprintf(&text, "upstream web%d { keepalive 1000;", n)
		for _, server := range b.servers[:n] {
			fmt.Fprintf(&text, " server %s:%d;", server, b.port)
		}
		fmt.Fprintf(&text, " }\nserver { listen %d backlog=4096; location / { proxy_pass http://web%[2]d; proxy_http_version 1.1; proxy_set_header Connection \"\"; } }\n", firstPort+n, n)
	}
	b.process, err = startNginx(h, text.String())
	return err
}

// warmUp is how long the client opens connections before a measurement.
func (o WebOptions) warmUp() time.Duration {
	return time.Duration(min(1, o.Seconds) * float64(time.Second))
}

// asked are the requests that a running client has sent, and the CPU time that was used.
type asked struct {
	at       time.Time
	requests float64
	client   float64
	machine  cputime.Usage
	// balancer is in seconds.
	balancer float64
}

// answered is what a measurement has found: requests per second, idle time in percent of
// the client's budgets and of all CPUs, and the CPU time of the load
// balancer in milliseconds per 1,000 requests.
type answered struct{ rate, client, machine, balancer float64 }

// browser is a running wrk.
type browser struct {
	*lab.Process
	to      netip.AddrPort
	threads int
	out     bytes.Buffer
}

// startClient keeps some connections busy until stop.
func (w *web) startClient(ctx context.Context, to netip.AddrPort, connections int) (c *browser, err error) {
	c = &browser{to: to, threads: min(runtime.NumCPU(), connections)}
	cmd := exec.CommandContext(ctx, webClient, "-t", strconv.Itoa(c.threads), "-c", strconv.Itoa(connections), "-d", "100h", "--timeout", "30s", fmt.Sprintf("http://%s/", to))
	cmd.Stdout, cmd.Stderr = &c.out, &c.out
	if c.Process, err = w.Lab.Host(w.Daejeon.Server).Start(cmd); err != nil {
		return nil, err
	}
	return c, c.GoFirst()
}

// asked counts the requests by what the client has written: nothing else.
func (c *browser) asked(on []thread) (a asked, err error) {
	a.at = time.Now()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", c.PID()))
	if err != nil {
		return a, err
	}
	found := writtenPattern.FindSubmatch(text)
	if found == nil {
		return a, fmt.Errorf("/proc/PID/io: %q", text)
	}
	written, err := strconv.ParseFloat(string(found[1]), 64)
	a.requests = written / float64(len(fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\n\r\n", c.to)))
	var failed error
	a.machine, failed = cputime.Used(c.PID())
	a.client = a.machine.Processes
	each, unknown := used(on)
	a.balancer = sum(each)
	return a, errors.Join(err, failed, unknown)
}

var (
	writtenPattern = regexp.MustCompile(`(?m)^wchar: ([0-9]+)$`)
	failedPattern  = regexp.MustCompile(`(?m)^ *(Non-2xx.*|Socket errors: connect [1-9].*)$`)
)

// stop ends the client, and returns an error if requests have failed.
func (c *browser) stop() error {
	if err := c.Signal(os.Interrupt); err != nil {
		return err
	}
	err := c.Wait()
	if bad := failedPattern.FindString(c.out.String()); err != nil || bad != "" {
		return fmt.Errorf("%s to %s: %w: %s", webClient, c.to, err, &c.out)
	}
	return nil
}

// ask measures a point for some seconds.
func (w *web) ask(ctx context.Context, p webPoint, on []thread) (got answered, err error) {
	c, err := w.startClient(ctx, p.at(p.pods), cmp.Or(p.connections, w.o.Connections))
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if err := bench.Pause(ctx, w.o.warmUp()/2); err != nil { // until its threads run
		return got, err
	}
	share := cmp.Or(p.client, clientBudget)
	if err := errors.Join(budget.Process(c.PID(), share), bench.Pause(ctx, w.o.warmUp()/2)); err != nil {
		return got, err
	}
	before, err := c.asked(on)
	if err != nil {
		return got, err
	}
	after := before
	for tries := 0; after.requests == before.requests && tries < 20; tries++ { // a short time may be one without any
		if err := bench.Pause(ctx, time.Duration(w.o.Seconds*float64(time.Second))); err != nil {
			return got, err
		}
		if after, err = c.asked(on); err != nil {
			return got, err
		}
	}
	requests, long := after.requests-before.requests, after.at.Sub(before.at).Seconds()
	if requests == 0 {
		return got, fmt.Errorf("no requests to %s in %g s", c.to, long)
	}
	return answered{
		rate: requests / long, balancer: 1e6 * (after.balancer - before.balancer) / requests,
		client:  100 * (1 - (after.client-before.client)/(long*float64(c.threads)*share)),
		machine: 100 * (1 - after.machine.Since(before.machine).Machine/(long*float64(runtime.NumCPU()))),
	}, nil
}

// awaitWeb waits until a load balancer answers.
func (w *web) awaitWeb(ctx context.Context, to netip.AddrPort) error {
	var err error
	_, ok := cluster.Await(ctx, 50*time.Millisecond, cluster.StartLimit, func() bool {
		dialing, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		c, failed := w.Lab.Host(w.Daejeon.Server).Dial(dialing, netip.Addr{}, to)
		if err = failed; err == nil {
			err = c.Close()
		}
		return err == nil
	})
	if !ok {
		return errors.Join(ctx.Err(), fmt.Errorf("never served at %s: %w", to, err))
	}
	return nil
}
