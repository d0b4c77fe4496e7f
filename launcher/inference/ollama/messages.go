package ollama

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

// message is a message of a chat.
type message struct {
	Role       string
	Content    string
	Images     []string   // in base64
	ToolCalls  []toolCall `json:"tool_calls"`
	ToolName   string     `json:"tool_name"`
	ToolCallID string     `json:"tool_call_id"`
}

// toolCall is a call of a tool, as Ollama writes it.
type toolCall struct {
	ID       string `json:"id,omitempty"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // an object
	} `json:"function"`
}

// translateMessages translates the messages of a chat. In OpenAI's API a result names its call by
// an id. Ollama's clients may give none, and then a result belongs to the first call of its tool
// that has no result yet.
func translateMessages(all []message) ([]fields, error) {
	out := []fields{}
	open := []toolCall{} // without a result
	for n, m := range all {
		one := fields{"role": m.Role, "content": m.Content}
		if len(m.Images) > 0 {
			parts, err := contentParts(m)
			if err != nil {
				return nil, invalid("messages[%d]: %v", n, err)
			}
			one["content"] = parts
		}
		calls := []fields{}
		for k, c := range m.ToolCalls {
			if c.ID == "" {
				c.ID = fmt.Sprintf("call_%d_%d", n, k)
			}
			open = append(open, c)
			arguments := string(c.Function.Arguments)
			if arguments == "" {
				arguments = "{}"
			}
			calls = append(calls, fields{"id": c.ID, "type": "function", "function": fields{"name": c.Function.Name, "arguments": arguments}})
		}
		if len(calls) > 0 {
			one["tool_calls"] = calls
		}
		if m.Role == "tool" {
			k := slices.IndexFunc(open, func(c toolCall) bool {
				if m.ToolCallID != "" {
					return c.ID == m.ToolCallID
				}
				return m.ToolName == "" || c.Function.Name == m.ToolName
			})
			if k < 0 {
				return nil, invalid("messages[%d]: no message before it calls its tool", n)
			}
			one["tool_call_id"] = open[k].ID
			open = slices.Delete(open, k, k+1)
		}
		out = append(out, one)
	}
	return out, nil
}

// contentParts returns the content of a message with images.
func contentParts(m message) ([]fields, error) {
	parts := []fields{}
	if m.Content != "" {
		parts = append(parts, fields{"type": "text", "text": m.Content})
	}
	for _, image := range m.Images {
		start, err := base64.StdEncoding.DecodeString(image[:min(len(image), 512)&^3])
		if err != nil {
			return nil, fmt.Errorf("an image is not in base64: %w", err)
		}
		url := "data:" + http.DetectContentType(start) + ";base64," + image
		parts = append(parts, fields{"type": "image_url", "image_url": fields{"url": url}})
	}
	return parts, nil
}
