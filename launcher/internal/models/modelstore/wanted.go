package modelstore

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// NotWholeError says that a version is partial or damaged, so it cannot be used.
type NotWholeError struct{ Version Version }

func (e *NotWholeError) Error() string {
	return fmt.Sprintf("the model %s cannot be used: %v; pull it again", e.Version.Manifest.URI, e.Version.Damage)
}

func (e *NotWholeError) Unwrap() error { return e.Version.Damage }

// OtherRevisionsError says that the store has the model only in other revisions.
type OtherRevisionsError struct {
	Model, Revision string
	There           []string
}

func (e *OtherRevisionsError) Error() string {
	return fmt.Sprintf("the store has %s in the revisions %s, but not in %s", e.Model, strings.Join(e.There, ", "), e.Revision)
}

// LackingError says that the store has the model only in selections that lack files
// which an engine may need.
type LackingError struct {
	Model string
	There map[string][]string // the missing files, by the id of the version
}

func (e *LackingError) Error() string {
	var all []string
	for _, id := range slices.Sorted(maps.Keys(e.There)) {
		lacks := e.There[id]
		text := id + " leaves out " + lacks[0]
		if len(lacks) > 1 {
			text += fmt.Sprintf(" and %d more", len(lacks)-1)
		}
		all = append(all, text)
	}
	return fmt.Sprintf("the store has %s only in selections that lack files which an engine may need: %s; pull it without --include and --exclude, or name the id", e.Model, strings.Join(all, "; "))
}

// Wanted returns the version that an engine with these needs has to serve. model is an address, the name
// of a model of the hub, or the id of a version; the first two may end in @revision.
//
// Several versions may have that name, such as all that a branch once meant. Wanted
// returns, among the whole ones, the version that was wanted last by that name. If the store
// lacks the folder of a bucket, Wanted looks for it in versions of the folders above. It
// returns a selection that lacks files which an engine may need only for its id.
//
// A path of the folder of a version that is whole is that version: an engine that is given
// the path reads the version as any other does.
//
// The error is a *NotFoundError, an *OtherRevisionsError, a *NotWholeError or a
// *LackingError.
func (r *Reader) Wanted(model, revision string, need modelref.Need) (Version, error) {
	if v, ok := r.wholeAt(model); ok {
		return v, nil
	}
	all, err := r.Versions()
	if err != nil {
		return Version{}, err
	}
	name := modelref.Name{Model: model, Revision: revision}
	v, err := r.wanted(all, name, "", need)
	if _, none := errors.AsType[*NotFoundError](err); !none {
		return v, err
	}
	for _, outer := range name.Above() {
		found, failed := r.wanted(all, outer.Name, outer.Path, need)
		if failed == nil {
			found.Sub = outer.Path
			return found, nil
		}
		_, broken := errors.AsType[*NotWholeError](failed)
		if _, lacking := errors.AsType[*LackingError](failed); broken || lacking {
			return Version{}, failed
		}
	}
	return Version{}, err
}

// wholeAt returns the version in whose folder a path is, if it is whole.
func (r *Reader) wholeAt(path string) (Version, bool) {
	inside, err := filepath.Rel(filepath.Join(r.dir, modelsDir), path)
	if err != nil || !filepath.IsLocal(inside) {
		return Version{}, false
	}
	parts := strings.Split(filepath.ToSlash(inside), "/")
	if len(parts) < 2 || parts[1] != filesDir {
		return Version{}, false
	}
	v, found := r.Version(parts[0])
	if !found || v.Damage != nil {
		return Version{}, false
	}
	v.Sub = strings.Join(parts[2:], "/")
	return v, true
}

func (v *Version) hasFolder(name string) bool {
	return slices.ContainsFunc(v.Manifest.Files, func(f fetchapi.File) bool { return strings.HasPrefix(f.Path, name+"/") })
}

// wanted returns the version that has the name or the id, and that has the folder. An
// empty folder means the whole version.
func (r *Reader) wanted(all []Version, name modelref.Name, folder string, need modelref.Need) (Version, error) {
	var newest *Version
	var named time.Time // when the newest was last wanted by that name
	var others []string
	var notWhole *NotWholeError
	lacking := &LackingError{Model: name.Model, There: map[string][]string{}}
	revision := name.Revision
	for _, v := range all {
		byID := v.Key == name.Model
		asked, ours := name.Of(v.Manifest.URI)
		var lacks []string
		if !byID {
			lacks = v.Manifest.LacksFor(folder, need)
		}
		switch {
		case !ours && !byID || folder != "" && !v.hasFolder(folder):
		case !byID && !v.ref().Is(asked):
			others = append(others, v.Manifest.Revision)
			revision = asked
		case len(lacks) > 0:
			lacking.There[v.Key] = lacks
		case v.Damage != nil:
			notWhole = &NotWholeError{Version: v}
		case newest == nil || !v.since(asked).Before(named):
			newest, named = &v, v.since(asked)
		}
	}
	if newest != nil {
		return *newest, nil
	}
	if notWhole != nil {
		return Version{}, notWhole
	}
	if len(lacking.There) > 0 {
		return Version{}, lacking
	}
	if len(others) > 0 {
		slices.Reverse(others) // the newest first
		if revision == "" {
			revision = modelref.MainBranch
		}
		return Version{}, &OtherRevisionsError{Model: name.Model, Revision: revision, There: others}
	}
	return Version{}, &NotFoundError{Dir: r.dir, Name: modelref.Address(name.Model)}
}

// Whole returns the whole version with a selection that an address names, and the ref by which
// it does, which may be empty. If several match, Whole returns the one that was wanted last by
// that name. It leaves out versions that are private.
func (r *Reader) Whole(address string, selection modelref.Selection) (v Version, ref string, there bool) {
	all, _ := r.Versions() // after an error, no version is found
	for _, one := range all {
		asked, ours := modelref.Name{Model: address}.Of(one.Manifest.URI)
		if !ours || one.Damage != nil || one.Private() || !one.Manifest.SameSelection(selection) || !one.ref().Is(asked) {
			continue
		}
		if there && one.since(asked).Before(v.since(ref)) {
			continue
		}
		v, ref, there = one, asked, true
	}
	return v, ref, there
}

// ref returns the id, the address, the revision and the refs of the version.
func (v *Version) ref() modelref.Version {
	return modelref.Version{ID: v.Key, URI: v.Manifest.URI, Revision: v.Manifest.Revision, Refs: slices.Collect(maps.Keys(v.Refs()))}
}

// since returns when the version was last wanted by a revision. An empty revision means
// the main branch. Without such a want, since returns when the version was published.
func (v *Version) since(revision string) time.Time {
	if revision == "" {
		revision = modelref.MainBranch
	}
	if when, ok := v.Refs()[revision]; ok {
		return when
	}
	return v.Published
}
