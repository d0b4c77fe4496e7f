package manager

import (
	"os"
	"syscall"

	"hotseat.dev/hotseat/dualpods/internal/servers/binding"
)

// crashEnv names the variable that lets a test kill the controller: a row of
// spec/binding.md, after whose step the process ends by SIGKILL, before it has
// noted anything of it.
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
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL) // cannot fail for oneself
		select {}
	}
	c.Observer.Saw(s)
}
