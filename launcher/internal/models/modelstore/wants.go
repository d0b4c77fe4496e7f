package modelstore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// Want says who wants a version, and by which name. A want with a holder keeps others
// from removing the version.
//
// There is one want for each holder, address, ref and selection. So a branch that has
// moved means the version that was wanted by it last.
type Want struct {
	Key                string    `json:"id"`  // the version's key
	URI                string    `json:"uri"` // the source's address, without the revision
	modelref.Selection           // which of the model's files the version has
	Ref                string    `json:"ref,omitempty"`    // such as a branch; empty: none was named
	Holder             string    `json:"holder,omitempty"` // empty: a person, who does not keep the version
	Since              time.Time `json:"since"`

	// Retention is Keep or LRU. If it is empty, the retention named before counts. If
	// none was named, a holder means Keep, and for a person the store's retention
	// counts. A person's Keep comes from [Store.Keep], or from a call
	// without a holder.
	Retention Retention `json:"retention,omitempty"`

	// Warm says that the version has to be in main memory before a request needs it.
	Warm bool `json:"warm,omitempty"`

	// Private says that each caller who has the version served must show a right of
	// their own to its source.
	Private bool `json:"private,omitempty"`

	// Left says that this is no want: it notes that the version is private although it has
	// lost its last want, as when a branch has moved.
	Left bool `json:"left,omitempty"`

	path string
}

// WantThere records a want if the version is whole or being fetched. Otherwise it
// records nothing and returns false. The error is ErrPrivate, and nothing is recorded, if
// the version or the want is private, unless the caller has proved its right to it.
func (s *Store) WantThere(w Want, proved bool) (there bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if there = s.fetching(w.Key) != nil || s.isWhole(w.Key); !there {
		return false, nil
	}
	if !proved {
		private, err := s.isPrivate(w.Key)
		if err != nil {
			return false, err
		}
		if w.Private || private {
			return false, ErrPrivate
		}
	}
	return true, s.want(w)
}

// Keep keeps a version for a person when others need room. It is recorded in the person's
// wants of the version. If there are none, Keep makes one by the name of the revision: so no
// other name gets another meaning. Without keep, it takes all of that back.
func (s *Store) Keep(key string, keep bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, there := s.Version(key)
	if !there {
		return &NotFoundError{Dir: s.dir, Name: key}
	}
	if keep && v.Damage != nil {
		return &NotWholeError{Version: v}
	}
	all, err := s.wants()
	if err != nil {
		return err
	}
	v.Wants = slices.DeleteFunc(slices.Clone(all), func(w Want) bool { return w.Key != key })
	v.left = s.leftPrivate(&v, all)
	own := slices.DeleteFunc(slices.Clone(v.Wants), func(w Want) bool { return w.Holder != "" })
	if len(own) == 0 && keep {
		own = []Want{{Key: key, URI: v.Manifest.URI, Selection: v.Manifest.Selection, Ref: v.Manifest.Revision, Since: time.Now().UTC(), Private: v.Private()}}
	}
	for _, w := range own {
		switch {
		case keep:
			w.Retention = Keep
			err = s.writeWant(w)
		case w.Retention != Keep:
		case w.Ref == v.Manifest.Revision && w.Ref != "":
			err = s.drop([]Want{w})
		default:
			w.Retention = ""
			err = s.writeWant(w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// want records that a version is wanted. The store need not have the version yet. The
// caller holds the lock.
func (s *Store) want(w Want) error {
	if err := fetchapi.CheckRef(w.Ref); err != nil {
		return err
	}
	all, err := s.wants()
	if err != nil {
		return err
	}
	for _, before := range all { // the clock may have been ahead before
		if before.URI == w.URI && before.Ref == w.Ref && !w.Since.After(before.Since) {
			w.Since = before.Since.Add(time.Microsecond)
		}
	}
	before, _ := readWant(s.wantFile(&w)) // an empty want if there was none
	w.Retention = cmp.Or(w.Retention, before.Retention)
	if before.Key != w.Key {
		if err := s.noteLeft(&before); err != nil {
			return err
		}
	}
	return s.writeWant(w)
}

// wantFile returns the path of a want's file.
func (r *Reader) wantFile(w *Want) string {
	name := w.Holder + "\x00" + w.URI + "\x00" + w.Ref
	if w.Left {
		name = "\x00\x00" + w.Key
	} else if !w.All() {
		name += "\x00" + strings.Join(w.Include, "\x00") + "\x00\x00" + strings.Join(w.Exclude, "\x00")
	}
	return filepath.Join(r.dir, wantsDir, recordName(name))
}

// writeWant writes a want, in place of an earlier one. A want that is not private removes the
// note of noteLeft. The caller holds the lock.
func (s *Store) writeWant(w Want) error {
	if !w.Private {
		if err := s.removeFile(s.leftFile(w.Key)); err != nil {
			return fmt.Errorf("cannot note that the model %s is not private: %w", w.URI, err)
		}
	}
	text, err := json.Marshal(w)
	if err == nil {
		err = s.writeSynced(filepath.Join(s.dir, wantsDir, newRecord), text)
	}
	if err == nil {
		err = s.rename(filepath.Join(s.dir, wantsDir, newRecord), s.wantFile(&w))
	}
	if err == nil {
		err = s.syncDir(filepath.Join(s.dir, wantsDir))
	}
	if err != nil {
		return fmt.Errorf("cannot record who wants the model %s: %w", w.URI, err)
	}
	return nil
}

// Amend updates the retention and warmth of a holder's want, if the holder has a whole
// version by that name. It records nothing and returns false if there is no such want,
// if now.Private differs from the want's, or if check refuses the manifest.
//
// The time of the want stays: otherwise the name could mean another version afterwards.
// If the holder wants the version by several refs, now.Ref says which one is meant.
func (s *Store) Amend(name modelref.Name, now Want, check func(*fetchapi.Manifest) error) (v Version, there bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, w, there := s.findHeld(name, &now)
	if !there || w.Private != now.Private || check(&v.Manifest) != nil {
		return Version{}, false, nil
	}
	w.Retention, w.Warm = cmp.Or(now.Retention, w.Retention), now.Warm
	return v, true, s.writeWant(w)
}

// findHeld returns a whole version that a holder wants by a name, and that want.
func (r *Reader) findHeld(name modelref.Name, now *Want) (Version, Want, bool) {
	all, _ := r.Versions() // after an error, no version is found
	for _, v := range slices.Backward(all) {
		asked, ours := name.Of(v.Manifest.URI)
		if v.Damage != nil || !ours || !v.ref().Is(asked) {
			continue
		}
		for _, w := range v.Wants {
			if w.Holder == now.Holder && now.Holder != "" && w.SameSelection(now.Selection) && (w.Ref == now.Ref || now.Ref == "" && w.isNamed(asked, &v)) {
				return v, w, true
			}
		}
	}
	return Version{}, Want{}, false
}

// isNamed reports whether a version is wanted by a revision, which may be empty.
func (w *Want) isNamed(revision string, v *Version) bool {
	named := modelref.Version{Revision: v.Manifest.Revision}
	if w.Ref != "" {
		named.Refs = []string{w.Ref}
	}
	return named.Is(revision)
}

// Unwant drops a holder's wants of a version. The version stays.
func (s *Store) Unwant(key, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.wants()
	if err != nil {
		return err
	}
	theirs := slices.DeleteFunc(all, func(w Want) bool { return w.Key != key || w.Holder != holder })
	return s.drop(theirs)
}

// drop removes wants of versions that stay. The caller holds the lock.
func (s *Store) drop(these []Want) error {
	for _, w := range these {
		if err := s.noteLeft(&w); err != nil {
			return err
		}
		if err := s.removeWants([]Want{w}); err != nil {
			return err
		}
	}
	return nil
}

// wants lists all wants, the oldest first.
func (r *Reader) wants() ([]Want, error) {
	all, err := r.wantRecords()
	return slices.DeleteFunc(all, func(w Want) bool { return w.Left }), err
}

// wantRecords lists all wants, and what noteLeft has noted.
func (r *Reader) wantRecords() ([]Want, error) {
	files, err := r.ownEntries(wantsDir, isRecord)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot list the wants of models: %w", err)
	}
	var all []Want
	for _, f := range files {
		w, err := readWant(filepath.Join(r.dir, wantsDir, f.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // the want was dropped meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read a want of a model: %w", err)
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b Want) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.path, b.path)) })
	return all, nil
}

func readWant(path string) (Want, error) {
	w, err := readRecord[Want](path) // a damaged want names no version
	w.path = path
	return w, err
}

// retention returns the retention of a want; empty: the store's retention counts.
func (w *Want) retention() Retention {
	if w.Retention == "" && w.Holder != "" {
		return Keep
	}
	return w.Retention
}

// makesRoom reports whether versions may be evicted for the wanted one. They may not for a
// version that its holder wants with LRU: two such versions would evict each other for as
// long as both are wanted, since their holders ask again.
func (w *Want) makesRoom() bool { return w.Holder == "" || w.retention() == Keep }

// Retention returns the retention that follows from all wants of a version; empty: the
// store's retention counts.
func (v *Version) Retention() Retention {
	all := map[Retention]bool{}
	for _, w := range v.Wants {
		all[w.retention()] = true
	}
	switch {
	case all[Keep]:
		return Keep
	case all[LRU] && !all[""]:
		return LRU
	default:
		return ""
	}
}

// LRUBy returns the holders that want a version only while there is room, sorted.
func (v *Version) LRUBy() []string {
	return v.holders(func(w Want) bool { return w.retention() == LRU })
}

// WantedBy returns the holders that want a version, sorted.
func (v *Version) WantedBy() []string {
	return v.holders(func(w Want) bool { return w.retention() != "" })
}

// WarmBy returns the holders that want a version in main memory, sorted.
func (v *Version) WarmBy() []string { return v.holders(func(w Want) bool { return w.Warm }) }

// PrivateBy returns the holders whose wants say that a version is private, sorted.
func (v *Version) PrivateBy() []string { return v.holders(func(w Want) bool { return w.Private }) }

func (v *Version) holders(which func(Want) bool) []string {
	var holders []string
	for _, w := range v.Wants {
		if w.Holder != "" && which(w) {
			holders = append(holders, w.Holder)
		}
	}
	slices.Sort(holders)
	return slices.Compact(holders)
}

// Warm reports whether a want asks for the version in main memory.
func (v *Version) Warm() bool {
	return slices.ContainsFunc(v.Wants, func(w Want) bool { return w.Warm })
}

// Refs returns the refs by which a version is wanted, each with the time of its want.
func (v *Version) Refs() map[string]time.Time {
	refs := map[string]time.Time{}
	if !v.nameMoved {
		refs[v.Manifest.Ref] = v.Published
	}
	for _, w := range v.Wants {
		refs[w.Ref] = w.Since
	}
	delete(refs, "")
	return refs
}

func (s *Store) removeWants(these []Want) error {
	for _, w := range these {
		if w.path == "" { // its fetch would have recorded it
			continue
		}
		if err := s.removeFile(w.path); err != nil {
			return fmt.Errorf("cannot remove a want of the model %s: %w", w.URI, err)
		}
	}
	return nil
}

// removeOldWants removes the wants of versions that do not exist.
func (s *Store) removeOldWants() error {
	all, err := s.wantRecords()
	if err != nil {
		return err
	}
	return s.removeWants(slices.DeleteFunc(all, func(w Want) bool {
		_, there := s.Version(w.Key)
		return there
	}))
}
