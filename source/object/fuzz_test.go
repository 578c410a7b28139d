package object

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead/fairlead/lab/testkit/fuzzlimit"
)

// FuzzAnnotation sets one annotation of a Service to an arbitrary value: it is rejected
// with a message, or the Service is valid.
func FuzzAnnotation(f *testing.F) {
	for _, v := range []string{
		"", ",", "=", "all", "5", "0", "-1", "http=80-90", "80-90", "http=80-90,http=80-91", "172.16.1.2=5", "172.16.1.2=5,172.16.1.2=6", "::1=3",
		"10.0.0.0/8", "10.0.0.0/8,10.0.0.0/8", "::/0", "cps=1,pps=2,client-cps=3,client-pps=4", "cps=99999999999", "gue", "wlc", "none", "1h",
	} {
		for i := range Annotations() {
			f.Add(uint8(i), v, i%2 == 0)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, value string, affinity bool) {
		fuzzlimit.Time(t)
		names := Annotations()
		name := names[int(which)%len(names)]
		s := &corev1.Service{}
		s.Namespace, s.Name = "default", "web"
		s.Annotations = map[string]string{AnnotationAddresses: "10.1.1.1", name: value}
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "sctp", Port: 81, Protocol: corev1.ProtocolSCTP}}
		if affinity {
			s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		}
		o, faults := ReadService(s, Origin{})
		for _, fault := range faults {
			if fault.Field == "" || fault.Message == "" {
				t.Errorf("%s: %q: a fault without words: %+v", name, value, fault)
			}
		}
		if errs := o.service.template.Validate(); len(faults) == 0 && len(errs) > 0 {
			t.Errorf("%s: %q: taken, but %v", name, value, errs)
		}
		if len(faults) == 0 && len(o.service.template.Frontends) == 0 {
			t.Errorf("%s: %q: taken, but serves nothing", name, value)
		}
	})
}
