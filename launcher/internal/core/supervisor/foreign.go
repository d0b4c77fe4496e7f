package supervisor

import (
	"errors"
	"fmt"
	"os"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
	"hotseat.dev/hotseat/launcher/internal/machine/process/procfs"
)

// Owner tells the engines of this launcher from those of others.
type Owner struct {
	Mark string // of this launcher
	// EarlierMark is what the processes carry that an earlier release started for this
	// state folder: everybody can guess it. Its records have no mark.
	EarlierMark string
	// LastPID is the process that had the state folder before, or had the folder that it
	// was copied from; 0: it is not known.
	LastPID   int
	Processes Processes
}

// DropForeign removes the records of engines that other launchers have, and returns them:
// the state folder was copied from another one. The rest becomes this launcher's.
//
//	mark of the record    its engine                               the record
//	this launcher's       any                                      stays
//	another               has ended                                stays, and nothing goes on
//	another               lives                                    goes
//	none                  of another user, with a mark of another  goes
//	                      launcher, or another launcher's child
//	none                  lives, and LastPID is another launcher   goes
//	none                  any other                                stays
//
// The error says that a process cannot be looked at.
func (s *SavedState) DropForeign(o Owner) (foreign []SavedInstance, err error) {
	var own []SavedInstance
	for _, saved := range s.Instances {
		goes, err := o.isForeign(saved)
		if err != nil {
			return nil, fmt.Errorf("cannot find out who has the engine of instance %q: %w", saved.Facts.ID, err)
		}
		if goes {
			foreign = append(foreign, saved)
			continue
		}
		switch saved.Facts.Mark {
		case "":
			saved.Facts.EarlierMark = o.EarlierMark
		case o.Mark:
		default:
			saved.rests()
		}
		saved.Facts.Mark = o.Mark
		own = append(own, saved)
	}
	s.Instances = own
	return foreign, nil
}

// rests has nothing go on that the launcher was about when the state folder was copied: it may be
// there still, and be about it.
func (v *SavedInstance) rests() {
	v.SwapID, v.HoldGate = "", false
	if v.State == launcher.Waking {
		v.State = launcher.Sleeping
	}
}

func (o *Owner) isForeign(saved SavedInstance) (bool, error) {
	early := saved.Facts.Mark == ""
	if saved.Facts.Mark == o.Mark {
		return false, nil
	}
	boot, err := procfs.BootID()
	if err != nil || boot != saved.Root.BootID {
		return false, err
	}
	root, err := o.Processes.Read(saved.Root.PID)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case errors.Is(err, procfs.ErrHangs): // see knowsMark
		return !early, nil
	case err != nil || !root.Alive() || root.StartTime != saved.Root.StartTime:
		return false, err
	case !early || o.isOther(o.LastPID) || o.isOther(root.PPID):
		return true, nil
	}
	own, err := o.Processes.IsOwn(root.PID)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	known, markErr := o.knowsMark(root.PID)
	return err == nil && !own || !known, markErr
}

// knowsMark reports whether a process shows a mark of this launcher, or none.
func (o *Owner) knowsMark(pid int) (bool, error) {
	env, err := o.Processes.Environ(pid)
	if errors.Is(err, procfs.ErrHangs) { // one engine that hangs does not keep the launcher from starting
		err = nil
	}
	mark := process.Mark(env)                                         // empty: the process hangs, or has written over what it shows
	return mark == "" || mark == o.EarlierMark || mark == o.Mark, err // the last: an earlier release was in use again for a while
}

// isOther reports whether a process is a launcher or its init, but neither this one nor
// one that has started it.
func (o *Owner) isOther(pid int) bool {
	for self := os.Getpid(); self != pid; {
		stat, err := o.Processes.Read(self)
		if err != nil || stat.PPID == 0 {
			args := o.Processes.Arguments(pid)
			return len(args) > 1 && (args[1] == "serve" || args[1] == "init")
		}
		self = stat.PPID
	}
	return false
}

// Earlier returns the trees that an earlier release started, by the names of their
// instances.
func (s *SavedState) Earlier() map[string]process.EarlierTree {
	trees := map[string]process.EarlierTree{}
	for _, saved := range s.Instances {
		if saved.Facts.EarlierMark != "" {
			trees[saved.Facts.ID] = process.EarlierTree{Root: saved.Root, Mark: saved.Facts.EarlierMark}
		}
	}
	return trees
}

// Marks returns the marks in the records, oldest first.
func (s *SavedState) Marks() (marks []string) {
	for _, saved := range s.Instances {
		marks = append(marks, saved.Facts.Mark)
	}
	return marks
}
