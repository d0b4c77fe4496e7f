package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Row 35: when the launcher is killed with a hundred requests that wait, their clients see a cut
// connection, and the next launcher serves at once. It takes the engines over.
func TestKilledLauncherCutsTheRequestsThatWait(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "")+modelText("hangs", "", "--sim-hang-at-load", "1"))
	require.Equal(t, 200, ask(t, url, "a").Status)
	var all sync.WaitGroup
	failed := make([]error, 100)
	for k := range failed {
		all.Go(func() { _, failed[k] = tryCall(t.Context(), "POST", url+"/v1/completions", question("hangs")) })
	}
	n.Eventually("all wait", func() bool { return n.demand("hangs").Waiting == len(failed) })
	n.Eventually("the engine has its process", func() bool { return n.instances()["m-hangs"].PID != 0 })
	before := n.instances()
	n.Kill9()
	all.Wait()
	for _, err := range failed {
		assert.Error(t, err)
	}
	n.Start()
	assert.Equal(t, 200, ask(t, url, "a").Status)
	after := n.instances()
	assert.Equal(t, before["m-a"].PID, after["m-a"].PID, "it was taken over")
	assert.Equal(t, before["m-hangs"].PID, after["m-hangs"].PID)
	assert.Len(t, after, 2)
}

// An instance that somebody has made is served by its name, unless a model of the configuration
// has that name. One with the id of a model's instance is in that model's way, and is left alone.
func TestInstancesMadeByHandBesideTheModels(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "")+modelText("b", ""))
	n.Create("mine", Spec("a", On(1)))
	mine := n.Await("mine", "awake")
	assert.Equal(t, "a", answeredBy(t, ask(t, url, "a")))
	assert.Contains(t, n.instances(), "m-a", "the model of the configuration has the name")
	assert.Equal(t, mine.LastUsedAt, n.Get("mine").LastUsedAt, "it was not used")
	assert.Equal(t, mine.PID, n.Get("mine").PID)
	n.Sleep("mine", 1)
	n.Create("m-b", Spec("other", On(1)))
	other := n.Await("m-b", "awake")
	assert.Equal(t, "other", answeredBy(t, ask(t, url, "other")))
	taken := ask(t, url, "b")
	assert.Equal(t, 503, taken.Status, "%s", taken.Body)
	assert.Contains(t, refusal(t, taken).Message, "its instance would be m-b, and somebody has made an instance with that id")
	assert.Equal(t, other.PID, n.Get("m-b").PID)
}

// The annotations by which the front door knows its instances are its own.
func TestAnnotationsOfTheFrontDoorAreRefused(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	for _, name := range []string{launcherapi.AnnotationModel, launcherapi.AnnotationModelDigest} {
		spec := Spec("a", On(0))
		spec["annotations"] = map[string]string{name: "a"}
		created := n.Call("PUT", "/v2/vllm/instances/a", spec)
		assert.Equal(t, 422, created.Status, "%s", created.Body)
		assert.Contains(t, created.Problem(t).Detail, "is the front door's own")
		in := map[string]any{"id": "a", "args": []string{"a"}, "annotations": map[string]string{name: "a"}}
		swapped := n.Swap(map[string]any{"gpu_uuids": On(0), "in": in})
		assert.Equal(t, 422, swapped.Status, "%s", swapped.Body)
	}
}

// An instance that asks for the front door's port is told who has it.
func TestPortOfTheFrontDoorIsTakenByName(t *testing.T) {
	t.Parallel()
	n, url := door(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	got := n.Call("PUT", "/v2/vllm/instances/a", Spec("a", On(0), "--host", "127.0.0.1", "--port", port))
	assert.Equal(t, 409, got.Status, "%s", got.Body)
	p := got.Problem(t)
	assert.Equal(t, "port_taken", string(p.Code))
	assert.Contains(t, p.Detail, "by the launcher's front door")
}

// ownAddress is an address of this machine that other machines reach.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() {
			return ip.IP.String()
		}
	}
	return "0.0.0.0"
}

// Beyond loopback a client needs the token, which no engine sees, unless the front door is open.
func TestFrontDoorBeyondLoopbackAsksForItsToken(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("door-secret\n"), 0o600))
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	address := net.JoinHostPort(ownAddress(t), port)
	n := NewNode(t, "--front-door", address, "--front-door-token-file", token)
	url := "http://" + address
	// An engine with a key of its own refuses the front door's token and says so.
	n.Awake("a", On(0))
	for _, path := range []string{"/v1/completions", "/v1/chat/completions"} {
		got := call(t, "POST", url+path, question("a"))
		assert.Equal(t, 401, got.Status)
		assert.Equal(t, 401, call(t, "POST", url+path, question("a"), "Authorization", "Bearer other").Status)
		assert.NotEmpty(t, refusal(t, got).Message)
	}
	assert.Equal(t, 401, call(t, "GET", url+"/v1/models", nil).Status)
	preflight := call(t, "OPTIONS", url+"/v1/completions", nil, "Origin", "https://page.example", "Access-Control-Request-Method", "POST")
	assert.Equal(t, 200, preflight.Status, "browsers send no token with it")
	assert.Equal(t, 200, ask(t, url, "a", "Authorization", "Bearer door-secret").Status)
	assert.Equal(t, 200, call(t, "GET", url+"/v1/models", nil, "Authorization", "Bearer door-secret").Status)
	assert.Equal(t, 200, ask(t, url, "a", "X-Api-Key", "door-secret").Status, "as Anthropic's clients send it")
	assert.Equal(t, 401, ask(t, url, "a", "X-Api-Key", "other").Status)
	n.Create("keyed", Spec("keyed", On(1), "--api-key", "door-secret"))
	n.Await("keyed", "awake")
	for name, value := range map[string]string{"Authorization": "Bearer door-secret", "X-Api-Key": "door-secret"} {
		assert.Equal(t, 401, ask(t, url, "keyed", name, value).Status, "the engine did not get the token")
	}
	require.NoError(t, os.WriteFile(token, []byte("next-secret"), 0o600))
	assert.Equal(t, 401, ask(t, url, "a", "Authorization", "Bearer door-secret").Status)
	assert.Equal(t, 200, ask(t, url, "a", "Authorization", "Bearer next-secret").Status)
	require.NoError(t, os.Remove(token))
	gone := ask(t, url, "a", "Authorization", "Bearer next-secret")
	assert.Equal(t, 503, gone.Status, "no client has a wrong token")
	assert.Contains(t, refusal(t, gone).Message, "cannot check tokens")
}

func TestOpenFrontDoorServesOtherMachines(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	address := net.JoinHostPort(ownAddress(t), port)
	n := NewStoppedNode(t, "--front-door", address)
	_, errs, code := n.commands(n.args...)
	assert.Equal(t, 2, code)
	assert.Contains(t, errs, "can be reached from other machines")
	n.args = append(n.args, "--front-door-open")
	n.Start()
	assert.Equal(t, 200, call(t, "GET", "http://"+address+"/v1/models", nil).Status)
}

// Row 34: a thousand clients at once, of which most read or write slowly, are bounded, and the
// control port answers meanwhile.
func TestThousandClientsLeaveTheControlPortFree(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", "", "--sim-token-time", "1ms"), "--max-held-requests", "2000")
	address := strings.TrimPrefix(url, "http://")
	require.Equal(t, 200, ask(t, url, "a").Status)
	ctx, end := context.WithCancel(t.Context())
	var idle []net.Conn
	for k := range 600 { // slow writers and slow readers; idle ones
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		require.NoError(t, err)
		idle = append(idle, conn)
		switch k % 3 {
		case 0:
			_, err = fmt.Fprint(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"model\":\"a\",")
		case 1:
			body := `{"model":"a","stream":true,"max_tokens":2000,"prompt":"x"}`
			_, err = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		}
		require.NoError(t, err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	answered := map[int]int{}
	for range 400 {
		all.Go(func() {
			got, err := tryCall(ctx, "POST", url+"/v1/completions", question("a"))
			mu.Lock()
			defer mu.Unlock()
			if assert.NoError(t, err) {
				answered[got.Status]++
			}
		})
	}
	assert.Equal(t, http.StatusOK, n.Call("GET", "/v2/front-door", nil).Status)
	all.Wait()
	assert.Equal(t, map[int]int{200: 400}, answered)
	end()
	for _, conn := range idle {
		assert.NoError(t, conn.Close())
	}
	n.Eventually("nothing is in flight", func() bool { return n.demand("a").InFlight == 0 })
	assert.Equal(t, 200, ask(t, url, "a").Status)
}

// Row 34: ten thousand idle connections keep neither other clients nor the control port out.
func TestIdleConnectionsKeepNoClientOut(t *testing.T) {
	t.Parallel()
	n, url := offer(t, "models:\n"+modelText("a", ""))
	require.Equal(t, 200, ask(t, url, "a").Status)
	most := 10_000
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if free := int(limit.Cur)/2 - 500; free < most {
		most = free // this process needs a descriptor for each, too
	}
	var idle []net.Conn
	defer func() {
		for _, conn := range idle {
			_ = conn.Close() // the launcher may have closed it
		}
	}()
	for range most {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		require.NoError(t, err)
		idle = append(idle, conn)
	}
	assert.Equal(t, 200, ask(t, url, "a").Status)
	assert.Equal(t, 200, n.Call("GET", "/v2/front-door", nil).Status)
}
