package models

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/modelstore"
	"hotseat.dev/hotseat/launcher/internal/pagecache"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Warm reads a version into main memory, as far as there is room without what runs
// losing any of its own. One is read at a time. When ctx ends, so does the reading.
//
//	the version            effect
//	is there, whole        read; what had no room is left
//	is not whole           error, code conflict
//	is not there           error, code not_found
//
// Whoever removes a version that is being read need not wait: its files are open.
func (k *Keeper) Warm(ctx context.Context, id string) (launcherapi.WarmedModel, error) {
	began := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(k.ctx, func() { cancel(errClosing) })()
	select {
	case k.warming <- struct{}{}:
		defer func() { <-k.warming }()
	case <-ctx.Done():
		return launcherapi.WarmedModel{}, context.Cause(ctx)
	}
	v, ok := k.Version(id)
	if !ok {
		return launcherapi.WarmedModel{}, notFound(&modelstore.NotFoundError{Dir: k.opts.Dir, Name: id})
	}
	if v.Damage != nil {
		return launcherapi.WarmedModel{}, launcher.Conflictf("the model is not whole: %w", v.Damage)
	}
	fresh, err := pagecache.Warm(ctx, pagecache.Options{Paths: k.paths(&v), Room: k.opts.Room})
	warmed := launcherapi.WarmedModel{ID: id, Bytes: v.Manifest.Bytes(), FreshBytes: fresh, TotalMS: time.Since(began).Milliseconds()}
	full, left := errors.AsType[*pagecache.FullError](err)
	switch {
	case left:
		warmed.LeftBytes = full.Left
	case ctx.Err() != nil:
		return warmed, context.Cause(ctx)
	case err != nil:
		return warmed, launcher.Storagef("cannot read the model: %w", err)
	}
	warmed.PageCacheBytes = k.look(id)
	k.opts.Logger.Info("a model was read into main memory", "uri", v.Manifest.URI, "fresh_bytes", fresh, "left_bytes", warmed.LeftBytes)
	return warmed, nil
}

// warmWanted has a version read, where somebody wants that in main memory. With no id it
// has all such read, those that were used last first: after a start of the machine main
// memory holds nothing.
func (k *Keeper) warmWanted(id string) {
	all, err := k.Versions()
	if err != nil {
		k.opts.Logger.Warn("cannot look which models are to be in main memory", "error", err)
	}
	slices.SortFunc(all, func(a, b modelstore.Version) int { return b.LastUse.Compare(a.LastUse) })
	for _, v := range all {
		if id != "" && v.Key != id || v.Damage != nil || !v.Warm() || k.ctx.Err() != nil {
			continue
		}
		if _, err := k.Warm(k.ctx, v.Key); err != nil && k.ctx.Err() == nil {
			k.opts.Logger.Warn("a model could not be read into main memory", "uri", v.Manifest.URI, "error", err)
		}
	}
}

// paths are those of a version's files, in the order of its manifest.
func (k *Keeper) paths(v *modelstore.Version) []string {
	all := make([]string, len(v.Manifest.Files))
	for i, f := range v.Manifest.Files {
		all[i] = filepath.Join(k.Files(v.Key), f.Path)
	}
	return all
}
