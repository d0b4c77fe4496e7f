package binding

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"hotseat.dev/hotseat/dualpods/internal/servers/decide"
)

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
