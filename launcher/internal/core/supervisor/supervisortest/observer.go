// Package supervisortest has test doubles of a supervisor's dependencies, for several packages.
package supervisortest

import (
	"time"

	"hotseat.dev/hotseat/launcher"
)

// Nobody is a [supervisor.Observer] that counts nothing.
type Nobody struct{}

// Transition does nothing.
func (Nobody) Transition(launcher.State, launcher.State, string) {}

// Phase does nothing.
func (Nobody) Phase(string, time.Duration) {}

// Refused does nothing.
func (Nobody) Refused(string, string) {}

// Cut does nothing.
func (Nobody) Cut(int) {}

// Started does nothing.
func (Nobody) Started(string, bool) {}

// WriteFailed does nothing.
func (Nobody) WriteFailed() {}
