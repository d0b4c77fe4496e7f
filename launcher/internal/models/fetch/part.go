package fetch

import (
	"cmp"
	"crypto/sha1" // by which Git names files
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// part is a file that is on its way.
type part struct {
	f    *Fetch
	n    int
	file fetchapi.File
	name string

	out     *os.File
	sums    hash.Hash // SHA-256
	git     hash.Hash // that of the Git blob; nil: nobody says what it should be
	whole   string    // its hash, once it has come
	offset  int64     // as far as it is written
	synced  int64     // as far as the note says
	syncing *syncing  // on its way; nil: none is
	resumed bool      // the first bytes are those of an earlier process
	hasNote bool
}

// finished gives the hash of the file when an earlier process has finished it.
func (p *part) finished() string {
	hash := cmp.Or(p.file.SHA256, p.f.left.hashes[p.name])
	if !p.f.left.names[hash] {
		return ""
	}
	info, err := p.f.in.Lstat(hash)
	if err != nil || !info.Mode().IsRegular() || info.Size() != p.file.Size {
		return ""
	}
	return hash
}

// open opens the part as far as an earlier process has surely written it, once.
func (p *part) open() (err error) {
	if p.out != nil {
		return nil
	}
	if p.out, err = p.f.in.OpenFile(p.name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	p.reset()
	if !p.f.left.names[p.name] {
		return nil
	}
	p.hasNote = true
	if err := p.reread(p.noted()); err != nil {
		err = errors.Join(err, p.out.Close())
		p.out = nil
		return err
	}
	return nil
}

// noted is how many bytes are surely there.
func (p *part) noted() int64 {
	text, err := p.f.in.ReadFile(p.note())
	synced, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || bad != nil || synced < 0 || synced > p.file.Size {
		return 0
	}
	return synced
}

// reread hashes the bytes that are there, and drops those beyond.
func (p *part) reread(synced int64) error {
	n, err := io.Copy(p.hashes(), io.NewSectionReader(p.out, 0, synced))
	if err != nil {
		return err
	}
	if n < synced { // the disk has lost some: all of it is in doubt
		return p.restart()
	}
	p.offset, p.synced, p.resumed = n, n, n > 0
	p.f.fetched.Add(n)
	return p.out.Truncate(n)
}

func (p *part) note() string { return p.name + ".note" }

func (p *part) hashes() io.Writer {
	if p.git == nil {
		return p.sums
	}
	return io.MultiWriter(p.sums, p.git)
}

func (p *part) reset() {
	p.sums, p.git = sha256.New(), nil
	if p.file.GitSHA1 != "" {
		p.git = sha1.New()
		fmt.Fprintf(p.git, "blob %d\x00", p.file.Size)
	}
}

// restart begins the file anew.
func (p *part) restart() error {
	if err := p.settle(); err != nil {
		return err
	}
	p.f.fetched.Add(-p.offset)
	p.reset()
	p.offset, p.synced, p.resumed = 0, 0, false
	return errors.Join(p.writeNote("0"), p.out.Truncate(0))
}

// close leaves what has come to the next process.
func (p *part) close() error {
	if p.out == nil {
		return nil
	}
	err := errors.Join(p.settle(), p.out.Close())
	if p.offset > 0 || p.file.Size == 0 {
		return err
	}
	for _, name := range []string{p.name, p.note()} {
		if gone := p.f.in.Remove(name); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// writeNote replaces the note whole. A note that an end of the machine takes back to
// an earlier one says less than there is, which costs a chunk and no more.
func (p *part) writeNote(text string) error {
	p.hasNote = true
	staged := p.note() + ".new"
	if err := p.f.in.WriteFile(staged, []byte(text), 0o600); err != nil {
		return err
	}
	return p.f.in.Rename(staged, p.note())
}

// finish checks the file, and has it brought to the disk and get its name: at once, or
// with others.
func (p *part) finish() error {
	p.whole = hex.EncodeToString(p.sums.Sum(nil))
	if wrong := cmp.Or(p.wrong(p.whole), p.isPointer()); wrong != nil {
		return errors.Join(wrong, p.restart())
	}
	if p.file.Size >= short {
		if err := errors.Join(p.settle(), p.out.Sync()); err != nil {
			return err
		}
		return p.rename()
	}
	err := errors.Join(p.settle(), p.out.Close())
	p.out = nil
	if err != nil {
		return err
	}
	return p.f.landing.take(p)
}

// rename gives the file, which is surely on the disk, its name.
func (p *part) rename() error {
	if err := p.f.in.Rename(p.name, p.whole); err != nil {
		return err
	}
	if p.file.SHA256 == "" {
		if err := p.f.noteHash(p.name, p.whole); err != nil {
			return err
		}
	}
	if !p.hasNote {
		return nil
	}
	if err := p.f.in.Remove(p.note()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (p *part) wrong(hash string) error {
	if p.file.SHA256 != "" && hash != p.file.SHA256 {
		return mismatch("%s has another sha256 than expected: want %s, got %s", p.file.Path, p.file.SHA256, hash)
	}
	if p.git != nil {
		if got := hex.EncodeToString(p.git.Sum(nil)); got != p.file.GitSHA1 {
			return mismatch("%s has another Git hash than expected: want %s, got %s", p.file.Path, p.file.GitSHA1, got)
		}
	}
	return nil
}

// The beginning and the greatest size of a pointer of Git LFS, which stands in a clone for a
// file that was not fetched (https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md).
const (
	pointerBegins = "version https://git-lfs.github.com/spec/"
	pointerSize   = 1024
)

// isPointer refuses a pointer in the place of a file: no engine can read it.
func (p *part) isPointer() error {
	if p.file.Size < int64(len(pointerBegins)) || p.file.Size >= pointerSize {
		return nil
	}
	begins := make([]byte, len(pointerBegins))
	if _, err := p.out.ReadAt(begins, 0); err != nil || string(begins) != pointerBegins {
		return err
	}
	return &fetchapi.Error{Reason: fetchapi.ReasonInvalid, Detail: fmt.Sprintf("%s is a pointer of Git LFS in place of the file: run git lfs pull at the source, or leave the file out by --exclude %[1]s", p.file.Path)}
}

func mismatch(format string, args ...any) error {
	return &fetchapi.Error{Reason: fetchapi.ReasonIntegrityMismatch, Detail: fmt.Sprintf(format, args...)}
}
