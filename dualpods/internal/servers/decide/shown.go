package decide

import (
	"net"
	"strconv"

	"hotseat.dev/hotseat/spec/requesterapi"
)

// isPublished reports whether labels, status or gate of the requester tell others to use it.
func (o *Observation) isPublished() bool { return o.Requester.Shown || o.Requester.GateOpen }

// hasServed reports whether others were told to use a requester when its program ran, or may have:
// the gate may be open before. A program that runs, and carries nothing by a record that was
// written ahead, may be bound in the next moment.
func (o *Observation) hasServed() bool {
	if o.Requester.Shown {
		return true
	}
	early := o.Ahead || o.Record.Ahead && o.SPI != nil && !o.ForwardsTraffic()
	return o.Requester.GateOpen && !early
}

// IsReady reports whether the requester program answers probes that it is ready.
func (o *Observation) IsReady() bool { return o.SPI != nil && o.SPI.Proxy.Ready }

// forwardsNothing reports whether the requester program is known not to carry traffic to the
// instance, and not to do so as soon as it is told to: a program that was started anew is bound
// again within milliseconds.
func (o *Observation) forwardsNothing() bool {
	switch {
	case !o.Requester.Running:
		return !o.Ahead || !o.Launcher.Connected
	case o.SPI == nil:
		return false
	case !o.ForwardsTraffic():
		return o.Troubles[Bind].Count > 0 || !o.Launcher.Connected || o.kubeletHasNotAnswered() || o.Record.Ahead && o.SPI.Wrong != ""
	default: // where the instance listens a launcher that does not answer cannot tell
		return o.SPI.Proxy.State != requesterapi.StateBound || o.Launcher.Connected && o.SPI.Proxy.ProxyConfig != o.Proxy()
	}
}

// Binding returns the name of the binding that the requester program is to have. One of an earlier
// attempt will do: the instance was the record's all the time, so a model that was put to sleep
// by hand is served again without an end to its clients' connections.
func (o *Observation) Binding() string {
	if o.SPI != nil && o.SPI.Proxy.State == requesterapi.StateBound && o.Record.HasKey(o.SPI.Proxy.Binding) {
		return o.SPI.Proxy.Binding
	}
	return o.Record.SwapKey()
}

// Proxy returns what the requester program is to carry.
func (o *Observation) Proxy() requesterapi.ProxyConfig {
	return requesterapi.ProxyConfig{
		Binding:     o.Binding(),
		ServingPort: uint16(o.Record.ServingPort),
		Address:     o.Launcher.IP,
		Port:        uint16(o.Instance.Port),
		MetricsURL:  "http://" + net.JoinHostPort(o.Launcher.IP, strconv.Itoa(o.Instance.Port)) + "/metrics",
	}
}
