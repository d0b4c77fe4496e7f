package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
)

// EnvRelease names the environment variable that says which release of Kubernetes a
// cluster has, such as 1.33.5. If it is empty, the cluster has the release of kube/go.mod.
const EnvRelease = "HOTSEAT_KUBERNETES"

const (
	kubeModule    = "k8s.io/kubernetes"
	stagingPrefix = "./staging/src/" // of Kubernetes' own go.mod
)

var goodRelease = regexp.MustCompile(`^1\.([1-9][0-9]*\.[0-9]+)$`)

// kubernetesOf returns Kubernetes of a release; an empty release is that of kube/go.mod.
func kubernetesOf(release string) (external, error) {
	e := kubernetes
	if release == "" {
		return e, nil
	}
	if !goodRelease.MatchString(release) {
		return e, fmt.Errorf("%s is %q, which is no release of Kubernetes: write it as 1.33.5", EnvRelease, release)
	}
	e.name += " " + release
	e.module = func(ctx context.Context, source, folder string) error {
		return releaseModule(ctx, source, folder, release)
	}
	e.release = release
	return e, nil
}

// proxyStays says of a release what [Cluster.ProxyStays] says of a cluster; empty: the release is
// that of kube/go.mod, which is 1.37 or later.
func proxyStays(release string) bool {
	var minor int
	_, err := fmt.Sscanf(release, "1.%d.", &minor)
	return err == nil && minor < 37
}

// releaseModule writes a module into a folder: the program of source, with a go.mod that
// requires another release of Kubernetes.
func releaseModule(ctx context.Context, source, folder, release string) error {
	if err := copySource(source, folder); err != nil {
		return err
	}
	theirs, err := downloadGoMod(ctx, folder, release)
	if err != nil {
		return err
	}
	ours, err := releaseGoMod(theirs, release)
	if err != nil {
		return fmt.Errorf("cannot make a go.mod of Kubernetes' own: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "go.mod"), ours, 0o644); err != nil {
		return fmt.Errorf("cannot write the go.mod of Kubernetes %s: %w", release, err)
	}
	tidy := exec.CommandContext(ctx, "go", "mod", "tidy")
	tidy.Dir = folder
	if out, err := tidy.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot download what Kubernetes %s requires: %w: %s", release, err, out)
	}
	return nil
}

// copySource copies the Go files of source into a folder that has nothing else then.
func copySource(source, folder string) error {
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return fmt.Errorf("cannot make a folder of source: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(file)), data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("cannot copy source: %w", err)
		}
	}
	return nil
}

// downloadGoMod downloads a release of Kubernetes and returns its go.mod.
func downloadGoMod(ctx context.Context, folder, release string) ([]byte, error) {
	module, err := downloadModule(ctx, folder, kubeModule+"@v"+release)
	if err != nil {
		return nil, fmt.Errorf("cannot download Kubernetes %s: %w", release, err)
	}
	data, err := os.ReadFile(module.GoMod)
	if err != nil {
		return nil, fmt.Errorf("cannot read the go.mod of Kubernetes %s: %w", release, err)
	}
	return data, nil
}

// downloaded is a module in the cache of modules: its go.mod, and its folder.
type downloaded struct{ GoMod, Dir, Error string }

// downloadModule downloads a module; a folder's go.mod says which version if the name does not.
func downloadModule(ctx context.Context, folder, name string) (module downloaded, err error) {
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", name)
	download.Dir = folder
	out, err := download.Output()
	if wrong := json.Unmarshal(out, &module); wrong != nil || module.Error != "" {
		return module, fmt.Errorf("%w: %s", errors.Join(err, wrong), module.Error)
	}
	return module, nil
}

// releaseGoMod makes our go.mod out of that of Kubernetes. It requires all that Kubernetes
// requires, in the same versions. Kubernetes takes its staging modules from folders of its
// repository; here they are the modules that were published with the release.
func releaseGoMod(theirs []byte, release string) ([]byte, error) {
	file, err := modfile.Parse("go.mod", theirs, nil)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(file.AddModuleStmt("hotseat.dev/hotseat/test/cluster/kube"), file.AddRequire(kubeModule, "v"+release)); err != nil {
		return nil, err
	}
	staging := "v0." + goodRelease.FindStringSubmatch(release)[1]
	for _, replaced := range file.Replace {
		if strings.HasPrefix(replaced.New.Path, stagingPrefix) {
			if err := file.AddReplace(replaced.Old.Path, replaced.Old.Version, replaced.Old.Path, staging); err != nil {
				return nil, err
			}
		}
	}
	file.Cleanup()
	return file.Format()
}
