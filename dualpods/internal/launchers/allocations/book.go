package allocations

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/podresourcesapi"
)

// Book keeps what was said of the GPUs of a node's requesters, between passes: by the kubelet, of
// whom it was asked, and by their programs. Its methods may be called from several goroutines at
// once.
type Book struct {
	mu       sync.Mutex
	kubelet  map[types.UID]entry
	programs map[types.UID]program
}

// entry is the kubelet's word of a requester.
type entry struct {
	dualpods.Allocation
	ahead bool // it was asked for last before the program ran
}

// program is the word of a process of a requester program.
type program struct {
	process string
	gpus    []string
}

// NewBook returns an empty Book.
func NewBook() *Book {
	return &Book{kubelet: map[types.UID]entry{}, programs: map[types.UID]program{}}
}

// Program returns the GPUs that a process of a requester program has; ok is false if that is not
// known. A process has the same GPUs for as long as it runs.
func (b *Book) Program(requester types.UID, process string) (gpus []string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, ok := b.programs[requester]
	return p.gpus, ok && p.process == process
}

// NoteProgram notes the GPUs that a process of a requester program has.
func (b *Book) NoteProgram(requester types.UID, process string, gpus []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.programs[requester] = program{process, gpus}
}

// IsDue reports whether the kubelet is to be asked now about a requester. If it was asked in vain
// before the program ran, it is asked anew when that does.
func (b *Book) IsDue(now time.Time, pod *corev1.Pod) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	runs := podmeta.ProgramOf(pod).Runs()
	e, known := b.kubelet[pod.UID]
	if e.ahead && runs && len(e.GPUs) == 0 {
		e = entry{Allocation: dualpods.Allocation{Why: e.Why}}
		b.kubelet[pod.UID] = e
	}
	return !known || !e.IsKnown(runs) && !now.Before(e.Again)
}

// NoteKubelet notes what the kubelet told when it was asked about a requester; told is nil if it
// told nothing, and why says so.
func (b *Book) NoteKubelet(now time.Time, pod *corev1.Pod, told []podresourcesapi.Pod, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	program := podmeta.ProgramOf(pod)
	if told != nil {
		gpus, err := GPUs(told, pod.Namespace, pod.Name, program.Name)
		switch {
		case err != nil:
			why = err.Error()
		case len(gpus) == 0:
			why = "the kubelet tells of no GPU of its container " + program.Name
		default:
			b.kubelet[pod.UID] = entry{Allocation: dualpods.Allocation{GPUs: gpus, Early: !program.Runs()}}
			return
		}
	}
	e := b.kubelet[pod.UID]
	b.kubelet[pod.UID] = entry{e.AskedInVain(now, why, program.Runs()), !program.Runs()}
}

// Kubelet returns what the kubelet has said of the requesters that it was asked about.
func (b *Book) Kubelet() map[types.UID]dualpods.Allocation {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[types.UID]dualpods.Allocation, len(b.kubelet))
	for uid, e := range b.kubelet {
		all[uid] = e.Allocation
	}
	return all
}

// Forget forgets requesters that are gone.
func (b *Book) Forget(gone func(types.UID) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.kubelet, func(uid types.UID, _ entry) bool { return gone(uid) })
	maps.DeleteFunc(b.programs, func(uid types.UID, _ program) bool { return gone(uid) })
}
