package cluster

import (
	"cmp"
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

// cniDir is where Debian has the plugins of CNI.
const cniDir = "/usr/lib/cni"

// needs are the programs that nodes need, and the Debian package of each.
var needs = [][2]string{
	{"containerd", "containerd"}, {"ctr", "containerd"}, {"runc", "runc"}, {cniDir + "/bridge", "containernetworking-plugins"},
	{"nft", "nftables"},
}

// checkMachine says what a cluster lacks on this machine.
func checkMachine(nodes bool) error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs namespaces of its own, which takes root: run this as root")
	}
	programs := [][2]string{{"ip", "iproute2"}}
	if nodes {
		programs = append(programs, needs...)
	}
	var missing []string
	for _, program := range programs {
		if _, err := exec.LookPath(program[0]); err != nil {
			missing = append(missing, fmt.Sprintf("%s (Debian package %s)", program[0], program[1]))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("a cluster needs programs that are not here: %s", strings.Join(missing, ", "))
	}
	return nil
}

// source finds the folder of this package.
func source(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "hotseat.dev/hotseat/test/cluster").Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("cannot find the source of the cluster (the working folder must be inside the repository): %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// buildPrograms builds the keeper and the program of the pause image into bin,
// and puts kubectl beside them.
func buildPrograms(ctx context.Context, bin, kube string) error {
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of programs: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin+"/", "hotseat.dev/hotseat/test/cluster/cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the cluster's own programs: %w: %s", err, out)
	}
	if err := os.Symlink(kube, filepath.Join(bin, "kubectl")); err != nil {
		return fmt.Errorf("cannot put kubectl into the cluster's folder: %w", err)
	}
	return nil
}

// buildKube gives the path of the program that holds all of Kubernetes, and
// builds the program first if the cache does not have it.
func buildKube(ctx context.Context, progress io.Writer) (string, error) {
	here, err := source(ctx)
	if err != nil {
		return "", err
	}
	here = filepath.Join(here, "kube")
	key, err := kubeKey(here)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil && os.Getenv("HOTSEAT_CACHE") == "" {
		return "", fmt.Errorf("cannot find the cache folder: %w", err)
	}
	dir := filepath.Join(cmp.Or(os.Getenv("HOTSEAT_CACHE"), filepath.Join(cache, "hotseat")), "kube", key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make the cache of Kubernetes: %w", err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return "", fmt.Errorf("cannot lock the cache of Kubernetes: %w", err)
	}
	defer lock.Close() // which unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("cannot lock the cache of Kubernetes: %w", err)
	}
	program := filepath.Join(dir, "kube")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	fmt.Fprintf(progress, "building Kubernetes into %s: a quarter of an hour on two cores, once\n", dir)
	return program, compileKube(ctx, here, program)
}

func compileKube(ctx context.Context, source, program string) error {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	list.Dir = source
	out, err := list.Output()
	numbers := strings.Split(strings.TrimSpace(string(out)), ".") // v1, 37, 1
	if err != nil || len(numbers) < 3 {
		return fmt.Errorf("cannot tell which Kubernetes %s requires: %w", source, errors.Join(err, fmt.Errorf("go list says %q", out)))
	}
	flags := "-s -w"
	for _, set := range []string{"gitVersion=" + strings.Join(numbers, "."), "gitMajor=" + numbers[0][1:], "gitMinor=" + numbers[1], "gitTreeState=clean"} {
		flags += " -X k8s.io/component-base/version." + set
	}
	fresh := program + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", flags, "-o", fresh, ".")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("cannot build Kubernetes: %w: %s", err, out), os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, program); err != nil {
		return fmt.Errorf("cannot keep the built Kubernetes: %w", err)
	}
	return nil
}

// kubeKey is a name for what is built: the source, its requirements, the
// compiler.
func kubeKey(source string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH)
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
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}
