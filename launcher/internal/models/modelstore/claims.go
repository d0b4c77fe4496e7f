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
)

// Claims are volumes that this process only reads, the folders where they are mounted by
// their names. Others keep models in the store of each; nobody takes a lease there: that a
// volume stays while it is mounted is seen to by who has mounted it.
type Claims map[string]string

// Claimed is a version in the store of a claim.
type Claimed struct {
	Version
	Claim string
	Files string // its folder
}

// Wanted gives the version that an engine is to serve from the first claim that has it,
// by their names. The error is as that of [Reader.Wanted], of the claim that comes nearest
// to having it.
func (c Claims) Wanted(model, revision string) (Claimed, error) {
	var nearest error = &NotFoundError{Dir: "the claims of this launcher", Name: model}
	for _, claim := range slices.Sorted(maps.Keys(c)) {
		r, err := Read(filepath.Join(c[claim], fetchapi.ClaimStore))
		if err != nil {
			return Claimed{}, fmt.Errorf("claim %s: %w", claim, err)
		}
		v, err := r.Wanted(model, revision)
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

// Folder is the one that an address as pvc://CLAIM/folder means.
func (c Claims) Folder(address string) (string, error) {
	claim, below, _ := strings.Cut(strings.TrimPrefix(address, fetchapi.ClaimScheme), "/")
	dir, ok := c[claim]
	if !ok {
		has := "it has none"
		if len(c) > 0 {
			has = "it has " + strings.Join(slices.Sorted(maps.Keys(c)), ", ")
		}
		return "", fmt.Errorf("this launcher has no claim %q, %s: name it in spec.modelCache.claims of its LauncherConfig, or by --model-claims", claim, has)
	}
	name := path.Clean("/" + below)
	if err := isFolder(dir, strings.TrimPrefix(name, "/")); err != nil {
		return "", fmt.Errorf("claim %s has no folder %q: %w", claim, name, err)
	}
	return filepath.Join(dir, filepath.FromSlash(name)), nil
}

// isFolder says whether there is a folder within another one, wherever links lead.
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

// Absent says that an error of Wanted is that there is no such version, or none that is
// whole and has all that an engine needs.
func Absent(err error) bool {
	_, none := errors.AsType[*NotFoundError](err)
	_, other := errors.AsType[*OtherRevisionsError](err)
	_, broken := errors.AsType[*NotWholeError](err)
	_, lacking := errors.AsType[*LackingError](err)
	return none || other || broken || lacking
}
