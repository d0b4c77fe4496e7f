//go:build cluster

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/helpers/patience"
)

// slowly has the stand-in give as many tokens as are asked for, up to 2000, in
// twentieths of a second.
var slowly = []string{"--sim-token-time=50ms", "--sim-tokens=2000"}

// stream begins a streamed answer of so many tokens, on a connection of its own
// to a Pod's port 8000, and gives what comes back, from the first token on.
func (s *site) stream(ip, model string, tokens int) (net.Conn, *bufio.Reader) {
	s.t.Helper()
	conn, err := s.cluster.Dial(s.t.Context(), "tcp", net.JoinHostPort(ip, "8000"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	body := fmt.Sprintf(`{"model":%q,"prompt":"Hello","stream":true,"max_tokens":%d}`, model, tokens)
	_, err = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	require.NoError(s.t, err)
	in := bufio.NewReader(conn)
	require.NoError(s.t, conn.SetReadDeadline(time.Now().Add(patience.Wait())))
	for {
		line, err := in.ReadString('\n')
		require.NoError(s.t, err)
		if strings.HasPrefix(line, "data: ") {
			require.NoError(s.t, conn.SetReadDeadline(time.Time{}))
			return conn, in
		}
	}
}

// talkPace is how long the stand-in takes for a token of a talk, and talkTokens how
// many there are: they last over six minutes.
const (
	talkPace   = 200 * time.Millisecond
	talkTokens = 2000
)

// talker is a model that talks.
func talker() server {
	return server{app: "talker", node: 1, args: []string{"--sim-token-time=" + talkPace.String(), fmt.Sprintf("--sim-tokens=%d", talkTokens)}}
}

// talk is a streamed answer that lasts longer than what a test does meanwhile.
type talk struct {
	t     *testing.T
	in    *bufio.Reader
	begun time.Time
	came  int // tokens
}

// listen has the model of a Pod of talker talk.
func (s *site) listen(pod *corev1.Pod) *talk {
	s.t.Helper()
	begun := time.Now()
	_, in := s.stream(pod.Status.PodIP, "org/talker", talkTokens)
	return &talk{t: s.t, in: in, begun: begun}
}

// goesOn reads more tokens than can have come by now.
func (k *talk) goesOn() {
	k.t.Helper()
	for until := int(time.Since(k.begun)/talkPace) + 2; k.came < until; {
		line, err := k.in.ReadString('\n')
		require.NoError(k.t, err)
		require.NotContains(k.t, line, "[DONE]")
		if strings.HasPrefix(line, "data: ") {
			k.came++
		}
	}
}

// caller is a client that keeps its connection to a Pod's port 8000. What it asks
// has its mark in the path, and so in the access log of the engine that hears it.
type caller struct {
	net.Conn
	in   *bufio.Reader
	mark string
}

func (s *site) call(ip, mark string) *caller {
	s.t.Helper()
	conn, err := s.cluster.Dial(s.t.Context(), "tcp", net.JoinHostPort(ip, "8000"))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return &caller{conn, bufio.NewReader(conn), mark}
}

// ask asks for the model, and gives it.
func (c *caller) ask() (model string, err error) {
	if _, err := fmt.Fprintf(c, "GET /v1/models?mark=%s HTTP/1.1\r\nHost: x\r\n\r\n", c.mark); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var models struct{ Data []struct{ ID string } }
	if err := json.NewDecoder(resp.Body).Decode(&models); err != nil || len(models.Data) == 0 {
		return "", fmt.Errorf("%s: no model: %w", resp.Status, err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return models.Data[0].ID, err
}

// ends waits for the orderly end of a connection, on which nothing comes any more.
func (c *caller) ends(t *testing.T) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(patience.Wait())))
	_, err := c.in.ReadByte()
	require.ErrorIs(t, err, io.EOF, "the connection %s is closed, not reset", c.mark)
}

// engineLog is what the engine of a model has written, its access log in it.
func (s *site) engineLog(app string) string {
	s.t.Helper()
	var log bytes.Buffer
	c := s.launcher("launcher-node-1")
	require.NoError(s.t, c.CopyLog(s.t.Context(), s.instances(c)["org/"+app].InstanceID, 0, &log))
	return log.String()
}

// heard checks what the engines of two models have been asked, by marks.
func (s *site) heard(app string, marks ...string) {
	s.t.Helper()
	next := s.call(s.served("next", 1)[0].Status.PodIP, "for-next")
	model, err := next.ask()
	require.NoError(s.t, err)
	assert.Equal(s.t, "org/next", model)
	theirs, ours := s.engineLog("next"), s.engineLog(app)
	assert.Contains(s.t, theirs, "mark=for-next", "the engine logs what it is asked")
	for _, mark := range marks {
		assert.Contains(s.t, ours, "mark="+mark)
		assert.NotContains(s.t, theirs, "mark="+mark)
	}
	assert.NotContains(s.t, theirs, "mark=late")
	assert.NotContains(s.t, ours, "mark=late")
}

func TestConnectionsThatEndInTimeAreHeardToTheirEndByWhoWasAsked(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	s.deploy(server{app: "next", node: 1}, 0)
	s.deploy(server{app: "talker", node: 1, args: slowly}, 1)
	pod := s.served("talker", 1)[0]
	ip := pod.Status.PodIP
	idle, silent := s.call(ip, "idle"), s.call(ip, "silent")
	model, err := idle.ask()
	require.NoError(t, err)
	assert.Equal(t, "org/talker", model)
	conn, in := s.stream(ip, "org/talker", 100)
	s.scale("talker", 0)
	s.scale("next", 1)
	s.draining(ip)

	// Whoever awaits an answer has the whole of it; then it is idle as the others are.
	var rest bytes.Buffer
	for !bytes.HasSuffix(rest.Bytes(), []byte("\r\n0\r\n\r\n")) { // the last chunk
		line, err := in.ReadBytes('\n')
		rest.Write(line)
		require.NoError(t, err, "the stream was cut: %s", rest.Bytes())
	}
	assert.Contains(t, rest.String(), "[DONE]")
	assert.GreaterOrEqual(t, strings.Count(rest.String(), "data: "), 90)
	answered := &caller{conn, in, "late"}
	for _, c := range []*caller{idle, silent, answered} {
		c.ends(t)
		c.mark = "late"
		_, err := c.ask()
		require.Error(t, err, "nobody hears what comes after the end")
	}
	s.served("next", 1)
	s.answers("next")
	s.instance("launcher-node-1", "talker", "sleeping")
	s.heard("talker", "idle")
}

func TestConnectionsThatGoOnAreCutAndTheNextModelNeverHearsOfThem(t *testing.T) {
	s := newSite(t)
	s.onOneGPU()
	s.deploy(server{app: "next", node: 1}, 0)
	s.deploy(server{app: "talker", node: 1, args: slowly, grace: 12}, 1) // connections have nearly all of that
	pod := s.served("talker", 1)[0]
	_, in := s.stream(pod.Status.PodIP, "org/talker", 2000)
	busy := s.call(pod.Status.PodIP, "busy")
	var others []string
	asked, over := 0, make(chan struct{})
	go func() { // a client that asks again as soon as it has its answer
		defer close(over)
		for {
			model, err := busy.ask()
			if err != nil {
				return
			}
			asked++
			if model != "org/talker" {
				others = append(others, model)
			}
		}
	}()
	s.scale("talker", 0)
	s.scale("next", 1)
	rest, err := io.ReadAll(in)
	require.Error(t, err, "a reset tells the client that the answer is not whole")
	assert.NotContains(t, string(rest), "[DONE]")
	assert.NotContains(t, string(rest), "org/next")
	<-over
	assert.NotZero(t, asked)
	assert.Empty(t, others)
	s.served("next", 1)
	s.answers("next")
	i := s.instance("launcher-node-1", "talker", "sleeping")
	assert.Zero(t, i.InFlight)
	s.heard("talker", "busy")
}

// endpoints are the addresses of a Service that are ready.
func (s *site) endpoints(service string) (ready []string) {
	s.t.Helper()
	var slices discoveryv1.EndpointSliceList
	require.NoError(s.t, s.api.List(s.t.Context(), &slices, client.InNamespace(s.ns), client.MatchingLabels{discoveryv1.LabelServiceName: service}))
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready = append(ready, e.Addresses...)
			}
		}
	}
	return ready
}

// follow gives the versions of a Pod as the API server tells them, until stop.
func (s *site) follow(pod *corev1.Pod, each func(*corev1.Pod)) (stop func()) {
	s.t.Helper()
	return s.followAll(func(p *corev1.Pod, gone bool) {
		if !gone {
			each(p)
		}
	}, client.MatchingFields{"metadata.name": pod.Name})
}

// followAll tells of all versions of the Pods of the namespace that are so, in the
// order of the API server, until stop.
func (s *site) followAll(each func(p *corev1.Pod, gone bool), so ...client.ListOption) (stop func()) {
	s.t.Helper()
	watching, err := client.NewWithWatch(s.rest, client.Options{})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(s.t.Context())
	events, err := watching.Watch(ctx, &corev1.PodList{}, append(so, client.InNamespace(s.ns))...)
	require.NoError(s.t, err)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for e := range events.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				each(p, e.Type == watch.Deleted)
			}
		}
	}()
	return func() { events.Stop(); cancel(); <-over }
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestRelayedLabelsAndTheReadinessGateTellWhoServes(t *testing.T) {
	s := newSite(t)
	const key = "example.com/model"
	s.service("by-model", map[string]string{key: "labelled"})
	pod := s.start(server{app: "labelled", node: 1, gate: true, labels: map[string]string{key: "labelled"}})
	var wrong []string
	stop := s.follow(pod, func(p *corev1.Pod) {
		_, labelled := p.Labels[key]
		if labelled && !podmeta.GateOpen(p) {
			wrong = append(wrong, fmt.Sprintf("%s: gate %v, label %v", p.ResourceVersion, podmeta.GateOpen(p), labelled))
		}
	})
	s.served("labelled", 1)
	s.eventually("the Service has the requester", func() bool { return len(s.endpoints("by-model")) == 1 })
	address := s.endpoints("by-model")[0]
	model, err := s.ask(address+":8000", "org/labelled")
	require.NoError(t, err)
	assert.Equal(t, "org/labelled", model)

	// The model is put to sleep by somebody: it serves no more until it is awake again.
	i := s.instance("launcher-node-1", "labelled", "awake")
	var retracted bool
	stopToo := s.follow(pod, func(p *corev1.Pod) {
		if _, labelled := p.Labels[key]; !labelled && !podmeta.GateOpen(p) {
			retracted = true
		}
	})
	_, err = s.launcher("launcher-node-1").Sleep(t.Context(), i.InstanceID, launcherapi.SleepRequest{})
	require.NoError(t, err)
	s.eventually("the next attempt", func() bool { return s.records("launcher-node-1")[0].Attempt == 2 })
	s.eventually("the gate is open again", func() bool { return podmeta.GateOpen(s.pod("labelled")) })
	stopToo()
	assert.True(t, retracted, "the label came off while the model slept")
	s.served("labelled", 1)
	s.eventually("the Service has the requester again", func() bool { return len(s.endpoints("by-model")) == 1 })

	// A requester that leaves is no endpoint any more before its model sleeps.
	s.delete("labelled")
	s.gone("labelled")
	stop()
	assert.Empty(t, wrong)
	assert.Empty(t, s.endpoints("by-model"))
}

func TestAnAnswerGoesOnWhileAnotherModelTakesTheOtherGPU(t *testing.T) {
	s := newSite(t)
	s.deploy(talker(), 1)
	answer := s.listen(&s.served("talker", 1)[0])
	s.deploy(server{app: "other", node: 1}, 1)
	s.served("other", 1)
	s.scale("other", 0)
	s.gone("other")
	assert.Equal(t, 1, s.instance("launcher-node-1", "talker", "awake").InFlight, "the answer goes on")
	answer.goesOn()
}
