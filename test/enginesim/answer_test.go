package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestAnswersNameTheModelAndFollowFromPromptAndSeed(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--served-model-name", "one", "two"}}).ready()
	text, finish := p.complete(`{"model":"two","prompt":"x","max_tokens":5}`)
	require.Equal(t, "length", finish)
	require.True(t, strings.HasPrefix(text, "one "), text)
	again, _ := p.complete(`{"prompt":"x","max_tokens":5}`)
	require.Equal(t, text, again)
	other, _ := p.complete(`{"prompt":"y","max_tokens":5}`)
	require.NotEqual(t, text, other)
	seeded, _ := p.complete(`{"prompt":"x","max_tokens":5,"seed":7}`)
	require.NotEqual(t, text, seeded)
	greedy, _ := p.complete(`{"prompt":"x","max_tokens":5,"seed":7,"temperature":0}`)
	require.Equal(t, text, greedy, "without sampling there is no seed")
	short, _ := p.complete(`{"prompt":"x","max_tokens":1}`)
	require.Equal(t, "one", short)
}

func TestACompletionTellsTheLikeliestTokens(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--max-logprobs", "7"}}).ready()
	body := p.ok("POST", "/v1/completions", `{"prompt":"x","max_tokens":2,"logprobs":5}`)
	var got struct {
		Choices []struct {
			Logprobs struct {
				TextOffset    []int                `json:"text_offset"`
				TokenLogprobs []float64            `json:"token_logprobs"`
				Tokens        []string             `json:"tokens"`
				TopLogprobs   []map[string]float64 `json:"top_logprobs"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &got))
	l := got.Choices[0].Logprobs
	require.Equal(t, "m", l.Tokens[0])
	require.Equal(t, []int{0, 1}, l.TextOffset)
	require.Len(t, l.TopLogprobs[1], 5)
	require.InDelta(t, l.TokenLogprobs[1], l.TopLogprobs[1][l.Tokens[1]], 0)
	require.Contains(t, p.ok("POST", "/v1/completions", `{"prompt":"x","max_tokens":1,"logprobs":1,"return_tokens_as_token_ids":true}`), `"tokens":["token_id:`)
	require.Contains(t, p.ok("POST", "/v1/completions", `{"prompt":"x","max_tokens":1}`), `"logprobs":null`)
	refused := p.call("POST", "/v1/completions", `{"prompt":"x","max_tokens":1,"logprobs":8}`)
	require.Equal(t, http.StatusBadRequest, refused.status)
	require.Contains(t, refused.body, "Requested sample logprobs of 8, which is greater than max allowed: 7")
}

func TestAModelThatEmbedsMakesNoTokens(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--runner", "pooling"}}).ready()
	require.Equal(t, http.StatusNotFound, p.call("POST", "/v1/completions", `{"prompt":"x"}`).status)
	vector := func(input string) []float64 {
		var got struct {
			Data []struct {
				Embedding []float64 `json:"embedding"`
			} `json:"data"`
		}
		require.NoError(t, json.Unmarshal([]byte(p.ok("POST", "/v1/embeddings", `{"model":"m","input":"`+input+`"}`)), &got))
		require.Len(t, got.Data, 1)
		return got.Data[0].Embedding
	}
	require.Len(t, vector("x"), 64)
	require.Equal(t, vector("x"), vector("x"))
	require.NotEqual(t, vector("x"), vector("y"))
}

func TestAStopStringEndsAnAnswerBeforeItself(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}}).ready()
	whole, _ := p.complete(`{"prompt":"x","max_tokens":6}`)
	third := strings.Fields(whole)[2]
	body := fmt.Sprintf(`{"prompt":"x","max_tokens":6,"stop":["never",%q]`, third)
	cut, finish := p.complete(body + "}")
	require.Equal(t, whole[:strings.Index(whole, third)], cut)
	require.Equal(t, "stop", finish)
	require.Equal(t, cut, streamed(t, p.ok("POST", "/v1/completions", body+`,"stream":true}`)), "a stream shows no part of the stop string")
}

// streamed puts the texts of a stream together.
func streamed(t *testing.T, body string) string {
	t.Helper()
	var text strings.Builder
	for _, e := range events(body) {
		var chunk struct {
			Choices []struct {
				Text  string `json:"text"`
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if e == "[DONE]" {
			continue
		}
		require.NoError(t, json.Unmarshal([]byte(e), &chunk), e)
		for _, c := range chunk.Choices {
			text.WriteString(c.Text + c.Delta.Content)
		}
	}
	return text.String()
}

func events(body string) []string {
	var list []string
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			list = append(list, strings.TrimSpace(data))
		}
	}
	return list
}

func TestAChatStreamsARoleThenWordsThenTheReasonThenDone(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}}).ready()
	const chat = `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"max_tokens":3`
	a := p.call("POST", "/v1/chat/completions", chat+`,"stream":true}`)
	require.Equal(t, "text/event-stream; charset=utf-8", a.header.Get("Content-Type"))
	list := events(a.body)
	require.Len(t, list, 5)
	require.Contains(t, list[0], `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}`)
	require.Contains(t, list[1], `"choices":[{"index":0,"delta":{"content":"m"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`)
	require.Contains(t, list[3], `"finish_reason":"length","stop_reason":null,"token_ids":null}],"system_fingerprint":"vllm-0.30.0-`)
	require.Equal(t, "[DONE]", list[4])
	var whole struct {
		Choices []struct {
			Message struct{ Content string }
		}
		Usage struct {
			Total int `json:"total_tokens"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(p.ok("POST", "/v1/chat/completions", chat+"}")), &whole))
	require.Equal(t, whole.Choices[0].Message.Content, streamed(t, a.body))
	list = events(p.ok("POST", "/v1/chat/completions", chat+`,"stream":true,"stream_options":{"include_usage":true}}`))
	require.Contains(t, list[len(list)-2], fmt.Sprintf(`"choices":[],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":3}`, whole.Usage.Total-3, whole.Usage.Total))
}

func TestAStreamComesWordByWordAsLongAsATestWants(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--sim-token-time=50ms"}}).ready()
	s := p.open(`{"prompt":"x","max_tokens":100000,"stream":true}`)
	require.Equal(t, http.StatusBadRequest, s.resp.StatusCode)
	s = p.open(`{"prompt":"x","max_tokens":1000,"ignore_eos":true,"stream":true}`)
	first, second := s.next(), s.next()
	require.Contains(t, first, `"text":"m"`)
	require.NotEqual(t, first, second)
	require.Contains(t, p.ok("GET", "/metrics", ""), `vllm:num_requests_running{engine="0",model_name="m"} 1.0`)
	s.leave()
	eventually(t, "the request to be given up", func() bool {
		return strings.Contains(p.ok("GET", "/metrics", ""), `vllm:num_requests_running{engine="0",model_name="m"} 0.0`)
	})
}

// open is a request whose answer is read piece by piece.
type open struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

func (p *proc) open(body string) *open {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Wait())
	p.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v1/completions", p.port), strings.NewReader(body))
	require.NoError(p.t, err)
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	require.NoError(p.t, err)
	o := &open{p.t, resp, bufio.NewReader(resp.Body)}
	p.t.Cleanup(o.leave)
	return o
}

// next is the next event.
func (o *open) next() string {
	o.t.Helper()
	for {
		line, err := o.in.ReadString('\n')
		require.NoError(o.t, err)
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return strings.TrimSpace(data)
		}
	}
}

func (o *open) rest() []string {
	o.t.Helper()
	data, err := io.ReadAll(o.in)
	require.NoError(o.t, err)
	return events(string(data))
}

func (o *open) leave() { _ = o.resp.Body.Close() }

func TestMoreRequestsThanSlotsWait(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m", "--max-num-seqs", "2", "--sim-token-time=10ms"}}).ready()
	var asked sync.WaitGroup
	defer asked.Wait()
	for range 3 {
		asked.Go(func() { _, _ = p.try("POST", "/v1/completions", `{"prompt":"x","max_tokens":4000,"ignore_eos":true}`) })
	}
	eventually(t, "two that run and one that waits", func() bool {
		m := p.ok("GET", "/metrics", "")
		return strings.Contains(m, `vllm:num_requests_running{engine="0",model_name="m"} 2.0`) && strings.Contains(m, `vllm:num_requests_waiting{engine="0",model_name="m"} 1.0`)
	})
	p.signal(p.cmd.Process.Pid, 15)
	require.Zero(t, p.exit())
}

func TestSeveralPromptsAndAnswersComeInOrder(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}}).ready()
	var got struct {
		Choices []struct {
			Index int
			Text  string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(p.ok("POST", "/v1/completions", `{"prompt":["a","b"],"n":2,"max_tokens":4}`)), &got))
	require.Len(t, got.Choices, 4)
	for i, c := range got.Choices {
		require.Equal(t, i, c.Index)
	}
	require.Equal(t, got.Choices[0].Text, got.Choices[1].Text)
	require.NotEqual(t, got.Choices[1].Text, got.Choices[2].Text)
}

func TestMessagesAreStreamedInAnthropicsEvents(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}}).ready()
	const body = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":3`
	var whole struct{ Content []struct{ Text string } }
	require.NoError(t, json.Unmarshal([]byte(p.ok("POST", "/v1/messages", body+`}`)), &whole))
	var names []string
	text := ""
	for event := range strings.SplitSeq(strings.TrimSpace(p.ok("POST", "/v1/messages", body+`,"stream":true}`)), "\n\n") {
		name, data, _ := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
		names = append(names, name)
		var said struct {
			Type  string
			Delta struct {
				Text       string
				StopReason string `json:"stop_reason"`
			}
			Usage struct {
				Output int `json:"output_tokens"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(data), &said), data)
		require.Equal(t, name, said.Type)
		text += said.Delta.Text
		if name == "message_delta" {
			require.Equal(t, "max_tokens", said.Delta.StopReason)
			require.Equal(t, 3, said.Usage.Output)
		}
	}
	require.Equal(t, whole.Content[0].Text, text)
	require.Equal(t, []string{"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}, slices.Compact(names))
}

func TestOtherShapesOfRequestAreAnsweredToo(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}}).ready()
	require.Contains(t, p.ok("POST", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":2}`), `"stop_reason":"max_tokens"`)
	require.Contains(t, p.ok("POST", "/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`), `"input_tokens":`)
	require.Contains(t, p.ok("POST", "/v1/responses", `{"model":"m","input":"hi","max_output_tokens":2}`), `"incomplete_details":{"reason":"max_output_tokens"}`)
	require.Contains(t, p.ok("POST", "/invocations", `{"messages":[{"role":"user","content":"hi"}]}`), `"object":"chat.completion"`)
	require.Contains(t, p.ok("POST", "/invocations", `{"prompt":"hi"}`), `"object":"text_completion"`)
	require.Contains(t, p.call("POST", "/invocations", `{"x":1}`).body, "Either prompt or prompt_embeds must be provided")
	var tokens struct{ Tokens []int }
	require.NoError(t, json.Unmarshal([]byte(p.ok("POST", "/tokenize", `{"prompt":"The quick brown fox"}`)), &tokens))
	back, err := json.Marshal(map[string]any{"tokens": tokens.Tokens})
	require.NoError(t, err)
	require.JSONEq(t, `{"prompt":"The quick brown fox"}`, p.ok("POST", "/detokenize", string(back)))
}

func TestAWebSocketSendsBackWhatItGets(t *testing.T) {
	t.Parallel()
	p := launch(t, setup{args: []string{"m"}}).ready()
	conn, err := (&net.Dialer{Timeout: patience.Wait()}).DialContext(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", p.port))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience.Wait())))
	_, err = fmt.Fprint(conn, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", resp.Header.Get("Sec-WebSocket-Accept"))
	// A masked text frame "Hello", as RFC 6455 has it in section 5.7.
	_, err = conn.Write([]byte{0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58})
	require.NoError(t, err)
	frame := make([]byte, 7)
	_, err = io.ReadFull(in, frame)
	require.NoError(t, err)
	require.Equal(t, "\x81\x05Hello", string(frame))
}
