package supervisor

import (
	"hotseat.dev/hotseat/launcher/internal/process/procfs"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// hostBytes is the main memory that the instance's processes hold; see
// heldInMain.
func (s *Supervisor) hostBytes(i *instance) uint64 {
	var others []procfs.Resident
	for _, pid := range i.tree.Pids() {
		if pid != i.root.PID {
			others = append(others, s.opts.Processes.Resident(pid))
		}
	}
	return heldInMain(s.opts.Processes.Resident(i.root.PID), others, i.facts.Inherited)
}

// heldInMain adds up what the processes of an engine hold, from counts that the
// kernel keeps. They do not tell what is shared, but who shares is known:
//
//	anonymous  each process less what it was forked with: a preloader's
//	files      those of the API server, which are libraries, and what each other
//	           process has beyond: it maps the same, and a Worker pinned buffers
//	shared     all of it
func heldInMain(root procfs.Resident, others []procfs.Resident, inherited uint64) uint64 {
	sum := beyond(root.Anon, inherited) + root.File + root.Shmem
	for _, r := range others {
		sum += beyond(r.Anon, inherited) + beyond(r.File, root.File) + r.Shmem
	}
	return sum
}

// beyond is what a has more than b.
func beyond(a, b uint64) uint64 { return a - min(a, b) }

// noteInherited notes what a forked engine has of its preloader's memory, just
// after the fork; the processes that it forks itself have it too.
func (s *Supervisor) noteInherited(i *instance) {
	if i.facts.StartedBy == launcherapi.StartFork {
		i.facts.Inherited = s.opts.Processes.Resident(i.root.PID).Anon
	}
}
