package modelstore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// NotWholeError says that a version cannot be used: it is partial or damaged.
type NotWholeError struct{ Version Version }

func (e *NotWholeError) Error() string {
	return fmt.Sprintf("the model %s cannot be used: %v; pull it again", e.Version.Manifest.URI, e.Version.Damage)
}

func (e *NotWholeError) Unwrap() error { return e.Version.Damage }

// OtherRevisionsError says that the store has the model, and not in the revision
// that is wanted.
type OtherRevisionsError struct {
	Model, Revision string
	There           []string
}

func (e *OtherRevisionsError) Error() string {
	return fmt.Sprintf("the store has %s in the revisions %s, and not in %s", e.Model, strings.Join(e.There, ", "), e.Revision)
}

// LackingError says that the store has the model only in selections of its files, and
// which files these lack.
type LackingError struct {
	Model string
	There map[string][]string // what is left out that an engine may need, by the ids of the versions
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
	return fmt.Sprintf("the store has %s only in selections of its files, without what an engine may need: %s; pull it without --include and --exclude, or name the id", e.Model, strings.Join(all, "; "))
}

// Wanted gives the version that an engine is to serve: model is an address or the
// name of a model of the hub, with or without @revision, or the id of a version.
// Where several versions bear the name, as those that a branch once was, it is the
// newest that is whole. The folder of a bucket that is not there itself is found in
// one above it. A selection of the files that leaves out what an engine may need is
// given by its id alone. The error is a *NotFoundError, an *OtherRevisionsError, a
// *NotWholeError or a *LackingError.
func (r *Reader) Wanted(model, revision string) (Version, error) {
	all, err := r.Versions()
	if err != nil {
		return Version{}, err
	}
	name := modelref.Name{Model: model, Revision: revision}
	v, err := r.wanted(all, name, "")
	if _, none := errors.AsType[*NotFoundError](err); !none {
		return v, err
	}
	for _, outer := range name.Above() {
		found, failed := r.wanted(all, outer.Name, outer.Path)
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

func (v *Version) hasFolder(name string) bool {
	return slices.ContainsFunc(v.Manifest.Files, func(f fetchapi.File) bool { return strings.HasPrefix(f.Path, name+"/") })
}

// wanted gives the version whose own name or id is meant, and that has a folder; empty:
// whichever.
func (r *Reader) wanted(all []Version, name modelref.Name, folder string) (Version, error) {
	var newest *Version
	var named time.Time // when the newest was asked for by that name
	var others []string
	var notWhole *NotWholeError
	lacking := &LackingError{Model: name.Model, There: map[string][]string{}}
	revision := name.Revision
	for _, v := range all {
		byID := v.Key == name.Model
		asked, ours := name.Of(v.Manifest.URI)
		var lacks []string
		if !byID {
			lacks = v.Manifest.Lacks(folder)
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

// ref is the version by all that names may call it.
func (v *Version) ref() modelref.Version {
	return modelref.Version{ID: v.Key, URI: v.Manifest.URI, Revision: v.Manifest.Revision, Refs: slices.Collect(maps.Keys(v.Refs()))}
}

// since is when the version was last asked for by a revision, or by none; else when
// it came.
func (v *Version) since(revision string) time.Time {
	if revision == "" {
		revision = modelref.MainBranch
	}
	if when, ok := v.Refs()[revision]; ok {
		return when
	}
	return v.Published
}
