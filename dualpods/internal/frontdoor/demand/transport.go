package demand

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"hotseat.dev/hotseat/spec/demandapi"
)

// idleTime is how long a connection to a front door that is not used stays open.
const idleTime = 2 * time.Minute

// Transport returns how a Listener reaches front doors. secure returns the configuration of TLS for each connection:
// certificates and authorities change.
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
