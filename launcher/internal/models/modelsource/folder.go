package modelsource

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/modelref"
)

// folder is a folder, or one file, of this machine. Links in it are followed as far
// as they stay in it.
type folder struct {
	uri   string
	claim string // the folder where the claim is mounted, which path must not leave; empty: no claim
	path  string
	dir   string // the folder that is read: path, or the folder of path if that is a file
	files []fetchapi.File
	times []time.Time // when they were last written, as their writer says
	ctime []unix.Timespec

	selection modelref.Selection // what it does not take need not be readable
	excused   map[string]bool    // the patterns that left out what is not readable
}

func newFolder(u *url.URL) (Source, error) {
	if u.Host != "" && u.Host != "localhost" || !filepath.IsAbs(u.Path) {
		return nil, invalid("the address %q names no folder or file of this machine; write it as file:///folder", u)
	}
	address := url.URL{Scheme: "file", Path: filepath.Clean(u.Path)}
	return &folder{uri: address.String(), path: filepath.Clean(u.Path)}, nil
}

// newClaim returns the source for a folder of a mounted claim.
func newClaim(u *url.URL, o Options) (Source, error) {
	dir, ok := o.Claims[u.Host]
	if !ok {
		return nil, invalid("the claim %q of %s is not mounted here (%s); name its folder by --claim", u.Host, u, mounted(o.Claims))
	}
	address := url.URL{Scheme: "pvc", Host: u.Host, Path: strings.TrimRight(path.Clean("/"+u.Path), "/")}
	return &folder{uri: address.String(), claim: filepath.Clean(dir), path: filepath.Join(dir, filepath.FromSlash(address.Path))}, nil
}

// open opens a folder. In a claim, it does not follow links that lead out of the claim.
func (s *folder) open(dir string) (*os.Root, error) {
	if s.claim == "" {
		return os.OpenRoot(dir)
	}
	claim, err := os.OpenRoot(s.claim)
	if err != nil {
		return nil, err
	}
	defer claim.Close()
	below, err := filepath.Rel(s.claim, dir)
	if err != nil {
		return nil, err
	}
	return claim.OpenRoot(below)
}

func mounted(claims map[string]string) string {
	if len(claims) == 0 {
		return "mounted: none"
	}
	return "mounted: " + strings.Join(slices.Sorted(maps.Keys(claims)), ", ")
}

func (s *folder) Resolve(ctx context.Context) (*fetchapi.Manifest, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, fileError(err)
	}
	s.dir, s.files, s.times, s.ctime = s.path, nil, nil, nil
	single := !info.IsDir()
	if single {
		s.dir = filepath.Dir(s.path)
	}
	root, err := s.open(s.dir)
	if err != nil {
		return nil, fileError(err)
	}
	defer root.Close()
	if single {
		err = s.add(root, filepath.Base(s.path))
	} else {
		err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				err = s.add(root, name)
			}
			return s.excuse(name, e, err)
		})
	}
	if err != nil {
		return nil, fileError(err)
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	h := sha256.New()
	for n, f := range s.files {
		fmt.Fprintf(h, "%q %d %d\n", f.Path, f.Size, s.times[n].UnixNano())
	}
	return &fetchapi.Manifest{URI: s.uri, Revision: hex.EncodeToString(h.Sum(nil)), Files: s.files}, nil
}

// excuse returns the error for an entry of the folder, unless the selection leaves it out.
func (s *folder) excuse(name string, e fs.DirEntry, err error) error {
	if err == nil || e == nil {
		return err
	}
	pattern := name
	if e.IsDir() {
		pattern += "/"
	}
	out := false
	for _, exclude := range s.selection.Exclude {
		if modelref.Match(exclude, name) || e.IsDir() && modelref.Match(exclude, pattern) {
			s.excused[exclude], out = true, true
		}
	}
	switch {
	case e.IsDir() && out:
		return fs.SkipDir
	case !e.IsDir() && !s.selection.Takes(name):
		return nil
	}
	return fmt.Errorf("%w; leave it out by --exclude %s, or let user %d read it", err, pattern, os.Getuid())
}

// The resolutions of times: of file systems that keep whole seconds, or two of them, and of
// the others, where the kernel's clock decides.
const (
	coarse = 2 * time.Second
	fine   = 20 * time.Millisecond
)

// settle waits until a file that is written to from now on gets another time: only then do
// its name, size and time name one version.
func (s *folder) settle(ctx context.Context) error {
	var longest time.Duration
	for _, t := range s.times {
		resolution := fine
		if t.Nanosecond() == 0 {
			resolution = coarse
		}
		if left := time.Until(t.Add(resolution)); left < 2*resolution { // further ahead, the time tells nothing
			longest = max(longest, left)
		}
	}
	if longest <= 0 {
		return nil
	}
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *folder) add(root *os.Root, name string) error {
	info, err := root.Stat(name)
	if err != nil {
		return fmt.Errorf("cannot read %s without leaving its folder: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return invalid("%s is not a file", filepath.Join(s.dir, name))
	}
	if len(s.files) > fetchapi.MaxFiles {
		return invalid("%s has more than %d files", s.dir, fetchapi.MaxFiles)
	}
	s.files = append(s.files, fetchapi.File{Path: name, Size: info.Size()})
	s.times = append(s.times, info.ModTime())
	s.ctime = append(s.ctime, ctime(info))
	return nil
}

// ctime returns when a file was last changed, as the kernel says. No program can set that.
func ctime(info fs.FileInfo) unix.Timespec {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return unix.Timespec{}
	}
	return unix.Timespec(stat.Ctim)
}

// Resumes reports that a fetch begins anew: cp -p, for one, keeps the times of files.
func (s *folder) Resumes() bool { return false }

func (s *folder) Open(_ context.Context, n int, offset int64) (*Stream, error) {
	root, err := s.open(s.dir)
	if err != nil {
		return nil, fileError(err)
	}
	defer root.Close()
	f, err := root.OpenFile(s.files[n].Path, os.O_RDONLY|unix.O_NONBLOCK, 0) // without it, open would wait for a pipe's writer
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrChanged
	}
	if err != nil {
		return nil, fileError(err)
	}
	steady := &steady{File: f, size: s.files[n].Size, time: s.times[n], ctime: s.ctime[n], left: s.files[n].Size - offset}
	err = steady.check()
	if err == nil {
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Stream{ReadCloser: steady, Offset: offset, Size: steady.size}, nil
}

// steady is a file that must stay as Resolve saw it until it is read to its end. Otherwise
// parts of two versions would be taken for one.
type steady struct {
	*os.File
	size int64
	time time.Time
	left int64 // to be read

	ctime unix.Timespec
}

func (s *steady) Read(p []byte) (int, error) {
	n, err := io.LimitReader(s.File, s.left).Read(p)
	s.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = cmp.Or(s.check(), err)
	}
	return n, err
}

func (s *steady) check() error {
	info, err := s.Stat()
	if err == nil && (info.Size() != s.size || !info.ModTime().Equal(s.time) || ctime(info) != s.ctime) {
		return ErrChanged
	}
	return err
}

func fileError(err error) error {
	reason := fetchapi.ReasonInvalid
	told, ok := errors.AsType[*fetchapi.Error](err)
	switch {
	case ok:
		reason = told.Reason
	case errors.Is(err, fs.ErrNotExist):
		reason = fetchapi.ReasonNotFound
	case errors.Is(err, fs.ErrPermission):
		reason = fetchapi.ReasonAccessDenied
	}
	return reasonf(reason, "cannot read the source: %v", err)
}
