package gateway

import "net"

// Host is the address that the public port listens on.
func (p *Proxy) Host() string { return p.listener.Addr().(*net.TCPAddr).IP.String() }
