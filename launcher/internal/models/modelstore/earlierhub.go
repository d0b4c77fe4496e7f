package modelstore

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// An earlier release kept versions from the hub a second time, in the folder hub, as the
// hub's own client keeps them. The client may have written there, too. The store's files
// are hard links to blobs, which would keep the room of models that are removed, so the
// owner removes them when it opens the store. Files of the client stay.

// The folder of an earlier release, and the list in a model's folder there of the files that
// the store has made. The first releases wrote no list.
const (
	hubDir  = "hub"
	hubList = ".hotseat-files"
)

// removeEarlierHub removes what the store of an earlier release has written into the folder
// hub, and the folder if nothing else is in it. A file that cannot be removed stays; the next
// owner tries again. Programs may read models there, so it says what it has removed.
func (s *Store) removeEarlierHub() {
	removed := false
	models, _ := s.ownEntries(hubDir, func(e fs.DirEntry) bool { return e.IsDir() && strings.HasPrefix(e.Name(), hubPrefix) })
	var commits map[string]bool
	for _, e := range models {
		if commits == nil {
			commits = s.revisions()
		}
		removed = s.removeHubModel(filepath.Join(hubDir, e.Name()), commits) || removed
	}
	s.removeEmpty(filepath.Join(s.dir, hubDir))
	if removed && s.note != nil {
		s.note(fmt.Sprintf("removed the copies of models in %s, which an earlier release kept for the libraries of the Hugging Face hub; the models stay in the store. For a program that reads them there, run: launcher models export ADDRESS DIR; then set HF_HUB_CACHE=DIR for the program", filepath.Join(s.dir, hubDir)))
	}
}

// revisions returns the revisions of the published versions.
func (s *Store) revisions() map[string]bool {
	of := map[string]bool{}
	all, _ := s.versions(modelsDir) // after an error, files of the first releases stay
	for _, v := range all {
		of[v.Manifest.Revision] = true
	}
	return of
}

func (s *Store) removeHubModel(name string, commits map[string]bool) (removed bool) {
	root, err := s.root.OpenRoot(name)
	if err != nil {
		return false
	}
	defer root.Close()
	own := ownHubFiles(root, commits)
	for _, name := range own {
		if root.Remove(name) != nil {
			continue
		}
		removed = true
		for above := path.Dir(name); above != "." && root.Remove(above) == nil; {
			above = path.Dir(above)
		}
	}
	if len(own) > 0 {
		s.removeEmpty(filepath.Join(s.dir, name))
	}
	return removed
}

// ownHubFiles lists the store's own files in a model's folder, those that lead to others
// first:
//
//	refs/REF              if it names a commit whose snapshot has files of the store alone
//	snapshots/COMMIT/…    links to blobs of the store that are in the list; without a list, if
//	                      the store has the commit and the snapshot has no file of others
//	blobs/ETAG            has the time of blobs, and no link of the client leads to it
//	.hotseat-files        if no blob of the store stays
func ownHubFiles(root *os.Root, commits map[string]bool) []string {
	listed := readHubList(root)
	hasList := listed != nil
	var refs, links, blobs []string
	shown, others := map[string]bool{}, map[string]bool{} // commits that have files of the store, and of others
	used := map[string]bool{}                             // what links of others lead to
	ofOthers := func(name, commit string) {
		target, _ := root.Readlink(name)
		used[path.Join(path.Dir(name), target)], others[commit] = true, true
	}
	_ = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // what cannot be read stays
		}
		folder, below, _ := strings.Cut(name, "/")
		commit, _, _ := strings.Cut(below, "/")
		switch {
		case folder == hubRefs:
			refs = append(refs, name)
		case folder == hubBlobs && e.Type().IsRegular() && isSealed(root, name):
			blobs = append(blobs, name)
		case folder != hubSnapshots:
		case e.Type() == fs.ModeSymlink && isSealed(root, name) && (listed[name] || !hasList):
			links, shown[commit] = append(links, name), true
		default:
			ofOthers(name, commit)
		}
		return nil
	})
	isOwn := ownSnapshots(hasList, commits, others)
	links = slices.DeleteFunc(links, func(name string) bool {
		commit, _, _ := strings.Cut(strings.TrimPrefix(name, hubSnapshots+"/"), "/")
		own := isOwn(commit)
		if !own {
			ofOthers(name, commit)
		}
		return !own
	})
	refs = slices.DeleteFunc(refs, func(name string) bool {
		commit, _ := root.ReadFile(name) // after an error, it names no commit
		return !shown[string(commit)] || others[string(commit)] || hasList && !listed[name]
	})
	all := len(blobs)
	blobs = slices.DeleteFunc(blobs, func(name string) bool { return used[name] })
	own := slices.Concat(refs, links, blobs)
	if hasList && len(blobs) == all {
		own = append(own, hubList)
	}
	return own
}

// ownSnapshots returns a function that reports whether links in the snapshot of a commit are
// the store's own, if they lead to what looks like its blobs.
func ownSnapshots(hasList bool, commits, others map[string]bool) func(commit string) bool {
	return func(commit string) bool { return hasList || commits[commit] && !others[commit] }
}

// readHubList reads the list of the store's files in a model's folder; nil: there is none.
func readHubList(root *os.Root) map[string]bool {
	text, err := root.ReadFile(hubList)
	var names []string
	if err != nil || json.Unmarshal(text, &names) != nil {
		return nil
	}
	listed := map[string]bool{}
	for _, name := range names {
		listed[name] = true
	}
	return listed
}

// isSealed reports whether a file, or what a link in the same folder leads to, has the time
// of blobs.
func isSealed(root *os.Root, name string) bool {
	info, err := root.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.ModTime().Equal(blobTime)
}
