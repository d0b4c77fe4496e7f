package harness

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
)

// EngineAddress is where an engine is told to listen by its arguments, behind its public
// port: the path of a Unix socket, or host:port. It is an error while the process shows
// neither: a forked engine has its arguments only once it runs.
func EngineAddress(pid int) (string, error) {
	args := ArgsOf(pid)
	if path := option(args, "--uds"); path != "" {
		return path, nil
	}
	if port := option(args, "--port"); port != "" {
		return net.JoinHostPort("127.0.0.1", port), nil
	}
	return "", fmt.Errorf("process %d has neither --uds nor --port: %q", pid, args)
}

// option is the value of an option; empty: there is none.
func option(args []string, name string) string {
	for n, arg := range args {
		if value, ok := strings.CutPrefix(arg, name+"="); ok {
			return value
		}
		if arg == name && n+1 < len(args) {
			return args[n+1]
		}
	}
	return ""
}

// Network is the network of an engine's address.
func Network(address string) string {
	if filepath.IsAbs(address) {
		return "unix"
	}
	return "tcp"
}

// EngineTransport reaches the engine at an address, whatever the host of the URL.
func EngineTransport(address string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, Network(address), address)
	}}
}
