package decide

import (
	"net"
	"strconv"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// Awake is what the table serving reads: a bound requester whose instance is awake.
type Awake struct {
	*Bound
	Instance *launcherapi.Instance // not nil
}

// Awake returns the requester with its instance; nil: it is not bound, or the instance is not awake.
func (o *Observation) Awake() *Awake {
	if b := o.Bound(); b != nil {
		return b.awake()
	}
	return nil
}

// awake returns the requester with its instance; nil: the instance is not awake.
func (b *Bound) awake() *Awake {
	if !b.instanceAwake() {
		return nil
	}
	return &Awake{b, b.Instance}
}

// Proxy returns what the requester program is to carry.
func (a *Awake) Proxy() requesterapi.ProxyConfig {
	if a.Requester.Rank.IsWorker() {
		return requesterapi.ProxyConfig{Binding: a.Binding(), ServingPort: uint16(a.Record.ServingPort), NoTraffic: true}
	}
	return requesterapi.ProxyConfig{
		Binding:     a.Binding(),
		ServingPort: uint16(a.Record.ServingPort),
		Address:     a.Launcher.IP,
		Port:        uint16(a.Instance.Port),
		MetricsURL:  "http://" + net.JoinHostPort(a.Launcher.IP, strconv.Itoa(a.Instance.Port)) + "/metrics",
	}
}

// ForwardsToIt reports whether the binding of the requester program is that of the record, and leads
// to the instance.
func (a *Awake) ForwardsToIt() bool { return a.SPI != nil && a.SPI.Proxy.ProxyConfig == a.Proxy() }

// modelFrom says where the instance has its model from; empty: its launcher keeps no models.
func (a *Awake) modelFrom() string {
	i := a.Instance
	switch {
	case i.ModelFrom == "":
		return ""
	case i.ModelWhy == "":
		return ", with its model from the " + i.ModelFrom
	default:
		return ", with its model from the " + i.ModelFrom + ": " + i.ModelWhy
	}
}
