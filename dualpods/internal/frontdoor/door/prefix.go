package door

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/balance"
)

// beginning returns the first characters of the text that a request begins with: the first message of the
// user, or the prompt. It is empty if the body has neither. It reads one message after the other: a body of many small
// ones would take a hundred times its size as a whole.
func beginning(body io.Reader, characters int) string {
	in := json.NewDecoder(body)
	if !opens(in, '{') {
		return "" // a form, or JSON that the engine refuses
	}
	var prompt, input, value json.RawMessage
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return ""
		}
		switch key {
		case "messages":
			if of, found := ofUser(in); found {
				return balance.Prefix(textOf(of), characters)
			}
		case "prompt":
			err = in.Decode(&prompt)
		case "input":
			err = in.Decode(&input)
		default:
			err = in.Decode(&value)
		}
		if err != nil {
			return ""
		}
	}
	return balance.Prefix(cmp.Or(textOf(prompt), textOf(input)), characters)
}

// opens reports whether an object or a list begins.
func opens(in *json.Decoder, with json.Delim) bool {
	token, err := in.Token()
	return err == nil && token == with
}

// ofUser returns the content of the first message of the user in a list of messages.
func ofUser(in *json.Decoder) (content json.RawMessage, found bool) {
	if !opens(in, '[') {
		return nil, false
	}
	var m struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	for in.More() {
		m.Role, m.Content = "", m.Content[:0]
		if in.Decode(&m) != nil {
			return nil, false
		}
		if m.Role == "user" {
			return m.Content, true
		}
	}
	_, _ = in.Token() // its end; an error comes again
	return nil, false
}

// textOf returns the text of a content: a string, or the first part with text.
func textOf(raw json.RawMessage) (text string) {
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	in := json.NewDecoder(bytes.NewReader(raw))
	if !opens(in, '[') {
		return ""
	}
	var part struct {
		Text string `json:"text"`
	}
	for in.More() {
		if part.Text = ""; in.Decode(&part) != nil {
			return ""
		}
		if part.Text != "" {
			return part.Text
		}
	}
	return ""
}
