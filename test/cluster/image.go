package cluster

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
)

// pauseImage holds the process that keeps a Pod's namespaces.
const pauseImage = "cluster.hotseat.dev/pause:v1"

// importArgs are those of ctr that load an archive for the kubelet to use.
func importArgs(archive string) []string {
	return []string{"--namespace", "k8s.io", "images", "import", archive}
}

// LoadImage makes an image of programs known to every node; what they are linked
// with comes along. Pods that use the image say imagePullPolicy: Never. name has
// a dotted domain and a tag, such as e2e.local/requester:v1; files has paths in
// the image and for each the file of this machine. A Pod's command says which
// file to run, and can be left out where there is but one.
func (c *Cluster) LoadImage(ctx context.Context, name string, files map[string]string) error {
	all := maps.Clone(files)
	for _, file := range files {
		if err := addLibraries(ctx, all, file); err != nil {
			return fmt.Errorf("cannot make image %s: %w", name, err)
		}
	}
	archive, err := os.CreateTemp(c.path(), "image-")
	if err != nil {
		return fmt.Errorf("cannot make an archive of %s: %w", name, err)
	}
	defer os.Remove(archive.Name())
	if err := errors.Join(archive.Close(), writeImage(archive.Name(), name, all, entrypoint(files))); err != nil {
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

// entrypoint is what an image runs unless its Pod says something else.
func entrypoint(files map[string]string) []string {
	if len(files) == 1 {
		return slices.Collect(maps.Keys(files))
	}
	return nil
}

// writeImage makes an archive in the form of `docker save`, of one layer with the
// files, which `ctr images import` reads.
func writeImage(archive, name string, files map[string]string, entrypoint []string) (err error) {
	layer, err := os.CreateTemp(path.Dir(archive), "layer-")
	if err != nil {
		return fmt.Errorf("cannot make the layer of %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, layer.Close(), os.Remove(layer.Name())) }()
	sum := sha256.New()
	if err := writeLayer(io.MultiWriter(layer, sum), files); err != nil {
		return fmt.Errorf("cannot make the layer of %s: %w", name, err)
	}
	config, err := imageConfig(entrypoint, hex.EncodeToString(sum.Sum(nil)))
	if err != nil {
		return err
	}
	configSum := sha256.Sum256(config)
	configName := hex.EncodeToString(configSum[:]) + ".json"
	manifest, err := json.Marshal([]any{map[string]any{"Config": configName, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	out, err := os.Create(archive)
	if err != nil {
		return fmt.Errorf("cannot make the archive of %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	for file, data := range map[string][]byte{configName: config, "manifest.json": manifest} {
		if err := writeFile(w, file, int64(len(data)), 0o644, strings.NewReader(string(data))); err != nil {
			return err
		}
	}
	if err := copyFile(w, "layer.tar", layer.Name(), 0o644); err != nil {
		return err
	}
	return w.Close()
}

func imageConfig(entrypoint []string, layer string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/usr/local/bin:/usr/bin:/bin:/"}, "WorkingDir": "/", "Entrypoint": entrypoint},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layer}},
	})
}

// writeLayer writes the files, and the folder that programs expect everywhere.
func writeLayer(out io.Writer, files map[string]string) error {
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
		if err := copyFile(w, inside, files[name], 0o755); err != nil {
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

func copyFile(w *tar.Writer, name, from string, mode int64) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return writeFile(w, name, info.Size(), mode, f)
}

func writeFile(w *tar.Writer, name string, size, mode int64, from io.Reader) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: mode}); err != nil {
		return err
	}
	_, err := io.Copy(w, from)
	return err
}
