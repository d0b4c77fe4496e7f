package binding

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func TestRefusalOfInputIsToldApartFromOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		err  launcher.Error
		want bool
	}{
		"too few GPUs":            {launcher.Error{Code: launcherapi.CodeInvalid, Location: "body.gpu_uuids"}, true},
		"an argument in a swap":   {launcher.Error{Code: launcherapi.CodeInvalid, Location: "body.in.args"}, true},
		"one of the GPUs":         {launcher.Error{Code: launcherapi.CodeInvalid, Location: "body.gpu_uuids[1]"}, true},
		"a model not there yet":   {launcher.Error{Code: launcherapi.CodeInvalid, Location: "body.args", FailureCause: "model_not_found"}, false},
		"a launcher without vLLM": {launcher.Error{Code: launcherapi.CodeInvalid, Location: "body.engine"}, false},
		"no room":                 {launcher.Error{Code: launcherapi.CodeDoesNotFit}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &calls{all: map[string]*outcome{"swap/a": {over: true, err: fmt.Errorf("the swap failed: %w", &tt.err)}}}
			assert.Equal(t, tt.want, c.attempt("swap/a", 0).Invalid)
		})
	}
}

func TestASwapThatGotNoAnswerIsAskedForAgainAndIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		c := &calls{ctx: ctx, all: map[string]*outcome{}, notify: func() {}}
		asked := 0
		swap := func(err error) {
			c.begin("swap/a", true, func(context.Context) (uint64, error) { asked++; return 0, err })
			synctest.Wait()
		}
		swap(fmt.Errorf("%w: connection reset", errNoAnswer))
		assert.Equal(t, decide.Attempt{Asked: true}, c.attempt("swap/a", 0), "under way, for a moment")
		c.running.Wait()
		assert.Equal(t, decide.Attempt{}, c.attempt("swap/a", 0), "to be asked for again")
		swap(errors.New("no memory"))
		assert.Equal(t, decide.Attempt{Asked: true, Over: true, Failure: "no memory"}, c.attempt("swap/a", 0))
		swap(nil)
		assert.Equal(t, 2, asked, "what was answered is not asked for again")
	})
}
