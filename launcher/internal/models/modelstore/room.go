package modelstore

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Retention is what becomes of a model when its room is needed for another and
// nobody uses it: it stays, or it goes.
type Retention string

// What may be asked for. Empty: nothing is said.
const (
	Keep    Retention = launcherapi.RetentionKeep
	LRU     Retention = launcherapi.RetentionLRU     // the one that was used longest ago goes first
	Default Retention = launcherapi.RetentionDefault // of a want: what was said before is taken back
)

// makeRoom sees that a fetch fits. What fetches that were broken off have left to be
// resumed goes where its room is needed, and is enough; where it is not, and evicts
// says so, versions go besides that nobody keeps. Nothing goes where the fetch would
// not fit all the same.
func (s *Store) makeRoom(f *Fetch, evicts bool) error {
	leftovers := s.leftovers(f)
	var left int64
	for _, dir := range leftovers {
		left += folderBytes(dir)
	}
	err := s.fits(f, left, 0)
	if _, full := errors.AsType[*CapacityError](err); !full {
		return err
	}
	if err := s.dropUnused(); err != nil {
		return err
	}
	err = s.fits(f, 0, left)
	if full, ok := errors.AsType[*CapacityError](err); ok {
		err = s.evict(f, left, full, evicts)
	}
	if err != nil {
		return err
	}
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("cannot free the room of what was broken off: %w", err)
		}
	}
	return s.fits(f, 0, 0)
}

// evict removes as many versions as a fetch needs to fit, beside leftovers of so many
// bytes that go too. Where it would not fit, or may evict nothing, the error is full,
// which then says what is in the way. Nobody takes a lease meanwhile.
func (s *Store) evict(f *Fetch, left int64, full *CapacityError, evicts bool) error {
	unlock, err := s.lockLeases()
	if err != nil {
		return err
	}
	defer unlock()
	who, err := s.whoMayGo()
	if err != nil {
		return err
	}
	enough := func(gone []Version) bool {
		freed := who.frees(gone)
		return s.fits(f, -freed, left+freed) == nil
	}
	full.Kept = who.kept
	if !enough(who.idle) {
		return full
	}
	if !evicts {
		full.Idle = who.frees(who.idle)
		return full
	}
	if err := s.throwOut(f, who, fewest(who.idle, enough), ForRoom); err != nil {
		return err
	}
	unlock()
	return errors.Join(s.mendHub(), s.emptyTrash(), s.dropUnused())
}

// fewest gives those of all, which are enough together, that have to go: from the
// beginning as many as are enough, less those without which they are still.
func fewest(all []Version, enough func([]Version) bool) (gone []Version) {
	for _, v := range all {
		if gone = append(gone, v); enough(gone) {
			break
		}
	}
	for n := len(gone) - 2; n >= 0; n-- { // the last was needed
		if fewer := slices.Delete(slices.Clone(gone), n, n+1); enough(fewer) {
			gone = fewer
		}
	}
	return gone
}

// mayGo says which versions may go.
type mayGo struct {
	idle  []Version        // the one that was used longest ago first
	kept  []string         // the others, and who keeps them, in words
	users map[string]int   // how many versions and fetches have a file, by its hash
	sizes map[string]int64 // of the files, by their hashes
}

// whoMayGo looks who keeps which version. Nobody takes a lease meanwhile.
func (s *Store) whoMayGo() (*mayGo, error) {
	all, err := s.Versions()
	if err != nil {
		return nil, err
	}
	who := &mayGo{users: map[string]int{}, sizes: map[string]int64{}}
	for f := range s.pending {
		for hash := range f.have {
			who.users[hash]++
		}
		for hash := range f.mends {
			who.users[hash]++
		}
	}
	for _, v := range all {
		if _, partial := errors.AsType[*PartialError](v.Damage); partial {
			continue // what there is of it is a leftover, or promised
		}
		for hash := range hashes(&v) {
			who.users[hash]++
			if info, err := os.Lstat(s.blob(hash)); err == nil {
				who.sizes[hash] = info.Size()
			}
		}
		why, err := s.keeps(&v)
		if err != nil {
			return nil, err
		}
		switch retention := v.Retention(); {
		case why != "":
			who.kept = append(who.kept, fmt.Sprintf("%s (%s), %s", v.Manifest.URI, text(v.Manifest.Bytes()), why))
		case retention == LRU || retention == "" && s.retention == LRU:
			who.idle = append(who.idle, v)
		}
	}
	slices.SortStableFunc(who.idle, func(a, b Version) int { return a.LastUse.Compare(b.LastUse) })
	return who, nil
}

// keeps says who keeps a version, in words; empty: nobody has asked for that.
func (s *Store) keeps(v *Version) (why string, err error) {
	if s.fetching(v.Key) != nil {
		return "being fetched anew", nil
	}
	holders, err := s.Holders(v.Key)
	if len(holders) > 0 || err != nil {
		return "in use by " + strings.Join(holders, ", "), err
	}
	pinned := false
	var wanted []string
	for _, w := range v.Wants {
		if w.retention() != Keep {
			continue
		}
		if pinned = pinned || w.Holder == ""; w.Holder != "" && !slices.Contains(wanted, w.Holder) {
			wanted = append(wanted, w.Holder)
		}
	}
	switch {
	case len(wanted) > 0:
		return "wanted by " + strings.Join(wanted, ", "), nil
	case pinned:
		return "pinned", nil
	default:
		return "", nil
	}
}

// hashes are those of the files of a version.
func hashes(v *Version) map[string]bool {
	all := map[string]bool{}
	for _, f := range v.Manifest.Files {
		all[f.SHA256] = true
	}
	return all
}

// frees is how many bytes there are of files that nobody else has than these.
func (m *mayGo) frees(gone []Version) (sum int64) {
	users := map[string]int{}
	for _, v := range gone {
		for hash := range hashes(&v) {
			if users[hash]++; users[hash] == m.users[hash] {
				sum += m.sizes[hash]
			}
		}
	}
	return sum
}

// CapacityError says that a model does not fit.
type CapacityError struct {
	Needed, Limit, Used, Pending int64
	Disk                         bool     // it is the disk that has no room
	Low                          int      // Limit is this part of it, in percent, as the model is only kept while there is room; 0: all of it
	Kept                         []string // the versions that somebody keeps, and who
	Idle                         int64    // bytes of versions that may go, and not for this one; 0: they would not be enough
}

// maxKept is how many versions an error names.
const maxKept = 5

func (e *CapacityError) Error() string {
	var b strings.Builder
	remedy := "raise the limit"
	if e.Disk {
		remedy = "choose another folder"
		fmt.Fprintf(&b, "the model takes %s, and the disk has %s free, of which %s are promised to others that are being fetched", text(e.Needed), text(e.Limit), text(e.Pending))
	} else {
		fmt.Fprintf(&b, "the model takes %s, and of the limit of %s are %s in use and %s promised to others that are being fetched", text(e.Needed), text(e.Limit), text(e.Used), text(e.Pending))
	}
	if len(e.Kept) > 0 {
		fmt.Fprintf(&b, "; what stays: %s", strings.Join(e.Kept[:min(maxKept, len(e.Kept))], "; "))
	}
	if more := len(e.Kept) - maxKept; more > 0 {
		fmt.Fprintf(&b, "; and %d others", more)
	}
	if e.Low > 0 {
		fmt.Fprintf(&b, "; that is what %d%% of it leave, beyond which no model is fetched that is only kept while there is room (retention lru)", e.Low)
	}
	if e.Idle > 0 {
		fmt.Fprintf(&b, "; %s of models that nobody uses could go, and do not for a model that itself is only kept while there is room (retention lru)", text(e.Idle))
	}
	fmt.Fprintf(&b, "; remove models, or %s", remedy)
	return b.String()
}
