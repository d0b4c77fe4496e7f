package simulation

import (
	"fmt"
	"slices"

	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// stranger is a process that is not the launcher's, and carries its marks or others like them.
type stranger struct {
	pid   int
	env   []string
	other bool // it is one of another user
}

// marked is an environment with the marks of a launcher's process.
func marked(env []string, mark, name string) []string {
	return append(slices.Clone(env), "HOTSEAT_INSTANCE="+name, "HOTSEAT_LAUNCHER="+mark)
}

// The kinds of strangers.
const (
	ofAnotherUser     = iota // has the marks of an instance
	withAnOddName            // has the launcher's mark, and a name that no instance can have
	ofAnotherLauncher        // has the mark of another launcher, and the name of an instance
	strangerKinds
)

var oddNames = []string{"..", "../../victim/manifest", "a/b", "a\nb", "\x1b[31mred", "-rf", " a", "@@a"}

// addStranger starts a process with marks. It lives until the end of the script.
func (w *world) addStranger(s step) {
	if w.life == nil {
		return
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.m.nextPID++
	is := &stranger{pid: w.m.nextPID, env: marked(nil, w.life.mark, s.id)}
	switch s.n {
	case ofAnotherUser:
		is.other = true
	case withAnOddName:
		is.env = marked(nil, w.life.mark, oddNames[is.pid%len(oddNames)])
	case ofAnotherLauncher:
		is.env = marked(nil, "another-"+w.life.mark, s.id)
	}
	w.m.strangers = append(w.m.strangers, is)
}

func (s *stranger) id() process.ID {
	return process.ID{PID: s.pid, StartTime: uint64(s.pid), BootID: bootID}
}

// tree is the tree to which a launcher takes the process to belong; empty: to none.
func (s *stranger) tree(mark string) string {
	name, _ := process.Marks{Own: mark}.Tree(s.env, s.pid, func() (bool, error) { return !s.other, nil })
	return name
}

// touches notes that the launcher does something to strangers.
func (m *machine) touches(what string, which func(*stranger) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.strangers {
		if which(s) {
			m.violated(launchersLeaveOthersAlone, "it %s a process that is not its own: %s", what, fmt.Sprintf("%q", s.env))
		}
	}
}

// drawStranger adds a stranger to some scripts. It draws by itself, so that the steps of a seed
// stay as they are.
func (d *drawing) drawStranger(steps []step) []step {
	if len(steps) == 0 || d.n(8) > 0 {
		return steps
	}
	n := d.n(len(steps))
	s := step{at: steps[n].at, what: "stranger with marks", n: d.n(strangerKinds)}
	d.known(&s)
	return slices.Insert(steps, n+1, s)
}
