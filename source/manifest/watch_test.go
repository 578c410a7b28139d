package manifest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead/fairlead/source"
	"github.com/fairlead/fairlead/source/object"
)

// patience limits any wait, even on a busy machine.
const patience = 30 * time.Second

// watched is a running Source, with everything that it has published.
type watched struct {
	*looker
	mu  sync.Mutex
	all []source.Snapshot
}

func watchFolder(t *testing.T, dir string) *watched {
	return watchSource(t, dir, New(dir, slog.New(slog.DiscardHandler)))
}

func watchSource(t *testing.T, dir string, of *Source) *watched {
	w := &watched{looker: &looker{t: t, dir: dir}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- of.Run(ctx, func(s source.Snapshot) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.all = append(w.all, s)
		})
	}()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	return w
}

func (w *watched) published() []source.Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// await waits for a snapshot with these VIPs and this many problems.
func (w *watched) await(want string, problems int) source.Snapshot {
	w.t.Helper()
	var last source.Snapshot
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if all := w.published(); len(all) > 0 {
			last = all[len(all)-1]
			if vips(last) == want && len(last.Problems) == problems {
				return last
			}
		}
	}
	w.t.Fatalf("got %s, want %s and %d problems; problems: %s", vips(last), want, problems, texts(last.Problems))
	return last
}

// never checks that no snapshot had other VIPs.
func (w *watched) never(but ...string) {
	w.t.Helper()
	for _, s := range w.published() {
		if !slices.Contains(but, vips(s)) {
			w.t.Errorf("for a while there was %q; want only %q", vips(s), but)
		}
	}
}

func TestWatch(t *testing.T) {
	w := watchFolder(t, t.TempDir())
	w.await("", 0)
	w.write("a.yaml", svc("a", "10.1.1.1"))
	w.await("a=10.1.1.1", 0)
	w.edit("a.yaml", svc("a", "10.1.1.2"))
	w.await("a=10.1.1.2", 0)
	w.edit("a.yaml", "half: [")
	w.await("a=10.1.1.2", 1)
	w.write("a.yaml", svc("a", "10.1.1.3"))
	w.await("a=10.1.1.3", 0)
	must(t, os.Remove(filepath.Join(w.dir, "a.yaml")))
	w.await("", 0)
}

// TestWatchEditors saves a file as various editors do: none may remove a Service.
func TestWatchEditors(t *testing.T) {
	w := watchFolder(t, t.TempDir())
	file := func(name string) string { return filepath.Join(w.dir, name) }
	w.write("a.yaml", svc("a", "10.1.1.0"))
	w.await("a=10.1.1.0", 0)
	allowed := []string{"", "a=10.1.1.0"}
	for i, save := range []func(text string){
		func(text string) { w.write("a.yaml", text) },
		func(text string) { w.edit("a.yaml", text) },
		func(text string) { // vim: moves the old file away, writes the new one, removes the old
			must(t, os.Rename(file("a.yaml"), file("a.yaml~")))
			w.edit("a.yaml", text)
			must(t, os.Remove(file("a.yaml~")))
		},
		func(text string) { // remove and write again
			must(t, os.Remove(file("a.yaml")))
			w.edit("a.yaml", text)
		},
		func(text string) { // truncate and write in pieces
			f, err := os.Create(file("a.yaml"))
			must(t, err)
			for i := range text {
				_, err := f.WriteString(text[i : i+1])
				must(t, err)
			}
			must(t, f.Close())
		},
	} {
		want := fmt.Sprintf("a=10.1.1.%d", i+1)
		save(svc("a", fmt.Sprintf("10.1.1.%d", i+1)))
		w.await(want, 0)
		allowed = append(allowed, want)
	}
	w.never(allowed...)
}

func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	configMap(t, dir, "0", map[string]string{"a.yaml": svc("a", "10.1.1.0"), "b.yaml": svc("b", "10.1.2.1")})
	w := watchFolder(t, dir)
	first := w.await("a=10.1.1.0 b=10.1.2.1", 0)
	allowed := []string{"a=10.1.1.0 b=10.1.2.1"}
	for i := 1; i < 5; i++ {
		configMap(t, dir, fmt.Sprint(i), map[string]string{"a.yaml": svc("a", fmt.Sprintf("10.1.1.%d", i)), "b.yaml": svc("b", "10.1.2.1")})
		allowed = append(allowed, fmt.Sprintf("a=10.1.1.%d b=10.1.2.1", i))
		if s := w.await(allowed[i], 0); s.Services[1] != first.Services[1] {
			t.Error("b did not change but is another pointer")
		}
	}
	w.never(allowed...)
}

// TestWatchFolderVanishes deletes the directory, recreates it with another inode, renames
// it, and replaces it with another: it is followed by name.
func TestWatchFolderVanishes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Mkdir(dir, 0o700))
	w := watchFolder(t, dir)
	w.await("", 0)
	w.write("a.yaml", svc("a", "10.1.1.1"))
	w.await("a=10.1.1.1", 0)

	must(t, os.RemoveAll(dir))
	w.await("a=10.1.1.1", 1)
	put := func(vip string) { // complete with its file
		must(t, os.Mkdir(dir+".next", 0o700))
		must(t, os.WriteFile(filepath.Join(dir+".next", "a.yaml"), []byte(svc("a", vip)), 0o600))
		must(t, os.Rename(dir+".next", dir))
	}
	put("10.1.1.1")
	w.await("a=10.1.1.1", 0)
	w.write("a.yaml", svc("a", "10.1.1.2")) // watched again
	w.await("a=10.1.1.2", 0)

	must(t, os.Rename(dir, dir+".away"))
	w.await("a=10.1.1.2", 1)
	must(t, os.Rename(dir+".away", dir))
	w.await("a=10.1.1.2", 0)

	must(t, os.Rename(dir, dir+".old"))
	put("10.1.1.3")
	w.await("a=10.1.1.3", 0)
	w.mu.Lock()
	w.all = w.all[1:] // only the first may be empty
	w.mu.Unlock()
	w.never("a=10.1.1.1", "a=10.1.1.2", "a=10.1.1.3")
}

// TestWatchFolderComesLate waits for a directory that does not exist yet: reporting no
// services would remove what a previous agent left in the kernel.
func TestWatchFolderComesLate(t *testing.T) {
	next := filepath.Join(t.TempDir(), "next")
	must(t, os.Mkdir(next, 0o700))
	must(t, os.WriteFile(filepath.Join(next, "a.yaml"), []byte(svc("a", "10.1.1.1")), 0o600))
	w := watchFolder(t, filepath.Join(filepath.Dir(next), "manifests"))
	time.Sleep(2 * settle) // long enough to fail
	must(t, os.Rename(next, w.dir))
	w.await("a=10.1.1.1", 0)
	w.never("a=10.1.1.1")
}

func TestWriteFile(t *testing.T) {
	w := watchFolder(t, t.TempDir())
	port, name := int32(8080), "http"
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{object.AnnotationAddresses: "10.1.1.1", object.AnnotationPanicMode: "enabled"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: name, Port: 80}}},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"172.16.1.2"}}},
	}
	must(t, WriteFile(w.dir, "web.yaml", svc, slice))
	s := w.await("web=10.1.1.1", 0)
	if bs := s.Services[0].Frontends[0].Backends; len(bs) != 1 || bs[0].Addr.String() != "172.16.1.2:8080" {
		t.Errorf("got backends %v", bs)
	}
	if svc.Kind != "" {
		t.Error("the caller's object was changed")
	}
	if err := WriteFile(w.dir, "pod.yaml", &corev1.Pod{}); err == nil {
		t.Error("a Pod was written")
	}
	left, err := os.ReadDir(w.dir)
	must(t, err)
	if len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestWatchLinks checks that changes behind symbolic links are seen as quickly as those in
// the directory: of a file elsewhere, of a directory in the path, and of a link's missing
// target.
func TestWatchLinks(t *testing.T) {
	root := t.TempDir()
	dir, real := filepath.Join(root, "services"), filepath.Join(root, "real")
	for _, d := range []string{real, filepath.Join(real, "1"), filepath.Join(real, "2")} {
		must(t, os.Mkdir(d, 0o700))
	}
	must(t, os.Symlink(filepath.Join(root, "folder"), dir))
	must(t, os.Mkdir(filepath.Join(root, "folder"), 0o700))
	put := func(file, vip string) {
		t.Helper()
		temp := filepath.Join(filepath.Dir(file), "temp")
		must(t, os.WriteFile(temp, []byte(svc("a", vip)), 0o600))
		must(t, os.Rename(temp, file))
	}
	link := func(to, name string) {
		t.Helper()
		must(t, os.Symlink(to, name+".new"))
		must(t, os.Rename(name+".new", name))
	}
	put(filepath.Join(real, "1", "a.yaml"), "10.1.1.1")
	link("1", filepath.Join(real, "current"))
	link(filepath.Join(real, "current", "a.yaml"), filepath.Join(dir, "a.yaml"))
	of := New(dir, slog.New(slog.DiscardHandler))
	of.reread = time.Hour // without events nothing would be seen
	w := watchSource(t, dir, of)
	w.await("a=10.1.1.1", 0)
	const changes = 5
	for i := range changes {
		put(filepath.Join(real, "1", "a.yaml"), fmt.Sprintf("10.1.2.%d", i+1))
		w.await(fmt.Sprintf("a=10.1.2.%d", i+1), 0)
		put(filepath.Join(real, "2", "a.yaml"), fmt.Sprintf("10.1.3.%d", i+1))
		link("2", filepath.Join(real, "current"))
		w.await(fmt.Sprintf("a=10.1.3.%d", i+1), 0)
		link("1", filepath.Join(real, "current"))
		w.await(fmt.Sprintf("a=10.1.2.%d", i+1), 0)
	}
	// A dangling link is a problem, and keeps the previous content, until its target
	// exists.
	link(filepath.Join(real, "3", "a.yaml"), filepath.Join(dir, "a.yaml"))
	s := w.await(fmt.Sprintf("a=10.1.2.%d", changes), 1)
	if want := "a.yaml: cannot be read: it is a symbolic link to " + real + "/3/a.yaml, which leads to no file"; s.Problems[0].String() != want {
		t.Errorf("problem %q, want %q", s.Problems[0], want)
	}
	must(t, os.Mkdir(filepath.Join(real, "3"), 0o700))
	put(filepath.Join(real, "3", "a.yaml"), "10.1.4.1")
	w.await("a=10.1.4.1", 0)
}
