package compiled

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// What decides whether engines can use what others have compiled. It need not be exact:
// vLLM, inductor and Triton name what they keep by hashes of sources, settings, versions
// and device, and compile anew what they do not find. What counts is that nothing is
// carried to a node which cannot use it, and that what an engine of an earlier version
// has left can be told from what is in use.

// distributions are those of the engine and of what it compiles with.
var distributions = []string{"vllm", "torch", "triton", "flashinfer_python"}

// KindOf tells the kind of the engines that a program runs. python is the interpreter
// that runs it, as far as that is known; empty: the program itself is the engine.
func KindOf(program, python string, products []string) launcherapi.CompileKind {
	gpus := slices.Clone(products)
	slices.Sort(gpus)
	return launcherapi.CompileKind{Engine: engineOf(program, python), Python: python, GPUs: append([]string{}, slices.Compact(gpus)...), CPU: cpu()}
}

// keyOf names a kind.
func keyOf(k launcherapi.CompileKind) string {
	text, err := json.Marshal(k)
	if err != nil {
		panic(err) // texts alone
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// engineOf tells the versions of what is installed with an interpreter, from the names
// of its *.dist-info folders, or else which file the program is.
func engineOf(program, python string) string {
	var found []string
	if python != "" {
		for _, packages := range packageFolders(python) {
			infos, _ := filepath.Glob(filepath.Join(packages, "*.dist-info")) // the pattern is sound
			for _, info := range infos {
				name, version, _ := strings.Cut(strings.TrimSuffix(filepath.Base(info), ".dist-info"), "-")
				if slices.Contains(distributions, name) {
					found = append(found, name+" "+version)
				}
			}
		}
	}
	if slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, distributions[0]) }) {
		slices.Sort(found)
		return strings.Join(slices.Compact(found), ", ")
	}
	info, err := os.Stat(program)
	if err != nil {
		return program
	}
	return fmt.Sprintf("%s, %d bytes of %s", program, info.Size(), info.ModTime().UTC().Format("2006-01-02T15:04:05.000Z"))
}

// packageFolders are those in which an interpreter finds what is installed: of its
// virtual environment, or of the system, which also has /usr/local.
func packageFolders(python string) []string {
	prefix := filepath.Dir(filepath.Dir(python))
	var all []string
	for _, lib := range []string{prefix + "/lib", prefix + "/lib64", prefix + "/local/lib"} {
		for _, name := range []string{"site-packages", "dist-packages"} {
			found, _ := filepath.Glob(filepath.Join(lib, "python3*", name)) // the pattern is sound
			all = append(all, found...)
		}
	}
	return all
}

// cpu names the processor: its model, and which features it has, since some of what is
// compiled is for exactly these.
func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	return cpuOf(bufio.NewScanner(f))
}

func cpuOf(lines *bufio.Scanner) string {
	lines.Buffer(nil, 1<<20)
	model, features := "", ""
	for lines.Scan() && lines.Text() != "" { // the first processor: an empty line ends it
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
		case "model name", "CPU part":
			model = value
		case "flags", "Features":
			features = value
		}
	}
	all := strings.Fields(features)
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, " ")))
	return fmt.Sprintf("%s, %s, features %s", runtime.GOARCH, model, hex.EncodeToString(sum[:4]))
}
