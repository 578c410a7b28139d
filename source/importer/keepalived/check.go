package keepalived

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/service"
)

// timing has the check settings that virtual servers, servers and checkers may each have;
// the innermost takes precedence.
type timing struct {
	interval, timeout, pause time.Duration // 0 if not set
	retries                  *int
	host                     string
	// inhibit retains the connections of a failed server.
	inhibit *bool
}

// read reads a check setting, if the statement is one.
func (t *timing) read(v *virtual, n *node) bool {
	switch n.word() {
	case "delay_loop":
		readTimer(v, n, &t.interval)
	case "connect_timeout":
		readTimer(v, n, &t.timeout)
	case "delay_before_retry":
		readTimer(v, n, &t.pause)
	case "retry", "nb_get_retry":
		if r, err := strconv.ParseUint(n.arg(1), 10, 31); err == nil {
			retries := int(r)
			t.retries = &retries
		} else {
			v.lose(n, "that is not a number", "1 is used")
		}
	case "virtualhost":
		t.host = n.arg(1)
	case "inhibit_on_failure":
		on := !isOff(n)
		t.inhibit = &on
	case "warmup":
		v.lose(n, "the first probes are made at once, since nothing is announced before", "leave it out")
	case "alpha", "log_all_failures":
		// Nothing is advertised before the first probes; logs have every change.
	default:
		return false
	}
	return true
}

// readTimer reads seconds, with optional decimals.
func readTimer(v *virtual, n *node, to *time.Duration) {
	s, err := strconv.ParseFloat(n.arg(1), 64)
	if err != nil || !(s >= 0 && s <= 1e9) {
		v.lose(n, "that is not a number of seconds", "it is left out")
		return
	}
	*to = time.Duration(s*1e6) * time.Microsecond
}

// over returns t overridden by the settings of inner.
func (t timing) over(inner timing) timing {
	if inner.interval > 0 {
		t.interval = inner.interval
	}
	if inner.timeout > 0 {
		t.timeout = inner.timeout
	}
	if inner.pause > 0 {
		t.pause = inner.pause
	}
	if inner.retries != nil {
		t.retries = inner.retries
	}
	if inner.host != "" {
		t.host = inner.host
	}
	if inner.inhibit != nil {
		t.inhibit = inner.inhibit
	}
	return t
}

// checker is a parsed health check of a server.
type checker struct {
	n *node
	timing
	port uint16
	path string
	// urls is the number of urls.
	urls int
}

// checkers maps keepalived's checkers to Fairlead's: the equivalent check, or why none
// exists.
var checkers = map[string]*struct {
	is  service.CheckKind
	why string
}{
	"TCP_CHECK":  {is: service.CheckTCP},
	"HTTP_GET":   {is: service.CheckHTTP},
	"SSL_GET":    {why: "checks speak no TLS"},
	"SMTP_CHECK": {why: "checks speak no SMTP"},
	"DNS_CHECK":  {why: "checks speak no DNS"},
	"UDP_CHECK":  {why: "checks go over TCP"},
	"PING_CHECK": {why: "checks go over TCP"},
	"BFD_CHECK":  {why: "servers are not watched by BFD"},
	"MISC_CHECK": {why: "checks run no programs"},
	"FILE_CHECK": {why: "checks read no files"},
}

func (v *virtual) readChecker(n *node) *checker {
	c := &checker{n: n}
	foreign := checkers[n.word()].is == ""
	for _, s := range n.block {
		if !foreign && s.word() != "url" {
			v.alone(s)
		}
		switch word := s.word(); {
		case word == "connect_port":
			port, err := strconv.ParseUint(s.arg(1), 10, 16)
			if err != nil || port == 0 {
				v.lose(s, "that is not a port", "the server's own is used")
			}
			c.port = uint16(port)
		case c.timing.read(v, s):
		case foreign:
			// The check is reported as a whole.
		case word == "url":
			c.url(v, s)
		case word == "http_protocol" || word == "fast_recovery":
			// Both versions of responses are accepted, and the first successful probe
			// counts.
		case word == "connect_ip" || strings.HasPrefix(word, "bind") || word == "fwmark":
			v.lose(s, "a server is asked at its own address, as the kernel routes it", "leave it out")
		default:
			v.lose(s, "the word is not known here", "if it matters, see what it does in keepalived.conf(5)")
		}
	}
	return c
}

// url reads the url of an HTTP check. Only the first counts.
func (c *checker) url(v *virtual, n *node) {
	c.urls++
	if c.urls > 1 {
		v.loseAs(n, "a second url", "a check requests one", "have that page check the others")
		return
	}
	for _, s := range n.block {
		v.alone(s)
		switch s.word() {
		case "path":
			c.path = s.arg(1)
		case "virtualhost":
			c.host = s.arg(1)
		case "status_code":
			if codes := strings.Join(s.words[1:], " "); codes != "200-399" {
				v.loseAs(s, "status_code "+codes, "2xx and 3xx are good", "ask for a page that answers so")
			}
		case "digest":
			v.lose(s, "the content of the page is not checked", "request a page that answers 5xx on failure")
		default:
			why := "the word is not known here"
			if strings.HasPrefix(s.word(), "regex") {
				why = "the content of the page is not checked"
			}
			v.loseAs(s, s.word(), why, "request a page that answers 5xx on failure")
		}
	}
}

// check chooses one of a server's checks.
func (s *server) check(v *virtual) *service.HealthCheck {
	var best *checker
	for _, c := range s.checkers {
		if best == nil || rank(c) > rank(best) {
			best = c
		}
	}
	for _, c := range s.checkers {
		if c != best {
			v.loseAs(c.n, c.n.word(), "a server has one check, here "+best.n.word(), "let that one ask for all")
		}
	}
	if best == nil {
		return nil
	}
	known := checkers[best.n.word()]
	h := &service.HealthCheck{Kind: known.is, Port: best.port, Rise: 1}
	if known.is == "" {
		if v.protocol != service.TCP {
			v.loseAs(best.n, best.n.word(), known.why, "the server is not checked; set fairlead.io/health-check-port to a TCP port that reflects its health")
			return nil
		}
		v.loseAs(best.n, best.n.word(), known.why, "it is checked whether the port takes connections")
		h.Kind = service.CheckTCP
	}
	t := v.timing.over(s.timing).over(best.timing)
	if h.Kind == service.CheckHTTP {
		h.Path, h.Host = best.path, t.host
		if !strings.HasPrefix(h.Path, "/") {
			h.Path = "/" + h.Path
		}
	}
	if t.inhibit != nil && *t.inhibit {
		h.Drain = service.MaxHealthDrain
		if v.protocol == service.UDP {
			v.loseAs(best.n, "inhibit_on_failure", "UDP flows of a server that fails move at once", "leave it out")
		}
	}
	v.settleTiming(best, t, h)
	return h
}

func rank(c *checker) int {
	switch checkers[c.n.word()].is {
	case service.CheckHTTP:
		return 2
	case service.CheckTCP:
		return 1
	}
	return 0
}

// settleTiming sets the timing of a check. keepalived's defaults are a probe per minute, a
// timeout of 5 s, and one retry.
func (v *virtual) settleTiming(c *checker, t timing, h *service.HealthCheck) {
	h.Interval, h.Timeout, h.Fall = time.Minute, 5*time.Second, 2
	if t.interval > 0 {
		h.Interval = t.interval
	}
	if t.timeout > 0 {
		h.Timeout = t.timeout
	}
	if t.retries != nil {
		h.Fall = *t.retries + 1
	}
	if h.Fall > service.MaxThreshold {
		v.loseAs(c.n, fmt.Sprintf("retry %d", h.Fall-1), fmt.Sprintf("%d failures in a row are the most", service.MaxThreshold), "")
		h.Fall = service.MaxThreshold
	}
	if clamped := min(max(h.Interval, service.MinInterval), service.MaxInterval); clamped != h.Interval {
		v.loseAs(c.n, "a probe every "+h.Interval.String(), fmt.Sprintf("%s to %s are possible", service.MinInterval, service.MaxInterval), "")
		h.Interval = clamped
	}
	if h.Timeout > h.Interval {
		v.loseAs(c.n, "a timeout of "+h.Timeout.String(), "probes would overtake one another: it is the interval, "+h.Interval.String(), "")
		h.Timeout = h.Interval
	}
	if t.pause > 0 && t.pause != h.Interval && h.Fall > 1 {
		v.loseAs(c.n, "delay_before_retry of "+t.pause.String(), "further tries come with the interval, "+h.Interval.String(),
			"shorten fairlead.io/health-check-interval to notice failures sooner")
	}
}
