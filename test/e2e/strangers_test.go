package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// series counts the lines of the metrics that are samples.
func (n *Node) series() (count int, text string) {
	n.t.Helper()
	a := n.Call("GET", "/metrics", nil)
	require.Equal(n.t, 200, a.Status)
	for line := range strings.Lines(string(a.Body)) {
		if !strings.HasPrefix(line, "#") {
			count++
		}
	}
	return count, string(a.Body)
}

// strange are requests of somebody who makes up what can be made up: at the
// control API, and at an instance's public port.
func strange(t *testing.T, api, instance string, from, to int) {
	t.Helper()
	send := func(method, url, host string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		require.NoError(t, err)
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.GreaterOrEqual(t, resp.StatusCode, 400)
	}
	for i := from; i < to; i++ {
		urls := []string{api}
		if i%10 == 0 {
			urls = append(urls, instance)
		}
		for _, url := range urls {
			name := fmt.Sprintf("x%d", i)
			send("BREW"+name, url+"/"+name, "")
			send("GET", url+"/"+name, "")
			send("BREW"+name, url+"/v1/models", "")
			send("GET", url+instances+"/"+name, name+".example")
			send("POST", url+"/v2/vllm/swap?"+name, name+".example")
		}
	}
}

func TestAStrangerCannotMakeTheMetricsGrow(t *testing.T) {
	t.Parallel()
	for name, newNode := range map[string]func(*testing.T) *Node{
		"with a token":    func(t *testing.T) *Node { n, _ := newTokenNode(t, "s3cret-token"); return n },
		"without a token": func(t *testing.T) *Node { return NewNode(t) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			a := n.Awake("a", On(0))
			instance := publicURL(a, "")
			strange(t, n.URL, instance, 0, 3) // each kind of request has been seen
			n.series()                        // and a look at the metrics
			before, _ := n.series()
			strange(t, n.URL, instance, 3, 1000)
			after, text := n.series()
			assert.Equal(t, before, after, "every invented name made a series: %.3000s", text)
			for _, line := range []string{"BREW", "x500", ".example"} {
				assert.NotContains(t, text, line)
			}
			n.Delete("a")
			_, text = n.series()
			assert.NotContains(t, text, `="a"`, "what an instance labels goes with it")
		})
	}
}
