//go:build vllm

package vllm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// answer is what a model said.
type answer struct {
	Model   string
	Choices []struct {
		Message      struct{ Content string }
		Delta        struct{ Content string }
		FinishReason string `json:"finish_reason"`
	}
	Usage struct {
		CompletionTokens int `json:"completion_tokens"`
	}
}

func question(i launcherapi.Instance, more string) string {
	return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"The quick brown fox"}],"temperature":0,"ignore_eos":true%s}`, i.ServedModelNames[0], more)
}

// post makes a request at an instance's public port.
func post(ctx context.Context, i launcherapi.Instance, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d%s", i.Port, path), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return http.DefaultClient.Do(req)
}

// try asks a model, and gives its words. At temperature 0 a model always says
// the same.
func try(ctx context.Context, i launcherapi.Instance) (string, error) {
	return tryWith(ctx, i, question(i, `,"max_tokens":24`))
}

// tryWith sends a model a request, and gives its words, of which there are as many as
// the request allows.
func tryWith(ctx context.Context, i launcherapi.Instance, request string) (string, error) {
	resp, err := post(ctx, i, "/v1/chat/completions", request)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	var a answer
	if err := json.Unmarshal(data, &a); err != nil || resp.StatusCode != http.StatusOK || len(a.Choices) != 1 {
		return "", fmt.Errorf("%d: %s", resp.StatusCode, data)
	}
	if a.Choices[0].FinishReason != "length" || a.Model != i.ServedModelNames[0] {
		return "", fmt.Errorf("model %s, finish_reason %s", a.Model, a.Choices[0].FinishReason)
	}
	return a.Choices[0].Message.Content, nil
}

func ask(t *testing.T, i launcherapi.Instance) string {
	t.Helper()
	words, err := try(t.Context(), i)
	require.NoError(t, err)
	return words
}

// streamed is an answer that is being streamed.
type streamed struct {
	resp  *http.Response
	lines *bufio.Scanner
}

// stream asks for a long answer, and returns when its first words have come.
func stream(t *testing.T, i launcherapi.Instance) *streamed {
	t.Helper()
	resp, err := post(t.Context(), i, "/v1/chat/completions", question(i, fmt.Sprintf(`,"max_tokens":%d,"stream":true,"stream_options":{"include_usage":true}`, streamTokens)))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	s := &streamed{resp: resp, lines: bufio.NewScanner(resp.Body)}
	require.True(t, s.lines.Scan(), "%v", s.lines.Err())
	return s
}

const streamTokens = 200

// whole reads the rest of the answer and checks that nothing of it is missing.
func (s *streamed) whole(t *testing.T) {
	t.Helper()
	defer s.resp.Body.Close()
	finish, tokens, done := "", 0, false
	for s.lines.Scan() {
		data, isEvent := strings.CutPrefix(s.lines.Text(), "data: ")
		if !isEvent {
			continue
		}
		if data == "[DONE]" {
			done = true
			continue
		}
		var a answer
		require.NoError(t, json.Unmarshal([]byte(data), &a), "%s", data)
		if len(a.Choices) > 0 && a.Choices[0].FinishReason != "" {
			finish = a.Choices[0].FinishReason
		}
		if a.Usage.CompletionTokens > 0 {
			tokens = a.Usage.CompletionTokens
		}
	}
	require.NoError(t, s.lines.Err(), "the stream broke")
	assert.Equal(t, "length", finish)
	assert.Equal(t, streamTokens, tokens)
	assert.True(t, done, "it ends with [DONE]")
}
