// Package modelref decides which version of a model a name means. The launcher uses it to serve
// the version from its store, and the controller to place requesters where the version is.
package modelref

import (
	"net/url"
	"slices"
	"strings"
)

// HubScheme begins the addresses of models of the Hugging Face hub.
const HubScheme = "hf://"

// MainBranch is the default revision, as for the hub.
const MainBranch = "main"

// Name is the name of a model in a request.
type Name struct {
	// Model is an address, the name of a model of the hub, or the id of a version in a store.
	// An address or a name may end with @revision, which takes precedence over Revision.
	Model    string
	Revision string // branch, tag or commit; empty: the name has none
}

// FromArgs returns the name in the arguments of `vllm serve`: the first argument, unless it is a
// flag, or the value of --model; and the value of --revision.
func FromArgs(args []string) (n Name) {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		n.Model = args[0]
	}
	for i, arg := range args {
		for flag, into := range map[string]*string{"--model": &n.Model, "--revision": &n.Revision} {
			if value, ok := strings.CutPrefix(arg, flag+"="); ok {
				*into = value
			} else if arg == flag && i+1 < len(args) {
				*into = args[i+1]
			}
		}
	}
	return n
}

// Version has the properties of a version by which a name may refer to it.
type Version struct {
	ID       string   // id in a store; empty: none
	URI      string   // address of the model, without revision
	Revision string   // revision of the source: a commit, a digest, an ETag; empty: not known yet
	Refs     []string // branches and tags by which it was requested; none: the source has one version at a time
	Lacks    bool     // it is a selection that leaves out files that an engine may need
}

// Address returns a name in the form of manifests: folders without a slash at the end, and
// artifacts and models of Ollama's registry with a tag or a digest.
func Address(name string) string {
	for _, scheme := range []string{"oci://", OllamaScheme} {
		if rest, ok := strings.CutPrefix(name, scheme); ok && !strings.ContainsAny(rest[strings.LastIndex(rest, "/")+1:], ":@") {
			return name + ":latest"
		}
	}
	if InBucket(name) || strings.HasPrefix(name, "file://") || strings.HasPrefix(name, "pvc://") {
		return strings.TrimRight(name, "/")
	}
	return name
}

// InBucket reports whether a name is the address of a folder or an object of a bucket.
func InBucket(name string) bool {
	return strings.HasPrefix(name, "s3://") || strings.HasPrefix(name, "gs://") || strings.HasPrefix(name, "azblob://")
}

// Of reports whether a name refers to the model at an address, in any version. It returns the
// revision of the name; empty: none.
func (n Name) Of(uri string) (revision string, ours bool) {
	uri, model := Address(uri), Address(n.Model)
	for _, name := range []string{uri, strings.TrimPrefix(uri, HubScheme)} {
		if name == "" {
			continue
		}
		if model == name {
			return n.Revision, true
		}
		if at, ok := strings.CutPrefix(model, name+"@"); ok {
			return at, true
		}
	}
	return n.Revision, false
}

// Addresses returns the addresses that the name may refer to, in the form of [Address]; see
// [Name.Of].
func (n Name) Addresses() (all []string) {
	model := Address(n.Model)
	for at := len(model); at > 0; at = strings.LastIndex(model[:at], "@") {
		all = append(all, model[:at], HubScheme+model[:at])
	}
	return all
}

// Means reports whether a name means a version. Only the id means a version that lacks files,
// because an engine that names a model needs all of them.
func (n Name) Means(v Version) bool {
	if n.Model == "" {
		return false
	}
	if n.Model == v.ID {
		return true
	}
	revision, ours := n.Of(v.URI)
	return ours && !v.Lacks && v.Is(revision)
}

// Is reports whether a revision means the version. An empty revision means the main branch, or
// the only version.
func (v Version) Is(revision string) bool {
	if revision == "" {
		return len(v.Refs) == 0 || slices.Contains(v.Refs, MainBranch)
	}
	return revision == v.Revision || slices.Contains(v.Refs, revision)
}

// Above returns the parent folders of a folder of a bucket, the nearest first, each with the
// path from there to the folder. Other names have no parents.
func (n Name) Above() (all []Folder) {
	model := Address(n.Model)
	if !InBucket(model) {
		return nil
	}
	bucket := strings.Index(model, "://") + len("://")
	for above := strings.LastIndex(model, "/"); above > bucket; above = strings.LastIndex(model[:above], "/") {
		below, err := url.PathUnescape(model[above+1:])
		if err != nil {
			break
		}
		all = append(all, Folder{Name{model[:above], n.Revision}, below})
	}
	return all
}

// In reports whether a name means a version, or a folder that may be in that version. Whether
// the version has the folder, only its files say.
func (n Name) In(v Version) bool {
	return n.Means(v) || slices.ContainsFunc(n.Above(), func(f Folder) bool { return f.Name.Means(v) })
}

// Folder is a folder in a model.
type Folder struct {
	Name Name
	Path string // with slashes, as in manifests
}
