package modelstore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// storeMark is the file that makes a folder a store. Its presence counts, and not its
// text, which is for people.
const storeMark = ".hotseat-model-store"

const storeMarkText = "This folder is a model store of hotseat. Its files are removed when no model needs them.\n"

// NotAStoreError says that a folder has files and is not a store.
type NotAStoreError struct {
	Dir string
	Has []string // names of files that no store has written
}

func (e *NotAStoreError) Error() string {
	const most = 5
	has := strings.Join(e.Has[:min(most, len(e.Has))], ", ")
	if len(e.Has) > most {
		has += ", …"
	}
	return fmt.Sprintf("cannot use %s as a model store: it has files that no store has written (%s); choose an empty folder, such as %s, or move these files out of a store of an earlier release", e.Dir, has, filepath.Join(e.Dir, "hotseat-models"))
}

// Mark makes a folder a store, or finds that it is one. It makes the folder if it is
// missing. The error is a *NotAStoreError if the folder has files of others: a store
// needs a folder of its own.
func Mark(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the model store: %w", err)
	}
	if marked, err := isMarked(dir); marked || err != nil {
		return cmp.Or(err, CheckLayout(dir))
	}
	others, err := othersIn(dir)
	if err != nil {
		return fmt.Errorf("cannot look into the folder of the model store: %w", err)
	}
	if len(others) > 0 {
		if marked, err := isMarked(dir); marked || err != nil { // another process has begun the store meanwhile
			return err
		}
		return &NotAStoreError{Dir: dir, Has: others}
	}
	mark := filepath.Join(dir, storeMark)
	f, err := os.OpenFile(mark, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err == nil {
		_, err = f.WriteString(storeMarkText)
		err = errors.Join(err, letReadFile(f, 0o644), f.Close(), (&Reader{dir: dir}).syncDir(dir))
	}
	if err != nil {
		return fmt.Errorf("cannot mark the model store: %w", err)
	}
	return nil
}

// isMarked reports whether a folder has the mark of a store.
func isMarked(dir string) (bool, error) {
	info, err := os.Lstat(filepath.Join(dir, storeMark))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot look for the mark of the model store: %w", err)
	case !info.Mode().IsRegular():
		return false, &NotAStoreError{Dir: dir, Has: []string{storeMark}}
	}
	return true, nil
}

// beside are folders that say nothing about whose the folder around them is, and that no
// store removes: a file system's own, and what a store has moved out of its way.
var beside = []string{"lost+found", keptDir}

// compiledDir is the folder of compile caches, which a launcher keeps beside its models. It
// removes old ones, so that a folder in which others keep files there is not a store.
const compiledDir = "compiled"

// othersIn returns the names of the files for which a folder without a mark is not a
// store: none if it is empty, or has exactly the layout of a store of an earlier release,
// which had no mark.
func othersIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == storeMark || e.IsDir() && slices.Contains(beside, e.Name())
	})
	var others, all []string
	found := 0
	for _, e := range entries {
		if e.Name() != compiledDir { // says nothing if others have nothing in it
			all = append(all, e.Name())
		}
		mayHave, known := unmarkedLayout[e.Name()]
		if !known || e.IsDir() != (mayHave != nil) || !e.IsDir() && !e.Type().IsRegular() {
			others = append(others, e.Name())
			continue
		}
		if !slices.Contains(optional, e.Name()) {
			found++
		}
		if !e.IsDir() {
			continue
		}
		below, err := os.ReadDir(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		for _, b := range below {
			if !mayHave(b) && !strings.HasPrefix(b.Name(), ".nfs") {
				others = append(others, filepath.Join(e.Name(), b.Name()))
			}
		}
	}
	if len(others) == 0 && found < len(unmarkedLayout)-len(optional) {
		return all, nil
	}
	return others, nil
}

// optional are folders that a store need not have: a cache of compiled code, and what only an
// earlier release made.
var optional = []string{compiledDir, hubDir}

// unmarkedLayout is what the folder of a store had before there was a mark: for each
// entry, what it may have in it; nil: it is a file.
var unmarkedLayout = map[string]func(fs.DirEntry) bool{
	lockFile:    nil,
	blobsDir:    func(e fs.DirEntry) bool { return isBlob(e) },
	modelsDir:   func(e fs.DirEntry) bool { return isVersion(e) },
	stagingDir:  func(e fs.DirEntry) bool { return isVersion(e) || strings.HasPrefix(e.Name(), trashPrefix) },
	hubDir:      func(fs.DirEntry) bool { return true }, // the hub's client wrote there, too, such as version.txt
	compiledDir: func(e fs.DirEntry) bool { return e.IsDir() && compiledName.MatchString(e.Name()) },
	leasesDir: func(e fs.DirEntry) bool {
		return isRecord(e) || isLiving(e) || e.Name() == leaseLock || e.Name() == newRecord
	},
	wantsDir: func(e fs.DirEntry) bool { return isRecord(e) || e.Name() == newRecord },
}

var (
	hashName = regexp.MustCompile(`^[0-9a-f]{64}$`)
	keyName  = regexp.MustCompile(`^[0-9a-f]{32}$`)
	// compiledName is that of a compile cache, or of one that a launcher throws away.
	compiledName = regexp.MustCompile(`^([0-9a-f]{32}|trash-[A-Z2-7]{26})$`)
)

// The store's own entries of its folders. It leaves all others alone.
func isBlob(e fs.DirEntry) bool    { return e.Type().IsRegular() && hashName.MatchString(e.Name()) }
func isVersion(e fs.DirEntry) bool { return e.IsDir() && keyName.MatchString(e.Name()) }
func isRecord(e fs.DirEntry) bool  { return e.Type().IsRegular() && keyName.MatchString(e.Name()) }

// ownEntries returns those entries of a folder of the store that are its own.
func (r *Reader) ownEntries(dir string, own func(fs.DirEntry) bool) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(filepath.Join(r.dir, dir))
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !own(e) }), err
}

// keepOthers moves the files that others have put into a version's folder to the folder
// kept, so that they stay when the version goes.
func (s *Store) keepOthers(key string) error {
	v, _ := s.Version(key)
	own := map[string]bool{markFile: true}
	for _, f := range v.Manifest.Files {
		own[filepath.Join(filesDir, filepath.FromSlash(f.Path))] = true
	}
	folder := s.version(key)
	return filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil || own[name] {
			return err
		}
		info, err := e.Info()
		if err != nil || info.Mode().IsRegular() && info.ModTime().Equal(blobTime) { // no manifest names it any more
			return err
		}
		return s.moveAside(path, filepath.Join(s.dir, keptDir, key, name))
	})
}
