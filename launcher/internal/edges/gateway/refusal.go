package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// retryAfter is the time, in seconds, after which a client is told to try again:
// enough for a wake; during a start, which takes longer, the client tries again
// more than once.
const retryAfter = 5

// refusal is an answer that the proxy gives itself.
type refusal struct {
	status  int
	kind    string // type of the error in the body
	message string
	outcome Outcome
	retry   bool   // with Retry-After
	hangUp  bool   // with Connection: close
	allow   string // the methods that are allowed, with a 405
}

func refuseFull(held int, reason string) *refusal {
	return &refusal{
		status: http.StatusTooManyRequests, kind: "TooManyRequestsError", outcome: OutcomeHeldFull, retry: true,
		message: fmt.Sprintf("%d requests are waiting already: %s", held, reason),
	}
}

func refuseLate(reason string) *refusal {
	return &refusal{
		status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", outcome: OutcomeHeldTimeout, retry: true,
		message: "the request waited too long: " + reason,
	}
}

func refuseFailed(reason string) *refusal {
	return &refusal{
		status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", outcome: OutcomeFailed,
		message: reason,
	}
}

func refuseCut(reason string) *refusal {
	return &refusal{
		status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", outcome: OutcomeCut, retry: true, hangUp: true,
		message: "the request was cut: " + reason,
	}
}

func refuseNotListening(reason string) *refusal {
	message := "the engine does not listen"
	if reason != "" {
		message += ": " + reason
	}
	return &refusal{
		status: http.StatusServiceUnavailable, kind: "ServiceUnavailableError", outcome: OutcomeEngineFailed, retry: true,
		message: message,
	}
}

func refuseBroken(err error) *refusal {
	return &refusal{
		status: http.StatusBadGateway, kind: "BadGatewayError", outcome: OutcomeEngineFailed,
		message: "the engine broke off before it answered: " + err.Error(),
	}
}

func refuseUpload() *refusal {
	return &refusal{
		status: http.StatusBadRequest, kind: "BadRequestError", outcome: OutcomeClientGone, hangUp: true,
		message: "the request's body could not be read to its end",
	}
}

func refuseParameter(message string) *refusal {
	return &refusal{
		status: http.StatusBadRequest, kind: "BadRequestError", outcome: OutcomeRefused,
		message: message,
	}
}

func refuseBrowser(err error) *refusal {
	return &refusal{
		status: http.StatusForbidden, kind: "PermissionDeniedError", outcome: OutcomeRefused,
		message: err.Error(),
	}
}

// kinds are the types of the error in the body, by the status of a verb's answer.
var kinds = map[int]string{
	http.StatusNotFound:           "NotFoundError",
	http.StatusConflict:           "ConflictError",
	http.StatusBadGateway:         "BadGatewayError",
	http.StatusServiceUnavailable: "ServiceUnavailableError",
	http.StatusGatewayTimeout:     "GatewayTimeoutError",
}

func refuseVerb(status int, err error) *refusal {
	kind, ok := kinds[status]
	if !ok {
		kind = "InternalServerError"
	}
	return &refusal{
		status: status, kind: kind, outcome: OutcomeAnswered, message: err.Error(),
		retry: status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout,
	}
}

func refusePath(method, path string) *refusal {
	if !passesMethod(method) {
		return refuseMethod(method, path, strings.Join(methods, ", "))
	}
	return &refusal{
		status: http.StatusNotFound, kind: "NotFoundError", outcome: OutcomeRefused,
		message: fmt.Sprintf("%s %s is not served here", method, path),
	}
}

func refuseMethod(method, path, allow string) *refusal {
	return &refusal{
		status: http.StatusMethodNotAllowed, kind: "MethodNotAllowedError", outcome: OutcomeRefused, allow: allow,
		message: fmt.Sprintf("%s does not take %s", path, method),
	}
}

// errorBody is the error object of the OpenAI API, with vLLM's number for code
// (vllm/entrypoints/serve/engine/protocol.py, ErrorInfo).
type errorBody struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
	} `json:"error"`
}

// answer writes the refusal and notes it as the exchange's outcome.
func (x *exchange) answer(f *refusal) {
	x.outcome = f.outcome
	x.endUpload()
	var body errorBody
	body.Error.Message, body.Error.Type, body.Error.Code = f.message, f.kind, f.status
	h := x.Header()
	if f.retry {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if f.allow != "" {
		h.Set("Allow", f.allow)
	}
	if f.hangUp {
		h.Set("Connection", "close")
	}
	x.answerJSON(f.status, body)
}

// answerJSON writes a small JSON document. Write notes a client that has left by
// then.
func (x *exchange) answerJSON(status int, body any) {
	x.Header().Set("Content-Type", "application/json")
	x.WriteHeader(status)
	_ = json.NewEncoder(x).Encode(body)
}
