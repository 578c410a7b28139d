package nodes

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/fairlead/fairlead/internal/checkout"
)

// pauseImage holds a pod's namespaces.
const pauseImage = "registry.k8s.io/pause:3.10.2"

// makeImages writes the images of pods: agnhost, the client and server of Kubernetes' own
// tests, under the name that they use; and pause.
func (c *Cluster) makeImages() ([]string, error) {
	root, err := checkout.Root()
	if err != nil {
		return nil, err
	}
	agnhost, err := c.Agnhost()
	if err != nil {
		return nil, err
	}
	images := []image{
		{name: pauseImage, command: []string{"/pause"}, programs: []string{filepath.Join(c.Binaries, "pause")}},
		{
			name:    agnhost,
			command: []string{"/agnhost"}, args: []string{"pause"},
			programs: []string{filepath.Join(c.Binaries, "agnhost")}, root: filepath.Join(root, "out/kube/pod"),
		},
	}
	var paths []string
	for n, i := range images {
		path := filepath.Join(c.work, fmt.Sprintf("image-%d.tar", n))
		if err := i.write(path); err != nil {
			return nil, fmt.Errorf("image %s: %w; scripts/deps.sh cluster gives what it is made of", i.name, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// ProgramImage writes an image of a program, with the libraries of agnhost's image, to a
// file in a folder.
func ProgramImage(folder, name, program string) (file string, err error) {
	root, err := checkout.Root()
	if err != nil {
		return "", err
	}
	file = filepath.Join(folder, filepath.Base(program)+".tar")
	i := image{name: name, command: []string{"/" + filepath.Base(program)}, programs: []string{program}, root: filepath.Join(root, "out/kube/pod")}
	return file, i.write(file)
}

// image is a container image of one layer: the contents of a folder, if any, and programs
// in /.
type image struct {
	name          string
	root          string
	programs      []string
	command, args []string
}

// write writes a file for ctr images import (the OCI image layout, in a tar).
func (i image) write(path string) error {
	layer, err := i.layer()
	if err != nil {
		return err
	}
	var files blobs
	layerBlob := files.add("application/vnd.oci.image.layer.v1.tar", layer)
	config := files.addJSON("application/vnd.oci.image.config.v1+json", map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Entrypoint": i.command, "Cmd": i.args, "WorkingDir": "/",
			"Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerBlob.Digest}},
	})
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest := files.addJSON(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []blob{layerBlob},
	})
	manifest.Annotations = map[string]string{"io.containerd.image.name": i.name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []blob{manifest}})
	if err != nil {
		return err
	}
	files.files = append(files.files, file{"index.json", index}, file{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	return files.write(path)
}

func (i image) layer() ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if i.root != "" {
		err := filepath.WalkDir(i.root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || path == i.root {
				return err
			}
			name, err := filepath.Rel(i.root, path)
			if err != nil {
				return err
			}
			return pack(w, path, name)
		})
		if err != nil {
			return nil, err
		}
	}
	for _, p := range i.programs {
		real, err := filepath.EvalSymlinks(p) // p may be in a folder of links to programs built elsewhere
		if err != nil {
			return nil, err
		}
		if err := pack(w, real, filepath.Base(p)); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

func pack(w *tar.Writer, path, name string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name = name
	if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	content, err := os.Open(path)
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(w, content)
	return err
}

// blob is a descriptor (OCI image specification, descriptor.md).
type blob struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type file struct {
	name    string
	content []byte
}

type blobs struct {
	files []file
	err   error
}

func (b *blobs) add(mediaType string, content []byte) blob {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	b.files = append(b.files, file{"blobs/sha256/" + sum, content})
	return blob{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(content)}
}

func (b *blobs) addJSON(mediaType string, value any) blob {
	content, err := json.Marshal(value)
	b.err = errors.Join(b.err, err)
	return b.add(mediaType, content)
}

func (b *blobs) write(path string) error {
	if b.err != nil {
		return b.err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	for _, f := range b.files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.content)), Mode: 0o644}); err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), out.Close())
}
