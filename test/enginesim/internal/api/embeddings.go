package api

import (
	"encoding/json"
	"hash/fnv"
	"net/http"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/answers"
)

// dimensions are those of the stand-in's embeddings.
const dimensions = 64

type embedding struct {
	Index     int       `json:"index"`
	Object    string    `json:"object"`
	Embedding []float64 `json:"embedding"`
}

// embeddings embeds texts. The vectors follow from the model and the text, or, if the model
// is garbled, from nothing.
func (s *Server) embeddings(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Model *string         `json:"model"`
		Input json.RawMessage `json:"input"`
	}
	if !decode(w, r, &body) || !s.known(w, body.Model) {
		return
	}
	answer := struct {
		ID      string      `json:"id"`
		Object  string      `json:"object"`
		Created int64       `json:"created"`
		Model   string      `json:"model"`
		Data    []embedding `json:"data"`
		Usage   fullUsage   `json:"usage"`
	}{ID: requestID("embd-", r), Object: "list", Created: time.Now().Unix(), Model: s.opts.Names[0], Data: []embedding{}}
	for n, text := range promptsOf(body.Input) {
		req, err := s.opts.Engine.Begin()
		if err != nil {
			s.broken(w, "", err)
			return
		}
		err = req.Step(r.Context(), s.opts.Settings.TokenTime)
		garbled := req.Garbled()
		req.End()
		if err != nil {
			s.broken(w, "", err)
			return
		}
		if garbled {
			text = answers.Garbage
		}
		tokens := len(answers.Tokenize(text))
		answer.Data = append(answer.Data, embedding{n, "embedding", vector(s.opts.Names[0] + "\x00" + text)})
		answer.Usage.PromptTokens += tokens
		answer.Usage.TotalTokens += tokens
	}
	reply(w, http.StatusOK, answer)
}

// vector makes numbers between -1 and 1 of a text.
func vector(text string) []float64 {
	v := make([]float64, dimensions)
	for n := range v {
		h := fnv.New64a()
		_, _ = h.Write(append([]byte(text), byte(n))) // a hash never fails to write
		v[n] = float64(int64(h.Sum64())) / (1 << 63)
	}
	return v
}
