package binding

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	program "hotseat.dev/hotseat/dualpods/internal/requesters/requester"
	"hotseat.dev/hotseat/dualpods/internal/requesters/spi"
	"hotseat.dev/hotseat/dualpods/requestertest"
	"hotseat.dev/hotseat/spec/requesterapi"
)

func TestTheSimulatedRequesterAnswersAsTheRealOneDoes(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := uint16(free.Addr().(*net.TCPAddr).Port)
	require.NoError(t, free.Close())
	real, err := program.New(program.Options{
		Host: "127.0.0.1", AcceleratorsFrom: "env", Logger: slog.New(slog.DiscardHandler), Getenv: func(string) string { return "GPU-a,GPU-b" },
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- real.Run(ctx) }()
	c := spi.New(nil)
	want := requestertest.Script(t.Context(), c, real.SPIAddr().String(), port)
	c.Close()
	stop()
	require.NoError(t, real.Close())
	require.NoError(t, <-ended)

	var got []string
	synctest.Test(t, func(t *testing.T) {
		s := &sim{numbers: map[string]int{}, stale: map[string]time.Time{}, unrecorded: map[types.UID]time.Time{}, programs: map[types.UID]*simProgram{}}
		s.api = newSimAPI(s)
		p := &simProgram{s: s, up: true, pod: "one", ip: "10.1.0.1", gpus: []string{"GPU-a", "GPU-b"}, proxy: requesterapi.Proxy{State: requesterapi.StateUnbound}}
		s.programs["one"] = p
		got = requestertest.Script(t.Context(), &simRequesters{&incarnation{s: s}}, p.address(), port)
	})
	assert.Equal(t, want, got)
}
