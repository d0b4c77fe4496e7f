package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The rows about bad bodies of the section "API" of spec/rows.md: each
// is answered by a problem document of the 4xx class, makes nothing, and costs
// the launcher nothing that it does not give back.

// members writes the members of an object, all with the same value.
func members(count int, value string) string {
	all := make([]string, count)
	for k := range all {
		all[k] = fmt.Sprintf(`"k%d":%s`, k, value)
	}
	return strings.Join(all, ",")
}

// nested is a value within so many lists.
func nested(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

// badEverywhere are bodies that no call takes.
var badEverywhere = map[string]string{
	"truncated":                      `{"options":"m"`,
	"trailing data":                  `{} {}`,
	"trailing garbage":               `{}x`,
	"no JSON":                        `options=m`,
	"a list":                         `[]`,
	"a string":                       `"m"`,
	"a number":                       `7`,
	"an unknown field":               `{"optionz":"m"}`,
	"a field in capitals":            `{"TIMEOUT":1,"Options":"m"}`,
	"a comment":                      `{} // m`,
	"a byte order mark":              "\xef\xbb\xbf{}",
	"UTF-16":                         "\xff\xfe{\x00}\x00",
	"gzip":                           "\x1f\x8b\x08\x00\x00\x00\x00\x00",
	"invalid UTF-8 in a value":       "{\"options\":\"m\xff\"}",
	"invalid UTF-8 in a key":         "{\"opt\xffions\":\"m\"}",
	"a zero byte":                    "{\"options\":\"m\x00\"}",
	"10,000 lists in one another":    `{"options":` + nested(10_000) + `}`,
	"a million lists in one another": `{"options":` + nested(1_000_000) + `}`,
	"10,000 unknown keys":            `{` + members(10_000, `1`) + `}`,
	"10 MiB":                         `{"options":"` + strings.Repeat("m", 10<<20) + `"}`,
	"10 MiB of spaces":               strings.Repeat(" ", 10<<20) + `{}`,
	"a number too large":             `{"timeout":1e999,"level":1e999,"args":[1e999]}`,
}

// badCreates are bodies that a create call does not take.
var badCreates = map[string]string{
	"nothing":                       ``,
	"null":                          `null`,
	"no arguments":                  `{}`,
	"options and args":              `{"options":"m","args":["m"]}`,
	"options that are a number":     `{"options":5}`,
	"options that are a list":       `{"options":["m"]}`,
	"args that are a string":        `{"args":"m"}`,
	"args with a number":            `{"args":["m",5]}`,
	"args with null":                `{"args":["m",null]}`,
	"args with a zero byte":         `{"args":["m","a\u0000b"]}`,
	"5,000 args":                    `{"args":["m"` + strings.Repeat(`,"x"`, 5000) + `]}`,
	"GPUs that are a string":        `{"options":"m","gpu_uuids":"GPU-0"}`,
	"GPUs that are numbers":         `{"options":"m","gpu_uuids":[0]}`,
	"100 GPUs":                      `{"options":"m","gpu_uuids":["a"` + strings.Repeat(`,"a"`, 99) + `]}`,
	"an empty GPU":                  `{"options":"m","gpu_uuids":[""]}`,
	"variables that are a list":     `{"options":"m","env_vars":["A=b"]}`,
	"a variable that is a number":   `{"options":"m","env_vars":{"A":5}}`,
	"a variable without a name":     `{"options":"m","env_vars":{"":"b"}}`,
	"a variable with = in its name": `{"options":"m","env_vars":{"A=B":"c"}}`,
	"a variable with a zero byte":   `{"options":"m","env_vars":{"A":"b\u0000c"}}`,
	"a variable of the launcher":    `{"options":"m","env_vars":{"HOTSEAT_INSTANCE":"b"}}`,
	"a file with something else":    `{"options":"m","env_vars":{"A":{"from_file":"/a","x":1}}}`,
	"a file without a name":         `{"options":"m","env_vars":{"A":{"from_file":""}}}`,
	"10,000 variables":              `{"options":"m","env_vars":{` + members(10_000, `"v"`) + `}}`,
	"10,000 annotations":            `{"options":"m","annotations":{` + members(10_000, `"v"`) + `}}`,
	"annotations that are numbers":  `{"options":"m","annotations":{"a":1}}`,
	"annotations in one another":    `{"options":"m","annotations":{"a":{"b":"c"}}}`,
	"an unknown engine":             `{"options":"m","engine":"tgi"}`,
	"an address of its own":         `{"options":"m --uds /tmp/x"}`,
	"TLS of its own":                `{"options":"m --ssl-keyfile x"}`,
	"a port that is none":           `{"options":"m --port http"}`,
	"a port beyond all ports":       `{"options":"m --port 65536"}`,
	"a share of memory beyond one":  `{"options":"m --gpu-memory-utilization 7"}`,
	"no ranks at all":               `{"options":"m -tp 0"}`,
	"an argument longer than any":   `{"args":["m","` + strings.Repeat("x", 1<<20) + `"]}`,
	"a variable longer than any":    `{"options":"m","env_vars":{"A":"` + strings.Repeat("x", 1<<20) + `"}}`,
	"6 MB of arguments":             `{"args":["m"` + strings.Repeat(`,"`+strings.Repeat("x", 100<<10)+`"`, 60) + `]}`,
}

var badVerbs = map[string]string{
	"a level that is none":     `{"level":3}`,
	"a level below any":        `{"level":-1}`,
	"a level in words":         `{"level":"deep"}`,
	"a level with a fraction":  `{"level":1.5}`,
	"a negative drain timeout": `{"drain_timeout":"-5s"}`,
	"a negative timeout":       `{"timeout":-1}`,
	"a timeout in words":       `{"timeout":"soon"}`,
	"a timeout without unit":   `{"timeout":"5"}`,
	"a timeout that is a list": `{"timeout":[1]}`,
	"wait in words":            `{"wait":"yes"}`,
}

var badSwaps = map[string]string{
	"nothing":                           ``,
	"no GPU and no instance":            `{}`,
	"no GPU at all":                     `{"gpu_uuids":[]}`,
	"a GPU that nobody knows":           `{"gpu_uuids":["GPU-nobody"]}`,
	"a GPU twice":                       `{"gpu_uuids":["` + GPU(0) + `","` + GPU(0) + `"]}`,
	"in that is a string":               `{"in":"a"}`,
	"in that is empty":                  `{"gpu_uuids":["` + GPU(0) + `"],"in":{}}`,
	"in that is there and new":          `{"in":{"instance_id":"a","options":"m"}}`,
	"in with an unknown field":          `{"in":{"instance_id":"a","levle":1}}`,
	"out that is a string":              `{"gpu_uuids":["` + GPU(0) + `"],"out":"sleep"}`,
	"out by other means":                `{"gpu_uuids":["` + GPU(0) + `"],"out":{"mode":"kill"}}`,
	"out to a level that is none":       `{"gpu_uuids":["` + GPU(0) + `"],"out":{"level":3}}`,
	"a negative timeout":                `{"gpu_uuids":["` + GPU(0) + `"],"timeout":"-1s"}`,
	"a dry run in words":                `{"gpu_uuids":["` + GPU(0) + `"],"dry_run":"yes"}`,
	"a new instance with a bad id":      `{"gpu_uuids":["` + GPU(1) + `"],"in":{"id":"../x","options":"m"}}`,
	"a new instance that needs more":    `{"gpu_uuids":["` + GPU(1) + `"],"in":{"options":"m -tp 2"}}`,
	"a new instance on other GPUs":      `{"gpu_uuids":["` + GPU(1) + `"],"in":{"options":"m","gpu_uuids":["` + GPU(0) + `"]}}`,
	"a new instance with bad arguments": `{"gpu_uuids":["` + GPU(1) + `"],"in":{"options":"m --port http"}}`,
}

func TestABadBodyIsRefusedAndMakesNothing(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	a := n.Awake("a", On(0))
	n.Call("POST", instances, `{}`) // what a first call leaves warm
	before, running := n.held(), len(engines(n.SimFS))
	for _, call := range []struct {
		method, path string
		bodies       map[string]string
	}{
		{"POST", instances, badCreates}, {"PUT", instances + "/b", badCreates}, {"PUT", instances + "/c", badEverywhere},
		{"POST", instances, badEverywhere}, {"POST", instances + "/a/sleep", badEverywhere}, {"POST", instances + "/a/sleep", badVerbs},
		{"POST", instances + "/a/wake", badEverywhere}, {"POST", "/v2/vllm/swap", badEverywhere}, {"POST", "/v2/vllm/swap", badSwaps},
	} {
		for name, body := range call.bodies {
			t.Run(call.method+" "+call.path+" with "+name, func(t *testing.T) {
				got := n.Call(call.method, call.path, body, "Content-Type", "application/json")
				p := got.Problem(t)
				assert.True(t, p.Status >= 400 && p.Status < 500, "%d: %.300s", p.Status, p.Detail)
				assert.Less(t, len(got.Body), 8<<10, "the answer does not repeat what was sent")
			})
		}
	}
	now := n.Get("a")
	assert.Equal(t, a.Revision, now.Revision, "nothing has happened")
	assert.Equal(t, 1, n.list().TotalInstances)
	assert.Len(t, engines(n.SimFS), running)
	n.gaveBack(before)
	n.Ask(now, "still there?")
}

func TestABodyOf10MiBIsTooLargeHoweverItIsSent(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	before := n.held()
	body := `{"options":"` + strings.Repeat("m", 10<<20) + `"}`
	assert.Equal(t, 413, n.Call("POST", instances, body).Problem(t).Status)
	// In chunks, without a length that would tell beforehand.
	req, err := http.NewRequestWithContext(t.Context(), "POST", n.URL+instances, io.MultiReader(strings.NewReader(body)))
	require.NoError(t, err)
	req.ContentLength = -1
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, 413, resp.StatusCode)
	n.gaveBack(before)
	n.empty()
}

func TestABodyJustUnderTheLimitIsRead(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	spec := Spec("a", On(0))
	spec["annotations"] = map[string]string{"long": strings.Repeat("x", 9<<20)}
	a := call(t, "PUT", n.URL+instances+"/a", spec)
	require.Equal(t, 201, a.Status)
	assert.Greater(t, len(a.Body), 9<<20)
	assert.Equal(t, 200, call(t, "DELETE", n.URL+instances+"/a", nil).Status)
}

func TestABodyThatDoesNotCallItselfJSONIsA415(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml", "a+b;c+d"} {
		got := n.Call("POST", instances, `{"options":"m"}`, "Content-Type", kind)
		assert.Equal(t, 415, got.Problem(t).Status, kind)
	}
	n.empty()
}

// raw sends bytes to the launcher and gives the status of its answer; 0 when it
// hangs up without one.
func (n *Node) raw(text string) (status int) {
	n.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.URL, "http://"))
	require.NoError(n.t, err)
	defer conn.Close()
	require.NoError(n.t, conn.SetDeadline(time.Now().Add(patience)))
	_, _ = io.WriteString(conn, text) // it may hang up before all is sent
	require.NoError(n.t, conn.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestARequestThatIsNoHTTPOrNotWholeIsRefusedAndLeaksNothing(t *testing.T) {
	t.Parallel()
	n := NewNode(t)
	before := n.held()
	for name, text := range map[string]string{
		"no HTTP":                     "hello\r\n\r\n",
		"TLS":                         "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 100),
		"half a head":                 "GET / HTTP/1.1\r\nHost: localhost\r\n",
		"no host":                     "GET / HTTP/1.1\r\n\r\n",
		"two lengths":                 "POST " + instances + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
		"a length below zero":         "POST " + instances + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n{}",
		"a length and chunks":         "POST " + instances + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"an unknown coding":           "POST " + instances + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n{}",
		"a body shorter than it says": "POST " + instances + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 200\r\n\r\n{\"options\":\"m\"}",
		"chunks that are none":        "POST " + instances + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
		"a head of 100 KiB":           "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 100<<10) + "\r\n\r\n",
		"a path of 100 KiB":           "GET /" + strings.Repeat("x", 100<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a path that is not UTF-8":    "GET " + instances + "/%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a path with a bad escape":    "GET " + instances + "/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a method that is none":       "FROB / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"a request for a proxy":       "CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"an upgrade":                  "GET " + instances + " HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\nX-End: 1\r\n\r\n",
		"HTTP/2 without asking":       "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			status := n.raw(text)
			if name == "an unknown coding" { // RFC 9112 section 6.1 has a status for it
				assert.Equal(t, 501, status)
				return
			}
			assert.Less(t, status, 500)
			if name != "an upgrade" {
				assert.True(t, status == 0 || status >= 400, "%d", status)
			}
		})
	}
	n.gaveBack(before)
	n.empty()
}
