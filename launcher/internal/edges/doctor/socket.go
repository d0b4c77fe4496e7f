package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"hotseat.dev/hotseat/launcher/internal/engines/preload"
	"hotseat.dev/hotseat/launcher/internal/machine/process"
)

// checkSocket tells whether other local users reach the engines.
func checkSocket(_ context.Context, e *examination) []Result {
	if e.Program.Err != nil {
		return nil
	}
	var lacks error
	if e.EngineSocket != "always" && e.EngineSocket != "never" {
		lacks = (&preload.Sockets{Program: e.Program.Argv}).Lacks(os.Environ())
	}
	return one(judgeSocket(e.EngineSocket, filepath.Join(e.StateDir, process.ScratchFolder), lacks))
}

func judgeSocket(mode, dir string, lacks error) Result {
	r := Result{Name: "engine socket", Status: Warn}
	const open = "engines listen on ports of loopback, where every local user can put them to sleep, wake them and run code in them (/sleep, /collective_rpc): "
	why := process.NoSockets(dir)
	switch {
	case mode == "never":
		r.Finding, r.Remedy = open+"engine_socket is never", "leave out --engine-socket"
	case lacks != nil:
		r.Finding = open + lacks.Error()
		r.Remedy = "install a newer vLLM; or, if the program has --uds all the same, choose --engine-socket always"
	case why != "":
		r.Status = OK
		r.Finding = fmt.Sprintf("engines listen on Unix sockets that no other user reaches, in a folder in %s and not in %s: %s", os.TempDir(), dir, why)
	default:
		r.Status, r.Finding = OK, "engines listen on Unix sockets that no other user reaches, in "+dir
	}
	return r
}
