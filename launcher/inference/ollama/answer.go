package ollama

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Answer translates an answer of OpenAI's API while it is written. A stream of server-sent events
// becomes lines of JSON at once. Everything else is kept until Finish.
type Answer struct {
	w     http.ResponseWriter
	call  *Call
	began time.Time
	first time.Time // when the answer began

	status int  // 0: nothing was written
	stream bool // of events
	kept   bytes.Buffer

	content, thinking strings.Builder // of an answer that is no stream
	calls             []calling
	embeddings        []json.RawMessage
	reason            string
	usage             usage
	ended, failed     bool // a stream
}

// mostKept bounds what is kept of an answer: the whole of it, or an event of a stream.
const mostKept = 64 << 20

var errTooLong = errors.New("the answer is too long to be translated")

// Answer returns a writer for the answer to the call, which goes on to w.
func (c *Call) Answer(w http.ResponseWriter) *Answer {
	return &Answer{w: w, call: c, began: time.Now()}
}

// Header returns the header of the answer.
func (a *Answer) Header() http.Header { return a.w.Header() }

// Unwrap lets http.ResponseController reach the server's ResponseWriter.
func (a *Answer) Unwrap() http.ResponseWriter { return a.w }

// WriteHeader begins the answer.
func (a *Answer) WriteHeader(status int) {
	if status < http.StatusOK || a.status != 0 {
		return
	}
	a.status, a.first = status, time.Now()
	a.stream = status < http.StatusBadRequest && strings.HasPrefix(a.Header().Get("Content-Type"), "text/event-stream")
	if a.stream {
		a.Header().Set("Content-Type", "application/x-ndjson")
		a.Header().Del("Content-Length")
		a.w.WriteHeader(status)
	}
}

// Write takes a part of the answer.
func (a *Answer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.kept.Len()+len(data) > mostKept {
		return 0, errTooLong
	}
	a.kept.Write(data)
	for a.stream {
		end := bytes.IndexByte(a.kept.Bytes(), '\n')
		if end < 0 {
			break
		}
		if err := a.event(a.kept.Next(end + 1)); err != nil {
			return 0, err
		}
	}
	return len(data), nil
}

// FlushError sends what was written of a stream.
func (a *Answer) FlushError() error {
	if !a.stream {
		return nil
	}
	return http.NewResponseController(a.w).Flush()
}

// chunk is an answer of OpenAI's API, or an event of a stream.
type chunk struct {
	Choices []struct {
		Index          int
		Text           string
		Delta, Message said
		FinishReason   string `json:"finish_reason"`
	}
	Usage *usage
	Data  []struct{ Embedding json.RawMessage }
	Error json.RawMessage
}

type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

// said is a message of a model, or a part of it.
type said struct {
	Content   string
	Reasoning string
	// ReasoningContent is what older engines call Reasoning.
	ReasoningContent string    `json:"reasoning_content"`
	ToolCalls        []calling `json:"tool_calls"`
}

// calling is a call of a tool, or a part of it.
type calling struct {
	ID       string
	Index    int
	Function struct{ Name, Arguments string }
}

// event translates a line of a stream.
func (a *Answer) event(line []byte) error {
	data, found := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
	data = bytes.TrimSpace(data)
	switch {
	case !found || a.failed:
		return nil
	case string(data) == "[DONE]":
		a.ended = true
		return nil
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return a.fail(fmt.Sprintf("an event of the engine cannot be read: %v", err))
	}
	if len(c.Error) > 0 {
		return a.fail(messageOf(data))
	}
	a.content.Reset()
	a.thinking.Reset()
	a.take(&c)
	if a.content.Len()+a.thinking.Len() == 0 {
		return nil
	}
	return a.line(a.part(nil))
}

// take adds what an answer or an event says.
func (a *Answer) take(c *chunk) {
	if c.Usage != nil {
		a.usage = *c.Usage
	}
	for _, d := range c.Data {
		a.embeddings = append(a.embeddings, d.Embedding)
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		a.content.WriteString(choice.Text)
		a.reason = cmp.Or(choice.FinishReason, a.reason)
		for _, s := range []said{choice.Message, choice.Delta} {
			a.content.WriteString(s.Content)
			a.thinking.WriteString(cmp.Or(s.Reasoning, s.ReasoningContent))
			for n, call := range s.ToolCalls {
				a.takeCall(call, max(n, call.Index))
			}
		}
	}
}

// takeCall adds a call of a tool, or the next part of its arguments.
func (a *Answer) takeCall(part calling, index int) {
	for n := range a.calls {
		if c := &a.calls[n]; c.Index == index {
			c.Function.Arguments += part.Function.Arguments
			return
		}
	}
	part.Index = index
	a.calls = append(a.calls, part)
}

// toolCalls returns the calls of tools.
func (a *Answer) toolCalls() ([]toolCall, error) {
	all := make([]toolCall, len(a.calls))
	for n, c := range a.calls {
		arguments := cmp.Or(c.Function.Arguments, "{}")
		object := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(arguments), &object); err != nil {
			return nil, fmt.Errorf("the model's call of %s has arguments that are no JSON object", c.Function.Name)
		}
		all[n].ID, all[n].Function.Name, all[n].Function.Arguments = c.ID, c.Function.Name, json.RawMessage(arguments)
	}
	return all, nil
}

// part is a part of an answer, or the whole of it.
func (a *Answer) part(calls []toolCall) fields {
	out := fields{"model": a.call.model, "created_at": time.Now().UTC().Format(time.RFC3339Nano), "done": false}
	in := out
	if a.call.path == pathChat {
		in = fields{"role": "assistant", "content": a.content.String()}
		out["message"] = in
	} else {
		out["response"] = a.content.String()
	}
	if a.thinking.Len() > 0 {
		in["thinking"] = a.thinking.String()
	}
	if len(calls) > 0 {
		in["tool_calls"] = calls
	}
	return out
}

// last is the last part of an answer.
func (a *Answer) last(calls []toolCall) fields {
	out := a.part(calls)
	reason := cmp.Or(a.reason, "stop")
	if reason == "tool_calls" {
		reason = "stop"
	}
	now := time.Now()
	began := a.first
	if !a.stream { // when it began is not known
		began = a.began
	}
	out["done"], out["done_reason"] = true, reason
	out["total_duration"], out["load_duration"] = now.Sub(a.began), 0
	out["prompt_eval_count"], out["prompt_eval_duration"] = a.usage.Prompt, began.Sub(a.began)
	out["eval_count"], out["eval_duration"] = a.usage.Completion, max(now.Sub(began), 1)
	return out
}

// line writes a line of a stream.
func (a *Answer) line(out fields) error {
	data, err := json.Marshal(out)
	if err == nil {
		_, err = a.w.Write(append(data, '\n'))
	}
	return err
}

// fail ends a stream with an error.
func (a *Answer) fail(message string) error {
	a.failed = true
	return a.line(fields{"error": message})
}

// Finish ends the answer. An error says that the client has not got it.
func (a *Answer) Finish() error {
	calls, err := a.toolCalls()
	switch {
	case a.failed:
		return nil
	case a.stream && err != nil:
		return a.fail(err.Error())
	case a.stream && !a.ended:
		return a.fail("the engine ended its answer early")
	case a.stream:
		a.content.Reset()
		a.thinking.Reset()
		return a.line(a.last(calls))
	case a.status >= http.StatusBadRequest:
		return a.whole(a.status, fields{"error": messageOf(a.kept.Bytes())})
	case a.call.Load:
		out := a.part(nil)
		out["done"], out["done_reason"] = true, "load"
		return a.whole(http.StatusOK, out)
	}
	return a.finishWhole()
}

// finishWhole translates an answer that is no stream.
func (a *Answer) finishWhole() error {
	var c chunk
	if err := json.Unmarshal(a.kept.Bytes(), &c); err != nil {
		return a.whole(http.StatusBadGateway, fields{"error": fmt.Sprintf("the answer of the engine cannot be read: %v", err)})
	}
	a.take(&c)
	calls, err := a.toolCalls()
	switch {
	case err != nil:
		return a.whole(http.StatusBadGateway, fields{"error": err.Error()})
	case a.call.path == pathEmbed:
		return a.whole(a.status, fields{
			"model": a.call.model, "embeddings": a.embeddings, "prompt_eval_count": a.usage.Prompt,
			"total_duration": time.Since(a.began), "load_duration": 0,
		})
	}
	return a.whole(a.status, a.last(calls))
}

// whole writes an answer that is no stream.
func (a *Answer) whole(status int, out fields) error {
	a.Header().Set("Content-Type", "application/json; charset=utf-8")
	a.Header().Del("Content-Length")
	a.w.WriteHeader(status)
	return a.line(out)
}

// messageOf returns what an error of an engine says: OpenAI's {"error": {"message": …}}, or what
// engines and their frameworks write beside it.
func messageOf(data []byte) string {
	var e struct{ Error, Message, Detail any }
	if json.Unmarshal(data, &e) == nil {
		if inner, ok := e.Error.(map[string]any); ok {
			e.Error = inner["message"]
		}
		for _, found := range []any{e.Error, e.Message, e.Detail} {
			if text, ok := found.(string); ok && text != "" {
				return text
			}
		}
	}
	return cmp.Or(strings.TrimSpace(string(data)), "the engine answered with an error")
}
