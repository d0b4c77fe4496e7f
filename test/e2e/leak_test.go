package e2e

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// holdings is what a launcher holds of what could leak.
type holdings struct{ files, goroutines int }

var goroutineCount = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

// held counts the launcher's descriptors and goroutines.
func (n *Node) held() holdings {
	n.t.Helper()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	found := goroutineCount.FindSubmatch(n.Call("GET", "/metrics", nil).Body)
	require.NotNil(n.t, found, "go_goroutines is among the metrics")
	goroutines, err := strconv.Atoi(string(found[1]))
	require.NoError(n.t, err)
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID()))
	require.NoError(n.t, err)
	return holdings{len(files), goroutines}
}

// gaveBack waits until the launcher holds no more than it did.
func (n *Node) gaveBack(before holdings) {
	n.t.Helper()
	var now holdings
	n.Eventually(fmt.Sprintf("no more is held than %+v", before), func() bool {
		now = n.held()
		return now.files <= before.files && now.goroutines <= before.goroutines
	})
	assert.NotContains(n.t, n.Log(), "panic")
}
