// Package ollama translates Ollama's API into OpenAI's and back. It has no state: the front door
// has the translated request answered, and gives the answer through an [Answer].
package ollama

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"hotseat.dev/hotseat/launcher/inference"
)

// Version is the version of Ollama whose API this is. Clients compare it with what they need.
const Version = "0.12.0"

// The paths of Ollama's API that ask a model.
const (
	pathChat     = "/api/chat"
	pathGenerate = "/api/generate"
	pathEmbed    = "/api/embed"
)

// Asks reports whether a path asks a model.
func Asks(path string) bool {
	return slices.Contains([]string{pathChat, pathGenerate, pathEmbed}, path)
}

// Call is a request, translated.
type Call struct {
	Path string // of OpenAI's API
	Body []byte
	// Load says that the client only wants the model to be awake. Then Body has nothing but
	// the model.
	Load bool

	path  string // of Ollama's API
	model string // as the client named it
}

// request has the fields of all three paths.
type request struct {
	Model     string
	Stream    *bool
	Options   map[string]json.RawMessage
	Format    json.RawMessage
	KeepAlive any `json:"keep_alive"`

	Messages []message // of chat
	Tools    json.RawMessage

	Prompt, System, Suffix string // of generate
	Images                 []string
	Raw                    bool

	Input      json.RawMessage // of embed
	Dimensions *int
}

// fields are those of a request of OpenAI's API.
type fields map[string]any

// Translate translates the body of a request. model is the name by which the front door knows the
// model that the request names. The error is an *[inference.Error].
func Translate(path string, body []byte, model string) (*Call, error) {
	var r request
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, invalid("the request cannot be read: %v", err)
	}
	c := &Call{path: path, model: r.Model}
	out := fields{"model": model}
	var err error
	switch c.Load = path != pathEmbed && r.isEmpty(); {
	case c.Load && isZero(r.KeepAlive):
		return nil, invalid("a request cannot unload a model: the launcher puts a model to sleep when another one needs its GPU, or after the sleep_after of its configuration")
	case c.Load:
		c.Path = pathOfChats
	case path == pathEmbed:
		c.Path, err = "/v1/embeddings", r.embed(out)
	case path == pathGenerate && (r.Raw || r.Suffix != ""):
		c.Path, err = "/v1/completions", r.complete(out)
	case path == pathGenerate:
		r.Messages = r.asMessages()
		fallthrough
	default:
		c.Path, err = pathOfChats, r.chat(out)
	}
	if err != nil {
		return nil, err
	}
	c.Body, err = json.Marshal(out)
	if err != nil {
		return nil, invalid("the request cannot be translated: %v", err)
	}
	return c, nil
}

const pathOfChats = "/v1/chat/completions"

func invalid(format string, args ...any) *inference.Error {
	return &inference.Error{Status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...)}
}

// isEmpty reports whether a request asks for no answer, which loads or unloads its model.
func (r *request) isEmpty() bool {
	return len(r.Messages) == 0 && r.Prompt == "" && r.Suffix == "" && len(r.Images) == 0
}

// isZero reports whether a keep_alive is no time at all. It is a number of seconds, or a text such
// as "0m".
func isZero(keepAlive any) bool {
	switch v := keepAlive.(type) {
	case float64:
		return v == 0
	case string:
		d, err := time.ParseDuration(v)
		n, other := strconv.ParseFloat(v, 64)
		return err == nil && d == 0 || other == nil && n == 0
	}
	return false
}

func (r *request) embed(out fields) error {
	if len(r.Input) == 0 {
		return invalid("the request lacks the field input")
	}
	out["input"], out["encoding_format"] = r.Input, "float"
	if r.Dimensions != nil {
		out["dimensions"] = *r.Dimensions
	}
	return nil
}

// complete continues a prompt as it is. Without raw or a suffix, Ollama puts a prompt into the
// template of a chat.
func (r *request) complete(out fields) error {
	if len(r.Images) > 0 {
		return invalid("a request with raw or a suffix cannot have images")
	}
	out["prompt"] = r.Prompt
	if r.Suffix != "" {
		out["suffix"] = r.Suffix
	}
	return r.sampling(out)
}

func (r *request) asMessages() []message {
	all := []message{}
	if r.System != "" {
		all = append(all, message{Role: "system", Content: r.System})
	}
	return append(all, message{Role: "user", Content: r.Prompt, Images: r.Images})
}

func (r *request) chat(out fields) error {
	messages, err := translateMessages(r.Messages)
	if err != nil {
		return err
	}
	out["messages"] = messages
	if tools := []json.RawMessage{}; len(r.Tools) > 0 {
		if err := json.Unmarshal(r.Tools, &tools); err != nil {
			return invalid("tools must be a list")
		}
		if len(tools) > 0 {
			out["tools"] = tools
		}
	}
	return r.sampling(out)
}

// optionNames are the options of Ollama with their names for the engines. Two engines call one
// of them by different names, and ignore the other's.
var optionNames = map[string][]string{
	"temperature": {"temperature"}, "top_p": {"top_p"}, "top_k": {"top_k"}, "min_p": {"min_p"},
	"seed": {"seed"}, "stop": {"stop"}, "presence_penalty": {"presence_penalty"}, "frequency_penalty": {"frequency_penalty"},
	"repeat_penalty": {"repetition_penalty", "repeat_penalty"},
}

// sampling adds how the model is to answer.
func (r *request) sampling(out fields) error {
	for name, value := range r.Options {
		for _, as := range optionNames[name] {
			if string(value) != "null" {
				out[as] = value
			}
		}
	}
	if value, given := r.Options["num_predict"]; given {
		var n float64
		if err := json.Unmarshal(value, &n); err != nil {
			return invalid("options.num_predict must be a number")
		}
		if n > 0 { // otherwise there is no bound
			out["max_tokens"] = int64(n)
		}
	}
	out["stream"] = r.Stream == nil || *r.Stream
	if out["stream"] == true {
		out["stream_options"] = fields{"include_usage": true}
	}
	return r.format(out)
}

func (r *request) format(out fields) error {
	switch text := string(r.Format); {
	case text == "" || text == "null" || text == `""`:
	case text == `"json"`:
		out["response_format"] = fields{"type": "json_object"}
	case text[0] == '{':
		out["response_format"] = fields{"type": "json_schema", "json_schema": fields{"name": "answer", "schema": r.Format}}
	default:
		return invalid("format must be \"json\" or a JSON schema, not %s", text)
	}
	return nil
}
