package api

import (
	"encoding/json"
	"net/http"

	"hotseat.dev/hotseat/test/enginesim/internal/answers"
)

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model    *string    `json:"model"`
		Prompt   *string    `json:"prompt"`
		Messages *[]message `json:"messages"`
	}
	if !decode(w, r, &body) {
		return
	}
	if body.Prompt == nil && body.Messages == nil {
		missing(w, "body.prompt", "<dict of 1 items>")
		return
	}
	if !s.known(w, body.Model) {
		return
	}
	var text string
	if body.Prompt != nil {
		text = *body.Prompt
	} else {
		text, _ = template(*body.Messages)
	}
	tokens := answers.Tokenize(text)
	reply(w, http.StatusOK, struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []int    `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}{len(tokens), s.opts.MaxModelLen, tokens, nil})
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model  *string `json:"model"`
		Tokens *[]int  `json:"tokens"`
	}
	if !decode(w, r, &body) {
		return
	}
	if body.Tokens == nil {
		missing(w, "body.tokens", "<dict of 1 items>")
		return
	}
	if s.known(w, body.Model) {
		reply(w, http.StatusOK, map[string]string{"prompt": answers.Detokenize(*body.Tokens)})
	}
}

// invocations answers a chat or a completion, whichever the body is.
func (s *Server) invocations(w http.ResponseWriter, r *http.Request) {
	var body struct {
		chatRequest
		Prompt json.RawMessage `json:"prompt"`
	}
	if !decode(w, r, &body) {
		return
	}
	if body.Messages != nil {
		s.converse(w, r, body.chatRequest)
		return
	}
	s.complete(w, r, completionRequest{params: body.params, Prompt: body.Prompt})
}
