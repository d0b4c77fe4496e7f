// Package fakenvml builds a stand-in for NVIDIA's management library, so that
// what speaks NVML can be tested where there is no GPU. It answers from the
// folder of simulated GPUs (package simgpu) that the environment variable
// HOTSEAT_SIMGPU_DIR names when the library is initialised; without one there
// is no driver.
//
// Entries of gpus.json that begin with "MIG-" and share an index are the MIG
// devices of one GPU in MIG mode. Of each GPU 512 MiB are reserved for the
// driver, beside the memory that gpus.json says processes can hold. Processes of
// other PID namespaces than the folder's are not seen.
//
// What can go wrong is switched by files, at any time:
//
//	<uuid>/lost, ecc, …        the faults of package simgpu
//	<uuid>/hang                calls for the GPU do not return while the file is there
//	hang                       the library is not initialised while the file is there
//	<uuid>/no_process_memory   processes are listed without their memory
//	refuse                     names of functions, one a line, that are
//	                           "not supported"
package fakenvml

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// LibraryName is the file name that NVML is loaded by.
const LibraryName = "libnvidia-ml.so.1"

//go:embed src
var sources embed.FS

// Build makes the library in dir, under LibraryName, and says its path. It
// needs gcc, and the go command to find the header that go-nvml brings.
func Build(dir string) (path string, err error) { return build(dir) }

// BuildOld makes the library of an old driver, which lacks the functions for
// row remapping and for version 2 of memory information, and lists processes
// by the first version only.
func BuildOld(dir string) (path string, err error) { return build(dir, "-DOLD_DRIVER") }

func build(dir string, flags ...string) (string, error) {
	header, err := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the folder of go-nvml: %w", err)
	}
	work, err := os.MkdirTemp(dir, "fakenvml-")
	if err != nil {
		return "", fmt.Errorf("cannot build %s: %w", LibraryName, err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.CopyFS(work, sources); err != nil {
		return "", fmt.Errorf("cannot build %s: %w", LibraryName, err)
	}
	path := filepath.Join(dir, LibraryName)
	args := append(flags, "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread",
		"-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-I", filepath.Join(strings.TrimSpace(string(header)), "pkg", "nvml"),
		"-Wl,-soname,"+LibraryName, "-Wl,--no-undefined", "-o", path,
		filepath.Join(work, "src", "nvml.c"), filepath.Join(work, "src", "folder.c"))
	if output, err := exec.CommandContext(context.Background(), "gcc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", LibraryName, err, output)
	}
	return path, nil
}
