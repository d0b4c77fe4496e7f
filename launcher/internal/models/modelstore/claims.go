package modelstore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// Claims are mounted volumes (PersistentVolumeClaims), which this process only reads.
// The map has the folder of each by its name. Each volume has a model store, which
// other processes fill. A version there needs no lease: Kubernetes keeps a volume
// while it is mounted.
type Claims map[string]string

// Claimed is a version in the store of a claim.
type Claimed struct {
	Version
	Claim string
	Files string // the folder of the version's files
}

// Wanted returns the version that an engine has to serve, from the first claim in
// alphabetical order that has it. The error is that of [Reader.Wanted] for the last
// claim that has some version of the model.
func (c Claims) Wanted(model, revision string, need modelref.Need) (Claimed, error) {
	var nearest error = &NotFoundError{Dir: "the claims of this launcher", Name: model}
	for _, claim := range slices.Sorted(maps.Keys(c)) {
		r, err := Read(filepath.Join(c[claim], fetchapi.ClaimStore))
		if err != nil {
			return Claimed{}, fmt.Errorf("claim %s: %w", claim, err)
		}
		v, err := r.Wanted(model, revision, need)
		if err == nil {
			return Claimed{Version: v, Claim: claim, Files: r.Files(v.Key)}, nil
		}
		if !Absent(err) {
			return Claimed{}, fmt.Errorf("claim %s: %w", claim, err)
		}
		if _, none := errors.AsType[*NotFoundError](err); !none {
			nearest = fmt.Errorf("claim %s: %w", claim, err)
		}
	}
	return Claimed{}, nearest
}

// Folder returns the folder that an address such as pvc://CLAIM/folder means.
func (c Claims) Folder(address string) (string, error) {
	claim, below, _ := strings.Cut(strings.TrimPrefix(address, fetchapi.ClaimScheme), "/")
	dir, ok := c[claim]
	if !ok {
		has := "it has no claims"
		if len(c) > 0 {
			has = "it has the claims " + strings.Join(slices.Sorted(maps.Keys(c)), ", ")
		}
		return "", fmt.Errorf("this launcher has no claim %q (%s); name it in spec.modelCache.claims of its LauncherConfig, or by --model-claims", claim, has)
	}
	name := path.Clean("/" + below)
	if err := isFolder(dir, strings.TrimPrefix(name, "/")); err != nil {
		return "", fmt.Errorf("claim %s has no folder %q: %w", claim, name, err)
	}
	return filepath.Join(dir, filepath.FromSlash(name)), nil
}

// isFolder checks that dir has a folder of that name. It does not follow links that
// lead out of dir.
func isFolder(dir, name string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	folder, err := root.OpenRoot(cmp.Or(name, "."))
	if err != nil {
		return err
	}
	return folder.Close()
}

// Absent reports whether an error of Wanted means that the store cannot serve the
// version: it is not there, not whole, or lacks files that an engine needs.
func Absent(err error) bool {
	_, none := errors.AsType[*NotFoundError](err)
	_, other := errors.AsType[*OtherRevisionsError](err)
	_, broken := errors.AsType[*NotWholeError](err)
	_, lacking := errors.AsType[*LackingError](err)
	return none || other || broken || lacking
}
