package nodes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/lab/kube"
	"github.com/fairlead/fairlead/lab/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestCgroups creates a cgroup, has a process enter it, sweeps while it is locked, and
// checks that it is removed, with child cgroups as a container runtime creates them, when
// its owner is gone.
func TestCgroups(t *testing.T) {
	place := cgroupPlace(t)
	do := func(f func() error) {
		t.Helper()
		if err := place.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	var c *cgroup
	do(func() (err error) {
		c, err = makeCgroup(cgroupName("test"))
		return err
	})
	t.Cleanup(func() { place.Do(c.remove) })

	cmd := exec.Command("sleep", "60")
	if err := place.Start(cmd); err != nil {
		t.Fatal(err)
	}
	do(func() error {
		below := filepath.Join(roots()[0], c.name, "pod")
		if err := os.Mkdir(below, 0o755); err != nil {
			return err
		}
		return os.WriteFile(below+"/cgroup.procs", fmt.Append(nil, cmd.Process.Pid), 0o644)
	})
	do(func() error {
		if pids := c.processes(); !slices.Contains(pids, cmd.Process.Pid) {
			return fmt.Errorf("processes %v, want %d", pids, cmd.Process.Pid)
		}
		return nil
	})
	cmd.Process.Kill()
	cmd.Wait()

	made := foundCgroups(t, place)
	if err := sweepCgroups(); err != nil {
		t.Fatal(err)
	}
	if left := foundCgroups(t, place); len(left) == 0 || len(left) != len(made) {
		t.Errorf("while it is held a sweep leaves %v of %v", left, made)
	}
	for _, folder := range c.held { // as the kernel does when a process dies
		folder.Close()
	}
	testkit.Eventually(t, time.Minute, sweepCgroups)
	if left := foundCgroups(t, place); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}

func cgroupPlace(t *testing.T) *kube.Place {
	t.Helper()
	place, err := kube.NewPlace(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		return mountCgroups()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(place.Close)
	return place
}

// foundCgroups returns those of this test.
func foundCgroups(t *testing.T, place *kube.Place) (found []string) {
	t.Helper()
	place.Do(func() error {
		for _, root := range roots() {
			here, _ := filepath.Glob(filepath.Join(root, cgroupName("test")))
			found = append(found, here...)
		}
		return nil
	})
	return found
}

// TestImage reads an image like containerd: from the index through digests to the files.
func TestImage(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{"root/etc/motd": "hello", "prog": "program"} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("etc/motd", root+"/root/link"); err != nil {
		t.Fatal(err)
	}
	i := image{name: "example.org/x:1", root: root + "/root", programs: []string{root + "/prog"}, command: []string{"/prog"}}
	if err := i.write(root + "/image.tar"); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(root + "/image.tar")
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, archive)

	var index struct{ Manifests []blob }
	var manifest struct {
		Config blob
		Layers []blob
	}
	var config struct {
		RootFS struct {
			IDs []string `json:"diff_ids"`
		}
	}
	decode(t, files["index.json"], &index)
	decode(t, content(t, files, index.Manifests[0]), &manifest)
	decode(t, content(t, files, manifest.Config), &config)
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; name != i.name {
		t.Errorf("the image is called %q", name)
	}
	layer := content(t, files, manifest.Layers[0])
	if sum := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); config.RootFS.IDs[0] != sum {
		t.Errorf("the layer is %s, not %s", sum, config.RootFS.IDs[0])
	}
	inside := untar(t, layer)
	if string(inside["etc/motd"]) != "hello" || string(inside["prog"]) != "program" || string(inside["link"]) != "-> etc/motd" {
		t.Errorf("the layer has %q", inside)
	}
}

func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			files[h.Name] = []byte("-> " + h.Linkname)
		}
	}
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func content(t *testing.T, files map[string][]byte, b blob) []byte {
	t.Helper()
	got, found := files["blobs/"+strings.Replace(b.Digest, ":", "/", 1)]
	if !found || len(got) != b.Size || b.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(got)) {
		t.Fatalf("blob %+v is not as it says", b)
	}
	return got
}

// TestPlaceEndsWhatItStarted checks that a node's programs cannot outlive it.
func TestPlaceEndsWhatItStarted(t *testing.T) {
	place, err := kube.NewPlace(nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := place.Start(cmd); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	place.Close()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("it is still running")
		cmd.Process.Kill()
	}
}
