package requester

import (
	"net"
	"net/http"
	"net/http/pprof"
)

// loopback is the address for what nobody outside of the Pod may reach. kubectl
// port-forward reaches it.
const loopback = "127.0.0.1"

// openAsked listens on the ports that only some Pods ask for.
func (r *Requester) openAsked() error {
	for _, a := range []struct {
		what, host string
		port       int
		routes     http.Handler
	}{
		{"metrics", r.opts.Host, r.opts.MetricsPort, r.metricsRoutes()},
		{"profiles", loopback, r.opts.DebugPort, profileRoutes()},
	} {
		if a.port == 0 {
			continue
		}
		l, err := listenAt(a.what, a.host, a.port)
		if err != nil {
			return err
		}
		r.asked = append(r.asked, newServer(l, a.routes, r.opts))
		r.reserved = append(r.reserved, portOf(l))
		r.opts.Logger.Info("serving "+a.what, "address", l.Addr())
	}
	return nil
}

// AskedAddrs are where the requester serves metrics and profiles, as far as the options
// name ports for them.
func (r *Requester) AskedAddrs() (addresses []net.Addr) {
	for _, s := range r.asked {
		addresses = append(addresses, s.listener.Addr())
	}
	return addresses
}

func (r *Requester) metricsRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", r.getMetrics)
	return mux
}

// profileRoutes are those of net/http/pprof, without the command line.
func profileRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}
