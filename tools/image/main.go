// Command image builds an image of static binaries without Docker or a registry: an OCI
// layout with one image per platform that contains nothing but the binaries, and next to
// it a bill of materials (CycloneDX) for each binary. The same binaries result in the
// same bytes.
//
//	image -o out/image -version v1.2.3 linux/amd64=out/linux-amd64 linux/arm64=out/linux-arm64
//
// skopeo, crane, podman, nerdctl and ctr can read the layout.
package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

func main() {
	out := flag.String("o", "out/image", "`DIR` of the layout, which is replaced")
	version := flag.String("version", "devel", "`version` that the image is labelled with")
	name := flag.String("name", "localhost/fairlead", "`name` by which the image is known where the layout is imported")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: image [-o FOLDER] [-version VERSION] OS/ARCH=FOLDER...")
		os.Exit(2)
	}
	if err := write(*out, *name, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func write(out, name, version string, platforms []string) error {
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range platforms {
		platform, dir, ok := strings.Cut(arg, "=")
		system, arch, slash := strings.Cut(platform, "/")
		if !ok || !slash {
			return fmt.Errorf("%q is not OS/ARCH=FOLDER", arg)
		}
		img, err := image(dir, system, arch, version)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: system, Architecture: arch}},
		})
	}
	path, err := layout.Write(out, empty.Index)
	if err != nil {
		return err
	}
	tag := map[string]string{
		"org.opencontainers.image.ref.name": version, "io.containerd.image.name": name + ":" + version,
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(tag)); err != nil {
		return err
	}
	for _, arg := range platforms {
		platform, dir, _ := strings.Cut(arg, "=")
		if err := bills(filepath.Dir(out), strings.ReplaceAll(platform, "/", "-"), dir, version); err != nil {
			return err
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s:%s, %s\n", out, name, version, digest)
	return nil
}

// image returns the image of one platform.
func image(dir, system, arch, version string) (v1.Image, error) {
	layer, err := pack(dir)
	if err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.AppendLayers(base, l)
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file.OS, file.Architecture = system, arch
	file.Config.Entrypoint = []string{"/fairlead"}
	file.Config.Env = []string{"PATH=/"}
	file.Config.Labels = map[string]string{
		"org.opencontainers.image.title": "fairlead", "org.opencontainers.image.version": version,
	}
	return mutate.ConfigFile(img, file)
}

// pack returns a layer with all files of a directory, and the directories over which a
// container mounts.
func pack(dir string) ([]byte, error) {
	names, err := files(dir)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, folder := range []string{"run/", "run/fairlead/", "sys/", "tmp/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// files returns the names of the files in a directory, sorted.
func files(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no file in it", dir)
	}
	return names, err
}

// bills writes a bill of materials for every binary in a directory.
func bills(to, platform, dir, version string) error {
	names, err := files(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		b, err := bill(filepath.Join(dir, name), version)
		if err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(to, fmt.Sprintf("%s-%s.cdx.json", name, platform)))
		if err != nil {
			return err
		}
		err = cdx.NewBOMEncoder(f, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b)
		if closed := f.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bill returns the contents of a binary, as recorded by the linker.
func bill(path, version string) (*cdx.BOM, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	b := cdx.NewBOM()
	b.Metadata = &cdx.Metadata{Component: &cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: info.Path, Version: version, BOMRef: info.Path,
	}}
	parts := []cdx.Component{{
		Type: cdx.ComponentTypeLibrary, Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), BOMRef: "std",
		PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		url := "pkg:golang/" + d.Path + "@" + d.Version
		parts = append(parts, cdx.Component{
			Type: cdx.ComponentTypeLibrary, Name: d.Path, Version: d.Version, BOMRef: url, PackageURL: url,
		})
	}
	sort.Slice(parts, func(i, j int) bool { return parts[i].BOMRef < parts[j].BOMRef })
	b.Components = &parts
	return b, nil
}
