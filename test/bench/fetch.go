package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/test/helpers/figures"
)

// What a fetch is to be: so fast beside the fastest other client, and with so much
// main memory.
const (
	besideOthers = 0.9
	fetchMemory  = 64_000_000
)

const (
	bigBytes   = 4 << 30
	smallFiles = 2000
	smallBytes = 32 << 10
)

// fetcher is a client that fetches a model, and what was measured of it.
type fetcher struct {
	name string
	// command fetches into an empty folder.
	command func(into string) *exec.Cmd
	missing string // why it cannot be had

	ended  times // until it had ended
	synced times // until what it wrote was on the disk
	memory int   // the most that it, or a child of it, had resident at a time
	own    int   // the most that its child modelfetch had, of that what is not of files
}

// contest is one model at one server, fetched by each client in turn: the first is
// `launcher pull`.
type contest struct {
	name    string
	bytes   int64
	clients []*fetcher
}

// fetches times `launcher pull` beside other clients.
func (b *bench) fetches() (all []*contest, err error) {
	big := b.scaled(bigBytes)
	if err := b.roomFor(3 * big); err != nil {
		return nil, err
	}
	folder := filepath.Join(b.dir, "models")
	if err := makeModels(folder, big); err != nil {
		return nil, fmt.Errorf("cannot make the models: %w", err)
	}
	for _, server := range []func(string) ([]*contest, *site, error){b.byHTTPS, b.byHub, b.byS3} {
		contests, s, err := server(folder)
		if err != nil {
			return nil, err
		}
		contests[0].bytes, contests[1].bytes = big, smallFiles*smallBytes
		for _, c := range contests {
			if err == nil {
				err = b.contend(c)
			}
		}
		if err := errors.Join(err, s.stop()); err != nil {
			return nil, err
		}
		all = append(all, contests...)
	}
	return all, nil
}

// scaled is the size of a large file.
func (b *bench) scaled(bytes int64) int64 { return int64(float64(bytes) * min(1, b.scale)) }

func (b *bench) roomFor(bytes int64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(b.dir, &disk); err != nil {
		return fmt.Errorf("cannot look at the disk: %w", err)
	}
	if disk.Type == unix.TMPFS_MAGIC || disk.Type == unix.RAMFS_MAGIC {
		return fmt.Errorf("%s is in main memory: set TMPDIR to a folder on a disk", b.dir)
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < bytes {
		return fmt.Errorf("the disk of %s has %d bytes free, and %d are needed: set TMPDIR, or take less by -scale", b.dir, free, bytes)
	}
	return nil
}

// makeModels makes a model of one large file and one of many small ones, each with
// its list.
func makeModels(folder string, big int64) error {
	var seed [32]byte
	content := rand.NewChaCha8(seed)
	if err := makeModel(filepath.Join(folder, "big"), content, 1, big); err != nil {
		return err
	}
	return makeModel(filepath.Join(folder, "small"), content, smallFiles, smallBytes)
}

func makeModel(folder string, content io.Reader, files int, bytes int64) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var list struct {
		Files []listed `json:"files"`
	}
	for n := range files {
		name, h := fmt.Sprintf("part-%04d.safetensors", n), sha256.New()
		f, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		_, err = io.CopyN(io.MultiWriter(f, h), content, bytes)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		list.Files = append(list.Files, listed{name, bytes, hex.EncodeToString(h.Sum(nil))})
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "manifest.json"), text, 0o600)
}

// light says whether it kept to its memory.
func (f *fetcher) light() bool { return f.memory > 0 && f.memory <= fetchMemory }

// contend has each client fetch in turn, and again.
func (b *bench) contend(c *contest) error {
	for range max(3, b.n(3)) {
		for _, f := range c.clients {
			if f.missing != "" {
				continue
			}
			if err := b.fetchOnce(c, f); err != nil {
				return fmt.Errorf("%s by %s: %w", c.name, f.name, err)
			}
			last := len(f.ended) - 1
			fmt.Fprintf(b.progress, "%s by %s: %s s, on the disk after %s s\n", c.name, f.name, seconds(f.ended[last]), seconds(f.synced[last]))
		}
	}
	return nil
}

func (b *bench) fetchOnce(c *contest, f *fetcher) (err error) {
	into, err := os.MkdirTemp(b.dir, "fetched-")
	if err != nil {
		return err
	}
	disk, err := os.Open(into)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Close(), dropLarge(into)) }()
	if err := unix.Syncfs(int(disk.Fd())); err != nil { // what others have left to be written is not counted
		return err
	}
	cmd := f.command(into)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	began := now()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		f.watchMemory(cmd.Process.Pid, ended)
	}()
	err = cmd.Wait()
	f.ended = append(f.ended, now().since(began))
	close(ended)
	<-looked
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok { // with that of who was waited for
		f.memory = max(f.memory, int(usage.Maxrss)<<10)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, said.String())
	}
	if err := unix.Syncfs(int(disk.Fd())); err != nil {
		return err
	}
	f.synced = append(f.synced, now().since(began))
	return fetchedAll(into, c.bytes)
}

// watchMemory looks what the child modelfetch of a process has of its own, until that
// has ended.
func (f *fetcher) watchMemory(parent int, ended <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", parent)) // the pattern is right
		var children strings.Builder
		for _, path := range threads {
			text, _ := os.ReadFile(path) // it may have ended
			children.Write(text)
		}
		for _, field := range strings.Fields(children.String()) {
			pid, err := strconv.Atoi(field)
			if err != nil || figures.Field(fmt.Sprintf("/proc/%d/status", pid), "Name") != "modelfetch" {
				continue
			}
			if own, err := status(pid, "RssAnon"); err == nil {
				f.own = max(f.own, own)
			}
		}
	}
}

// fetchedAll says whether a folder has at least so many bytes, of files that are
// counted once.
func fetchedAll(folder string, bytes int64) error {
	var sum int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		var s unix.Stat_t
		if err := unix.Stat(path, &s); err != nil {
			return err
		}
		if !seen[s.Ino] {
			seen[s.Ino], sum = true, sum+s.Size
		}
		return nil
	})
	if err == nil && sum < bytes {
		err = fmt.Errorf("%d bytes were fetched of %d", sum, bytes)
	}
	return err
}

// dropLarge removes the large files of a folder. The small ones stay until the bench
// ends: ext4 passes over each inode that was freed within the last minute before it
// gives a new one, which would be counted to the next client.
func dropLarge(folder string) error {
	return filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if info, err := e.Info(); err != nil || info.Size() <= smallBytes {
			return err
		}
		return os.Remove(path)
	})
}
