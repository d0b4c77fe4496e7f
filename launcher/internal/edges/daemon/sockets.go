package daemon

import (
	"errors"
	"log/slog"
	"sync"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/internal/engines/engine"
	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// sockets decides where engines listen. The answers of engine_socket:
//
//	auto     on a Unix socket, if the installation of the engine is found to have --uds
//	always   on a Unix socket; without a folder for it, the instance is refused
//	never    on a port of loopback
type sockets struct {
	mode         string
	installation *preload.Sockets
	host         *process.Host
	log          *slog.Logger

	mu   sync.Mutex
	said string // the last reason for a port that was logged
}

// Plan returns the path of the socket of an engine that is to be started. It is empty for an engine
// that can listen on a port alone. The error says why
// it has to listen on a port; a *[launcher.Error] says that it must not.
func (s *sockets) Plan(id string, plan engine.Plan) (string, error) {
	if plan.Listens == engine.PortOnly {
		if s.mode == "always" {
			return "", launcher.Invalidf("body.engine", "the engine listens on a port, since its command has no ${SOCKET}, and the launcher's engine_socket is always; put ${SOCKET} into the command where its program takes the path of a Unix socket, or set engine_socket to auto")
		}
		return "", nil
	}
	path, err := s.plan(id, plan)
	if err != nil && s.mode == "always" {
		return "", launcher.Storagef("the engine has no place for its Unix socket, and the launcher's engine_socket is always: %w", err)
	}
	if err != nil {
		s.warn(err.Error())
	}
	return path, err
}

func (s *sockets) plan(id string, plan engine.Plan) (string, error) {
	if plan.Listens == engine.SocketOnly { // whatever the mode, since there is no place for a port in its command
		return s.host.Socket(id)
	}
	switch s.mode {
	case "never":
		return "", errors.New("the launcher's engine_socket is never")
	case "always":
	default:
		if plan.TakesSocket {
			break
		}
		if err := s.installation.Lacks(plan.Env()); err != nil {
			return "", err
		}
	}
	return s.host.Socket(id)
}

// warn logs a reason once, until there is another.
func (s *sockets) warn(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.said != reason {
		s.said = reason
		s.log.Warn("engines listen on ports of loopback, where every local user reaches their developer endpoints; launcher doctor says what to do", "reason", reason)
	}
}

// Now returns where the socket of a running engine is.
func (s *sockets) Now(id, told string) string { return s.host.SocketNow(id, told) }
