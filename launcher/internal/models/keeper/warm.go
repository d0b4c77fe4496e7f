package keeper

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/pagecache"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Warm reads a version into main memory, as far as there is room beside what running
// processes use. It reads one version at a time, and stops when ctx ends.
//
//	the version            effect
//	is there, whole        reads as much as there is room for
//	is not whole           error, code conflict
//	is not there           error, code not_found
//
// A removal need not wait for Warm, which has the files open.
func (k *Keeper) Warm(ctx context.Context, id string) (launcherapi.WarmedModel, error) {
	return k.warm(ctx, id, 0)
}

// warm does what Warm does, and leaves room for others, the bytes of other versions in
// main memory.
func (k *Keeper) warm(ctx context.Context, id string, others int64) (launcherapi.WarmedModel, error) {
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
		return launcherapi.WarmedModel{}, launcher.Conflictf("cannot read the model into main memory, because it is damaged: %w; pull it again", v.Damage)
	}
	room := func(held int64) (int64, error) { return k.opts.Room(held + others) }
	fresh, err := pagecache.Warm(ctx, pagecache.Options{Paths: k.paths(&v), Room: room})
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
	k.opts.Logger.Info("read a model into main memory", "uri", v.Manifest.URI, "fresh_bytes", fresh, "left_bytes", warmed.LeftBytes)
	return warmed, nil
}

// warmWanted warms a version if one of its wants asks for that. Without an id it warms
// all such versions, as after a start of the machine, when main memory is empty. The last
// used versions come first, and later ones do not push them out.
func (k *Keeper) warmWanted(id string) {
	all, err := k.Versions()
	if err != nil {
		k.opts.Logger.Warn("cannot list the models to read into main memory", "error", err)
	}
	slices.SortFunc(all, func(a, b modelstore.Version) int { return b.LastUse.Compare(a.LastUse) })
	var held int64
	for _, v := range all {
		if id != "" && v.Key != id || v.Damage != nil || !v.Warm() || k.ctx.Err() != nil {
			continue
		}
		warmed, err := k.warm(k.ctx, v.Key, held)
		if err != nil && k.ctx.Err() == nil {
			k.opts.Logger.Warn("cannot read a model into main memory", "uri", v.Manifest.URI, "error", err)
		}
		held += *cmp.Or(warmed.PageCacheBytes, &warmed.FreshBytes)
	}
}

// paths returns the paths of a version's files, in the order of its manifest.
func (k *Keeper) paths(v *modelstore.Version) []string {
	all := make([]string, len(v.Manifest.Files))
	for i, f := range v.Manifest.Files {
		all[i] = filepath.Join(k.Files(v.Key), f.Path)
	}
	return all
}
