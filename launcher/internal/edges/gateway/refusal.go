package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// retryAfterSeconds is the value of Retry-After. It is enough for a wake. A start
// takes longer, so the client retries more than once.
const retryAfterSeconds = 5

// refusal is an error answer that the proxy itself gives.
type refusal struct {
	status           int
	errorType        string // type of the error in the body
	message          string
	outcome          Outcome
	mayRetry         bool   // with Retry-After
	closesConnection bool   // with Connection: close
	allowedMethods   string // the methods that are allowed, with a 405
}

func refuseQueueFull(held int, reason string) *refusal {
	return &refusal{
		status: http.StatusTooManyRequests, errorType: "TooManyRequestsError", outcome: OutcomeHeldFull, mayRetry: true,
		message: fmt.Sprintf("too many requests wait: %d; %s", held, reason),
	}
}

func refuseHeldTooLong(reason string) *refusal {
	return &refusal{
		status: http.StatusServiceUnavailable, errorType: "ServiceUnavailableError", outcome: OutcomeHeldTimeout, mayRetry: true,
		message: "the request waited too long; " + reason,
	}
}

func refuseEngineGone(reason string) *refusal {
	return &refusal{
		status: http.StatusServiceUnavailable, errorType: "ServiceUnavailableError", outcome: OutcomeFailed,
		message: reason,
	}
}

// refuseClosed refuses a request whose port is being closed. The port may come back, as after
// a restart of the launcher.
func refuseClosed(reason string) *refusal {
	return &refusal{
		status: http.StatusServiceUnavailable, errorType: "ServiceUnavailableError", outcome: OutcomeFailed, mayRetry: true, closesConnection: true,
		message: reason,
	}
}

func refuseCut(reason string) *refusal {
	return &refusal{
		status: http.StatusServiceUnavailable, errorType: "ServiceUnavailableError", outcome: OutcomeCut, mayRetry: true, closesConnection: true,
		message: "the launcher cut the request: " + reason,
	}
}

func refuseNotListening(reason string) *refusal {
	message := "the engine does not listen"
	if reason != "" {
		message += ": " + reason
	}
	return &refusal{
		status: http.StatusServiceUnavailable, errorType: "ServiceUnavailableError", outcome: OutcomeEngineFailed, mayRetry: true,
		message: message,
	}
}

func refuseBrokenAnswer(err error) *refusal {
	return &refusal{
		status: http.StatusBadGateway, errorType: "BadGatewayError", outcome: OutcomeEngineFailed,
		message: "the engine failed to answer: " + err.Error(),
	}
}

func refuseBrokenUpload() *refusal {
	return &refusal{
		status: http.StatusBadRequest, errorType: "BadRequestError", outcome: OutcomeClientGone, closesConnection: true,
		message: "the request's body could not be read to its end",
	}
}

func refuseParameter(message string) *refusal {
	return &refusal{
		status: http.StatusBadRequest, errorType: "BadRequestError", outcome: OutcomeRefused,
		message: message,
	}
}

func refuseBrowser(err error) *refusal {
	return &refusal{
		status: http.StatusForbidden, errorType: "PermissionDeniedError", outcome: OutcomeRefused,
		message: err.Error(),
	}
}

// errorTypes are the types of a verb's errors, by the status of the answer.
var errorTypes = map[int]string{
	http.StatusNotFound:           "NotFoundError",
	http.StatusConflict:           "ConflictError",
	http.StatusBadGateway:         "BadGatewayError",
	http.StatusServiceUnavailable: "ServiceUnavailableError",
	http.StatusGatewayTimeout:     "GatewayTimeoutError",
}

func refuseVerb(status int, err error) *refusal {
	errorType, ok := errorTypes[status]
	if !ok {
		errorType = "InternalServerError"
	}
	return &refusal{
		status: status, errorType: errorType, outcome: OutcomeAnswered, message: err.Error(),
		mayRetry: status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout,
	}
}

func refusePath(method, path string) *refusal {
	if !isAllowedMethod(method) {
		return refuseMethod(method, path, strings.Join(methods, ", "))
	}
	return &refusal{
		status: http.StatusNotFound, errorType: "NotFoundError", outcome: OutcomeRefused,
		message: fmt.Sprintf("%s %s is not served here", method, path),
	}
}

func refuseMethod(method, path, allow string) *refusal {
	return &refusal{
		status: http.StatusMethodNotAllowed, errorType: "MethodNotAllowedError", outcome: OutcomeRefused, allowedMethods: allow,
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

// answer writes the refusal, and records its outcome.
func (x *exchange) answer(f *refusal) {
	x.stopHeldBody() // first, since the answer says whether the connection ends
	x.outcome = f.outcome
	x.endUpload()
	var body errorBody
	body.Error.Message, body.Error.Type, body.Error.Code = f.message, f.errorType, f.status
	h := x.Header()
	x.allow(h)
	if f.mayRetry {
		h.Set("Retry-After", strconv.Itoa(retryAfterSeconds))
		h.Set(launcherapi.HeaderRefused, string(f.outcome))
	}
	if f.allowedMethods != "" {
		h.Set("Allow", f.allowedMethods)
	}
	if f.closesConnection {
		h.Set("Connection", "close")
	}
	x.answerJSON(f.status, body)
}

// answerJSON writes a small JSON document. If the client has left, Write records
// that.
func (x *exchange) answerJSON(status int, body any) {
	x.Header().Set("Content-Type", "application/json")
	x.WriteHeader(status)
	_ = json.NewEncoder(x).Encode(body)
}
