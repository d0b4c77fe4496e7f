package cluster

import (
	"bytes"
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
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// cniDir is where Debian has the plugins of CNI.
const cniDir = "/usr/lib/cni"

// needs are the programs that nodes need, and the Debian package of each. kube-proxy
// runs nft, and neither iptables nor conntrack.
var needs = [][2]string{
	{"containerd", "containerd"}, {"ctr", "containerd"}, {"runc", "runc"}, {cniDir + "/bridge", "containernetworking-plugins"},
	{"nft", "nftables"}, {"mount", "mount"},
}

// enforces are further programs that kube-router runs.
var enforces = [][2]string{{"iptables", "iptables"}, {"iptables-save", "iptables"}, {"iptables-restore", "iptables"}, {"ipset", "ipset"}}

// checkMachine says all that a cluster lacks on this machine.
func checkMachine(nodes, policies bool) error {
	programs := [][2]string{{"ip", "iproute2"}, {"nsenter", "util-linux"}, {"ldd", "libc-bin"}}
	if nodes {
		programs = append(programs, needs...)
	}
	if policies {
		programs = append(programs, enforces...)
	}
	return errors.Join(checkUser(os.Geteuid()), checkPrograms(programs))
}

func checkUser(id int) error {
	if id != 0 {
		return errors.New("a cluster needs namespaces of its own, which takes root: run this as root")
	}
	return nil
}

// checkPrograms names all programs that are missing, and the command that installs
// them on Debian.
func checkPrograms(programs [][2]string) error {
	var missing, packages []string
	for _, program := range programs {
		if _, err := exec.LookPath(program[0]); err != nil {
			missing, packages = append(missing, program[0]), append(packages, program[1])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(packages)
	return fmt.Errorf("a cluster needs programs that are not here: %s; on Debian and Ubuntu this installs them: apt-get install --no-install-recommends %s",
		strings.Join(missing, ", "), strings.Join(slices.Compact(packages), " "))
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

// ownPrograms is the folder of the last cluster for which this process has built the
// keeper and the program of the pause image. Clusters that start side by side share them.
var ownPrograms struct {
	sync.Mutex
	bin string
}

// buildPrograms puts the keeper and the program of the pause image into bin, and
// programs of others beside them, by name.
func buildPrograms(ctx context.Context, bin string, others map[string]string) error {
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("cannot make the folder of programs: %w", err)
	}
	if err := buildOwnPrograms(ctx, bin); err != nil {
		return err
	}
	for name, program := range others {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			return fmt.Errorf("cannot put %s into the cluster's folder: %w", name, err)
		}
	}
	return nil
}

func buildOwnPrograms(ctx context.Context, bin string) error {
	ownPrograms.Lock()
	defer ownPrograms.Unlock()
	if ownPrograms.bin != "" && linkPrograms(ownPrograms.bin, bin) == nil {
		return nil
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin+"/", "hotseat.dev/hotseat/test/cluster/cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the cluster's own programs: %w: %s", err, out)
	}
	ownPrograms.bin = bin
	return nil
}

// linkPrograms fails where the cluster that had them is gone.
func linkPrograms(from, to string) error {
	for _, name := range []string{"cluster", "pause"} {
		if err := os.Link(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	return nil
}

// external is a program of others that is built from a module of its own, a
// folder beside this package, once into the cache.
type external struct {
	folder, name string
	takes        string // the build, on two cores
	program      string // its package
	flags        func(ctx context.Context, source string) (string, error)

	// Where the program is of another release than the folder's go.mod says:
	release string
	module  func(ctx context.Context, source, folder string) error // writes its module into a folder
}

var (
	kubernetes = external{folder: "kube", name: "Kubernetes", takes: "a quarter of an hour", program: ".", flags: kubeFlags}
	kwok       = external{folder: "kwok", name: "KWOK", takes: "three minutes", program: "sigs.k8s.io/kwok/cmd/kwok", flags: noFlags}
	kubeRouter = external{folder: "kuberouter", name: "kube-router", takes: "two minutes", program: "github.com/cloudnativelabs/kube-router/cmd/kube-router", flags: noFlags}
	lws        = external{folder: "lws", name: "LeaderWorkerSet", takes: "three minutes", program: lwsModule + "/cmd", flags: noFlags}
	volcano    = external{folder: "volcano", name: "Volcano's scheduler", takes: "five minutes", program: volcanoModule + "/cmd/scheduler", flags: noFlags}
	helm       = external{folder: "helm", name: "Helm", takes: "four minutes", program: "helm.sh/helm/v4/cmd/helm", flags: noFlags}
)

func noFlags(context.Context, string) (string, error) { return "", nil }

// KWOK gives the path of the program kwok, which plays nodes and their Pods for
// an API server (https://kwok.sigs.k8s.io), and builds it first if the cache does
// not have it. progress is told then.
func KWOK(ctx context.Context, progress io.Writer) (string, error) { return kwok.build(ctx, progress) }

// HelmProgram gives the path of the program helm (https://helm.sh), and builds it
// first if the cache does not have it. progress is told then.
func HelmProgram(ctx context.Context, progress io.Writer) (string, error) {
	return helm.build(ctx, progress)
}

// build gives the path of the program, and builds it first if the cache does not
// have it.
func (e external) build(ctx context.Context, progress io.Writer) (string, error) {
	here, err := source(ctx)
	if err != nil {
		return "", err
	}
	here = filepath.Join(here, e.folder)
	key, err := keyOf(here, e.release)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil && os.Getenv("HOTSEAT_CACHE") == "" {
		return "", fmt.Errorf("cannot find the cache folder: %w", err)
	}
	dir := filepath.Join(cmp.Or(os.Getenv("HOTSEAT_CACHE"), filepath.Join(cache, "hotseat")), e.folder, key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("cannot make the cache of %s: %w", e.name, err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return "", fmt.Errorf("cannot lock the cache of %s: %w", e.name, err)
	}
	defer lock.Close() // which unlocks it
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("cannot lock the cache of %s: %w", e.name, err)
	}
	program := filepath.Join(dir, e.folder)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	fmt.Fprintf(progress, "building %s into %s: %s on two cores, once\n", e.name, dir, e.takes)
	module := here
	if e.module != nil {
		module = filepath.Join(dir, "source")
		if err := e.module(ctx, here, module); err != nil {
			return "", err
		}
	}
	return program, e.compile(ctx, filepath.Join(here, "../../building.sh"), module, program, progress)
}

// compile builds the program of a module by building.sh, which tells progress how far the
// build is: in one line that changes where progress is a terminal.
func (e external) compile(ctx context.Context, building, module, program string, progress io.Writer) error {
	flags, err := e.flags(ctx, module)
	if err != nil {
		return err
	}
	fresh := program + ".new"
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", building, e.name,
		"go", "build", "-trimpath", "-ldflags", "-s -w"+flags, "-o", fresh, e.program)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends the compiler
	cmd.Stderr = progress
	if _, ok := progress.(*os.File); !ok { // nobody may read what is said there
		cmd.Stderr = io.MultiWriter(progress, &said)
	}
	if err := cmd.Run(); err != nil {
		if said.Len() > 0 {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
		}
		return errors.Join(fmt.Errorf("cannot build %s: %w", e.name, err), os.RemoveAll(fresh))
	}
	if err := os.Rename(fresh, program); err != nil {
		return fmt.Errorf("cannot keep the built %s: %w", e.name, err)
	}
	return nil
}

// kubeFlags are linker flags that let the components tell their version.
func kubeFlags(ctx context.Context, module string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", kubeModule)
	list.Dir = module
	out, err := list.Output()
	numbers := strings.Split(strings.TrimSpace(string(out)), ".") // v1, 37, 1
	if err != nil || len(numbers) < 3 {
		return "", fmt.Errorf("cannot tell which Kubernetes %s requires: %w", module, errors.Join(err, fmt.Errorf("go list says %q", out)))
	}
	flags := ""
	for _, set := range []string{"gitVersion=" + strings.Join(numbers, "."), "gitMajor=" + numbers[0][1:], "gitMinor=" + numbers[1], "gitTreeState=clean"} {
		flags += " -X k8s.io/component-base/version." + set
	}
	return flags, nil
}

// keyOf is a name for what is built: the source, its requirements, the
// compiler, and the release where it is another.
func keyOf(source, release string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH)
	if release != "" {
		fmt.Fprintln(hash, "release", release)
	}
	files, err := filepath.Glob(filepath.Join(source, "*"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("there is no source in %s: %w", source, errors.Join(err, os.ErrNotExist))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("cannot read the source: %w", err)
		}
		fmt.Fprintln(hash, filepath.Base(file), len(data))
		hash.Write(data)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}
