// Package modelref says which version of a model a name means. A launcher, which
// serves that version from its store, and the controller, which places requesters
// where the version is, have one opinion of it here.
package modelref

import (
	"net/url"
	"slices"
	"strings"
)

// HubScheme begins the addresses of models of the Hugging Face hub.
const HubScheme = "hf://"

// MainBranch is the revision that is meant where none is named, as for the hub.
const MainBranch = "main"

// Name is what somebody calls a model.
type Name struct {
	// Model is an address, the name of a model of the hub, or the id of a version in a
	// store; the first two with or without @revision, which wins over Revision.
	Model    string
	Revision string // branch, tag or commit; empty: none is named
}

// FromArgs is the name among the arguments of `vllm serve`: the first argument, unless
// that is a flag, or the value of --model, and the value of --revision.
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

// Version is a version of a model by all that names may call it.
type Version struct {
	ID       string   // in a store; empty: none
	URI      string   // address of the model, without revision
	Revision string   // what it is at its source: a commit, a digest, an ETag; empty: not known yet
	Refs     []string // branches and tags by which it was asked for; none: its source has one version at a time
	Lacks    bool     // it is a selection of the files that leaves out what an engine may need
}

// Address is a name as the manifests of models have it: folders of buckets and of
// this machine without a slash at the end, artifacts with a tag or a digest.
func Address(name string) string {
	if rest, ok := strings.CutPrefix(name, "oci://"); ok && !strings.ContainsAny(rest[strings.LastIndex(rest, "/")+1:], ":@") {
		return name + ":latest"
	}
	if InBucket(name) || strings.HasPrefix(name, "file://") || strings.HasPrefix(name, "pvc://") {
		return strings.TrimRight(name, "/")
	}
	return name
}

// InBucket says that a name is the address of a folder or an object of a bucket.
func InBucket(name string) bool {
	return strings.HasPrefix(name, "s3://") || strings.HasPrefix(name, "gs://") || strings.HasPrefix(name, "azblob://")
}

// Of says whether a name calls the model at an address, in whichever version, and the
// revision that the name asks for; empty: none.
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

// Addresses are those, as [Address] has them, of the models that the name calls; see [Name.Of].
func (n Name) Addresses() (all []string) {
	model := Address(n.Model)
	for at := len(model); at > 0; at = strings.LastIndex(model[:at], "@") {
		all = append(all, model[:at], HubScheme+model[:at])
	}
	return all
}

// Means says whether a name means a version. One that lacks files is meant by its id
// alone: who names a model gets all of it that an engine needs.
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

// Is says whether a revision, or its absence, means the version.
func (v Version) Is(revision string) bool {
	if revision == "" {
		return len(v.Refs) == 0 || slices.Contains(v.Refs, MainBranch)
	}
	return revision == v.Revision || slices.Contains(v.Refs, revision)
}

// Above gives the folders of a bucket that a folder is in, the nearest first, each
// with the path from there to the folder. A name of another kind is in none.
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

// In says whether a name means a version, or a folder that may be in one: whether a
// version of a bucket has that folder is for those to find out who have the version.
func (n Name) In(v Version) bool {
	return n.Means(v) || slices.ContainsFunc(n.Above(), func(f Folder) bool { return f.Name.Means(v) })
}

// Folder is a folder within what a name calls.
type Folder struct {
	Name Name
	Path string // with slashes, as manifests have it
}
