package engine

import (
	"cmp"
	"net/netip"
)

// defaultInstanceHost is where instances listen when the configuration names no
// host.
const defaultInstanceHost = "127.0.0.1"

// PublicHost is where an instance listens whose arguments ask for a host, on a
// launcher whose instances listen on limit (instance_host, "" for loopback) and no
// wider: the host asked for where that is no wider than limit, and else limit.
func PublicHost(asked, limit string) string {
	limit = cmp.Or(limit, defaultInstanceHost)
	if within(asked, limit) {
		return asked
	}
	return limit
}

// within tells whether every address of the host asked for is one of limit, or can
// be reached from this machine alone.
func within(asked, limit string) bool {
	a, ok := address(asked)
	if !ok {
		return asked != "" && asked == limit
	}
	if a.IsLoopback() {
		return true
	}
	l, ok := address(limit)
	return ok && (a == l || l.IsUnspecified()) // package net listens at IPv6 for 0.0.0.0 as well
}

// address reads a host that is an IP address or a name for loopback.
func address(host string) (netip.Addr, bool) {
	if host == "localhost" {
		host = defaultInstanceHost
	}
	a, err := netip.ParseAddr(host)
	return a.Unmap(), err == nil
}

// readHost decides about --host. A host that means all addresses is so common in
// scripts that it is taken for the one that the launcher allows; another address
// that the launcher does not allow is refused.
// note says what becomes of it.
func readHost(host, limit string) (note string, err error) {
	limit = cmp.Or(limit, defaultInstanceHost)
	if host == "" {
		return "", nil
	}
	a, isAddress := address(host)
	switch {
	case within(host, limit):
		return "--host " + host + ": the public port listens on " + host + "; the launcher chooses where the engine behind it listens", nil
	case isAddress && a.IsUnspecified():
		return "--host " + host + " reaches further than the launcher's instance_host, which is " + limit + ": the public port listens on " + limit, nil
	}
	return "", inputError("", "--host", "--host %s cannot be used: instances of this launcher listen only on %s (its instance_host); leave it out, or give 0.0.0.0", host, limit)
}
