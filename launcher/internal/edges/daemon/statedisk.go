package daemon

import (
	"os"
	"path/filepath"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
)

// stateDisk is the disk of the state folder, as preloaders use it.
type stateDisk struct {
	*statedir.Queue
	writer *statedir.Writer
	probe  string // path of a file that is made and removed to touch the disk
}

func newStateDisk(writes *statedir.Queue, dir string) stateDisk {
	return stateDisk{Queue: writes, writer: writes.Writer(nil, nil), probe: filepath.Join(dir, "probe")}
}

// Touch has a file made and removed, unless something is being written.
func (d stateDisk) Touch() {
	if _, ended := d.UnderWay(); ended != nil {
		return
	}
	d.writer.Then(func() { // a failure means nothing: the disk answers
		_ = os.WriteFile(d.probe, []byte("probe"), 0o600)
		_ = os.Remove(d.probe)
	})
}
