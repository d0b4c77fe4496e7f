package daemon

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"

	"hotseat.dev/hotseat/launcher/internal/core/portlease"
	"hotseat.dev/hotseat/launcher/internal/edges/config"
	"hotseat.dev/hotseat/launcher/internal/edges/gateway"
)

// leasable gives the port leases their ports, by package gateway.
type leasable struct{ *gateway.Ports }

func (l leasable) Lease(port int) (portlease.Port, error) {
	leased, err := l.Ports.Lease(port)
	if err != nil {
		return nil, err
	}
	return leased, nil
}

func (l leasable) Used(port int) portlease.Port { return l.Ports.Used(port) }

// rankAddress returns the address at which ranks listen; empty: the launcher was not told one.
func rankAddress(c config.Config) string {
	if a, err := netip.ParseAddr(c.InstanceHost); c.RankAddress == "" && err == nil && a.IsUnspecified() {
		return ""
	}
	return cmp.Or(c.RankAddress, c.InstanceHost)
}

// interfaceOf returns the network interface that has an address of this machine.
func interfaceOf(address string) (string, error) {
	wanted, err := netip.ParseAddr(address)
	if err != nil {
		return "", fmt.Errorf("%s is no IP address; give one by --rank-address", address)
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("cannot list the network interfaces: %w", err)
	}
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			return "", fmt.Errorf("cannot list the addresses of the network interface %s: %w", i.Name, err)
		}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().Unmap() == wanted.Unmap() {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("%s is no address of this machine; choose another by --rank-address", address)
}
