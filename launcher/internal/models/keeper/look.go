package keeper

import (
	"maps"
	"time"

	"hotseat.dev/hotseat/launcher/internal/machine/pagecache"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Pace of the looks at what main memory holds: a round of all versions begins so long
// after the one before, and after each version there is a pause of so many times what
// the look has taken, so that they take a twentieth of a processor at most.
const (
	lookPause = 10 * time.Second
	lookRest  = 20
)

// lookAgainAndAgain looks how much of the versions main memory holds until the keeper
// ends: nobody tells when a file leaves it.
func (k *Keeper) lookAgainAndAgain() {
	for {
		next := time.Now().Add(lookPause)
		if k.lookAtAll(); !k.rest(time.Until(next)) {
			return
		}
	}
}

// lookAtAll makes a round.
func (k *Keeper) lookAtAll() {
	all, err := k.Versions()
	if err != nil {
		return // who lists the models is told
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

// rest waits; it says no once the keeper ends.
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

// look gives how much of a version main memory holds, nil where nobody can tell, or where
// it is gone meanwhile; and tells the watchers when it is clearly more or less than at
// the last look.
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

// share names how much of a model main memory holds. Nine tenths are taken for all of it:
// engines do not read every file, and the kernel gives up a page here and there.
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
