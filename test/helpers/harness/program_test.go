package harness_test

import (
	"net"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
)

// A process that starts has the sockets of this one until it runs its program.
func TestFreeAddressIsFreeWhileProcessesStart(t *testing.T) {
	stop := make(chan struct{})
	var starters sync.WaitGroup
	for range 8 {
		starters.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					assert.NoError(t, exec.Command("true").Run())
				}
			}
		})
	}
	defer starters.Wait()
	defer close(stop)
	for range 2000 {
		address, err := harness.FreeAddress()
		require.NoError(t, err)
		l, err := net.Listen("tcp", address)
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
}

func TestFreePortIsGivenOnce(t *testing.T) {
	seen := map[uint16]bool{}
	for range 500 {
		port, err := harness.FreePort()
		require.NoError(t, err)
		require.False(t, seen[port], port)
		seen[port] = true
	}
}
