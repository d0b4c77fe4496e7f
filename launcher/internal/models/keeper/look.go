package keeper

import (
	"maps"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/pagecache"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// The pace of the looks at main memory. They take at most a twentieth of a processor.
const (
	lookPause = 10 * time.Second // from the beginning of one round to the next
	lookRest  = 20               // the pause after each version, in multiples of the look's own time
)

// lookAtIntervals looks again and again how much of the versions main memory holds,
// until the keeper ends. The kernel does not tell when a file leaves main memory.
func (k *Keeper) lookAtIntervals() {
	for {
		next := time.Now().Add(lookPause)
		if k.lookOnceAtAll(); !k.rest(time.Until(next)) {
			return
		}
	}
}

// lookOnceAtAll looks at each version once.
func (k *Keeper) lookOnceAtAll() {
	all, err := k.Versions()
	if err != nil {
		return // List returns the same error to its caller
	}
	k.mu.Lock()
	ids := maps.Clone(k.held) // some of them may be gone
	k.mu.Unlock()
	for _, v := range all {
		ids[v.Key] = ""
	}
	for id := range ids {
		began := time.Now()
		if k.look(id); !k.rest(lookRest * time.Since(began)) {
			return
		}
	}
}

// rest pauses. It returns false when the keeper ends.
func (k *Keeper) rest(pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// look returns how much of a version main memory holds. The result is nil when that
// cannot be told or the version is not whole. look notifies the watchers when the share
// has changed clearly since the last look.
func (k *Keeper) look(id string) (bytes *int64) {
	var held string
	if v, ok := k.Version(id); ok && v.Damage == nil {
		if n, err := pagecache.Resident(k.paths(&v)); err == nil {
			bytes, held = &n, share(n, v.Manifest.Bytes())
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[id] == held {
		return bytes
	}
	if k.held[id] = held; held == "" {
		delete(k.held, id)
	}
	k.notifyLocked()
	return bytes
}

// share returns the name for how much of a model main memory holds. Nine tenths count as
// whole: engines do not read every file, and the kernel drops single pages.
func share(held, all int64) string {
	switch {
	case 10*held >= 9*all:
		return launcherapi.PageCacheWhole
	case 10*held < all:
		return launcherapi.PageCacheNone
	default:
		return launcherapi.PageCachePart
	}
}
