package daemon

import (
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// fetches starts modelfetch for the keeper of models: each in a group of its own,
// which the next launcher finds.
type fetches struct {
	host   *process.Host
	dir    string // that is fetched into
	memory int64  // bytes that each may take; 0: no limit
	logger *slog.Logger

	count atomic.Int64
	told  sync.Once // why there is no limit
}

func (f *fetches) start(cmd *exec.Cmd) (end func() (oomKilled bool), err error) {
	memory := f.memory
	if memory > 0 && inMemory(f.dir) {
		f.told.Do(func() {
			f.logger.Info("cannot limit the memory of modelfetch, since fetched files would stay in memory and count", "folder", f.dir)
		})
		memory = 0
	}
	helper, err := f.host.StartHelper(fmt.Sprintf("%smodelfetch-%d", process.HelperPrefix, f.count.Add(1)), memory, cmd)
	if err != nil {
		return nil, err
	}
	if helper.Unlimited != nil {
		f.told.Do(func() {
			f.logger.Info("no cgroup limits the memory of modelfetch", "reason", helper.Unlimited)
		})
	}
	return func() bool {
		defer helper.End()
		return helper.OOMKilled()
	}, nil
}

// inMemory says whether the files of a folder are kept in main memory alone, from where
// they cannot be dropped.
func inMemory(dir string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(dir, &stat) == nil && (stat.Type == unix.TMPFS_MAGIC || stat.Type == unix.RAMFS_MAGIC)
}
