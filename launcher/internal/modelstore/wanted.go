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

// Wanted gives the version that an engine is to serve: model is an address or the
// name of a model of the hub, with or without @revision, or the id of a version.
// Where several versions bear the name, as those that a branch once was, it is the
// newest that is whole. The folder of a bucket that is not there itself is found in
// one above it. The error is a *NotFoundError, an *OtherRevisionsError, or a *NotWholeError.
func (r *Reader) Wanted(model, revision string) (Version, error) {
	all, err := r.Versions()
	if err != nil {
		return Version{}, err
	}
	name := modelref.Name{Model: model, Revision: revision}
	v, err := r.wanted(all, name)
	if _, none := errors.AsType[*NotFoundError](err); !none {
		return v, err
	}
	for _, outer := range name.Above() {
		found, failed := r.wanted(all, outer.Name)
		broken, _ := errors.AsType[*NotWholeError](failed)
		switch {
		case failed == nil && found.hasFolder(outer.Path):
			found.Sub = outer.Path
			return found, nil
		case broken != nil && broken.Version.hasFolder(outer.Path):
			return Version{}, failed
		}
	}
	return Version{}, err
}

func (v *Version) hasFolder(name string) bool {
	return slices.ContainsFunc(v.Manifest.Files, func(f fetchapi.File) bool { return strings.HasPrefix(f.Path, name+"/") })
}

// wanted gives the version whose own name or id is meant.
func (r *Reader) wanted(all []Version, name modelref.Name) (Version, error) {
	var newest *Version
	var named time.Time // when the newest was asked for by that name
	var others []string
	var notWhole *NotWholeError
	revision := name.Revision
	for _, v := range all {
		byID := v.Key == name.Model
		asked, ours := name.Of(v.Manifest.URI)
		switch {
		case !ours && !byID:
		case !byID && !v.ref().Is(asked):
			others = append(others, v.Manifest.Revision)
			revision = asked
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
