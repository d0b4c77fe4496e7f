package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// version is the version of the files' form.
const version = 1

// The endings of the files' names.
const (
	current = ".json"    // the record
	doubted = ".doubted" // the record is out of date: a later one could not be written
)

// The endings of files that are kept for people, see [Records.SetAside].
const (
	Broken  = ".broken"  // it could not be read
	Foreign = ".foreign" // another launcher has the engine
)

// spare is the file that takes the place of another once it is whole. The two swap
// names, and the spare one is written over the next time: where a rename removes a
// file, ext4 writes out the new file at once, which takes 50 times as long as the
// whole replacement (auto_da_alloc in
// https://docs.kernel.org/admin-guide/ext4.html).
const spare = ".spare"

// envelope is the content of a file.
type envelope struct {
	Version int             `json:"version"`
	Record  json.RawMessage `json:"record"`
}

// Records are the files of one kind, one for each name. Its methods may be called
// from several goroutines at once.
type Records struct {
	dir string

	mu       sync.Mutex      // guards the spare file too
	doubtful map[string]bool // names that have a doubted file
}

// Dir is the folder that the files are in.
func (r *Records) Dir() string { return r.dir }

func (r *Records) path(name, end string) string { return filepath.Join(r.dir, name+end) }

// check refuses a name that would make a path to another folder.
func check(name string) error {
	if name == "" || name != filepath.Base(name) || name == ".." {
		return fmt.Errorf("cannot keep a record under the name %q: it is not the name of a file", name)
	}
	return nil
}

// Put writes the record of a name, anything that encoding/json can marshal, in the
// place of the record before. On error, of a full disk for example, the record
// before still stands.
func (r *Records) Put(name string, record any) error {
	if err := check(name); err != nil {
		return err
	}
	text, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("cannot encode what is to be written to %s: %w", r.path(name, current), err)
	}
	text, err = json.Marshal(envelope{Version: version, Record: text})
	if err != nil {
		return fmt.Errorf("cannot encode what is to be written to %s: %w", r.path(name, current), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.write(name, text)
	if errors.Is(err, fs.ErrNotExist) { // a cleaner of temporary files has removed the folder, which was empty
		if err = os.Mkdir(r.dir, 0o700); err == nil {
			err = r.write(name, text)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", r.path(name, current), err)
	}
	if r.doubtful[name] {
		_ = os.Remove(r.path(name, doubted)) // where both are there the newer one counts
		delete(r.doubtful, name)
	}
	return nil
}

// write puts a text in the place of the record of a name.
func (r *Records) write(name string, text []byte) error {
	whole := filepath.Join(r.dir, spare)
	err := writeOver(whole, text)
	if err == nil {
		err = replace(whole, r.path(name, current))
	}
	if err != nil {
		_ = os.Remove(whole) // a part of a file takes room
	}
	return err
}

// writeOver writes a file from its beginning, in the blocks that it has.
func writeOver(path string, text []byte) error {
	f, err := openOwn(path, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	return errors.Join(err, f.Close())
}

// replace lets two files swap names, or renames the first where the second does not
// exist.
func replace(whole, path string) error {
	err := unix.Renameat2(unix.AT_FDCWD, whole, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) { // there is no second file yet, or the filesystem cannot swap names
		return os.Rename(whole, path)
	}
	return err
}

// Doubt notes that the record of a name is out of date, since a later one could not
// be written. It takes no room on a disk. Where there is no record it does nothing.
func (r *Records) Doubt(name string) error {
	if err := check(name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.doubtful[name] = true
	err := os.Rename(r.path(name, current), r.path(name, doubted))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot mark %s as out of date: %w", r.path(name, current), err)
	}
	return nil
}

// Remove removes the record of a name. It takes no room on a disk. Where there is
// no record it does nothing.
func (r *Records) Remove(name string) error {
	if err := check(name); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.doubtful, name)
	for _, end := range []string{doubted, current} {
		if err := os.Remove(r.path(name, end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove the record of %s: %w", name, err)
		}
	}
	return nil
}

// Found is the record of a name that an earlier life of the launcher wrote.
type Found struct {
	Name    string
	Record  json.RawMessage
	Doubted bool // the record is out of date: a later one could not be written
	Path    string
	// Damage says why the file cannot be read; nil: the file is sound.
	Damage error
}

// Read reads all records, in the order of their names, and no file whose name no record can
// have. It changes nothing. The error is a [*VersionError] for a file that a newer version
// of this program wrote.
func (r *Records) Read() ([]Found, error) {
	r.mu.Lock() // what is listed is there when it is read
	defer r.mu.Unlock()
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the state folder: %w", err)
	}
	all := make([]Found, 0, len(files))
	for _, file := range files {
		end := filepath.Ext(file.Name())
		name := strings.TrimSuffix(file.Name(), end)
		if end != current && end != doubted || !launcherapi.IsID(name) {
			continue
		}
		found := Found{Name: name, Doubted: end == doubted, Path: filepath.Join(r.dir, file.Name())}
		if found.Doubted {
			r.doubtful[found.Name] = true
		}
		if err := found.read(); err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	newer := map[string]bool{}
	for _, f := range all {
		newer[f.Name] = newer[f.Name] || !f.Doubted
	}
	return slices.DeleteFunc(all, func(f Found) bool { return f.Doubted && newer[f.Name] }), nil
}

func (f *Found) read() error {
	e, err := readEnvelope(f.Path)
	if e.Version > version {
		return &VersionError{Path: f.Path, Found: e.Version}
	}
	f.Record, f.Damage = e.Record, err
	return nil
}

func readEnvelope(path string) (e envelope, err error) {
	text, err := readOwn(path)
	if err != nil {
		return e, err
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return envelope{}, err
	}
	if e.Version < 1 || len(e.Record) == 0 {
		return e, errors.New("it has no version, or no record")
	}
	return e, nil
}

// SetAside renames the file of a record to one that is kept for people and not read again,
// with the ending [Broken] or [Foreign], and gives its new path.
func (r *Records) SetAside(name, end string) (kept string, err error) {
	kept = r.path(name, end)
	for n := 2; ; n++ {
		if _, err := os.Lstat(kept); errors.Is(err, fs.ErrNotExist) {
			break
		}
		kept = fmt.Sprintf("%s-%d", r.path(name, end), n)
	}
	err = os.Rename(r.path(name, current), kept)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(r.path(name, doubted), kept)
	}
	if err != nil {
		return "", fmt.Errorf("cannot move the record of %s aside: %w", name, err)
	}
	return kept, nil
}

// VersionError says that a newer version of this program wrote a file.
type VersionError struct {
	Path  string
	Found int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("cannot read %s: its format has version %d, and this program reads up to version %d; start the newer program, or move the file away",
		e.Path, e.Found, version)
}
