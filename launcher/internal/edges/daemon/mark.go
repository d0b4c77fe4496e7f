package daemon

import (
	"crypto/sha256"
	"encoding/hex"

	"hotseat.dev/hotseat/launcher/internal/core/statedir"
	"hotseat.dev/hotseat/launcher/internal/core/supervisor"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// openMark finds out the launcher's mark, and sets the records aside whose engines other
// launchers have.
func (d *Daemon) openMark(state *statedir.Dir, records *statedir.Records) (err error) {
	if d.mark, err = state.Mark(d.state.Marks()); d.mark == "" {
		return err
	}
	if err != nil {
		d.log.Error("the launcher's mark is lost; the launcher takes that in the records of instances, or a new one", "error", err)
	}
	d.keepMark = func() {
		if err := state.KeepMark(d.mark); err != nil {
			d.log.Error("cannot keep the launcher's mark; the launcher will try again", "error", err)
		}
	}
	d.keepMark()
	foreign, err := d.state.DropForeign(supervisor.Owner{
		Mark: d.mark, EarlierMark: digest(d.opts.StateDir), LastPID: state.LastPID(), Processes: procfs.Table{},
	})
	if err != nil {
		return err
	}
	for _, saved := range foreign {
		kept, err := records.SetAside(saved.Facts.ID, statedir.Foreign)
		d.log.Error("the state folder was copied from that of another launcher, which has an engine in it; this launcher leaves the engine alone",
			"instance", saved.Facts.ID, "pid", saved.Root.PID, "kept", kept)
		if err != nil {
			d.log.Error("cannot set the record of another launcher's engine aside", "error", err)
		}
	}
	return nil
}

// digest is a short name that does not tell what it stands for: everybody can read the
// names of control groups. Releases before random marks had that of the state folder's path
// as their mark.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}
