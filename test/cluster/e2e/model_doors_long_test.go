//go:build cluster && clusterlong

package e2e

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// talkative is a Model with one replica, which gives a token each twentieth of a second.
const talkative = `
apiVersion: hotseat.dev/v1alpha1
kind: Model
metadata: {name: llama}
spec:
  url: hf://org/llama
  resourceProfile: e2e-gpu
  args: [--gpu-memory-utilization=0.4, --sim-token-time=50ms, --sim-tokens=2000]
  maxReplicas: 1
  targetRequests: 1000
  scaleDownDelaySeconds: 2
`

// doorStream begins a streamed answer through the front door at an address. end returns how many tokens came, and why
// there is no end; "": there is one.
func (s *site) doorStream(address, model string, tokens int) (end func() (got int, why string)) {
	s.t.Helper()
	conn, err := s.cluster.Dial(s.t.Context(), "tcp", address)
	require.NoError(s.t, err)
	body := fmt.Sprintf(`{"model":%q,"prompt":"Hello","stream":true,"max_tokens":%d}`, model, tokens)
	_, err = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: %s.%s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", s.ns, modelsDomain, len(body), body)
	require.NoError(s.t, err)
	in, got, why, first, over := bufio.NewReader(conn), 0, "", make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		defer conn.Close()
		for {
			line, err := in.ReadString('\n')
			switch {
			case err != nil:
				why = err.Error()
			case strings.HasPrefix(line, "data: [DONE]"):
			case strings.HasPrefix(line, "data: "):
				if got++; got == 1 {
					close(first)
				}
				continue
			default:
				continue
			}
			if got == 0 {
				close(first)
			}
			return
		}
	}()
	select {
	case <-first:
	case <-time.After(patience.Wait()):
		require.Fail(s.t, "no token came")
	}
	return func() (int, string) { <-over; return got, why }
}

func TestOneOfTwoFrontDoorsIsKilled(t *testing.T) {
	s := newPool(t, nil)
	s.declare(talkative)
	s.eventually("there are two front doors", func() bool { return len(s.frontDoors()) == 2 })
	doors := s.frontDoors()
	victim, other := doors[0], net.JoinHostPort(doors[1].Status.PodIP, "8000")
	s.eventually("the front door knows the Model", func() bool {
		status, _, err := s.chatAt(t.Context(), other, "llama")
		return err == nil && status == 200
	})
	pods := s.modelPods("llama")
	require.Len(t, pods, 1)
	end := s.doorStream(other, "llama", 200) // of 10 s
	cut := s.doorStream(net.JoinHostPort(victim.Status.PodIP, "8000"), "llama", 2000)
	stop := s.chats("llama", other, 2)
	number := 0
	_, err := fmt.Sscanf(victim.Spec.NodeName, "node-%d", &number)
	require.NoError(t, err)
	s.killProcess(number, cluster.Process{CommandLine: "^/frontdoor", Variable: "HOSTNAME=" + victim.Name})
	_, why := cut()
	assert.NotEmpty(t, why, "what it had begun is cut")
	got, why := end()
	assert.Empty(t, why)
	assert.GreaterOrEqual(t, got, 200)
	onlyAnswers(t, stop(), 10)
	now := s.modelPods("llama")
	require.Len(t, now, 1)
	assert.Equal(t, pods[0].UID, now[0].UID, "nothing was scaled down for it")
	s.eventually("the requests of the dead one do not count", func() bool { return len(s.modelPods("llama")) == 0 })
	s.eventually("there are two front doors again", func() bool { return len(s.frontDoors()) == 2 })
}

func TestRollingFrontDoorsCutsNoStream(t *testing.T) {
	s := newPool(t, nil)
	s.declare(talkative)
	status, text := s.chat("llama")
	require.Equal(t, 200, status, text)
	address := s.frontDoor()
	var ends []func() (int, string)
	for range 200 {
		ends = append(ends, s.doorStream(address, "llama", 1200)) // of a minute
	}
	stop := s.chats("llama", address, 2)
	_, err := s.cluster.Kubectl(t.Context(), nil, "-n", system, "rollout", "restart", "deployment/hotseat-frontdoor")
	require.NoError(t, err)
	_, err = s.cluster.Kubectl(t.Context(), nil, "-n", system, "rollout", "status", "deployment/hotseat-frontdoor", "--timeout="+patience.Wait().String())
	require.NoError(t, err)
	onlyAnswers(t, stop(), 10)
	for _, end := range ends {
		got, why := end()
		assert.Empty(t, why)
		assert.GreaterOrEqual(t, got, 1200)
	}
}

func TestModelsAnswerWhileTheAPIServerIsAway(t *testing.T) {
	s := newPool(t, nil)
	s.declare(talkative + "---" + strings.Replace(talkative, "name: llama", "name: other", 1))
	status, text := s.chat("llama")
	require.Equal(t, 200, status, text)
	address := s.frontDoor()
	stop := s.chats("llama", address, 1)
	end := s.doorStream(address, "llama", 1300) // of 65 s
	back := s.apiAway()
	since := time.Now()
	type answer struct {
		status int
		text   string
		err    error
	}
	held := make(chan answer, 1)
	go func() {
		status, text, err := s.chatAt(t.Context(), address, "other")
		held <- answer{status, text, err}
	}()
	select {
	case a := <-held:
		assert.Fail(t, "it was not held", "%v", a)
	case <-time.After(time.Minute):
	}
	back()
	t.Logf("the API server was away for %s", time.Since(since))
	got, why := end()
	assert.Empty(t, why)
	assert.GreaterOrEqual(t, got, 1300)
	onlyAnswers(t, stop(), 10)
	select {
	case a := <-held:
		assert.Equal(t, 200, a.status, "%v", a)
	case <-time.After(patience.Wait()):
		assert.Fail(t, "what was held is not answered")
	}
}
