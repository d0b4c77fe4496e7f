package main

import (
	"net"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// descriptors returns how many descriptors this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// memory returns the bytes that the heap and the stacks of this process take after a collection.
func memory() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

func TestTenThousandIdleConnectionsAreBounded(t *testing.T) {
	const (
		clients   = 10_000
		most      = 4096 // the default of --max-connections
		slack     = 1000 // connections that are being closed, and what the program and its fake API server open besides
		perClient = 32 << 10
	)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.GreaterOrEqual(t, limit.Cur, uint64(clients+most+slack), "both ends of the connections are in this process: raise its limit with ulimit -n")
	p := start(t, newFakeAPI(t))
	p.await(p.probes.Addr(), "/readyz", http.StatusOK, "")
	files, bytes, routines := descriptors(t), memory(), runtime.NumGoroutine()

	all := make([]net.Conn, 0, clients)
	hangUp := func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
	defer hangUp()
	for i := range clients {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.clients.Addr().String())
		require.NoError(t, err)
		all = append(all, c)
		if i%2 == 1 { // every second one begins a header, and never ends it
			_, _ = c.Write([]byte("GET /v1/models HTTP/1.1\r\nHost: h\r\nX-Slow: "))
		}
		if i%500 == 0 {
			require.LessOrEqual(t, descriptors(t), files+i+1+most+slack)
		}
	}
	// Connections are accepted in their order, so the front door has seen all of them once it answers a new one.
	status, _ := p.get(p.clients.Addr(), "/v1/models")
	assert.Equal(t, http.StatusOK, status, "a client that asks is answered")
	assert.LessOrEqual(t, descriptors(t), files+clients+most+slack)
	assert.LessOrEqual(t, runtime.NumGoroutine(), routines+2*(most+slack))
	assert.LessOrEqual(t, memory()-bytes, most*perClient)
	status, _ = p.get(p.probes.Addr(), "/readyz")
	assert.Equal(t, http.StatusOK, status, "it is ready all the while")

	hangUp()
	for descriptors(t) > files+slack || runtime.NumGoroutine() > routines+slack {
		<-time.After(5 * time.Millisecond)
	}
}
