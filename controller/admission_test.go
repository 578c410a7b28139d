package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/source/object"
)

// admission tests what the API server itself rejects, without a controller.
func admission(t *testing.T, w *world) {
	for spec, want := range map[string]string{
		"{addresses: [10.1.1.0/24, 10.1.2.5-10.1.2.9, 10.1.3.1, '2001:db8::/64']}": "",
		"{addresses: []}":                          "spec.addresses: Invalid value: 0: spec.addresses in body should have at least 1 items",
		"{addresses: [web]}":                       "is not an address, a prefix or a range: want one like 10.1.1.7, 10.1.1.0/24 or 10.1.1.5-10.1.1.9",
		"{addresses: [10.1.1.0/24-10.1.2.0/24]}":   "is not an address, a prefix or a range",
		"{addresses: [10.1.1.1/24]}":               "has host bits set: use the network address",
		"{addresses: ['10.1.1.1-2001:db8::1']}":    "mixes IPv4 and IPv6: use two ranges",
		"{addresses: [10.1.1.1], reserved: [x]}":   "spec.reserved[0]",
		"{addresses: [10.1.1.1], autoAsign: true}": "unknown field",
	} {
		wantRefusal(t, spec, want, w.strictly(poolText("tried", spec)))
	}
	for spec, want := range map[string]string{
		"{peerAddress: 10.0.0.109, peerASN: 65021, passwordSecretRef: bgp}": "",
		"{peerAddress: router}":                       "is not the address of a peer",
		"{peerAddress: 10.0.0.109, peerASN: 0}":       "should be greater than or equal to 1",
		"{peerAddress: 10.0.0.109, port: 70000}":      "should be less than or equal to 65535",
		"{peerAddress: 10.0.0.1, holdTimeSeconds: 1}": "should be greater than or equal to 3",
		"{peerAddress: 'fe80::1', interface: eth0, peerASN: 65000, ttlSecurity: 1, bfd: {intervalMilliseconds: 100, detectMultiplier: 5}}": "",
		"{peerAddress: 10.0.0.1, sourceAddress: 10.0.0.5, keepaliveSeconds: 3, connectRetrySeconds: 5, peerASN: 65000, ebgpMultihop: 1}":   "",
		"{interface: eth0, peerASN: 65000}":                                    "",
		"{peerASN: 65000}":                                                     "peerAddress or interface is required",
		"{peerAddress: 'fe80::1'}":                                             "peerAddress is link-local: interface is required, too",
		"{peerAddress: 10.0.0.1, interface: 'eth0/1'}":                         "spec.interface",
		"{peerAddress: 10.0.0.1, sourceAddress: node}":                         "is not an address of a node",
		"{peerAddress: 10.0.0.1, ebgpMultihop: 1}":                             "ebgpMultihop applies only to peers in another AS",
		"{peerAddress: 10.0.0.1, peerASN: 1, ebgpMultihop: 1, ttlSecurity: 1}": "ebgpMultihop and ttlSecurity are mutually exclusive",
		"{peerAddress: 10.0.0.1, ttlSecurity: 255}":                            "should be less than or equal to 254",
		"{peerAddress: 10.0.0.1, keepaliveSeconds: 9}":                         "keepaliveSeconds must be less than holdTimeSeconds",
		"{peerAddress: 10.0.0.1, bfd: {detectMultiplier: 1}}":                  "should be greater than or equal to 2",
	} {
		wantRefusal(t, spec, want, w.strictly(strings.ReplaceAll(poolText("tried", spec), "AddressPool", "BGPPeer")))
	}
	for spec, want := range map[string]string{
		"{pools: [p], aggregationLength: 24}": "",
		"{aggregationLength: 33}":             "should be less than or equal to 32",
		"{peers: [tor-1], communities: ['65000:1', '4200000000:1:2', no-export], localPreference: 4294967295, med: 1, asPathPrepend: 3}": "",
		"{minHealthyBackends: 2, trafficPolicy: FromService, weightBy: Endpoints}":                                                       "",
		"{communities: ['65536:1']}":    "is not a community: want one like 65000:1 or 65000:1:2",
		"{communities: [no-exprot]}":    "is not a community",
		"{communities: ['1:2:3:4']}":    "is not a community",
		"{localPreference: 4294967296}": "should be less than or equal to 4294967295",
		"{asPathPrepend: 11}":           "should be less than or equal to 10",
		"{trafficPolicy: Near}":         "Unsupported value",
		"{weightBy: Heavy}":             "Unsupported value",
		"{peers: [tor-1], prepend: 11}": "unknown field",
	} {
		wantRefusal(t, spec, want, w.strictly(strings.ReplaceAll(poolText("tried", spec), "AddressPool", "Advertisement")))
	}
	annotations(t, w)
	sliceAnnotations(t, w)
}

// sliceAnnotations tries values of annotations of EndpointSlices.
func sliceAnnotations(t *testing.T, w *world) {
	all := w.core.DiscoveryV1().EndpointSlices("default")
	slice := func(name, value string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "tried", Namespace: "default", Annotations: map[string]string{name: value}, Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
		}
	}
	try := func(s *discoveryv1.EndpointSlice) error {
		_, err := all.Create(context.Background(), s, metav1.CreateOptions{DryRun: []string{"All"}})
		return err
	}
	eventually(t, "the policy is in force", func() string {
		if try(slice(object.AnnotationWeights, "x")) == nil {
			return "the EndpointSlice is accepted"
		}
		return ""
	})
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("2001:db8:1111:2222:3333:4444:5555:%x=2026-01-02T15:04:05.123456789Z/2026-01-03T15:04:05.123456789Z", i))
	}
	for _, c := range []struct{ name, value, want string }{
		{object.AnnotationWeights, " 172.16.1.2 = 3 ,172.16.1.3=0", ""},
		{object.AnnotationWeights, "172.16.1.2:3", "metadata.annotations[fairlead.io/weights]: \"172.16.1.2:3\" is not a list of weights; want one like 172.16.1.2=3,172.16.1.3=0"},
		{object.AnnotationBackendTimestamps, strings.Join(many, ","), ""},
		{object.AnnotationBackendTimestamps, "172.16.1.2=2026-01-02T15:04:05+01:00", ""},
		{object.AnnotationBackendTimestamps, "172.16.1.2=yesterday", "is not a list of times; want one like 172.16.1.2=2026-01-02T15:04:05Z"},
		{object.AnnotationBackendTimestamps, "web=2026-01-02T15:04:05Z", "is not a list of times"},
		{object.AnnotationScheduler, "rr", "metadata.annotations[fairlead.io/scheduler]: unknown annotation; Fairlead has fairlead.io/backend-timestamps, fairlead.io/weights"},
		{"example.com/weights", "x", ""},
	} {
		wantRefusal(t, c.name, c.want, try(slice(c.name, c.value)))
	}
	mirrored := slice(object.AnnotationWeights, "x")
	mirrored.Labels[discoveryv1.LabelManagedBy] = "endpointslicemirroring-controller.k8s.io"
	wantRefusal(t, "a mirrored slice", "", try(mirrored))

	// An annotation that is already invalid does not keep others from changing.
	old, err := all.Create(context.Background(), mirrored, metav1.CreateOptions{})
	w.must(t, err)
	defer func() { w.must(t, all.Delete(context.Background(), "tried", metav1.DeleteOptions{})) }()
	delete(old.Labels, discoveryv1.LabelManagedBy)
	old.Annotations[object.AnnotationBackendTimestamps] = "172.16.1.2=2026-01-02T15:04:05Z"
	old, err = all.Update(context.Background(), old, metav1.UpdateOptions{})
	w.must(t, err)
	old.Annotations[object.AnnotationWeights] = "y"
	_, err = all.Update(context.Background(), old, metav1.UpdateOptions{})
	wantRefusal(t, "an annotation that changes", `"y" is not a list of weights`, err)
}

// annotations tries values of annotations: the API server rejects typing errors, but
// nothing that agents accept.
func annotations(t *testing.T, w *world) {
	try := func(name, value string, change ...func(*corev1.Service)) error {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "tried", Namespace: "default", Annotations: map[string]string{name: value}}}
		s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Name: "http", Port: 80}}
		for _, f := range change {
			f(s)
		}
		_, err := w.core.CoreV1().Services("default").Create(context.Background(), s, metav1.CreateOptions{DryRun: []string{"All"}})
		return err
	}
	eventually(t, "the policy is in force", func() string {
		if try(object.AnnotationAddresses, "x") == nil {
			return "the Service is accepted"
		}
		return ""
	})
	for name, c := range map[string][2]string{
		object.AnnotationAddresses:           {"10.1.1.1; 10.1.1.2", `metadata.annotations[fairlead.io/addresses]: "10.1.1.1; 10.1.1.2" is not a list of IP addresses; want one like 10.1.1.1,2001:db8::1`},
		object.AnnotationAddressPool:         {"10.1.1.1; 10.1.1.2", `metadata.annotations[fairlead.io/address-pool]: "10.1.1.1; 10.1.1.2" is not a list of names of AddressPools`},
		object.AnnotationScheduler:           {"maglve", `metadata.annotations[fairlead.io/scheduler]: "maglve" is not valid; want maglev, rr, wrr, lc, wlc, sh, dh or p2c`},
		object.AnnotationForwardingMode:      {"tunel", `"tunel" is not valid; want nat, fullnat, dsr-nat, dr or tunnel`},
		object.AnnotationHealthCheckInterval: {"2 s", `"2 s" is not a duration; want one like 500ms or 2s`},
		object.AnnotationHealthCheckPort:     {"65536", `"65536" is not a port; want 1 to 65535`},
		object.AnnotationHealthCheckPath:     {"healthz", `"healthz" is not a path; want one like /healthz`},
		object.AnnotationWeights:             {"172.16.1.2:3", "is not a list of weights; want one like 172.16.1.2=3,172.16.1.3=0"},
		object.AnnotationRateLimits:          {"client-ps=5", "is not a list of rate limits; want one like client-cps=50,pps=100000"},
		object.AnnotationPanicMode:           {"true", `"true" is not valid; want enabled or disabled`},
		"fairlead.io/scheduller":             {"rr", "metadata.annotations[fairlead.io/scheduller]: unknown annotation; Fairlead has fairlead.io/address-pool, "},
	} {
		wantRefusal(t, name, c[1], try(name, c[0]))
		wantRefusal(t, name+" of another class", "", try(name, c[0], class("example.com/other")))
	}
	accepted := 0
	for _, name := range object.Annotations() {
		if name == object.AnnotationAddressPool { // agents ignore it
			continue
		}
		for _, value := range annotationValues {
			s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "tried", Namespace: "default", Annotations: map[string]string{name: value}}}
			if strings.HasPrefix(name, object.AnnotationHealthCheck+"-") {
				s.Annotations[object.AnnotationHealthCheck] = "http"
			}
			s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
			_, faults := object.ReadService(s, object.Origin{})
			if slices.ContainsFunc(faults, func(f object.Fault) bool { return f.Field == "metadata.annotations["+name+"]" }) {
				continue
			}
			accepted++
			if err := try(name, value); err != nil {
				t.Errorf("%s: %q is refused, though agents accept it: %v", name, value, err)
			}
		}
	}
	if accepted < 50 {
		t.Errorf("only %d values are accepted", accepted)
	}
}

// annotationValues are valid for at least one annotation each, at least as far as its syntax
// goes.
var annotationValues = []string{
	"", " ", "a", "A b", "0", "2", "+2", "-1", "080", "70000", "65521", "1s", "1.5s", "500ms", "+1m30s", ".5s", "10.1.1.1", " 10.1.1.1 , 2001:db8::1",
	"10.1.1.0/24", "0.0.0.0/0, 2001:db8::/64", "172.16.1.2=3", " 172.16.1.2 = 3 ,172.16.1.3=0", "all", " all ", "80-90", "http=80-90", " http = 80-90",
	"client-pps=5", " pps = 5 , cps=6", "ns/net", "net", "/", "/a?b=c", "www.example.org", "www.example.org:80", "true", "false", "enabled", "disabled",
	"maglev", "p2c", "tunnel", "nat", "dr", "ipip", "gue", "second-chance", "flow-table", "hash-only", "http", "tcp", "none", "off", "auto", "always",
}

func wantRefusal(t *testing.T, what, want string, err error) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s is refused: %v", what, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v; want %q", what, err, want)
	}
}

// strictly tests whether the objects of a text would be accepted.
func (w *world) strictly(text string) error {
	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		return err
	}
	_, err := w.any.Resource(resources[o.GetKind()]).Create(context.Background(), &o,
		metav1.CreateOptions{DryRun: []string{"All"}, FieldValidation: "Strict"})
	return err
}
