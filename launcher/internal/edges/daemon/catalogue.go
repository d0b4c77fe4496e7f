package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/launcher/internal/edges/frontdoor"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/machine/fswatch"
)

// This file reads the models of the configuration, and reads them again when the files change.

// readOffers reads the catalogue. Without a configuration file it is empty.
func (d *Daemon) readOffers() (*frontdoor.Offers, error) {
	c := &catalogue.Catalogue{}
	if !d.opts.Last {
		var err error
		if c, err = d.readCatalogue(); err != nil {
			return nil, err
		}
	}
	if !reflect.DeepEqual(c.Commands, d.commands) && !d.opts.Last {
		d.log.Warn("the commands of the configuration have changed; the launcher takes them when it is started again", "config", d.opts.File)
	}
	return frontdoor.NewOffers(c, d.sup)
}

// readCatalogue reads the files of the catalogue.
func (d *Daemon) readCatalogue() (*catalogue.Catalogue, error) {
	if d.opts.File == "" {
		return &catalogue.Catalogue{}, nil
	}
	machine := catalogue.Machine{Env: os.LookupEnv, LookPath: exec.LookPath}
	for _, e := range d.engines {
		if _, ok := e.(*engine.Command); !ok {
			machine.Engines = append(machine.Engines, e.Name())
		}
	}
	for _, g := range d.gpus.Devices() {
		machine.GPUs = append(machine.GPUs, g.UUID)
	}
	return catalogue.Load(d.opts.File, machine)
}

// watchCatalogue reads the catalogue again when one of its files changes, or when the launcher is
// told to. A catalogue with mistakes changes nothing. end ends that and waits for it.
func (d *Daemon) watchCatalogue() (end func()) {
	if d.opts.File == "" || d.door == nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(context.Background())
	changed := make(chan struct{}, 1)
	var tasks sync.WaitGroup
	for _, folder := range []string{filepath.Dir(d.opts.File), catalogue.Folder(d.opts.File)} {
		tasks.Go(func() { d.watchFolder(ctx, folder, changed) })
	}
	tasks.Go(func() { reloadWhenSettled(ctx, changed, d.opts.Reload, d.filesOfCatalogue, d.reloadCatalogue) })
	return func() {
		stop()
		tasks.Wait()
	}
}

// settles is how long the files stay unchanged before they are read: an editor may empty a file
// before it writes the file again, and a catalogue without models would stop all of them.
const settles = 200 * time.Millisecond

// reloadWhenSettled reloads when the files have changed and stay so, and at once when told to.
// files returns a text that changes with the files.
func reloadWhenSettled(ctx context.Context, changed, told <-chan struct{}, files func() string, reload func()) {
	settled := time.NewTimer(settles)
	settled.Stop()
	defer settled.Stop()
	for seen := files(); ; {
		select {
		case <-changed:
			if now := files(); now != seen {
				seen = now
				settled.Reset(settles)
			}
		case <-settled.C:
			reload()
		case <-told:
			settled.Stop()
			seen = files()
			reload()
		case <-ctx.Done():
			return
		}
	}
}

// watchFolder tells when something in a folder changes. A folder that is not there is watched once
// it is made.
func (d *Daemon) watchFolder(ctx context.Context, folder string, changed chan<- struct{}) {
	for {
		var watched fs.FileInfo
		err := fswatch.Until(ctx, folder, func() (isGone bool) {
			select {
			case changed <- struct{}{}:
			default: // it is known already
			}
			now, err := os.Stat(folder)
			if watched == nil {
				watched = now
			}
			return err != nil || !os.SameFile(watched, now)
		})
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err == nil {
			err = fswatch.Until(ctx, filepath.Dir(folder), func() bool {
				_, err := os.Stat(folder)
				return err == nil
			})
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.log.Warn("cannot watch a folder with models; send SIGHUP after a change", "folder", folder, "error", err)
			return
		}
	}
}

// filesOfCatalogue returns a text that changes with the files of the catalogue.
func (d *Daemon) filesOfCatalogue() string {
	files := []string{d.opts.File}
	folder := catalogue.Folder(d.opts.File)
	entries, _ := os.ReadDir(folder) // a folder that cannot be read is a mistake that the reload tells
	for _, e := range entries {
		files = append(files, filepath.Join(folder, e.Name()))
	}
	var text strings.Builder
	for _, file := range files {
		if info, err := os.Stat(file); err == nil {
			fmt.Fprintln(&text, file, info.Size(), info.ModTime().UnixNano())
		}
	}
	return text.String()
}

func (d *Daemon) reloadCatalogue() {
	offers, err := d.readOffers()
	if err == nil {
		d.door.Reload(offers)
		return
	}
	faults, isFaulty := errors.AsType[catalogue.Faults](err)
	if !isFaulty {
		d.log.Error("cannot read the models of the configuration; they stay as they were", "error", err)
	}
	for _, fault := range faults {
		d.log.Error("the configuration has a mistake; its models stay as they were", "mistake", fault.String())
	}
}
