package statedir

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// recordName is a pattern of the names of records: ids of instances and swaps.
const recordName = `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`

// whole returns a pattern that is compiled when it is first used, which is in folders without a mark
// alone.
func whole(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(?:` + pattern + `)$`) })
}

// folders are those that launchers make in a state folder, with the names that may be in
// each. In a folder of records these must be records, too.
var folders = map[string]func() *regexp.Regexp{
	"instances":   whole(recordName + `\.(json|doubted|yaml|(broken|foreign)(-[0-9]+)?)|\.spare`),
	"swaps":       whole(recordName + `\.(json|doubted|(broken|foreign)(-[0-9]+)?)|\.spare`),
	"port-leases": whole(recordName + `\.(json|doubted|(broken|foreign)(-[0-9]+)?)|\.spare`),
	"logs":        whole(`.+\.[1-9][0-9]*\.log`),
	"exits":       whole(`\.?[0-9]+-[0-9]+`),
	"preloaders":  whole(`preloader\.pyz?|times\.json(\..+)?|@preloader-[0-9]+\.log|probe`),
	"shm":         whole(`@?` + recordName + `\.json`),
	"run":         whole(`[0-9a-f]{12}`),
	"compiled":    whole(`[0-9a-f]{32}|trash-[A-Z2-7]{26}`),
}

// recordFolders are the folders of records.
var recordFolders = []string{"instances", "swaps", "port-leases"}

// files are those that launchers make in a state folder, with what each has in it; nil:
// anything, since it is a draft.
var files = map[string]*regexp.Regexp{
	lockFile:             regexp.MustCompile(`^[0-9]{1,10} *\n$`),
	markFile:             marks,
	markFile + spare:     nil,
	revisionFile:         regexp.MustCompile(`^\{"revision":[0-9]+,"stamp":\{`),
	revisionFile + spare: nil,
	"gpus.json":          regexp.MustCompile(`^\{"boot_id":"[^"]*","devices":\[`),
	"gpus.json.new":      nil,
	"clock.json":         regexp.MustCompile(`^\{"boot_id":"[^"]*","ahead_ns":-?[0-9]+\}`),
	"clock.json.new":     nil,
	oldJournal:           nil,
}

// largestFile bounds what is read of a file.
const largestFile = 1 << 20

// ownMarks make folders model stores and state folders, which are their own wherever they
// are.
var ownMarks = []string{".hotseat-model-store", folderMark}

// neutral are names that say nothing about whose a folder is: lost+found of a filesystem, and
// simgpu, where others may keep simulated GPUs. The launcher removes nothing there.
var neutral = []string{"lost+found", "simgpu"}

// isKnown reports whether launchers make a file or folder of that name in a state folder.
func isKnown(name string) bool {
	_, isFile := files[name]
	return isFile || folders[name] != nil
}

// othersIn returns the names that keep a launcher from a folder without a mark, since others
// have written what they name. Names prove nothing: everybody has logs.
//
//	what the folder has                         what is of others there
//	a file that only a launcher writes          what a launcher would take for its own
//	the pid in lock, as other programs have     that, names that launchers do not make, and
//	                                            damaged files
//	no such file                                everything
//
// After a loss of power, a file may have only NUL bytes: it counts as one that has nothing in
// it. These do not count either, and the launcher leaves them alone: neutral names, hidden
// files, which programs make in the home folder of a service, model stores and other state
// folders, what has nothing in it, and the file to which a shell sends the launcher's log.
func othersIn(dir string, entries []fs.DirEntry) ([]string, error) {
	l := look{dir: dir}
	for _, e := range withoutOwnLog(entries) {
		if slices.Contains(neutral, e.Name()) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, e.Name())) // a folder may be a link to another disk
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed meanwhile, or is a link to nothing
		case err == nil && info.IsDir():
			err = l.atFolder(e.Name())
		case err == nil && e.Type().IsRegular():
			err = l.atFile(e.Name(), info.Size())
		default:
			l.addOther(e.Name())
			err = nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	switch {
	case l.proven:
		return l.others, nil
	case l.hasPID:
		return slices.Sorted(slices.Values(slices.Concat(l.others, l.doubtful))), nil
	}
	return l.all, nil
}

// withoutOwnLog returns entries without the files that are this process's own output: a shell
// makes them before the launcher starts (launcher serve --state-dir D >D/launcher.log).
func withoutOwnLog(entries []fs.DirEntry) []fs.DirEntry {
	isOwnLog := func(e fs.DirEntry) bool {
		if !e.Type().IsRegular() {
			return false
		}
		file, err := e.Info()
		return err == nil && slices.ContainsFunc([]*os.File{os.Stdout, os.Stderr}, func(output *os.File) bool {
			info, err := output.Stat()
			return err == nil && os.SameFile(file, info)
		})
	}
	return slices.DeleteFunc(slices.Clone(entries), isOwnLog)
}

// look is what is seen of a folder without a mark.
type look struct {
	dir      string
	all      []string // names of what is there
	others   []string // of what is no launcher's, and has a name that launchers make
	doubtful []string // names that launchers do not make, and of damaged files
	proven   bool     // a file has what only a launcher writes
	hasPID   bool     // lock has a pid
}

// addOther adds a name of something that no launcher has made.
func (l *look) addOther(name string) {
	l.all = append(l.all, name)
	if isKnown(name) {
		l.others = append(l.others, name)
	} else {
		l.doubtful = append(l.doubtful, name)
	}
}

func (l *look) atFile(name string, size int64) error {
	content, known := files[name]
	switch {
	case !known:
		l.addOther(name)
		return nil
	case size == 0:
		return nil
	case content == nil:
		l.all = append(l.all, name)
		return nil
	case size > largestFile:
		l.all, l.doubtful = append(l.all, name), append(l.doubtful, name)
		return nil
	}
	text, err := readOwn(filepath.Join(l.dir, name))
	if err != nil {
		return err
	}
	if len(bytes.Trim(text, "\x00")) == 0 {
		return nil
	}
	l.all = append(l.all, name)
	if name == markFile {
		text = bytes.TrimSpace(text)
	}
	switch {
	case !content.Match(text):
		l.doubtful = append(l.doubtful, name)
	case name == lockFile:
		l.hasPID = true
	default:
		l.proven = true
	}
	return nil
}

func (l *look) atFolder(name string) error {
	names, known := folders[name]
	below, err := os.ReadDir(filepath.Join(l.dir, name))
	if known && err != nil {
		return err
	}
	below = withoutOwnLog(below)
	if err == nil && len(below) == 0 {
		return nil
	}
	if !known && slices.ContainsFunc(ownMarks, func(mark string) bool {
		_, err := os.Lstat(filepath.Join(l.dir, name, mark))
		return err == nil
	}) {
		return nil
	}
	if !known {
		l.addOther(name)
		return nil
	}
	l.all = append(l.all, name)
	for _, e := range below {
		path := filepath.Join(name, e.Name())
		end := filepath.Ext(path)
		isRecord := slices.Contains(recordFolders, name) && (end == current || end == doubted)
		switch {
		case strings.HasPrefix(e.Name(), ".nfs"): // a removed file that somebody has open
		case !names().MatchString(e.Name()), isRecord && !e.Type().IsRegular():
			l.others = append(l.others, path)
		case isRecord:
			l.atRecord(path)
		}
	}
	return nil
}

// atRecord looks at a file with the name of a record. JSON that is no record is of others;
// what is no JSON may be a record that was damaged.
func (l *look) atRecord(name string) {
	path := filepath.Join(l.dir, name)
	if _, err := readEnvelope(path); err == nil {
		l.proven = true
		return
	}
	if text, err := readOwn(path); err != nil || json.Valid(text) {
		l.others = append(l.others, name)
	}
}
