package conformance

import (
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// failure is a start that comes to nothing.
type failure struct {
	name  string
	model string // in place of the engine's own
	args  []string
	says  string // begins the line that tells the cause
}

var failures = []failure{
	{name: "the port is taken", says: "OSError: "},
	{name: "the model folder is missing", model: "/no/such/model", says: "huggingface_hub.errors.HFValidationError: "},
	{name: "an unknown flag", args: []string{"--no-such-flag"}, says: "vllm: error: "},
	{name: "sleep mode on a CPU", args: []string{"--enable-sleep-mode"}, says: "  Value error, "},
	{name: "a context longer than the model's", args: []string{"--max-model-len", "100000"}, says: "  Value error, "},
}

// failed is what a supervisor sees of it.
type failed struct {
	Failure  string   `json:"failure"`
	ExitCode int      `json:"exit_code"`
	Line     string   `json:"line"` // tells the cause
	Left     []string `json:"left"`
}

// fail starts an engine that has to fail.
func (p program) fail(t *testing.T, f failure) failed {
	t.Helper()
	if f.model != "" {
		p.model = f.model
	}
	args := f.args
	if f.name == "the port is taken" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		args = []string{"--port", strconv.Itoa(l.Addr().(*net.TCPAddr).Port)}
	}
	e := p.serve(t, nil, args...)
	code := e.exitCode()
	return failed{f.name, code, e.decisive(f.says), e.leftForGood()}
}

// prefix is what vLLM writes before each line.
var prefix = regexp.MustCompile(`^\(\w+ pid=\d+\) `)

// decisive gives the last line that begins in a way.
func (e *engine) decisive(begin string) string {
	found := "none that begins with " + strconv.Quote(begin)
	for line := range strings.Lines(e.log()) {
		line = strings.TrimSuffix(prefix.ReplaceAllString(line, ""), "\n")
		if strings.HasPrefix(line, begin) {
			found = e.plain(line)
		}
	}
	return found
}

func TestTheStandInFailsToStartAsVLLM(t *testing.T) {
	t.Parallel()
	var seen []failed
	for _, f := range failures {
		seen = append(seen, standIn.fail(t, f))
	}
	compare(t, "failures", seen, failureName)
}

func failureName(f failed) string { return f.Failure }
