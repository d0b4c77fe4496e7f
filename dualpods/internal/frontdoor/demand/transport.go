package demand

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"hotseat.dev/hotseat/spec/demandapi"
)

// idleTime is how long an unused connection to a front door stays open.
const idleTime = 2 * time.Minute

// Transport returns the transport by which a Listener reaches front doors. secure returns the TLS configuration of each
// connection, because certificates and authorities change.
func Transport(secure func(context.Context) (*tls.Config, error)) *http.Transport {
	dialer := &net.Dialer{Timeout: demandapi.SilenceLimit}
	return &http.Transport{IdleConnTimeout: idleTime, DialContext: dialer.DialContext, DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := secure(ctx)
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
	}}
}
