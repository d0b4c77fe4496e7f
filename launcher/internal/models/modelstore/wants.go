package modelstore

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
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

// Want says that a version was asked for: by which name, and by whom. One with a
// holder keeps the version from being removed by others. Of each holder, address and
// name there is one: a branch that has moved means the version that it was asked for
// last. Two selections of the files are wanted each for itself.
type Want struct {
	Key                string    `json:"id"`  // of the version
	URI                string    `json:"uri"` // of the source, without the revision
	modelref.Selection           // of its files
	Ref                string    `json:"ref,omitempty"`    // such as a branch; empty: none was named
	Holder             string    `json:"holder,omitempty"` // empty: a person, who holds nothing
	Since              time.Time `json:"since"`

	// Retention is Keep or LRU. Empty: as was said before, else Keep for a holder, and
	// for a person that of the store.
	Retention Retention `json:"retention,omitempty"`

	// Warm: it is to be in main memory before somebody asks for it.
	Warm bool `json:"warm,omitempty"`

	// Private: whoever has the version served shows a right of his own to its source.
	Private bool `json:"private,omitempty"`

	path string
}

// Want notes that a version was asked for, which need not be there yet.
func (s *Store) Want(w Want) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want(w)
}

// WantThere is Want for a version that is there whole, or on its way; otherwise nothing is
// noted, and there is false.
func (s *Store) WantThere(w Want) (there bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if there = s.fetching(w.Key) != nil || s.whole(w.Key); !there {
		return false, nil
	}
	return true, s.want(w)
}

// want is Want with the lock held.
func (s *Store) want(w Want) error {
	if err := fetchapi.CheckRef(w.Ref); err != nil {
		return err
	}
	all, err := s.wants()
	if err != nil {
		return err
	}
	for _, before := range all { // a clock may have been ahead
		if before.URI == w.URI && before.Ref == w.Ref && !w.Since.After(before.Since) {
			w.Since = before.Since.Add(time.Microsecond)
		}
	}
	before, _ := readWant(s.wantFile(&w)) // nothing, where nothing was said
	w.Retention = w.Retention.after(before.Retention)
	return s.note(w)
}

// after is what is said of a version now, where before was said.
func (r Retention) after(before Retention) Retention {
	switch r {
	case "":
		return before
	case Default:
		return ""
	default:
		return r
	}
}

// wantFile is the one of a want.
func (r *Reader) wantFile(w *Want) string {
	name := w.Holder + "\x00" + w.URI + "\x00" + w.Ref
	if !w.All() {
		name += "\x00" + strings.Join(w.Include, "\x00") + "\x00\x00" + strings.Join(w.Exclude, "\x00")
	}
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(r.dir, wantsDir, hex.EncodeToString(sum[:16]))
}

// note writes a want in place of what was noted before. The lock is held.
func (s *Store) note(w Want) error {
	text, err := json.Marshal(w)
	if err == nil {
		err = writeSynced(filepath.Join(s.dir, wantsDir, newRecord), text)
	}
	if err == nil {
		err = os.Rename(filepath.Join(s.dir, wantsDir, newRecord), s.wantFile(&w))
	}
	if err == nil {
		err = syncDir(filepath.Join(s.dir, wantsDir))
	}
	if err != nil {
		return fmt.Errorf("cannot note who wants the model %s: %w", w.URI, err)
	}
	return s.mendHubFor(w.URI) // which shows versions by the names that they were asked for
}

// Amend notes what a holder says now of a version that it has whole by a name, where its
// manifest is as it should be and who may read it is said as before; otherwise nothing is
// noted, and there is false. Since when it wants the version stays as it was: a name means
// the version that was asked for by it last, and nobody has asked for this one. Of several,
// as of two branches, now.Ref says which is meant.
func (s *Store) Amend(name modelref.Name, now Want, check func(*fetchapi.Manifest) error) (v Version, there bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, w, there := s.held(name, &now)
	if !there || w.Private != now.Private || check(&v.Manifest) != nil {
		return Version{}, false, nil
	}
	w.Retention, w.Warm = now.Retention.after(w.Retention), now.Warm
	return v, true, s.note(w)
}

// held gives the version that a holder has whole by a name, and what it wanted of it.
func (r *Reader) held(name modelref.Name, now *Want) (Version, Want, bool) {
	all, _ := r.Versions() // without them nobody has any
	for _, v := range slices.Backward(all) {
		asked, ours := name.Of(v.Manifest.URI)
		if v.Damage != nil || !ours || !v.ref().Is(asked) {
			continue
		}
		for _, w := range v.Wants {
			if w.Holder == now.Holder && now.Holder != "" && w.SameSelection(now.Selection) && (w.Ref == now.Ref || now.Ref == "" && w.by(asked, &v)) {
				return v, w, true
			}
		}
	}
	return Version{}, Want{}, false
}

// by says that a version is wanted by a revision, or by none.
func (w *Want) by(revision string, v *Version) bool {
	named := modelref.Version{Revision: v.Manifest.Revision}
	if w.Ref != "" {
		named.Refs = []string{w.Ref}
	}
	return named.Is(revision)
}

// Unwant drops what a holder wanted of a version. The version stays.
func (s *Store) Unwant(key, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.wants()
	if err != nil {
		return err
	}
	theirs := slices.DeleteFunc(all, func(w Want) bool { return w.Key != key || w.Holder != holder })
	return errors.Join(s.dropWants(theirs), s.mendHub())
}

// wants lists all, the oldest first.
func (r *Reader) wants() ([]Want, error) {
	files, err := os.ReadDir(filepath.Join(r.dir, wantsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("cannot look who wants models: %w", err)
	}
	var all []Want
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") {
			continue
		}
		w, err := readWant(filepath.Join(r.dir, wantsDir, f.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // dropped meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read who wants a model: %w", err)
		}
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b Want) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.path, b.path)) })
	return all, nil
}

func readWant(path string) (Want, error) {
	w, err := readRecord[Want](path) // a damaged one is of no version
	w.path = path
	return w, err
}

// retention is what a want says of its version; empty: that of the store counts.
func (w *Want) retention() Retention {
	if (w.Retention == "" || w.Retention == Default) && w.Holder != "" {
		return Keep
	}
	return w.Retention
}

// evicts says that versions may go to make room for what is wanted. For what a holder
// wants only while there is room none does.
func (w *Want) evicts() bool { return w.Holder == "" || w.retention() == Keep }

// Retention is what those who want a version say of it together; empty: nothing.
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

// LRUBy are those who want a version only while there is room, sorted.
func (v *Version) LRUBy() []string {
	return v.holders(func(w Want) bool { return w.retention() == LRU })
}

// WantedBy are those who hold a version, sorted.
func (v *Version) WantedBy() []string {
	return v.holders(func(w Want) bool { return w.retention() != "" })
}

// WarmBy are those who want a version in main memory, sorted.
func (v *Version) WarmBy() []string { return v.holders(func(w Want) bool { return w.Warm }) }

// PrivateBy are the holders who say that a version is private, sorted.
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

// Warm says that somebody wants a version in main memory.
func (v *Version) Warm() bool {
	return slices.ContainsFunc(v.Wants, func(w Want) bool { return w.Warm })
}

// Private says that whoever has a version served has to show a right of his own to its
// source: all who want it say so.
func (v *Version) Private() bool {
	return len(v.Wants) > 0 && !slices.ContainsFunc(v.Wants, func(w Want) bool { return !w.Private })
}

// Refs are the names by which a version was asked for, and when it was by each.
func (v *Version) Refs() map[string]time.Time {
	refs := map[string]time.Time{}
	if !v.moved {
		refs[v.Manifest.Ref] = v.Published
	}
	for _, w := range v.Wants {
		refs[w.Ref] = w.Since
	}
	delete(refs, "")
	return refs
}

func (s *Store) dropWants(these []Want) error {
	for _, w := range these {
		if err := os.RemoveAll(w.path); err != nil {
			return fmt.Errorf("cannot note that the model %s is not wanted any more: %w", w.URI, err)
		}
	}
	return nil
}

// dropOldWants drops those of versions of which there is nothing.
func (s *Store) dropOldWants() error {
	all, err := s.wants()
	if err != nil {
		return err
	}
	return s.dropWants(slices.DeleteFunc(all, func(w Want) bool {
		_, there := s.Version(w.Key)
		return there
	}))
}
