package api

import (
	"encoding/json"
	"strings"

	"hotseat.dev/hotseat/test/enginesim/internal/answers"
)

// message is one turn of a conversation.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// template turns a conversation into a prompt, and counts its tokens.
func template(messages []message) (prompt string, tokens int) {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString("<|" + m.Role + "|>" + contentOf(m.Content) + "\n")
	}
	b.WriteString("<|assistant|>")
	return b.String(), len(answers.Tokenize(b.String()))
}

// contentOf is a message's text: a string, or the text parts of a list.
func contentOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return ""
	}
	for _, p := range parts {
		text += p.Text
	}
	return text
}
