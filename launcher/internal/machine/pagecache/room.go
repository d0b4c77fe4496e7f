package pagecache

import (
	"fmt"

	"github.com/prometheus/procfs"

	"hotseat.dev/hotseat/launcher/internal/machine/cgroup"
)

// memory is that of the machine, or of a group with a limit. All are bytes.
type memory struct{ total, free, inactiveFile, mappedFile int64 }

// room is how much may be read into the page cache without what runs losing any of its
// own: what is free, and pages of files that were read once and are mapped by nobody,
// which the kernel gives up first. Those include the held bytes, which are to stay. A
// sixteenth of all is left alone, since the kernel begins to reclaim before nothing is free.
func (m memory) room(held int64) int64 {
	return m.free + max(0, m.inactiveFile-m.mappedFile) - held - m.total/16
}

// Room is how much may be read into the page cache of this machine by this process
// without what runs losing any of its own, nor held bytes of what was read before: see
// proc_meminfo(5), and memory.stat of each group with a limit that this process is in. It
// is what [Options] asks for.
func Room(held int64) (int64, error) {
	machine, err := readMachine()
	if err != nil {
		return 0, err
	}
	least := machine.room(held)
	groups, err := cgroup.LimitedMemory()
	if err != nil {
		return 0, err
	}
	for _, g := range groups {
		m := memory{total: g.Limit, free: g.Limit - g.Used, inactiveFile: g.InactiveFile, mappedFile: g.MappedFile}
		least = min(least, m.room(held))
	}
	return least, nil
}

func readMachine() (memory, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return memory{}, fmt.Errorf("cannot tell how much main memory is free: %w", err)
	}
	info, err := proc.Meminfo()
	if err != nil {
		return memory{}, fmt.Errorf("cannot tell how much main memory is free: %w", err)
	}
	var m memory
	for name, v := range map[string]struct {
		from *uint64
		to   *int64
	}{
		"MemTotal": {info.MemTotalBytes, &m.total}, "MemFree": {info.MemFreeBytes, &m.free},
		"Inactive(file)": {info.InactiveFileBytes, &m.inactiveFile}, "Mapped": {info.MappedBytes, &m.mappedFile},
	} {
		if v.from == nil {
			return memory{}, fmt.Errorf("cannot tell how much main memory is free: /proc/meminfo has no %s", name)
		}
		*v.to = int64(*v.from) //nolint:gosec // no machine has 8 EiB
	}
	return m, nil
}
