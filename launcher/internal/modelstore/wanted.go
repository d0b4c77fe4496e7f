package modelstore

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
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

// mainBranch is the revision that is meant where none is named, as for the hub.
const mainBranch = "main"

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
	model = addressOf(model)
	v, err := r.wanted(all, model, revision)
	if _, none := errors.AsType[*NotFoundError](err); !none || !inBucket(model) {
		return v, err
	}
	bucket := strings.Index(model, "://") + len("://")
	for above := strings.LastIndex(model, "/"); above > bucket; above = strings.LastIndex(model[:above], "/") {
		below, bad := url.PathUnescape(model[above+1:])
		if bad != nil {
			break
		}
		outer, failed := r.wanted(all, model[:above], revision)
		broken, _ := errors.AsType[*NotWholeError](failed)
		switch {
		case failed == nil && outer.hasFolder(below):
			outer.Sub = below
			return outer, nil
		case broken != nil && broken.Version.hasFolder(below):
			return Version{}, failed
		}
	}
	return Version{}, err
}

func (v *Version) hasFolder(name string) bool {
	return slices.ContainsFunc(v.Manifest.Files, func(f fetchapi.File) bool { return strings.HasPrefix(f.Path, name+"/") })
}

// addressOf is a name as the manifests of models have it: folders of buckets and of
// this machine without a slash at the end, artifacts with a tag.
func addressOf(name string) string {
	if rest, ok := strings.CutPrefix(name, "oci://"); ok && !strings.ContainsAny(rest[strings.LastIndex(rest, "/")+1:], ":@") {
		return name + ":latest"
	}
	if inBucket(name) || strings.HasPrefix(name, "file://") {
		return strings.TrimRight(name, "/")
	}
	return name
}

func inBucket(name string) bool {
	return strings.HasPrefix(name, "s3://") || strings.HasPrefix(name, "gs://") || strings.HasPrefix(name, "azblob://")
}

// wanted gives the version whose own name or id is meant.
func (r *Reader) wanted(all []Version, model, revision string) (Version, error) {
	var newest *Version
	var named time.Time // when the newest was asked for by that name
	var others []string
	var notWhole *NotWholeError
	for _, v := range all {
		asked, ours := revision, v.Key == model
		for _, name := range []string{v.Manifest.URI, strings.TrimPrefix(v.Manifest.URI, hubScheme)} {
			if model == name {
				ours = true
			} else if rest, ok := strings.CutPrefix(model, name+"@"); ok && name != "" {
				ours, asked = true, rest
			}
		}
		switch {
		case !ours:
		case v.Key != model && !v.is(asked):
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
			revision = mainBranch
		}
		return Version{}, &OtherRevisionsError{Model: model, Revision: revision, There: others}
	}
	return Version{}, &NotFoundError{Dir: r.dir, Name: model}
}

// is says whether a revision, or its absence, means the version. A source without
// branches has one version at a time.
func (v *Version) is(revision string) bool {
	refs := v.Refs()
	if revision == "" {
		_, main := refs[mainBranch]
		return main || v.Manifest.Ref == ""
	}
	_, named := refs[revision]
	return named || revision == v.Manifest.Revision
}

// since is when the version was last asked for by a revision, or by none; else when
// it came.
func (v *Version) since(revision string) time.Time {
	if revision == "" {
		revision = mainBranch
	}
	if when, ok := v.Refs()[revision]; ok {
		return when
	}
	return v.Published
}
