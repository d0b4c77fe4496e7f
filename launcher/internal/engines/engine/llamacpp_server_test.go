//go:build llamacpp

package engine

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/harness"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func realLlama(t *testing.T) harness.LlamaCpp {
	t.Helper()
	real, err := harness.FindLlamaCpp()
	require.NoError(t, err)
	return real
}

// llamaServer is a real llama-server, started by a plan.
type llamaServer struct {
	t       *testing.T
	adapter *LlamaCpp
	plan    Plan
	socket  string
	cmd     *exec.Cmd
	log     *syncedLog
	exited  chan struct{}
}

// syncedLog is what a process has written so far.
type syncedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *syncedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *syncedLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(l.text.String(), "\n")
}

// planLlama makes a server of a plan, which is not started yet.
func planLlama(t *testing.T, saved string, args ...string) *llamaServer {
	t.Helper()
	s := &llamaServer{t: t, adapter: NewLlamaCpp(LlamaCppOptions{}), socket: filepath.Join(t.TempDir(), "engine.sock")}
	t.Cleanup(s.adapter.Close)
	var err error
	s.plan, err = s.adapter.Plan(Request{Args: args, BaseEnv: os.Environ(), SaveDir: saved})
	require.NoError(t, err)
	return s
}

// startLlama starts a server and waits until it is ready.
func startLlama(t *testing.T, saved string, args ...string) *llamaServer {
	t.Helper()
	s := planLlama(t, saved, args...)
	s.start()
	s.await()
	return s
}

func (s *llamaServer) start() {
	s.t.Helper()
	s.startAt(s.plan.SocketArgv(s.socket))
}

func (s *llamaServer) startAt(argv []string) {
	s.t.Helper()
	s.log, s.exited = &syncedLog{}, make(chan struct{})
	s.cmd = exec.Command(realLlama(s.t).Program, argv...)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = s.plan.SocketEnv(""), s.log, s.log
	require.NoError(s.t, s.cmd.Start())
	cmd, exited := s.cmd, s.exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
}

func (s *llamaServer) base() string { return SocketBase(s.socket) }

// await waits until the server is ready.
func (s *llamaServer) await() {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.adapter.Ready(s.t.Context(), s.base()) == nil }, patience.Wait(), 5*time.Millisecond, "%s", s.log.lines())
}

// end sends a signal and waits for the end.
func (s *llamaServer) end(signal syscall.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Process.Signal(signal))
	s.ends()
}

func (s *llamaServer) ends() {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(patience.Wait()):
		s.t.Fatalf("llama-server does not end: %s", s.log.lines())
	}
}

// restart ends the server, removes its socket, and starts it again.
func (s *llamaServer) restart() {
	s.t.Helper()
	s.end(syscall.SIGTERM)
	require.NoError(s.t, os.Remove(s.socket))
	s.start()
	s.await()
}

// llamaCompletion is what matters of an answer.
type llamaCompletion struct {
	Model   string `json:"model"`
	Choices []struct {
		Text string `json:"text"`
	} `json:"choices"`
	Timings struct {
		Cached    int `json:"cache_n"`
		Evaluated int `json:"prompt_n"`
	} `json:"timings"`
}

// complete asks for eight tokens.
func (s *llamaServer) complete(prompt string) (c llamaCompletion) {
	s.t.Helper()
	body := map[string]any{"prompt": prompt, "max_tokens": 8, "temperature": 0}
	answer, err := s.adapter.call(s.t.Context(), http.MethodPost, s.base(), "/v1/completions", body, s.plan.APIKey)
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(answer, &c))
	require.Len(s.t, c.Choices, 1)
	require.NotEmpty(s.t, c.Choices[0].Text)
	return c
}

func (s *llamaServer) save(dir string) error {
	return s.adapter.Save(s.t.Context(), s.base(), dir, s.plan.APIKey)
}

func (s *llamaServer) restore(dir string) error {
	return s.adapter.Restore(s.t.Context(), s.base(), dir, s.plan.APIKey)
}

const (
	firstPrompt  = "The capital of France is"
	secondPrompt = "Another conversation, which is about something else."
)
