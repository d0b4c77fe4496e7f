package keeper

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"slices"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// List lists the versions in the store, those being fetched, and those that could not be
// fetched. The oldest come first.
func (k *Keeper) List() (launcherapi.ModelList, error) {
	versions, err := k.Versions()
	if err != nil {
		return launcherapi.ModelList{}, launcher.Storagef("%w", err)
	}
	used, err := k.Used()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return launcherapi.ModelList{}, launcher.Storagef("%w", err)
	}
	byID := map[string]launcherapi.Model{}
	for _, v := range versions {
		m := Model(&k.Reader, v)
		if m.InUseBy, err = k.Holders(v.Key); err != nil {
			return launcherapi.ModelList{}, launcher.Storagef("%w", err)
		}
		byID[v.Key] = m
	}
	k.mu.Lock()
	for id, held := range k.held {
		if m := byID[id]; m.State == launcherapi.ModelReady {
			m.PageCache = held
			byID[id] = m
		}
	}
	for id, f := range k.failed {
		if m := byID[id]; m.State != launcherapi.ModelReady {
			byID[id] = f.describe(m)
		}
	}
	for id, p := range k.pulls {
		byID[id] = p.describe(byID[id])
	}
	k.mu.Unlock()
	all := slices.SortedFunc(maps.Values(byID), func(a, b launcherapi.Model) int {
		return cmp.Or(when(a).Compare(when(b)), cmp.Compare(a.ID, b.ID))
	})
	if all == nil {
		all = []launcherapi.Model{}
	}
	return launcherapi.ModelList{Store: k.opts.Dir, UsedBytes: used, LimitBytes: k.opts.Limit, TotalModels: len(all), Models: all}, nil
}

// when returns when a model was published. A model that is not published sorts last.
func when(m launcherapi.Model) time.Time {
	if m.Published == nil {
		return time.Unix(1<<40, 0)
	}
	return *m.Published
}

// Get returns one version, and how much of it main memory holds.
func (k *Keeper) Get(id string) (launcherapi.Model, error) {
	held := k.look(id)
	m, err := k.get(id)
	if m.State == launcherapi.ModelReady {
		m.PageCacheBytes = held
	}
	return m, err
}

func (k *Keeper) get(id string) (launcherapi.Model, error) {
	list, err := k.List()
	if err != nil {
		return launcherapi.Model{}, err
	}
	for _, m := range list.Models {
		if m.ID == id {
			return m, nil
		}
	}
	return launcherapi.Model{}, notFound(&modelstore.NotFoundError{Dir: k.opts.Dir, Name: id})
}

func notFound(err error) error {
	return &launcher.Error{Code: launcherapi.CodeNotFound, Detail: err.Error(), Cause: err}
}

// describe returns the model of a failure. there describes the version on the disk.
func (f failure) describe(there launcherapi.Model) launcherapi.Model {
	m := describe(&f.manifest)
	m.State, m.Cause, m.Reason = launcherapi.ModelFailed, f.cause, f.reason
	m.Path, m.Published, m.InUseBy = there.Path, there.Published, there.InUseBy
	m.Refs, m.WantedBy = there.Refs, withHolder(there.WantedBy, f.holder)
	m.Retention, m.LRUBy, m.PrivateBy, m.WarmBy, m.LastUsed = there.Retention, there.LRUBy, there.PrivateBy, there.WarmBy, there.LastUsed
	return m
}

// describe returns the model of a pull. there describes the version on the disk. The
// caller holds the lock.
func (p *pull) describe(there launcherapi.Model) launcherapi.Model {
	m := describe(p.manifest)
	m.State, m.Reason = launcherapi.ModelDownloading, p.note
	m.FetchedBytes, m.NetworkBytes = p.line.FetchedBytes, p.line.NetworkBytes
	if seconds := time.Since(p.began).Seconds(); seconds > 0 {
		m.Rate = int64(float64(m.NetworkBytes) / seconds)
	}
	if m.Rate > 0 && m.Bytes > m.FetchedBytes {
		m.LeftMS = int64(float64(m.Bytes-m.FetchedBytes) / float64(m.Rate) * 1000)
	}
	m.Path, m.InUseBy = there.Path, there.InUseBy
	m.Refs, m.WantedBy = there.Refs, withHolder(there.WantedBy, p.WantedBy)
	m.Retention, m.LRUBy, m.PrivateBy, m.WarmBy, m.LastUsed = there.Retention, there.LRUBy, there.PrivateBy, there.WarmBy, there.LastUsed
	return m
}

// withHolder adds a holder, which may be empty, to those of the version on the disk.
func withHolder(holders []string, holder string) []string {
	if holder == "" || slices.Contains(holders, holder) {
		return holders
	}
	return append(slices.Clone(holders), holder)
}
