package fetch

import (
	"context"
	"crypto/sha1" // by which Git names files
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/modelsource"
	"hotseat.dev/hotseat/spec/fetchapi"
)

// part is a file that is on its way.
type part struct {
	f    *Fetch
	n    int
	file fetchapi.File
	path string

	out     *os.File
	sums    hash.Hash // SHA-256
	git     hash.Hash // that of the Git blob; nil: nobody says what it should be
	offset  int64     // as far as it is written and hashed
	synced  int64
	resumed bool // the first bytes are those of an earlier process
}

// finished gives the hash of the file when an earlier process has finished it.
func (p *part) finished() string {
	hash := p.file.SHA256
	if hash == "" {
		text, err := os.ReadFile(p.note())
		if err != nil || len(text) != hex.EncodedLen(sha256.Size) {
			return ""
		}
		hash = string(text)
	}
	info, err := os.Lstat(filepath.Join(p.f.Staging, hash))
	if err != nil || !info.Mode().IsRegular() || info.Size() != p.file.Size {
		return ""
	}
	return hash
}

// open opens the part as far as an earlier process has surely written it.
func (p *part) open() (err error) {
	if p.out, err = os.OpenFile(p.path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	p.reset()
	if err := p.reread(p.noted()); err != nil {
		return errors.Join(err, p.out.Close())
	}
	return nil
}

// noted is how many bytes are surely there.
func (p *part) noted() int64 {
	text, err := os.ReadFile(p.note())
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

func (p *part) note() string { return p.path + ".note" }

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
	p.f.fetched.Add(-p.offset)
	p.reset()
	p.offset, p.synced, p.resumed = 0, 0, false
	return errors.Join(p.writeNote("0"), p.out.Truncate(0))
}

// receive reads from the source until the file is whole.
func (p *part) receive(ctx context.Context) (err error) {
	if p.offset == p.file.Size && p.offset > 0 {
		return nil
	}
	stream, err := p.f.Source.Open(ctx, p.n, p.offset)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	if stream.Size >= 0 && stream.Size != p.file.Size {
		return mismatch("%s was announced with %s, and the source sends %s", p.file.Path, size(p.file.Size), size(stream.Size))
	}
	if stream.Offset != p.offset { // the source gives it from the beginning only
		if err := p.restart(); err != nil {
			return err
		}
	}
	buffer := make([]byte, p.f.bufferSize())
	for {
		n, err := stream.Read(buffer)
		if n > 0 {
			if err := p.take(ctx, buffer[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) && p.offset < p.file.Size:
			return &modelsource.TemporaryError{Cause: &fetchapi.Error{
				Reason: fetchapi.ReasonUnavailable,
				Detail: fmt.Sprintf("%s was cut off after %s of %s", p.file.Path, size(p.offset), size(p.file.Size)),
			}}
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// take writes what has come.
func (p *part) take(ctx context.Context, b []byte) error {
	p.f.network.Add(int64(len(b)))
	if p.offset+int64(len(b)) > p.file.Size {
		return mismatch("%s was announced with %s, and the source sends %s or more", p.file.Path, size(p.file.Size), size(p.offset+int64(len(b))))
	}
	if p.f.limiter != nil {
		if err := p.f.limiter.WaitN(ctx, len(b)); err != nil {
			return err
		}
	}
	if _, err := p.out.WriteAt(b, p.offset); err != nil {
		return err
	}
	_, _ = p.hashes().Write(b) // a hash takes everything
	p.offset += int64(len(b))
	p.f.fetched.Add(int64(len(b)))
	if p.offset-p.synced >= Chunk {
		return p.sync()
	}
	return nil
}

// close leaves what has come to the next process.
func (p *part) close() error {
	err := p.out.Close()
	if p.offset > 0 || p.file.Size == 0 {
		return err
	}
	for _, path := range []string{p.path, p.note()} {
		if gone := os.Remove(path); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}

// sync brings what was written to the disk, and then notes how much that is.
func (p *part) sync() error {
	if p.offset == p.synced {
		return nil
	}
	if err := p.out.Sync(); err != nil {
		return err
	}
	p.synced = p.offset
	return p.writeNote(strconv.FormatInt(p.synced, 10))
}

// writeNote replaces the note whole. A note that an end of the machine takes back to
// an earlier one says less than there is, which costs a chunk and no more.
func (p *part) writeNote(text string) error {
	staged := p.note() + ".new"
	if err := os.WriteFile(staged, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(staged, p.note())
}

// finish checks the file and gives it its name.
func (p *part) finish() (hash string, err error) {
	hash = hex.EncodeToString(p.sums.Sum(nil))
	if wrong := p.wrong(hash); wrong != nil {
		return "", errors.Join(wrong, p.restart())
	}
	if err := p.out.Sync(); err != nil {
		return "", err
	}
	if err := os.Rename(p.path, filepath.Join(p.f.Staging, hash)); err != nil {
		return "", err
	}
	if p.file.SHA256 == "" {
		return hash, p.writeNote(hash)
	}
	if err := os.Remove(p.note()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	return hash, nil
}

func (p *part) wrong(hash string) error {
	if p.file.SHA256 != "" && hash != p.file.SHA256 {
		return mismatch("%s should have the sha256 %s and has %s", p.file.Path, p.file.SHA256, hash)
	}
	if p.git != nil {
		if got := hex.EncodeToString(p.git.Sum(nil)); got != p.file.GitSHA1 {
			return mismatch("%s should have the Git hash %s and has %s", p.file.Path, p.file.GitSHA1, got)
		}
	}
	return nil
}

func mismatch(format string, args ...any) error {
	return &fetchapi.Error{Reason: fetchapi.ReasonIntegrityMismatch, Detail: fmt.Sprintf(format, args...)}
}
