package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// zero is when the Pod of these tests was created.
var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// line is an event of the audit log, whose request came and was answered so many
// milliseconds after zero.
func line(verb, subresource, user, body string, received, answered int, code int) string {
	at := func(ms int) string {
		return zero.Add(time.Duration(ms) * time.Millisecond).Format("2006-01-02T15:04:05.000000Z")
	}
	return fmt.Sprintf(`{"verb":%q,"user":{"username":%q},"objectRef":{"resource":"pods","namespace":"default","name":"p","subresource":%q},"responseStatus":{"code":%d},"requestReceivedTimestamp":%q,"stageTimestamp":%q,"requestObject":{"status":%s}}`+"\n",
		verb, user, subresource, code, at(received), at(answered), body)
}

func TestTheTimesOfAStartAreReadFromTheAuditLog(t *testing.T) {
	const (
		kubelet  = "system:node:node-1"
		runs     = `{"containerStatuses":[{"name":"inference-server","state":{"running":{}}}],"conditions":[{"type":"Ready","status":"False"}]}`
		readyNow = `{"containerStatuses":[{"name":"inference-server","state":{"running":{}}}],"conditions":[{"type":"Ready","status":"True"}]}`
	)
	log := filepath.Join(t.TempDir(), "audit.log")
	require.NoError(t, os.WriteFile(log, []byte(
		line("create", "", "admin", "{}", 0, 3, 201)+
			line("create", "binding", "system:kube-scheduler", "{}", 6, 9, 201)+
			line("patch", "status", kubelet, `{"conditions":[{"type":"Ready","status":"False"}]}`, 10, 12, 200)+
			line("patch", "status", kubelet, runs, 99, 100, 409)+ // refused: nobody has seen it
			line("patch", "status", kubelet, runs, 500, 502, 200)+
			line("patch", "", controllerUser, "{}", 503, 505, 200)+
			line("patch", "", controllerUser, "{}", 551, 553, 200)+
			line("patch", "status", kubelet, readyNow, 570, 572, 200)+
			`{"verb":"patch","objectRef":{"name":"half`), 0o600))

	writes, err := readAudit(t.Context(), log, "p", func(w *write) bool { return w.says("Ready") })
	require.NoError(t, err)
	moments := []launcherapi.Instance{
		{State: "awake", StateSince: zero.Add(-time.Second)}, // of an earlier start
		{State: "waking", StateSince: zero.Add(507 * time.Millisecond)},
		{State: "awake", StateSince: zero.Add(547 * time.Millisecond)},
	}
	var s starts
	require.NoError(t, s.add(writes, moments, "p", false))
	ms := func(n int) figures.Times { return figures.Times{time.Duration(n) * time.Millisecond} }
	assert.Equal(t, ms(572-9), s.toReady)
	assert.Equal(t, ms(507-9), s.asked)
	assert.Equal(t, ms(25), s.relayed)
	trace := string(traces(writes, moments, []string{"p"}, nil))
	assert.Contains(t, trace, "   494.0  patch p/status system:node:node-1: 200, in 2.00 ms, running\n")
	assert.Contains(t, trace, "   501.0  instance  is waking\n")
	assert.Contains(t, trace, "   564.0  patch p/status system:node:node-1: 200, in 2.00 ms, Ready, running\n")
	assert.NotContains(t, trace, "create p/ admin", "it was before")
	ahead := []launcherapi.Instance{
		{State: "waking", StateSince: zero.Add(20 * time.Millisecond)},
		{State: "awake", StateSince: zero.Add(60 * time.Millisecond)},
	}
	var s2 starts
	require.NoError(t, s2.add(writes, ahead, "p", false))
	assert.Equal(t, ms(11), s2.asked)
	assert.Equal(t, ms(70), s2.relayed, "from when its program ran")

	assert.ErrorContains(t, s.add(writes, moments[:1], "p", false), "no hot start of Pod p")
	assert.ErrorContains(t, s.add(writes, moments, "another", false), "does not tell all of Pod another")
}

func TestTheDocumentHasItsMark(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "..", figures.Document))
	require.NoError(t, err)
	assert.Contains(t, string(data), mark)
}
