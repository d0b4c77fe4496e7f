package door

import (
	"encoding/json"
	"io"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/balance"
)

// beginning returns the first characters of the text that a request begins with: the first message of the
// user, or the prompt. It is empty if the body has neither.
func beginning(body io.Reader, characters int) string {
	var asked struct {
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Prompt json.RawMessage `json:"prompt"`
		Input  json.RawMessage `json:"input"`
	}
	if json.NewDecoder(body).Decode(&asked) != nil {
		return "" // a form, or JSON that the engine refuses
	}
	for _, m := range asked.Messages {
		if m.Role == "user" {
			return balance.Prefix(textOf(m.Content), characters)
		}
	}
	for _, raw := range []json.RawMessage{asked.Prompt, asked.Input} {
		if text := textOf(raw); text != "" {
			return balance.Prefix(text, characters)
		}
	}
	return ""
}

// textOf returns the text of a content: a string, or the first part with text.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) == nil {
		for _, p := range parts {
			if p.Text != "" {
				return p.Text
			}
		}
	}
	return ""
}
