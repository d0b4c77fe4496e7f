package simulation

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/models/modelstore"
	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// The store of models is the real one, on the world's disk, with at most one model.

// storedModel is the name of the model, and storeUser that of the launcher in the
// store.
const (
	storedModel = "sim/stored"
	storeUser   = "the simulated launcher"
)

// storedManifest is that of the model: one small file.
var storedManifest, storedText = func() (*fetchapi.Manifest, []byte) {
	text := []byte("weights")
	sum := sha256.Sum256(text)
	return &fetchapi.Manifest{
		URI: "hf://" + storedModel, Ref: "main", Revision: strings.Repeat("a", 40),
		Files: []fetchapi.File{{Path: "model.safetensors", Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}},
	}, text
}()

func (w *world) storeDir() string { return filepath.Join(w.dir, "models") }

// owned does something with the store as its owner, a process beside the launcher.
func (w *world) owned(do func(*modelstore.Store) error) error {
	store, err := modelstore.Open(modelstore.Options{Dir: w.storeDir()})
	if err != nil {
		return err
	}
	return errors.Join(do(store), store.Close())
}

// pullModel has somebody pull the model.
func (w *world) pullModel() {
	err := w.owned(func(store *modelstore.Store) error {
		fetch, err := store.Admit(storedManifest, modelstore.Want{})
		if errors.Is(err, modelstore.ErrThere) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(fetch.Staging(), storedManifest.Files[0].SHA256), storedText, 0o600); err != nil {
			return err
		}
		_, err = fetch.Publish(storedManifest)
		return err
	})
	if err != nil {
		panic(err)
	}
	w.pulled = true
}

// removeModel has somebody ask for the removal of the model, which the store refuses
// while somebody has a lease.
func (w *world) removeModel() {
	if !w.pulled {
		return
	}
	err := w.owned(func(store *modelstore.Store) error { return store.Remove(storedManifest.Key(), "") })
	_, used := errors.AsType[*modelstore.InUseError](err)
	_, gone := errors.AsType[*modelstore.NotFoundError](err)
	if err != nil && !used && !gone {
		panic(err)
	}
}

// models are the store as one life of the launcher has it.
type models struct {
	*modelstore.User
	l *life
}

func newModels(l *life) models {
	user, err := modelstore.NewUser(l.w.storeDir(), storeUser, storeUser)
	if err != nil {
		panic(err)
	}
	return models{user, l}
}

func (m models) Lease(key, holder string) error {
	return m.do("lease of "+holder, func() error {
		if m.l.w.full() {
			return syscall.ENOSPC
		}
		return m.User.Lease(key, holder)
	})
}

func (m models) Release(holder string) error {
	return m.do("release of "+holder, func() error { return m.User.Release(holder) })
}

func (m models) ReleaseOthers(there func(string) bool) error {
	return m.do("release of others", func() error { return m.User.ReleaseOthers(there) })
}

// MayRead: nothing is private here.
func (m models) MayRead(modelstore.Version, func(string) string) error { return nil }

func (m models) do(what string, effect func() error) error {
	if err := m.l.call(what); err != nil {
		return err
	}
	defer m.l.effected()
	if err := m.l.awaitDisk(); err != nil {
		return err
	}
	return effect()
}

// leases are the instances that have a lease on the model.
func (w *world) leases() (ids []string) {
	if !w.pulled {
		return nil
	}
	reader, err := modelstore.Read(w.storeDir())
	if err != nil {
		panic(err)
	}
	holders, err := reader.Holders(storedManifest.Key())
	if err != nil {
		panic(err)
	}
	for _, holder := range holders {
		id, _ := strings.CutSuffix(holder, " of "+storeUser)
		ids = append(ids, strings.TrimPrefix(id, "instance "))
	}
	return ids
}

// checkModels checks that each living process that reads the model has a lease, and
// that the model is there.
func (w *world) checkModels() {
	if !w.pulled {
		return
	}
	w.m.mu.Lock()
	var reading []string
	for _, p := range w.m.living() {
		if strings.HasPrefix(p.reads, w.storeDir()) {
			reading = append(reading, p.name)
		}
	}
	w.m.mu.Unlock()
	if len(reading) == 0 {
		return
	}
	leases := w.leases()
	for _, id := range reading {
		if !slices.Contains(leases, id) && w.alive(id) {
			w.m.wrong(modelsStay, "%s reads the model and has no lease: %v have", id, leases)
		}
	}
	reader, err := modelstore.Read(w.storeDir())
	if err != nil {
		panic(err)
	}
	if v, ok := reader.Version(storedManifest.Key()); !ok || v.Damage != nil {
		w.m.wrong(modelsStay, "%v read the model, and it is gone: %v", reading, v.Damage)
	}
}

// alive says whether an instance has a living process.
func (w *world) alive(id string) bool { return w.process(id) != nil }

// checkLeases checks, when all is at rest, that nobody has a lease but those that may
// hold something still.
func (w *world) checkLeases(all []launcherapi.Instance) {
	for _, id := range w.leases() {
		if !slices.ContainsFunc(all, func(i launcherapi.Instance) bool {
			return i.InstanceID == id && (!launcher.State(i.State).Ended() || i.Port != 0)
		}) {
			w.m.wrong(nothingIsLeft, "%s has a lease on the model still", id)
		}
	}
}
