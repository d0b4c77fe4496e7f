package binding

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/spec/requesterapi"
)

// hangingOrders is a requester program that lets each order wait.
type hangingOrders struct {
	Requesters // nil
}

func (hangingOrders) Bind(ctx context.Context, _ string, _ requesterapi.ProxyConfig) (requesterapi.Proxy, error) {
	<-ctx.Done()
	return requesterapi.Proxy{}, ctx.Err()
}

func (hangingOrders) BecomeReady(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hangingOrders) BecomeUnready(ctx context.Context, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hangingOrders) Hold(ctx context.Context, _ string, _ requesterapi.Hold) (requesterapi.Proxy, error) {
	<-ctx.Done()
	return requesterapi.Proxy{}, ctx.Err()
}

func (hangingOrders) Unbind(ctx context.Context, _, _ string, _ time.Duration) (requesterapi.Unbound, error) {
	<-ctx.Done()
	return requesterapi.Unbound{}, ctx.Err()
}

func TestHangingOrderHoldsAPassForAMomentOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(t.Context(), Options{Requesters: hangingOrders{}, Now: time.Now}, logr.Discard())
		n := c.work("node-0")
		for _, do := range []decide.Action{decide.Bind, decide.BecomeReady, decide.BecomeUnready, decide.Hold, decide.EndHold} {
			o := servedOne()
			o.Now = time.Now()
			w := &world{spi: map[types.UID]*decide.SPI{o.Requester.UID: o.SPI}}
			err := c.callRequester(t.Context(), n, w, o, decide.Step{Do: do})
			assert.Equal(t, do == decide.Bind || do == decide.BecomeReady, err != nil, "%s: after the others the pass goes on", do)
			assert.LessOrEqual(t, time.Since(o.Now), passLimit, "%s", do)
			assert.Equal(t, 1, n.calls.trouble(troubleKey(do, o.Requester.UID)).Count, "%s is repeated later and later", do)
		}
	})
}
