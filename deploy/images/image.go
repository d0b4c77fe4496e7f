// Package images makes container images of programs of this machine, without a
// daemon and without an image to start from. What comes out depends on the files
// alone: made twice, an image has the same digest.
package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image says what a container image holds.
type Image struct {
	// Files has paths in the image, and for each the file of this machine.
	Files map[string]string
	// Links has further paths in the image, and for each the path that it leads to.
	Links map[string]string
	// Entrypoint is what a container runs unless its Pod says something else;
	// empty: the file, where there is but one.
	Entrypoint []string
	// User is the user, and after a colon the group, that programs run as, by
	// their numbers; empty: root.
	User string
	// Labels are those of the image (https://github.com/opencontainers/image-spec/blob/main/annotations.md).
	Labels map[string]string
	// Architecture is what the programs are built for, as GOARCH has it; empty:
	// what this program is built for.
	Architecture string
	// Created is when the image is said to be made; zero: not said.
	Created time.Time
	// Compression is the level of gzip, 1 to 9; 0: none.
	Compression int
}

// Build reads the files and makes the image, of one layer.
func (i Image) Build() (v1.Image, error) {
	var files bytes.Buffer
	if err := writeLayer(&files, i.Files, i.Links); err != nil {
		return nil, fmt.Errorf("cannot make the layer of an image: %w", err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompressionLevel(i.Compression), tarball.WithCompressedCaching, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("cannot make the layer of an image: %w", err)
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, fmt.Errorf("cannot make an image: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("cannot make the configuration of an image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.History = "linux", i.architecture(), v1.Time{Time: i.Created}, nil
	config.Config = v1.Config{
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/"}, WorkingDir: "/", Entrypoint: i.entrypoint(), User: i.User, Labels: i.Labels,
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("cannot make an image: %w", err)
	}
	return image, nil
}

func (i Image) architecture() string {
	if i.Architecture == "" {
		return runtime.GOARCH
	}
	return i.Architecture
}

func (i Image) entrypoint() []string {
	if len(i.Entrypoint) == 0 && len(i.Files) == 1 {
		return slices.Collect(maps.Keys(i.Files))
	}
	return i.Entrypoint
}

// writeLayer writes the files and the links, and the folder that programs expect
// everywhere. Nothing of this machine but what is in the files gets into it: no time, no
// owner.
func writeLayer(out io.Writer, files, links map[string]string) error {
	w := tar.NewWriter(out)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return err
	}
	made := map[string]bool{".": true, "tmp": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		inside := strings.TrimPrefix(path.Clean(name), "/")
		if err := writeParents(w, path.Dir(inside), made); err != nil {
			return err
		}
		if err := copyFile(w, inside, files[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(links)) {
		inside := strings.TrimPrefix(path.Clean(name), "/")
		if err := writeParents(w, path.Dir(inside), made); err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: inside, Linkname: links[name], Mode: 0o777}); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeParents(w *tar.Writer, dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := writeParents(w, path.Dir(dir), made); err != nil {
		return err
	}
	made[dir] = true
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
}

func copyFile(w *tar.Writer, name, from string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: 0o755}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
