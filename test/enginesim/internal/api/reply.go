package api

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

type detail struct {
	Detail string `json:"detail"`
}

// apiError is the body of vLLM's errors.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"`
}

func fail(w http.ResponseWriter, status int, kind, param, format string, args ...any) {
	e := apiError{Message: fmt.Sprintf(format, args...), Type: kind, Code: status}
	if param != "" {
		e.Param = &param
	}
	if status == http.StatusInternalServerError {
		w.Header().Del("Vary") // the answer to an exception bypasses that middleware
	}
	reply(w, status, map[string]apiError{"error": e})
}

// invalid answers as vLLM does to a body that fails its validation.
func invalid(w http.ResponseWriter, loc, format string, args ...any) {
	fail(w, http.StatusBadRequest, "Bad Request", loc, "1 validation error:\n  "+format, args...)
}

func reply(w http.ResponseWriter, status int, body any) {
	data, err := encode(body)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte("Internal Server Error")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	w.WriteHeader(status)
	// A client that went away needs no answer.
	_, _ = w.Write(data)
}

// encode writes JSON as vLLM's answers have it: no escapes for HTML, no newline
// at the end.
func encode(body any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, fmt.Errorf("cannot encode an answer: %w", err)
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

func newID() string {
	var b [8]byte
	// It never fails.
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
