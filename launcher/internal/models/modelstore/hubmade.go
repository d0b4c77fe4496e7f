package modelstore

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// This file keeps the list of what the store has made in a model's folder of the hub's
// layout, and removes just that.

// madeIn returns the paths of the files that the store has made in a model's folder. A
// store of an earlier release has no list: there, hard links to blobs are the store's,
// and what leads to them.
func madeIn(dir string) (map[string]bool, error) {
	made := map[string]bool{}
	text, err := os.ReadFile(filepath.Join(dir, shownList))
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return nil, err
	}
	var list []string
	if err == nil && json.Unmarshal(text, &list) == nil {
		for _, path := range list {
			if filepath.IsLocal(path) {
				made[path] = true
			}
		}
		return made, nil
	}
	commits := map[string]bool{}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if err != nil || !info.ModTime().Equal(blobTime) {
			return nil //nolint:nilerr // a link that leads nowhere is left
		}
		name, err := filepath.Rel(dir, path)
		made[name] = true
		if below, ok := strings.CutPrefix(name, shownSnapshots+"/"); ok {
			commit, _, _ := strings.Cut(below, "/")
			commits[commit] = true
		}
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return made, nil
	}
	if err != nil {
		return nil, err
	}
	return made, addRefs(dir, commits, made)
}

// addRefs adds the refs that lead to commits which the store shows.
func addRefs(dir string, commits, made map[string]bool) error {
	err := filepath.WalkDir(filepath.Join(dir, shownRefs), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if name, bad := filepath.Rel(dir, path); err == nil && bad == nil && commits[string(text)] {
			made[name] = true
		}
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// writeList replaces the list of the files that the store has made in a model's folder. The
// folder comes and goes together with its list.
func (s *Store) writeList(dir string, made map[string]bool, more []string) error {
	all := append(slices.Collect(maps.Keys(made)), more...)
	slices.Sort(all)
	all = slices.Compact(all)
	list := filepath.Join(dir, shownList)
	if len(all) == 0 {
		entries, err := os.ReadDir(dir)
		if err == nil && len(entries) == 1 && entries[0].Name() == shownList {
			return s.moveToTrash(dir)
		}
		return removeFile(list)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return s.replaceText(list, string(text))
	}
	fresh := filepath.Join(s.dir, stagingDir, trashPrefix+rand.Text())
	if err := makeFolder(fresh); err != nil {
		return err
	}
	if err := writeSynced(filepath.Join(fresh, shownList), text); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

// removeMade removes the files that the store has made in a model's folder and does not want
// any more, and the folders that they leave empty, or that were made for them before an owner
// was killed. It follows no link out of the folder.
func removeMade(dir string, made map[string]bool, want *shown) error {
	root, err := os.OpenRoot(dir)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	for path := range made {
		if want.has(path) {
			continue
		}
		if _, err := root.Lstat(path); err != nil && !isOthers(err) {
			continue // behind a link of somebody else
		}
		if err := root.Remove(path); err != nil && !isOthers(err) {
			return err
		}
		for above := filepath.Dir(path); above != "."; above = filepath.Dir(above) {
			if err := root.Remove(above); err != nil && !errors.Is(err, os.ErrNotExist) {
				break
			}
		}
	}
	return nil
}

// isOthers reports whether a file could not be removed because it is gone, or because
// somebody has made a folder in its place.
func isOthers(err error) bool {
	return slices.ContainsFunc([]error{os.ErrNotExist, syscall.ENOTDIR, syscall.ENOTEMPTY}, func(is error) bool { return errors.Is(err, is) })
}
