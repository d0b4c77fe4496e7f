package modelstore

import (
	"errors"
	"os"
	"slices"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// This file says which versions are private, and keeps their files from callers who have not
// proved their right.

// ErrPrivate says that the caller has to show the source of a private version its own right
// to read it.
var ErrPrivate = errors.New("the model is private")

// Private reports whether a version is private: all of its wants say so, or the last one
// that it had.
func (v *Version) Private() bool { return v.left || allPrivate(v.Wants) }

func allPrivate(of []Want) bool { return len(of) > 0 && nonePublic(of) }

// nonePublic reports whether all wants are private, if there are any.
func nonePublic(of []Want) bool {
	return !slices.ContainsFunc(of, func(w Want) bool { return !w.Private })
}

// isPrivate reports whether a caller has to prove its right to a version that is there or
// being fetched. It has to if nobody wants the version: nobody knows whether it is private.
// The caller holds the lock.
func (s *Store) isPrivate(key string) (bool, error) {
	if f := s.fetching(key); f != nil && f.MustProve {
		return true, nil
	}
	of, err := s.wantsOf(key)
	return nonePublic(of), err
}

// takesPrivate reports whether a fetch would take files that were fetched for a private
// version: a part of its own version, or files that another one has, too. It takes a version
// that nobody wants for private.
func (s *Store) takesPrivate(f *Fetch, key string) (bool, error) {
	all, err := s.Versions()
	return slices.ContainsFunc(all, func(v Version) bool {
		shares := slices.ContainsFunc(v.Manifest.Files, func(file fetchapi.File) bool { return f.have[file.SHA256] })
		return nonePublic(v.Wants) && (v.Key == key || shares)
	}), err
}

// Want records who wants the version of the fetch. While the caller has not proved its right,
// the want is private, so that no other caller gets the version by it.
func (f *Fetch) Want(w Want) error {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.MustProve || w.Private {
		return s.want(w)
	}
	w.Private = true
	err := s.want(w)
	if err == nil {
		f.unproved, err = readWant(s.wantFile(&w))
	}
	return err
}

// wantProved opens the want of the fetch to all, as its caller asked, after the source has let
// the caller read. A want that was changed since stays as it is. Otherwise the version is
// private no more, also when it loses that want. The caller holds the lock.
func (f *Fetch) wantProved() error {
	if f.unproved.Key == "" {
		return nil
	}
	now, err := readWant(f.unproved.path)
	if err != nil || !now.Since.Equal(f.unproved.Since) {
		return nil //nolint:nilerr // it was removed, or recorded again
	}
	now.Private = false
	return f.store.writeWant(now)
}

// noteLeft notes that a version is private, before it loses the last of its wants. The caller
// holds the lock.
func (s *Store) noteLeft(last *Want) error {
	if !last.Private {
		return nil
	}
	of, err := s.wantsOf(last.Key)
	if err != nil || slices.ContainsFunc(of, func(w Want) bool { return w.path != last.path }) {
		return err
	}
	if _, there := s.Version(last.Key); !there {
		return nil
	}
	return s.writeWant(Want{Key: last.Key, URI: last.URI, Selection: last.Selection, Since: last.Since, Private: true, Left: true})
}

// leftFile returns the path of the note that noteLeft writes.
func (r *Reader) leftFile(key string) string { return r.wantFile(&Want{Key: key, Left: true}) }

// leftPrivate reports whether a version without wants is private: it was noted, or, as an
// earlier release noted nothing, all wants of the model's other versions say so.
func (r *Reader) leftPrivate(v *Version, all []Want) bool {
	if len(v.Wants) > 0 {
		return false
	}
	_, err := os.Lstat(r.leftFile(v.Key))
	return err == nil || allPrivate(slices.DeleteFunc(slices.Clone(all), func(w Want) bool { return w.URI != v.Manifest.URI }))
}
