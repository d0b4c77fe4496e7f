package apitest

import (
	"sync"
	"time"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// PortLeases leases the ports from 40000 on to everybody.
type PortLeases struct {
	mu     sync.Mutex
	leases map[string]launcherapi.PortLease
}

// Lease leases ports.
func (f *PortLeases) Lease(id string, count int) (launcherapi.PortLease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leases == nil {
		f.leases = map[string]launcherapi.PortLease{}
	}
	l := launcherapi.PortLease{ID: id, ExpiresAt: time.Now().Add(time.Minute).UTC()}
	for n := range count {
		l.Ports = append(l.Ports, 40000+n)
	}
	f.leases[id] = l
	return l, nil
}

// GiveBack ends a lease.
func (f *PortLeases) GiveBack(id string) (launcherapi.PortLease, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l, ok := f.leases[id]
	if !ok {
		return l, &launcher.Error{Code: launcherapi.CodeNotFound, Detail: "there is no port lease for " + id}
	}
	delete(f.leases, id)
	return l, nil
}
