package gateway

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func lease(t *testing.T, ports *Ports) *Leased {
	t.Helper()
	l, err := ports.Lease(0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

func TestLeasedPortIsNobodyElsesUntilItIsYielded(t *testing.T) {
	ports := NewPorts()
	l := lease(t, ports)
	for _, host := range []string{loopback, everywhere} {
		_, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, strconv.Itoa(l.Port())))
		require.ErrorContains(t, err, "address already in use", "at %s", host)
	}
	_, err := ports.Lease(l.Port())
	requirePortTaken(t, err, l.Port())

	require.NoError(t, l.Yield())
	engine, err := listenPlain(t.Context(), l.Port())
	require.NoError(t, err, "the engine can listen, without any option of its socket")
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	_, err = ports.listen(loopback, l.Port())
	requirePortTaken(t, err, l.Port())
	_, err = ports.Claim(l.Port())
	requirePortTaken(t, err, l.Port())
}

func TestPortThatAnotherLauncherHasGivenToAnEngineIsNotLeased(t *testing.T) {
	first, second := NewPorts(), NewPorts()
	l := lease(t, first)
	require.NoError(t, l.Yield())
	_, err := second.Lease(l.Port())
	requirePortTaken(t, err, l.Port())
	require.NoError(t, l.Close())

	adopted := first.Used(l.Port()) // after a restart
	_, err = second.Lease(l.Port())
	requirePortTaken(t, err, l.Port())
	require.NoError(t, adopted.Close())
	again, err := second.Lease(l.Port())
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestPortsThatTheKernelChoosesByItselfAreNotLeasedFirst(t *testing.T) {
	for _, port := range quietPorts(32768, 60999) {
		assert.True(t, firstQuiet <= port && port <= lastQuiet, "%d", port)
	}
	assert.Len(t, quietPorts(32768, 60999), quietTries)
	assert.Empty(t, quietPorts(1024, 65535))
	for _, port := range quietPorts(22000, 28999) {
		assert.Less(t, port, 22000)
	}
	low, high := kernelPorts()
	kernels, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kernels.Close()) })
	chosen := kernels.Addr().(*net.TCPAddr).Port
	assert.True(t, low <= chosen && chosen <= high, "%d is between %d and %d", chosen, low, high)
}

func TestPortThatAStrangerUsesIsNotLeased(t *testing.T) {
	for _, host := range []string{loopback, everywhere} {
		stranger, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
		require.NoError(t, err)
		port := stranger.Addr().(*net.TCPAddr).Port
		_, err = NewPorts().Lease(port)
		requirePortTaken(t, err, port)
		require.NoError(t, stranger.Close())
	}
}

// The kernel chooses a yielded port again, since nothing is bound to it: the allocator then takes
// another.
func TestPortOfAnEngineThatDoesNotListenYetIsGivenToNobody(t *testing.T) {
	ports := NewPorts()
	used := ports.Used(lease(t, NewPorts()).Port())
	t.Cleanup(func() { require.NoError(t, used.Close()) })
	chosen := []int{used.Port(), used.Port(), used.Port() + 1}
	undone := 0
	var port int
	require.NoError(t, ports.avoidReserved(func() (int, func(), error) {
		port, chosen = chosen[0], chosen[1:]
		return port, func() { undone++ }, nil
	}))
	assert.Equal(t, used.Port()+1, port)
	assert.Equal(t, 2, undone)
}
