package cluster

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	imagename "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"hotseat.dev/hotseat/deploy/images"
)

// pauseImage holds the process that keeps a Pod's namespaces.
const pauseImage = "cluster.hotseat.dev/pause:v1"

// importArgs are those of ctr that load an archive for the kubelet to use.
func importArgs(archive string) []string {
	return []string{"--namespace", "k8s.io", "images", "import", archive}
}

// LoadImage makes an image known to every node; the libraries that its programs are
// linked with come along. Pods that use the image say imagePullPolicy: Never or
// IfNotPresent. name has a dotted domain and a tag, such as e2e.local/requester:v1.
func (c *Cluster) LoadImage(ctx context.Context, name string, image images.Image) error {
	all := maps.Clone(image.Files)
	for _, file := range image.Files {
		if err := addLibraries(ctx, all, file); err != nil {
			return fmt.Errorf("cannot make image %s: %w", name, err)
		}
	}
	if len(image.Files) == 1 && len(image.Entrypoint) == 0 {
		image.Entrypoint = slices.Collect(maps.Keys(image.Files))
	}
	image.Files = all
	archive, err := os.CreateTemp(c.path(), "image-")
	if err != nil {
		return fmt.Errorf("cannot make an archive of %s: %w", name, err)
	}
	defer os.Remove(archive.Name())
	if err := errors.Join(archive.Close(), writeImage(archive.Name(), name, image)); err != nil {
		return err
	}
	for number := 1; number <= c.Nodes; number++ {
		cmd, err := c.InNode(ctx, number, "ctr", importArgs(archive.Name())...)
		if err != nil {
			return err
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot load %s into %s: %w: %s", name, NodeName(number), err, out)
		}
	}
	return nil
}

// LoadProduct makes the images of hotseat known to every node, of the programs in a
// folder, with a tag; that of the examples is dev. That of the launcher is also
// what examples have as the image of an engine: it has the stand-in, and runs as
// root, as images of vLLM do.
func (c *Cluster) LoadProduct(ctx context.Context, folder, tag string) error {
	for _, p := range images.Products {
		image, err := p.Image(folder, runtime.GOARCH, tag)
		if err != nil {
			return fmt.Errorf("cannot make image %s: %w", p.Name, err)
		}
		if p.Name == "launcher" {
			image.Files["/enginesim"], image.User = filepath.Join(folder, "enginesim"), ""
		}
		if err := c.LoadImage(ctx, "hotseat.local/"+p.Name+":"+tag, image); err != nil {
			return err
		}
	}
	return c.LoadImage(ctx, "hotseat.local/enginesim:"+tag, images.Image{Files: map[string]string{"/usr/local/bin/vllm": filepath.Join(folder, "enginesim")}})
}

// addLibraries adds the shared libraries that a program of this machine needs, by
// their paths. Other files and static programs need none.
func addLibraries(ctx context.Context, files map[string]string, program string) error {
	f, err := elf.Open(program)
	if _, ok := errors.AsType[*elf.FormatError](err); ok || errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	static := f.Section(".interp") == nil
	if err := f.Close(); err != nil || static {
		return err
	}
	out, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cannot find the libraries of %s: %w: %s", program, err, out)
	}
	for word := range strings.FieldsSeq(string(out)) { // libc.so.6 => /lib/libc.so.6 (0x…)
		if path.IsAbs(word) {
			files[word] = word
		}
	}
	return nil
}

// writeImage makes an archive in the form of `docker save`, which `ctr images
// import` reads.
func writeImage(archive, name string, image images.Image) error {
	tag, err := imagename.NewTag(name, imagename.StrictValidation)
	if err != nil {
		return fmt.Errorf("cannot name an image %q: %w", name, err)
	}
	made, err := image.Build()
	if err != nil {
		return fmt.Errorf("cannot make image %s: %w", name, err)
	}
	if err := tarball.WriteToFile(archive, tag, made); err != nil {
		return fmt.Errorf("cannot write the archive of image %s: %w", name, err)
	}
	return nil
}
