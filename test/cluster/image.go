package cluster

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
)

// pauseImage holds the process that keeps a Pod's namespaces.
const pauseImage = "cluster.hotseat.dev/pause:v1"

// write makes an archive in the form of `docker save`, of one layer with the
// image's files, which `ctr images import` reads.
func (i Image) write(archive string) (err error) {
	layer, err := os.CreateTemp("", "hotseat-layer-")
	if err != nil {
		return fmt.Errorf("cannot make the layer of %s: %w", i.Name, err)
	}
	defer func() { err = errors.Join(err, layer.Close(), os.Remove(layer.Name())) }()
	sum := sha256.New()
	if err := i.writeLayer(io.MultiWriter(layer, sum)); err != nil {
		return err
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.Entry, "Env": append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/"}, i.Env...), "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest}},
	})
	if err != nil {
		return err
	}
	configSum := sha256.Sum256(config)
	configName := hex.EncodeToString(configSum[:]) + ".json"
	manifest, err := json.Marshal([]any{map[string]any{"Config": configName, "RepoTags": []string{i.Name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	out, err := os.Create(archive)
	if err != nil {
		return fmt.Errorf("cannot make the archive of %s: %w", i.Name, err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	for name, data := range map[string][]byte{configName: config, "manifest.json": manifest} {
		if err := writeFile(w, name, int64(len(data)), 0o644, strings.NewReader(string(data))); err != nil {
			return err
		}
	}
	if err := copyFile(w, "layer.tar", layer.Name(), 0o644); err != nil {
		return err
	}
	return w.Close()
}

func (i Image) writeLayer(out io.Writer) error {
	w := tar.NewWriter(out)
	for _, dir := range []string{"tmp/", "run/", "dev/", "proc/", "sys/", "etc/"} {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: mode}); err != nil {
			return err
		}
	}
	made := map[string]bool{".": true}
	for _, name := range slices.Sorted(maps.Keys(i.Files)) {
		inside := strings.TrimPrefix(path.Clean(name), "/")
		if err := writeParents(w, path.Dir(inside), made); err != nil {
			return err
		}
		if err := copyFile(w, inside, i.Files[name], 0o755); err != nil {
			return fmt.Errorf("cannot put %s into image %s: %w", i.Files[name], i.Name, err)
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
