package manager

import (
	"os"
	"syscall"

	"hotseat.dev/hotseat/dualpods/internal/model/decide"
	"hotseat.dev/hotseat/dualpods/internal/model/seats"
	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
)

// crashEnv names the variable that lets a test kill the controller: a row of
// spec/binding.md, after whose step the process ends by SIGKILL, before it has
// noted anything of it; or a row of spec/model.md, after whose writes it does; or
// "seat: " and a row of spec/seats.md, after whose write it does, or with "before "
// in front before it.
const crashEnv = "HOTSEAT_CRASH_AT"

// crashing is an Observer that kills this process after a row's step.
type crashing struct {
	binding.Observer
	row string
}

// crashes gives the Observer as it is, unless the variable names a row.
func crashes(o binding.Observer) binding.Observer {
	if row := os.Getenv(crashEnv); row != "" {
		return crashing{o, row}
	}
	return o
}

// Saw implements binding.Observer.
func (c crashing) Saw(s binding.Sight) {
	if s.Step.Rule == c.row && s.Err == nil {
		crash()
	}
	c.Observer.Saw(s)
}

func crash() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL) // cannot fail for oneself
	select {}
}

// crashesAtModel returns what kills this process after the writes of a row of spec/model.md; nil: the variable names
// none.
func crashesAtModel() func(decide.Row) {
	at := os.Getenv(crashEnv)
	if at == "" {
		return nil
	}
	return func(row decide.Row) {
		if string(row) == at {
			crash()
		}
	}
}

// crashesAtSeat returns what kills this process at the write of a row of spec/seats.md; nil: the variable names none.
func crashesAtSeat() func(row seats.Row, written bool) {
	at := os.Getenv(crashEnv)
	if at == "" {
		return nil
	}
	return func(row seats.Row, written bool) {
		name := "seat: " + string(row)
		if written && at == name || !written && at == "before "+name {
			crash()
		}
	}
}
