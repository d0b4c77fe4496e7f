package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// KubernetesVersion is the release that the cluster runs.
const KubernetesVersion = "v1.37.1"

// Kube returns the path of the program that holds all of Kubernetes, and
// builds the program first if the cache has none of this source: that takes
// some fifteen minutes on two cores. source is the folder test/cluster/kube.
// Progress is told to out.
func Kube(ctx context.Context, source string, out io.Writer) (string, error) {
	key, err := kubeKey(source)
	if err != nil {
		return "", err
	}
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "kube", key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make the cache of Kubernetes: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("cannot lock the cache of Kubernetes: %w", err)
	}
	defer lock.Close() // which unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("cannot lock the cache of Kubernetes: %w", err)
	}
	path := filepath.Join(dir, "kube")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fmt.Fprintf(out, "building Kubernetes %s into %s: some fifteen minutes on two cores, once\n", KubernetesVersion, dir)
	return path, buildKube(ctx, source, path, out)
}

func buildKube(ctx context.Context, source, path string, out io.Writer) error {
	flags := []string{"-s", "-w"}
	major, minor := "1", strings.Split(KubernetesVersion, ".")[1]
	for name, value := range map[string]string{"gitVersion": KubernetesVersion, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"} {
		flags = append(flags, fmt.Sprintf("-X k8s.io/component-base/version.%s=%s", name, value))
	}
	fresh := path + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", strings.Join(flags, " "), "-o", fresh, ".")
	cmd.Dir, cmd.Stdout, cmd.Stderr = source, out, out
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := cmd.Run(); err != nil {
		return errors.Join(fmt.Errorf("cannot build Kubernetes: %w", err), os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("cannot keep the built Kubernetes: %w", err)
	}
	return nil
}

// kubeKey is a name for what is built: the source, the requirements, the
// compiler.
func kubeKey(source string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH, KubernetesVersion)
	files, err := filepath.Glob(filepath.Join(source, "*"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("there is no source of Kubernetes in %s: %w", source, errors.Join(err, os.ErrNotExist))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("cannot read the source of Kubernetes: %w", err)
		}
		fmt.Fprintln(hash, filepath.Base(file), len(data))
		hash.Write(data)
	}
	return KubernetesVersion + "-" + hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// cacheDir is where what takes long to make is kept, as for real vLLM.
func cacheDir() (string, error) {
	if dir := os.Getenv("HOTSEAT_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cannot find the cache folder: %w", err)
	}
	return filepath.Join(dir, "hotseat"), nil
}
