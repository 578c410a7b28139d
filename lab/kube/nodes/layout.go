package nodes

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// PackImage packs the image that make image has built in a checkout, into a folder. It
// returns the file, and the image's name and tag.
func PackImage(root, into string) (tarred, name string, err error) {
	tarred = filepath.Join(into, "fairlead.tar")
	if name, err = PackLayout(filepath.Join(root, "out/image"), tarred); err != nil {
		return "", "", fmt.Errorf("the image: %w: make image makes it", err)
	}
	return tarred, name, nil
}

// PackLayout packs an OCI layout for ctr images import, and returns the name of the
// imported image.
func PackLayout(folder, to string) (name string, err error) {
	text, err := os.ReadFile(filepath.Join(folder, "index.json"))
	if err != nil {
		return "", err
	}
	var index struct {
		Manifests []struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return "", err
	}
	for _, m := range index.Manifests {
		name = m.Annotations["io.containerd.image.name"]
	}
	if name == "" {
		return "", fmt.Errorf("%s/index.json names none", folder)
	}
	out, err := os.Create(to)
	if err != nil {
		return "", err
	}
	w := tar.NewWriter(out)
	return name, errors.Join(w.AddFS(os.DirFS(folder)), w.Close(), out.Close())
}
