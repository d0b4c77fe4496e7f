package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/test/helpers/harness"
)

// withInput is a call of a client command that has standard input.
func (d *daemonProcess) withInput(in io.Reader, args ...string) result {
	d.t.Helper()
	d.t.Setenv(envServer, d.address)
	var out, errs bytes.Buffer
	code := (&cli{in: in, out: &out, err: &errs}).run(d.t.Context(), args)
	return result{code, out.String(), errs.String()}
}

func TestChatPrintsTheAnswer(t *testing.T) {
	d := startDaemon(t)
	d.do("run", "--gpu", "0", "--id", "a", "--wait", "m", "--served-model-name", "x")
	t.Run("to a question on the command line", func(t *testing.T) {
		r := d.do("chat", "a", "--", "What", "is it?")
		require.Regexp(t, `^\S.*\n$`, r.out)
		require.NotContains(t, r.out, "data:")
	})
	t.Run("to one on standard input", func(t *testing.T) {
		r := d.withInput(strings.NewReader("What is it?\n"), "chat", "a")
		require.Equal(t, exitOK, r.code, r.err)
		require.NotEmpty(t, strings.TrimSpace(r.out))
	})
	t.Run("and asks for a question where there is none", func(t *testing.T) {
		r := d.withInput(strings.NewReader(" \n"), "chat", "a")
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.err, "the question is missing")
	})
	t.Run("of an instance that starts, once it is awake", func(t *testing.T) {
		d.do("run", "--gpu", "none", "--id", "late", "m", "--sim-load-time", "50ms", "--gpu-memory-utilization", "0.01")
		r := d.do("chat", "late", "--", "x")
		require.Contains(t, r.err, "late is starting")
		require.NotEmpty(t, strings.TrimSpace(r.out))
	})
	t.Run("and says how to wake an instance that sleeps", func(t *testing.T) {
		d.do("sleep", "a")
		r := d.call("chat", "a", "--", "x")
		require.Equal(t, exitFailed, r.code)
		require.Contains(t, r.err, "a is sleeping; launcher swap a wakes it")
	})
}

// fakeChat is a launcher with one awake instance whose engine answers as told.
func fakeChat(t *testing.T, answer http.HandlerFunc) (server string, asked *[]map[string]any) {
	t.Helper()
	asked = &[]map[string]any{}
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		body["authorization"] = r.Header.Get("Authorization")
		*asked = append(*asked, body)
		answer(w, r)
	}))
	t.Cleanup(engine.Close)
	at, err := url.Parse(engine.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(at.Port())
	require.NoError(t, err)
	launcher := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(launcherapi.Instance{InstanceID: "a", State: "awake", Model: "m", ServedModelNames: []string{"x"}, Host: at.Hostname(), Port: port})
	}))
	t.Cleanup(launcher.Close)
	return launcher.URL, asked
}

func TestChatSaysWhyThereIsNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		says   string
	}{
		"a refusal":                {http.StatusBadRequest, `{"error":{"message":"no chat template"}}`, "a refused the question with 400 Bad Request: no chat template"},
		"a refusal that is text":   {http.StatusBadGateway, "what?", "502 Bad Gateway: what?"},
		"an error in the answer":   {http.StatusOK, "data: {\"error\":{\"message\":\"out of tokens\"}}\n\n", "a broke off its answer: out of tokens"},
		"an answer without an end": {http.StatusOK, "data: {\"choices\":[{\"delta\":{\"content\":\"one\"}}]}\n\n", "a broke off its answer: unexpected EOF"},
		"an answer that was cut":   {http.StatusOK, "data: {\"choices\":[{\"finish_reason\":\"abort\"}]}\n\n", "the engine aborted it"},
		"an event that is no JSON": {http.StatusOK, "data: {\n\n", "cannot read an event of it"},
	} {
		t.Run(name, func(t *testing.T) {
			server, _ := fakeChat(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			r := call(t, "chat", "a", "--server", server, "--", "x")
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.err, c.says)
		})
	}
}

// answers gives a streamed answer of one word.
func answers(word string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, ": comment\ndata: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\""+word+"\"}}]}\n\ndata: {\"choices\":[]}\n\ndata: [DONE]\n\n")
	}
}

func TestChatOnATerminalRemembersWhatWasSaid(t *testing.T) {
	server, asked := fakeChat(t, answers("yes"))
	typed, terminal := openTerminal(t)
	_, err := typed.WriteString("one\n\ntwo\n\x04")
	require.NoError(t, err)
	var out, errs bytes.Buffer
	code := (&cli{in: terminal, out: &out, err: &errs}).run(t.Context(), []string{"chat", "a", "--server", server})
	require.Equal(t, exitOK, code, errs.String())
	require.Equal(t, "yes\nyes\n", out.String())
	require.Len(t, *asked, 2)
	require.Equal(t, []any{
		map[string]any{"role": "user", "content": "one"},
		map[string]any{"role": "assistant", "content": "yes"},
		map[string]any{"role": "user", "content": "two"},
	}, (*asked)[1]["messages"])
	require.Equal(t, "x", (*asked)[0]["model"])
}

func TestChatShowsTheEngineItsKey(t *testing.T) {
	server, asked := fakeChat(t, answers("yes"))
	file := t.TempDir() + "/key"
	require.NoError(t, os.WriteFile(file, []byte("sesame\n"), 0o600))
	require.Equal(t, exitOK, call(t, "chat", "--api-key-file", file, "a", "--server", server, "--", "x").code)
	require.Equal(t, "Bearer sesame", (*asked)[0]["authorization"])
}

func TestChatFindsThePortOfAnInstance(t *testing.T) {
	for name, c := range map[string]struct{ server, listens, want string }{
		"here":                             {"127.0.0.1:8001", "127.0.0.1", "127.0.0.1"},
		"here by name":                     {"http://localhost:8001", "127.0.0.1", "127.0.0.1"},
		"at every address":                 {"https://node:8001", "0.0.0.0", "node"},
		"at one address":                   {"https://node:8001", "10.0.0.1", "10.0.0.1"},
		"not, where it is another machine": {"https://node:8001", "127.0.0.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			host, err := (&cli{server: c.server}).hostOf(launcherapi.Instance{InstanceID: "a", Host: c.listens, Port: 9000})
			require.Equal(t, c.want, host)
			if c.want == "" {
				require.ErrorContains(t, err, "--instance-host")
			}
		})
	}
}

func TestRunWaitsOnATerminal(t *testing.T) {
	d := startDaemon(t)
	t.Setenv(envServer, d.address)
	_, terminal := openTerminal(t)
	on := func(args ...string) string {
		var errs bytes.Buffer
		require.Equal(t, exitOK, (&cli{out: terminal, err: &errs}).run(t.Context(), args), errs.String())
		return errs.String()
	}
	require.Contains(t, on("run", "--gpu", "none", "--id", "a", "m", "--sim-load-time", "50ms"), "a is awake")
	require.Empty(t, on("run", "--gpu", "none", "--id", "b", "--no-wait", "m", "--sim-hang-at-load", "always"))
	require.Empty(t, on("run", "--gpu", "none", "--id", "c", "--wait=false", "m", "--sim-hang-at-load", "always"))
}

// openTerminal opens a pseudo-terminal: the person's end, and the program's.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, program, err := harness.OpenTerminal()
	require.NoError(t, err)
	t.Cleanup(func() { _ = person.Close(); _ = program.Close() })
	return person, program
}
