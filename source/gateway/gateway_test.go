package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source/object"
)

// read parses the objects of a text; each is younger than the one before. Services are
// "namespace/name PROTOCOL port name".
func read(t *testing.T, text string, services ...string) Objects {
	t.Helper()
	o := Objects{
		Namespace: func(name string) map[string]string { return map[string]string{"name": name} },
		Service: func(id service.ID) (ports []Port, ok bool) {
			for _, s := range services {
				w := strings.Fields(s)
				if w[0] != id.String() {
					continue
				}
				ok = true
				if len(w) > 1 {
					p := Port{Name: w[3], Protocol: map[string]service.Protocol{"TCP": service.TCP, "UDP": service.UDP}[w[1]]}
					fmt.Sscan(w[2], &p.Port)
					ports = append(ports, p)
				}
			}
			return ports, ok
		},
	}
	for i, one := range strings.Split(text, "---\n") {
		var kind metav1.TypeMeta
		must(t, yaml.Unmarshal([]byte(one), &kind))
		at := metav1.NewTime(time.Unix(int64(1e9+i), 0))
		switch kind.Kind {
		case KindClass:
			o.Classes = append(o.Classes, parse[Class](t, one))
		case KindGateway:
			o.Gateways = append(o.Gateways, parse[Gateway](t, one))
			o.Gateways[len(o.Gateways)-1].CreationTimestamp = at
		case KindTCPRoute:
			o.TCPRoutes = append(o.TCPRoutes, parse[Route](t, one))
			o.TCPRoutes[len(o.TCPRoutes)-1].CreationTimestamp = at
		case KindUDPRoute:
			o.UDPRoutes = append(o.UDPRoutes, parse[Route](t, one))
			o.UDPRoutes[len(o.UDPRoutes)-1].CreationTimestamp = at
		case KindGrant:
			o.Grants = append(o.Grants, parse[Grant](t, one))
		default:
			t.Fatalf("kind %q", kind.Kind)
		}
	}
	return o
}

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	must(t, yaml.UnmarshalStrict([]byte(text), o))
	return o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// format writes a verdict as text: failing conditions, what listeners route to, and whether
// routes are accepted.
func format(v *Verdict) string {
	var b strings.Builder
	odd := func(all ...metav1.Condition) string {
		s := ""
		for _, c := range all {
			if (c.Status == metav1.ConditionTrue) == (c.Type == "Conflicted") || c.Reason == "ListenersNotValid" {
				s += fmt.Sprintf(" %s=%s %s: %s.", c.Type, c.Status, c.Reason, c.Message)
			}
		}
		return s
	}
	for _, g := range v.Gateways {
		fmt.Fprintf(&b, "gateway %s/%s%s\n", g.Namespace, g.Name, odd(g.Accepted))
		for _, l := range g.Listeners {
			fmt.Fprintf(&b, "  %s", l.Name)
			for _, to := range l.Backends {
				fmt.Fprintf(&b, " -> %s %s*%d", to.Service, to.Port.Name, to.Weight)
			}
			fmt.Fprintf(&b, "%s\n", odd(l.Conditions...))
		}
	}
	for _, r := range v.Routes {
		fmt.Fprintf(&b, "%s %s/%s", r.Kind, r.Namespace, r.Name)
		for _, p := range r.Parents {
			fmt.Fprintf(&b, " at %s%s", p.ParentRef.Name, odd(p.Conditions...))
		}
		b.WriteString("\n")
	}
	return b.String()
}

const class = `kind: GatewayClass
metadata: {name: fairlead}
spec: {controllerName: fairlead.io/gateway}
---
kind: GatewayClass
metadata: {name: theirs}
spec: {controllerName: example.com/theirs}
---
`

func gatewayText(listeners string) string {
	return "kind: Gateway\nmetadata: {name: g, namespace: infra}\nspec: {gatewayClassName: fairlead, listeners: [" + listeners + "]}\n"
}

func routeText(kind, namespace, name, parent, backends string) string {
	return fmt.Sprintf("---\nkind: %s\nmetadata: {name: %s, namespace: %s}\nspec: {parentRefs: [%s], rules: [{backendRefs: [%s]}]}\n",
		kind, name, namespace, parent, backends)
}

const tcp80 = "{name: web, port: 80, protocol: TCP}"

func TestJudge(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"a route", gatewayText(tcp80) + routeText("TCPRoute", "infra", "r", "{name: g}", "{name: web, port: 8080}"),
			"gateway infra/g\n  web -> infra/web http*1\nTCPRoute infra/r at g\n"},
		{"another's class", "kind: Gateway\nmetadata: {name: g, namespace: infra}\nspec: {gatewayClassName: theirs, listeners: [" + tcp80 + "]}\n" +
			routeText("TCPRoute", "infra", "r", "{name: g}", "{name: web, port: 8080}"), ""},
		{"weights", gatewayText(tcp80) + routeText("TCPRoute", "infra", "r", "{name: g, sectionName: web, port: 80}",
			"{name: web, port: 8080, weight: 3}, {name: more, port: 8080, weight: 0}"),
			"gateway infra/g\n  web -> infra/web http*3 -> infra/more http*0\nTCPRoute infra/r at g\n"},
		{"both protocols on a port", gatewayText(tcp80+", {name: dns, port: 80, protocol: UDP}") +
			routeText("TCPRoute", "infra", "r", "{name: g}", "{name: web, port: 8080}") + routeText("UDPRoute", "infra", "u", "{name: g}", "{name: web, port: 53}"),
			"gateway infra/g\n  web -> infra/web http*1\n  dns -> infra/web dns*1\nTCPRoute infra/r at g\nUDPRoute infra/u at g\n"},
		{"other protocols", gatewayText(tcp80 + ", {name: s, port: 443, protocol: HTTPS}, {name: k, port: 81, protocol: TCP, allowedRoutes: {kinds: [{kind: TLSRoute}]}}"),
			"gateway infra/g Accepted=True ListenersNotValid: 2 of 3 listeners are served; see the conditions of the others for the reason.\n  web\n" +
				"  s Accepted=False UnsupportedProtocol: protocol HTTPS is not served; want TCP or UDP.\n" +
				"  k ResolvedRefs=False InvalidRouteKinds: allowedRoutes.kinds: TLSRoute is not for protocol TCP.\n"},
		{"a port twice", gatewayText(tcp80 + ", {name: again, port: 80, protocol: TCP}"),
			"gateway infra/g Accepted=True ListenersNotValid: 1 of 2 listeners are served; see the conditions of the others for the reason.\n  web\n" +
				"  again Accepted=False PortUnavailable: listener web has TCP 80. Conflicted=True ProtocolConflict: listener web has TCP 80, too.\n"},
		{"an address by name", "kind: Gateway\nmetadata: {name: g, namespace: infra}\nspec: {gatewayClassName: fairlead, addresses: [{type: Hostname, value: a}], listeners: [" + tcp80 + "]}\n",
			"gateway infra/g Accepted=False UnsupportedAddress: spec.addresses[0].type: Hostname is not served; want IPAddress.\n  web\n"},
		{"the older route wins", gatewayText(tcp80) + routeText("TCPRoute", "infra", "z", "{name: g}", "{name: web, port: 8080}") +
			routeText("TCPRoute", "infra", "a", "{name: g}", "{name: more, port: 8080}"),
			"gateway infra/g\n  web -> infra/web http*1\nTCPRoute infra/z at g\n" +
				"TCPRoute infra/a at g Accepted=False Conflicted: no listener is left: listener web has TCPRoute infra/z, which is older.\n"},
		{"no such listener", gatewayText(tcp80) + routeText("TCPRoute", "infra", "r", "{name: g, sectionName: none}", "{name: web, port: 8080}"),
			"gateway infra/g\n  web\nTCPRoute infra/r at g Accepted=False NoMatchingParent: Gateway infra/g has no such listener.\n"},
		{"the wrong kind", gatewayText(tcp80) + routeText("UDPRoute", "infra", "r", "{name: g}", "{name: web, port: 53}"),
			"gateway infra/g\n  web\nUDPRoute infra/r at g Accepted=False NotAllowedByListeners: no listener takes it: listener web (TCP) takes no UDPRoute.\n"},
		{"of another namespace", gatewayText(tcp80) + routeText("TCPRoute", "app", "r", "{name: g, namespace: infra}", "{name: web, port: 8080}"),
			"gateway infra/g\n  web\nTCPRoute app/r at g Accepted=False NotAllowedByListeners: no listener takes it: " +
				"listener web takes no routes of namespace app (allowedRoutes.namespaces.from: Same).\n"},
		{"of all namespaces, and of some", gatewayText("{name: a, port: 80, protocol: TCP, allowedRoutes: {namespaces: {from: All}}}, "+
			"{name: b, port: 81, protocol: TCP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {name: app}}}}}, "+
			"{name: c, port: 82, protocol: TCP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {name: other}}}}}, "+
			"{name: d, port: 83, protocol: TCP, allowedRoutes: {namespaces: {from: None}}}") +
			routeText("TCPRoute", "app", "r", "{name: g, namespace: infra}", "{name: web, port: 8080}"),
			"gateway infra/g\n  a -> app/web http*1\n  b -> app/web http*1\n  c\n  d\nTCPRoute app/r at g\n"},
		{"Services that are not there", gatewayText(tcp80) + routeText("TCPRoute", "infra", "r", "{name: g}", "{name: none, port: 1}, {name: web, port: 8080}"),
			"gateway infra/g\n  web -> infra/web http*1\nTCPRoute infra/r at g ResolvedRefs=False BackendNotFound: " +
				"spec.rules[0].backendRefs[0]: there is no Service infra/none with an address in the cluster; it is left out.\n"},
		{"ports that are not there, or others", gatewayText(tcp80) + routeText("TCPRoute", "infra", "r", "{name: g}", "{name: web, port: 7}") +
			routeText("TCPRoute", "infra", "s", "{name: g}", "{name: web, port: 53}") + routeText("TCPRoute", "infra", "t", "{name: g}", "{name: b, kind: Bucket, group: example.com}"),
			"gateway infra/g\n  web\nTCPRoute infra/r at g ResolvedRefs=False BackendNotFound: spec.rules[0].backendRefs[0]: Service infra/web has no port 7; it is left out.\n" +
				"TCPRoute infra/s at g Accepted=False Conflicted: no listener is left: listener web has TCPRoute infra/r, which is older. " +
				"ResolvedRefs=False UnsupportedProtocol: spec.rules[0].backendRefs[0]: port 53 of Service infra/web is none for a TCPRoute; it is left out.\n" +
				"TCPRoute infra/t at g Accepted=False Conflicted: no listener is left: listener web has TCPRoute infra/r, which is older. " +
				"ResolvedRefs=False InvalidKind: spec.rules[0].backendRefs[0]: Bucket is no kind that is served; want Service; it is left out.\n"},
		{"a Service of another namespace", gatewayText(tcp80) + routeText("TCPRoute", "infra", "r", "{name: g}", "{name: web, namespace: app, port: 8080}"),
			"gateway infra/g\n  web\nTCPRoute infra/r at g ResolvedRefs=False RefNotPermitted: spec.rules[0].backendRefs[0]: " +
				"no ReferenceGrant in namespace app lets TCPRoutes of namespace infra lead to Service web; it is left out.\n"},
		{"with a grant", gatewayText(tcp80) + routeText("TCPRoute", "infra", "r", "{name: g}", "{name: web, namespace: app, port: 8080}") +
			"---\nkind: ReferenceGrant\nmetadata: {name: a, namespace: app}\nspec: {from: [{group: gateway.networking.k8s.io, kind: TCPRoute, namespace: infra}], to: [{group: '', kind: Service, name: web}]}\n",
			"gateway infra/g\n  web -> app/web http*1\nTCPRoute infra/r at g\n"},
		{"with a grant for others", gatewayText(tcp80) + routeText("TCPRoute", "infra", "r", "{name: g}", "{name: web, namespace: app, port: 8080}") +
			"---\nkind: ReferenceGrant\nmetadata: {name: a, namespace: app}\nspec: {from: [{group: gateway.networking.k8s.io, kind: UDPRoute, namespace: infra}], to: [{group: '', kind: Service}]}\n" +
			"---\nkind: ReferenceGrant\nmetadata: {name: b, namespace: infra}\nspec: {from: [{group: gateway.networking.k8s.io, kind: TCPRoute, namespace: infra}], to: [{group: '', kind: Service}]}\n",
			"gateway infra/g\n  web\nTCPRoute infra/r at g ResolvedRefs=False RefNotPermitted: spec.rules[0].backendRefs[0]: " +
				"no ReferenceGrant in namespace app lets TCPRoutes of namespace infra lead to Service web; it is left out.\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := read(t, class+c.text, "infra/web TCP 8080 http", "infra/web UDP 53 dns", "infra/more TCP 8080 http", "app/web TCP 8080 http")
			if got := format(Judge(o)); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

// sliceOf returns a slice with endpoints behind a port.
func sliceOf(t *testing.T, of, port string, number int, addrs ...string) *object.Object {
	t.Helper()
	text := fmt.Sprintf("metadata: {name: %s-1, namespace: infra, labels: {kubernetes.io/service-name: %s}}\naddressType: IPv4\n"+
		"ports: [{name: %s, port: %d, protocol: %s}]\nendpoints: [", of, of, port, number, map[bool]string{true: "UDP", false: "TCP"}[port == "dns"])
	for _, a := range addrs {
		text += "{addresses: [" + a + "]}, "
	}
	o, faults := object.ReadSlice(parse[discoveryv1.EndpointSlice](t, text+"]\n"), object.Origin{Assigned: true})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return o
}

func served(made Served) string {
	if made.Service == nil {
		return fmt.Sprint("nothing ", made.Faults)
	}
	var parts []string
	for _, f := range made.Service.Frontends {
		text := f.Key.String() + " ->"
		for _, b := range f.Backends {
			text += fmt.Sprintf(" %s*%d", b.Addr, b.Weight)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func TestServe(t *testing.T) {
	behind := map[string][]*object.Object{
		"infra/web":  {sliceOf(t, "web", "http", 8080, "172.16.0.1", "172.16.0.2", "172.16.0.3"), sliceOf(t, "web", "dns", 5353, "172.16.0.1")},
		"infra/more": {sliceOf(t, "more", "http", 9090, "172.16.0.8", "172.16.0.9")},
	}
	slicesOf := func(id service.ID) []*object.Object { return behind[id.String()] }
	gateway := func(extra, listeners, backends string) *Judged {
		text := class + "kind: Gateway\nmetadata: {name: g, namespace: infra, labels: {tier: gold}" + extra + "}\nspec: {gatewayClassName: fairlead, listeners: [" + listeners + "]}\n" +
			"status: {addresses: [{type: IPAddress, value: 10.1.1.1}]}\n" +
			routeText("TCPRoute", "infra", "r", "{name: g}", backends) + routeText("UDPRoute", "infra", "u", "{name: g}", "{name: web, port: 53}")
		return Judge(read(t, text, "infra/web TCP 80 http", "infra/web UDP 53 dns", "infra/more TCP 80 http", "infra/none TCP 80 http")).Gateways[0]
	}
	const dns = ", {name: dns, port: 5300, protocol: UDP}"
	for _, c := range []struct{ name, extra, listeners, backends, want string }{
		{"one Service", "", tcp80, "{name: web, port: 80}", "TCP 10.1.1.1:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1 172.16.0.3:8080*1"},
		{"TCP and UDP", "", "{name: dns, port: 5300, protocol: UDP}, " + tcp80, "{name: more, port: 80}",
			"TCP 10.1.1.1:80 -> 172.16.0.8:9090*1 172.16.0.9:9090*1; UDP 10.1.1.1:5300 -> 172.16.0.1:5353*1"},
		{"equal shares", "", tcp80, "{name: web, port: 80}, {name: more, port: 80}",
			"TCP 10.1.1.1:80 -> 172.16.0.1:8080*2 172.16.0.2:8080*2 172.16.0.3:8080*2 172.16.0.8:9090*3 172.16.0.9:9090*3"},
		{"shares of 9 and 1", "", tcp80, "{name: web, port: 80, weight: 9}, {name: more, port: 80, weight: 1}",
			"TCP 10.1.1.1:80 -> 172.16.0.1:8080*6 172.16.0.2:8080*6 172.16.0.3:8080*6 172.16.0.8:9090*1 172.16.0.9:9090*1"},
		{"a share of nothing", "", tcp80, "{name: web, port: 80, weight: 5}, {name: more, port: 80, weight: 0}",
			"TCP 10.1.1.1:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1 172.16.0.3:8080*1 172.16.0.8:9090*0 172.16.0.9:9090*0"},
		{"one alone with a share of nothing", "", tcp80, "{name: more, port: 80, weight: 0}", "TCP 10.1.1.1:80 -> 172.16.0.8:9090*0 172.16.0.9:9090*0"},
		{"large shares", "", tcp80, "{name: web, port: 80, weight: 1000000}, {name: more, port: 80, weight: 1}",
			"TCP 10.1.1.1:80 -> 172.16.0.1:8080*64516 172.16.0.2:8080*64516 172.16.0.3:8080*64516 172.16.0.8:9090*1 172.16.0.9:9090*1"},
		{"twice the same", "", tcp80, "{name: web, port: 80, weight: 2}, {name: web, port: 80, weight: 1}",
			"TCP 10.1.1.1:80 -> 172.16.0.1:8080*1 172.16.0.2:8080*1 172.16.0.3:8080*1"},
		{"no endpoints", "", tcp80, "{name: none, port: 80}", "TCP 10.1.1.1:80 ->"},
		{"one without endpoints", "", tcp80, "{name: none, port: 80}, {name: more, port: 80}", "TCP 10.1.1.1:80 -> 172.16.0.8:9090*1 172.16.0.9:9090*1"},
		{"no Service", "", tcp80 + dns, "{name: nobody, port: 80}", "UDP 10.1.1.1:5300 -> 172.16.0.1:5353*1"},
		{"refused", ", annotations: {fairlead.io/forwarding-mode: magic}", tcp80, "{name: web, port: 80}", "nothing [{metadata.annotations[fairlead.io/forwarding-mode] unknown forwarding mode"},
		{"on another network", ", annotations: {fairlead.io/network: science}", tcp80, "{name: web, port: 80}", "nothing [{metadata.annotations[fairlead.io/network] is of Services only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			made := gateway(c.extra, c.listeners, c.backends).Serve(Served{}, slicesOf)
			if got := served(made); !strings.HasPrefix(got, c.want) || c.want[0] != 'n' && got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if made.Service == nil {
				return
			}
			if errs := made.Service.Validate(); len(errs) > 0 || made.Service.ID != (service.ID{Namespace: "infra", Name: "gateway/g"}) || made.Service.Labels["tier"] != "gold" {
				t.Errorf("%+v: %v", made.Service, errs)
			}
		})
	}

	// Unchanged Services are the same pointer; a rejected change has no effect.
	was := gateway("", tcp80, "{name: more, port: 80}").Serve(Served{}, slicesOf)
	if again := gateway("", tcp80, "{name: more, port: 80}").Serve(was, slicesOf); again.Service != was.Service {
		t.Error("what did not change is another pointer")
	}
	refused := gateway(", annotations: {fairlead.io/forwarding-mode: magic}", tcp80, "{name: more, port: 80}")
	if now := refused.Serve(was, slicesOf); now.Service != was.Service || len(now.Faults) == 0 {
		t.Errorf("refused, it became %+v", now)
	}
	other := "10.1.1.2"
	refused.Status.Addresses[0].Value = other
	if now := refused.Serve(was, slicesOf); now.Service != nil {
		t.Errorf("refused, with another's address, it became %+v", now)
	}
	refused.Status.Addresses = nil
	if now := refused.Serve(was, slicesOf); now.Service != nil || len(now.Faults) > 0 {
		t.Errorf("without address it became %+v", now)
	}
}
