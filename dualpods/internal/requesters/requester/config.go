package requester

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"

	"golang.org/x/sys/unix"

	"hotseat.dev/hotseat/spec/connlimit"
	"hotseat.dev/hotseat/spec/requesterapi"
)

const example = `{"binding": "a1b2", "serving_port": 8000, "address": "10.0.0.7", "port": 8005, "metrics_url": "http://10.0.0.7:8005/metrics"}`

const holdExample = `{"binding": "a1b2", "serving_port": 8000}`

var (
	bindingName = regexp.MustCompile(`^[\x21-\x7e]*$`)
	dnsName     = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.?$`)
)

// checkName checks the name of a binding or of a log, given as field.
func checkName(field, name string) error {
	switch {
	case len(name) > requesterapi.MaxBinding:
		return invalid("%s has %d bytes: give at most %d", field, len(name), requesterapi.MaxBinding)
	case !bindingName.MatchString(name):
		return invalid("%s %q: give printable ASCII characters without spaces", field, name)
	}
	return nil
}

func checkConfig(c requesterapi.ProxyConfig) error {
	if err := checkName("binding", c.Binding); err != nil {
		return err
	}
	if c.NoTraffic {
		return checkNoTraffic(c)
	}
	ip, err := netip.ParseAddr(c.Address)
	isIP := err == nil
	switch {
	case c.Address == "":
		return invalid("address is missing: give the IP address of the inference server, such as 10.0.0.7")
	case !isIP && (len(c.Address) > 253 || !dnsName.MatchString(c.Address)):
		return invalid("address %q is neither an IP address nor a DNS name: give one without port, such as 10.0.0.7", c.Address)
	case isIP && (ip.IsUnspecified() || ip.IsMulticast()):
		return invalid("address %s is not that of a single machine: give that of the inference server", c.Address)
	case c.Port == 0:
		return invalid("port is missing or 0: give the port of the inference server, from 1 to 65535")
	case isIP && c.Port == c.ServingPort && isOwn(ip):
		return invalid("address %s and port %d are this requester's own serving port: give those of the inference server", c.Address, c.Port)
	}
	return checkMetricsURL(c.MetricsURL)
}

func checkNoTraffic(c requesterapi.ProxyConfig) error {
	switch {
	case c.Binding == "":
		return invalid("binding is missing: with no_traffic, name the binding")
	case c.Address != "" || c.Port != 0 || c.MetricsURL != "":
		return invalid("address, port and metrics_url say where traffic goes, and no_traffic that there is none: leave them out")
	}
	return nil
}

func checkMetricsURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Host == "" || u.User != nil {
		return invalid("metrics_url %q: give an absolute http URL without user, such as http://10.0.0.7:8005/metrics", text)
	}
	return nil
}

// isOwn says whether the address is one of this machine's, or Pod's.
func isOwn(ip netip.Addr) bool {
	if ip = ip.Unmap(); ip.IsLoopback() {
		return true
	}
	addrs, _ := net.InterfaceAddrs() // without them a loop is found out by the limit of connections
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr() == ip.WithZone("") {
			return true
		}
	}
	return false
}

// ownConnections is how many connections each of the requester's own ports takes.
func ownConnections() int { return connlimit.Share(16) }

// ownPorts is how many ports a requester may have beside the serving port: of the probes, the
// SPI, the metrics and the profiles.
const ownPorts = 4

// maxConnections leaves half of the descriptors for the pipes that bytes go
// through, and some for the requester's own ports.
func maxConnections() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 256
	}
	own := uint64(64 + ownPorts*ownConnections())
	return int(max(16, (min(limit.Cur, 1<<20)-min(limit.Cur, own))/4))
}
