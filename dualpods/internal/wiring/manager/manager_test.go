package manager

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAControllerThatIsToldToEndWhileTheAPIServerHangsDoes(t *testing.T) {
	hanging, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody answers
	require.NoError(t, err)
	defer hanging.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Config: &rest.Config{Host: "http://" + hanging.Addr().String()}, MetricsAddress: "0", ProbesAddress: "0", Nodes: 1, Log: logr.Discard(),
		})
	}()
	conn, err := hanging.Accept() // it has begun to ask
	require.NoError(t, err)
	defer conn.Close()
	stop()
	select {
	case err := <-ended:
		assert.ErrorContains(t, err, "cannot reach the API server")
	case <-time.After(patience.Wait()):
		require.Fail(t, "the controller goes on")
	}
}

func TestAReplicaWithAnIdentityAndNoPlaceForTheLeaseSaysSo(t *testing.T) {
	err := Run(t.Context(), Options{
		Config: &rest.Config{Host: "http://127.0.0.1:1"}, LeaderElection: true, Identity: "a", MetricsAddress: "0", ProbesAddress: "0", Log: logr.Discard(),
	})
	require.ErrorContains(t, err, "no namespace for the Lease")
}
