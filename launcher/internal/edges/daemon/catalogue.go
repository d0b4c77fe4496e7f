package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"hotseat.dev/hotseat/launcher/internal/edges/catalogue"
	"hotseat.dev/hotseat/launcher/internal/edges/frontdoor"
	"hotseat.dev/hotseat/launcher/internal/machine/fswatch"
)

// This file reads the models of the configuration, and reads them again when the files change.

// readOffers reads the catalogue. Without a configuration file it is empty.
func (d *Daemon) readOffers() (*frontdoor.Offers, error) {
	c := &catalogue.Catalogue{}
	if d.opts.File != "" && !d.opts.Last {
		machine := catalogue.Machine{Env: os.LookupEnv}
		for _, e := range d.engines {
			machine.Engines = append(machine.Engines, e.Name())
		}
		for _, g := range d.gpus.Devices() {
			machine.GPUs = append(machine.GPUs, g.UUID)
		}
		var err error
		if c, err = catalogue.Load(d.opts.File, machine); err != nil {
			return nil, err
		}
	}
	return frontdoor.NewOffers(c, d.sup)
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
	tasks.Go(func() {
		for before := d.filesOfCatalogue(); ; {
			select {
			case <-changed:
				if now := d.filesOfCatalogue(); now != before {
					before = now
					d.reloadCatalogue()
				}
			case <-d.opts.Reload:
				before = d.filesOfCatalogue()
				d.reloadCatalogue()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		stop()
		tasks.Wait()
	}
}

// watchFolder tells when something in a folder changes. A folder that is not there is not watched.
func (d *Daemon) watchFolder(ctx context.Context, folder string, changed chan<- struct{}) {
	err := fswatch.Until(ctx, folder, func() bool {
		select {
		case changed <- struct{}{}:
		default: // it is known already
		}
		return false
	})
	if ctx.Err() == nil && err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("cannot watch a folder with models; send SIGHUP after a change", "folder", folder, "error", err)
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
	if err != nil {
		d.log.Error("the models of the configuration have mistakes, and stay as they were", "error", err)
		return
	}
	d.door.Reload(offers)
}
