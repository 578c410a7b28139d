package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/service"
	"github.com/fairlead/fairlead/source"
)

// svc returns the text of a Service with one VIP.
func svc(name, vip string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {externalIPs: [%s], ports: [{port: 80}]}
---
`, name, vip)
}

// vips lists the VIPs of Services: "a=10.1.1.1 b=10.1.1.2".
func vips(s source.Snapshot) string {
	var words []string
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			words = append(words, svc.ID.Name+"="+f.VIP.String())
		}
	}
	return strings.Join(words, " ")
}

func wantVIPs(t *testing.T, s source.Snapshot, want string) {
	t.Helper()
	if got := vips(s); got != want {
		t.Errorf("got %s, want %s; problems: %s", got, want, texts(s.Problems))
	}
}

func wantProblems(t *testing.T, s source.Snapshot, want ...string) {
	t.Helper()
	if len(s.Problems) != len(want) {
		t.Errorf("got %d problems, want %d:\n%s", len(s.Problems), len(want), texts(s.Problems))
		return
	}
	for i, p := range s.Problems {
		if !strings.Contains(p.String(), want[i]) {
			t.Errorf("got %s, want %s", p, want[i])
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestHalfWritten checks that a replaced file is accepted immediately, and a modified file
// only when it is stable, whatever its content meanwhile.
func TestHalfWritten(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1")+svc("b", "10.1.1.2"))
	wantVIPs(t, l.look(0), "a=10.1.1.1 b=10.1.1.2")

	l.write("a.yaml", svc("a", "10.1.1.3")+svc("b", "10.1.1.2"))
	wantVIPs(t, l.look(time.Millisecond), "a=10.1.1.3 b=10.1.1.2")

	whole := svc("a", "10.1.1.4") + svc("b", "10.1.1.5")
	for n := 0; n < len(whole); n += 7 {
		l.edit("a.yaml", whole[:n])
		s := l.look(settle / 2)
		wantVIPs(t, s, "a=10.1.1.3 b=10.1.1.2")
		wantProblems(t, s)
	}
	l.edit("a.yaml", whole)
	wantVIPs(t, l.look(settle/2), "a=10.1.1.3 b=10.1.1.2")
	wantVIPs(t, l.look(settle), "a=10.1.1.4 b=10.1.1.5")
}

// TestLeftHalfWritten checks that an incomplete file is reported and keeps its previous
// content.
func TestLeftHalfWritten(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1")+svc("b", "10.1.1.2"))
	l.rest()
	l.edit("a.yaml", "")
	s := l.rest()
	wantVIPs(t, s, "a=10.1.1.1 b=10.1.1.2")
	wantProblems(t, s, "a.yaml:1: the file is empty (half-written?)")
	l.edit("a.yaml", strings.TrimSuffix(svc("a", "10.1.1.3"), "}]}\n---\n"))
	s = l.rest()
	wantVIPs(t, s, "a=10.1.1.1 b=10.1.1.2")
	wantProblems(t, s, "a.yaml:4: not valid YAML")
	l.edit("a.yaml", svc("a", "10.1.1.3"))
	s = l.rest()
	wantVIPs(t, s, "a=10.1.1.3") // b was removed
	wantProblems(t, s)
}

// TestFileGoes checks that a file that reappears quickly was never gone.
func TestFileGoes(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.write("b.yaml", svc("b", "10.1.1.2"))
	before := l.rest()
	must(t, os.Rename(filepath.Join(l.dir, "a.yaml"), filepath.Join(l.dir, "a.yaml~")))
	wantVIPs(t, l.look(0), "a=10.1.1.1 b=10.1.1.2")
	wantVIPs(t, l.look(goneAfter/2), "a=10.1.1.1 b=10.1.1.2")
	l.write("a.yaml", svc("a", "10.1.1.1"))
	after := l.rest()
	if !before.Equal(after) {
		t.Errorf("got %+v, want what was before, the same pointers", after)
	}
	must(t, os.Remove(filepath.Join(l.dir, "a.yaml")))
	wantVIPs(t, l.look(0), "a=10.1.1.1 b=10.1.1.2")
	wantVIPs(t, l.look(goneAfter), "b=10.1.1.2")
}

// TestFileGoesFromBusyFolder checks that a directory that changes all the time eventually
// loses its deleted files too.
func TestFileGoesFromBusyFolder(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.rest()
	must(t, os.Remove(filepath.Join(l.dir, "a.yaml")))
	for i := range 21 {
		l.write("b.yaml", svc("b", fmt.Sprintf("10.1.2.%d", i+1)))
		s := l.look(goneAfter / 2)
		if i == 0 {
			wantVIPs(t, s, "a=10.1.1.1 b=10.1.2.1")
		}
	}
	wantVIPs(t, l.d.snapshot(), "b=10.1.2.21")
}

func TestFolderGoes(t *testing.T) {
	l := newLooker(t)
	dir := filepath.Join(l.dir, "manifests")
	must(t, os.Mkdir(dir, 0o700))
	outside := l.dir
	l.dir, l.d = dir, newFolder(dir)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.write("b.yaml", svc("b", "10.1.1.2"))
	before := l.rest()

	must(t, os.RemoveAll(dir))
	for range 100 {
		s := l.look(time.Minute)
		wantVIPs(t, s, "a=10.1.1.1 b=10.1.1.2")
		wantProblems(t, s, dir+": the folder is gone; its last state is served on")
	}
	// It reappears, first empty, then complete.
	must(t, os.Mkdir(dir, 0o700))
	wantVIPs(t, l.look(0), "a=10.1.1.1 b=10.1.1.2")
	l.write("a.yaml", svc("a", "10.1.1.1"))
	wantVIPs(t, l.look(goneAfter*3/4), "a=10.1.1.1 b=10.1.1.2")
	l.write("b.yaml", svc("b", "10.1.1.2"))
	if after := l.rest(); !before.Equal(after) {
		t.Errorf("got %+v, want what was before", after)
	}
	// A directory that stays empty is empty on purpose.
	must(t, os.RemoveAll(dir))
	l.look(time.Minute)
	must(t, os.Mkdir(dir, 0o700))
	wantVIPs(t, l.rest(), "")
	// A file in its place is not a directory.
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.rest()
	must(t, os.Rename(dir, dir+"2"))
	must(t, os.WriteFile(filepath.Join(outside, "manifests"), nil, 0o600))
	s := l.look(time.Minute)
	wantVIPs(t, s, "a=10.1.1.1")
	wantProblems(t, s, "the folder cannot be read: ")
}

func TestFolderNeverThere(t *testing.T) {
	d := newFolder(filepath.Join(t.TempDir(), "nowhere"))
	if _, again := d.look(time.Now()); d.loaded || again == 0 {
		t.Errorf("loaded %v, again %v; a folder that was never there has not loaded and is looked for", d.loaded, again)
	}
}

// configMap lays a directory out as the kubelet does: the files are links through "..data",
// which is replaced atomically.
func configMap(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	data := "..2026_" + version
	must(t, os.Mkdir(filepath.Join(dir, data), 0o700))
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, data, name), []byte(text), 0o600))
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	must(t, os.Symlink(data, filepath.Join(dir, "..data_tmp")))
	must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	for name := range files {
		link := filepath.Join(dir, name)
		if _, err := os.Lstat(link); err != nil {
			must(t, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

func TestConfigMap(t *testing.T) {
	l := newLooker(t)
	configMap(t, l.dir, "1", map[string]string{"a.yaml": svc("a", "10.1.1.1"), "b.yaml": svc("b", "10.1.1.2")})
	first := l.look(0)
	wantVIPs(t, first, "a=10.1.1.1 b=10.1.1.2")
	configMap(t, l.dir, "2", map[string]string{"a.yaml": svc("a", "10.1.1.3"), "b.yaml": svc("b", "10.1.1.2")})
	second := l.look(0) // immediately
	wantVIPs(t, second, "a=10.1.1.3 b=10.1.1.2")
	if first.Services[1] != second.Services[1] {
		t.Error("b did not change but is another pointer")
	}
	// A key that is removed from the ConfigMap leaves a dangling link until the kubelet
	// removes it.
	configMap(t, l.dir, "3", map[string]string{"a.yaml": svc("a", "10.1.1.3")})
	wantVIPs(t, l.rest(), "a=10.1.1.3")
}

// TestOddFiles has names that are not manifests, and entries that are not files.
func TestOddFiles(t *testing.T) {
	l := newLooker(t)
	l.write("a.yaml", svc("a", "10.1.1.1"))
	l.write("b.yml", svc("b", "10.1.1.2"))
	l.write(".hidden.yaml", svc("hidden", "10.1.1.3"))
	l.write("backup.yaml~", svc("backup", "10.1.1.4"))
	l.write("README.md", "no YAML: at: all")
	must(t, os.Mkdir(filepath.Join(l.dir, "dir.yaml"), 0o700))
	must(t, os.Symlink("nowhere", filepath.Join(l.dir, "dangling.yaml")))
	must(t, os.Symlink("loop.yaml", filepath.Join(l.dir, "loop.yaml")))
	must(t, os.Symlink("/dev/zero", filepath.Join(l.dir, "zero.yaml")))
	s := l.rest()
	wantVIPs(t, s, "a=10.1.1.1 b=10.1.1.2")
	wantProblems(t, s, "dir.yaml: is a folder, whose files are not read; put them into "+l.dir,
		"dangling.yaml: cannot be read: it is a symbolic link to nowhere, which leads to no file",
		"loop.yaml: cannot be read: ", "zero.yaml: cannot be read: is not a file")
	must(t, os.Remove(filepath.Join(l.dir, "dangling.yaml")))
	must(t, os.Remove(filepath.Join(l.dir, "dir.yaml")))
	// A file that becomes unreadable keeps its previous content.
	must(t, os.Remove(filepath.Join(l.dir, "loop.yaml")))
	must(t, os.Remove(filepath.Join(l.dir, "zero.yaml")))
	must(t, os.Remove(filepath.Join(l.dir, "a.yaml")))
	must(t, os.Symlink("/dev/zero", filepath.Join(l.dir, "a.yaml")))
	s = l.rest()
	wantVIPs(t, s, "a=10.1.1.1 b=10.1.1.2")
	wantProblems(t, s, "a.yaml: cannot be read: is not a file")
	l.write("a.yaml", svc("a", "10.1.1.5"))
	wantVIPs(t, l.rest(), "a=10.1.1.5 b=10.1.1.2")
}

// TestPointers checks that a Service keeps its pointer while it and its slices are
// unchanged, whatever happens to others and to the formatting of its own text.
func TestPointers(t *testing.T) {
	l := newLooker(t)
	l.write("web.yaml", base)
	before := l.rest()
	l.write("other.yaml", svc("a", "10.1.1.9"))
	l.write("web.yaml", strings.ReplaceAll(base, "[172.16.1.3]", `["172.16.1.3"] # quoted`))
	after := l.rest()
	if after.Services[1] != before.Services[0] {
		t.Error("web did not change but is another pointer")
	}
	l.write("web.yaml", strings.ReplaceAll(base, "172.16.1.3", "172.16.1.4"))
	if changed := l.rest(); changed.Services[1] == before.Services[0] || changed.Services[0] != after.Services[0] {
		t.Error("web changed and a did not, but their pointers say otherwise")
	}
	if got := before.Services[0].Frontends[0].Backends[1].Addr.String(); got != "172.16.1.3:8080" {
		t.Errorf("a published Service was changed: %s", got)
	}
}

// TestDrainingBalancers checks that the balancers' own Service is not served, and that its
// terminating endpoints are found, however they are split into slices and whatever else
// there is.
func TestDrainingBalancers(t *testing.T) {
	slice := func(name, of, endpoints string) string {
		return "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: " + name + "\n  namespace: lb\n" +
			"  labels: {kubernetes.io/service-name: " + of + "}\naddressType: IPv4\nports: [{port: 179}]\nendpoints:\n" + endpoints
	}
	const going = "    conditions: {ready: false, serving: true, terminating: true}\n"
	text := "apiVersion: v1\nkind: Service\nmetadata: {name: balancers, namespace: lb}\nspec: {clusterIP: None, ports: [{port: 179}]}\n" +
		slice("a", "balancers", "  - addresses: [172.16.3.2]\n"+going+"  - addresses: [172.16.1.2]\n    conditions: {ready: true}\n") +
		slice("b", "balancers", "  - addresses: [172.16.2.2]\n    conditions: {ready: false, serving: false, terminating: true}\n"+
			"  - addresses: [172.16.3.2]\n"+going) +
		slice("c", "others", "  - addresses: [172.16.9.2]\n"+going)
	for _, c := range []struct {
		of   service.ID
		want string
		all  string
	}{
		{service.ID{Namespace: "lb", Name: "balancers"}, "[172.16.2.2 172.16.3.2]", "[172.16.1.2 172.16.2.2 172.16.3.2]"},
		{service.ID{Namespace: "lb", Name: "nobody"}, "[]", "[]"},
		{service.ID{}, "[]", "[]"},
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "balancers.yaml"), []byte(text), 0o644))
		d := newFolder(dir)
		d.balancers = c.of
		d.look(time.Now())
		if s := d.snapshot(); fmt.Sprint(s.Draining) != c.want || fmt.Sprint(s.Balancers) != c.all || len(s.Services) > 0 {
			t.Errorf("%v: draining %v of %v, want %s of %s; %d services", c.of, s.Draining, s.Balancers, c.want, c.all, len(s.Services))
		}
	}
}

// TestSenders checks that backend nodes know the load balancers of all groups, by the
// labels of their EndpointSlices, including those that send from another network.
func TestSenders(t *testing.T) {
	const text = `
apiVersion: v1
kind: Service
metadata: {name: shared, namespace: lb}
spec: {clusterIP: None, ports: [{port: 179}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shared-1, namespace: lb, labels: {kubernetes.io/service-name: shared, fairlead.io/balancers: "true"}}
addressType: IPv4
ports: [{port: 179}]
endpoints:
  - {addresses: [172.16.2.2]}
  - {addresses: [172.16.1.2], conditions: {ready: false, terminating: true}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shared-2, namespace: lb, labels: {kubernetes.io/service-name: shared, fairlead.io/balancers: "true"}}
addressType: IPv6
ports: [{port: 179}]
endpoints: [{addresses: ["2001:db8::2"]}]
---
apiVersion: v1
kind: Service
metadata: {name: own, namespace: lb}
spec: {clusterIP: None, ports: [{port: 179}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: own-1, namespace: lb, labels: {kubernetes.io/service-name: own, fairlead.io/balancers: "true", fairlead.io/network: routers}}
addressType: IPv4
ports: [{port: 179}]
endpoints:
  - {addresses: [10.244.1.7], targetRef: {kind: Pod, name: own-a}}
  - {addresses: [10.244.1.8], targetRef: {kind: Pod, name: own-b}}
---
apiVersion: v1
kind: Pod
metadata:
  name: own-a
  namespace: lb
  annotations: {k8s.v1.cni.cncf.io/network-status: '[{"name": "cbr0", "ips": ["10.244.1.7"]}, {"name": "lb/routers", "ips": ["172.20.0.7", "2001:db8:20::7"]}]'}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: web}
spec: {clusterIP: None, ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: web, labels: {kubernetes.io/service-name: web, fairlead.io/balancers: "true"}}
addressType: IPv4
ports: [{port: 80}]
endpoints: [{addresses: [172.16.9.9]}]
`
	for _, c := range []struct {
		by      []string
		want    string
		problem string
	}{
		{by: nil, want: "[]"},
		{by: []string{"lb/shared"}, want: "[172.16.1.2 172.16.2.2 2001:db8::2]"},
		{by: []string{"lb/fairlead.io/balancers=true"}, want: "[172.16.1.2 172.16.2.2 172.20.0.7 2001:db8::2 2001:db8:20::7]",
			problem: `the load balancer 10.244.1.8 has no address on network "routers"`},
		{by: []string{"lb/shared", "web/web"}, want: "[172.16.1.2 172.16.2.2 172.16.9.9 2001:db8::2]"},
		{by: []string{"lb/nobody"}, want: "[]", problem: "no EndpointSlice of lb/nobody has an endpoint: this node drops"},
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "balancers.yaml"), []byte(text), 0o644))
		d := newFolder(dir)
		for _, one := range c.by {
			by, err := source.ParseSelector(one)
			must(t, err)
			d.acceptFrom = append(d.acceptFrom, by)
		}
		d.look(time.Now())
		s := d.snapshot()
		if got := fmt.Sprint(s.Senders); got != c.want || (s.Senders == nil) != (c.by == nil) {
			t.Errorf("%v: %s, want %s", c.by, got, c.want)
		}
		problems := fmt.Sprint(s.Problems)
		if c.problem == "" && len(s.Problems) > 0 || !strings.Contains(problems, c.problem) {
			t.Errorf("%v: problems %s, want %q", c.by, problems, c.problem)
		}
	}
}

// TestDrainedSince checks that the start of a drain is used for draining backends, whatever
// the cause.
func TestDrainedSince(t *testing.T) {
	const began, drained = "2026-01-02T15:04:05Z", "2026-01-03T15:04:05Z"
	slice := func(conditions map[string]string) string {
		text := "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-1\n  labels: {kubernetes.io/service-name: web}\n" +
			"  annotations: {fairlead.io/weights: 172.16.1.4=0, fairlead.io/backend-timestamps: \""
		endpoints := ""
		for i, a := range []string{"172.16.1.2", "172.16.1.3", "172.16.1.4"} {
			if i > 0 {
				text += ","
			}
			text += a + "=" + began + "/" + drained
			endpoints += "  - {addresses: [" + a + "], conditions: {" + conditions[a] + "}}\n"
		}
		return svc("web", "10.1.1.1") + text + "\"}\naddressType: IPv4\nports: [{port: 80}]\nendpoints:\n" + endpoints
	}
	const going = "ready: false, serving: true, terminating: true"
	for name, c := range map[string]struct {
		conditions map[string]string
		want       string
	}{
		"some drain":              {map[string]string{"172.16.1.2": going}, "172.16.1.2 true, 172.16.1.3 false, 172.16.1.4 true"},
		"nobody but by weight":    {nil, "172.16.1.2 false, 172.16.1.3 false, 172.16.1.4 true"},
		"all leave, and serve on": {map[string]string{"172.16.1.2": going, "172.16.1.3": going, "172.16.1.4": going}, "172.16.1.2 false, 172.16.1.3 false, 172.16.1.4 true"},
	} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "web.yaml"), []byte(slice(c.conditions)), 0o644))
		d := newFolder(dir)
		d.look(time.Now())
		s := d.snapshot()
		if len(s.Services) != 1 || len(s.Problems) > 0 {
			t.Fatalf("%s: %d services, %v", name, len(s.Services), s.Problems)
		}
		var got []string
		for _, b := range s.Services[0].Frontends[0].Backends {
			got = append(got, fmt.Sprint(b.Addr.Addr(), " ", b.Drained.Format(time.RFC3339) == drained))
			if b.Since.Format(time.RFC3339) != began {
				t.Errorf("%s: %s serves since %s", name, b.Addr, b.Since)
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: drained %v, want %s", name, got, c.want)
		}
	}
}

// TestRenamedFileCountsAtOnce checks that a file's content counts under its new name
// immediately, whichever name comes first, without reports of duplicates and without a gap.
func TestRenamedFileCountsAtOnce(t *testing.T) {
	for _, names := range [][2]string{{"a.yaml", "z.yaml"}, {"z.yaml", "a.yaml"}} {
		dir := t.TempDir()
		before, after := filepath.Join(dir, names[0]), filepath.Join(dir, names[1])
		must(t, os.WriteFile(before, []byte(svc("web", "10.1.1.1")+svc("shop", "10.1.1.2")), 0o644))
		d := newFolder(dir)
		now := time.Now()
		d.look(now)
		must(t, os.Rename(before, after))
		next := filepath.Join(dir, ".next")
		must(t, os.WriteFile(next, []byte(svc("web", "10.1.1.9")), 0o644))
		must(t, os.Rename(next, after))
		d.look(now.Add(50 * time.Millisecond))
		s := d.snapshot()
		if got, want := vips(s), "shop=10.1.1.2 web=10.1.1.9"; got != want || len(s.Problems) > 0 {
			t.Errorf("%v: %s, want %s; %v", names, got, want, s.Problems)
		}
	}
}
