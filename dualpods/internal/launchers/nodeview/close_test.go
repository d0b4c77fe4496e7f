package nodeview

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestNothingIsWatchedAfterClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := New(Options{Changed: func(string) {}})
	s.Close()
	s.Watch("late", Target{Address: "127.0.0.1:1"}) // as a pass that is still running does
	assert.Nil(t, s.Client("late"))
	assert.Equal(t, View{}, s.View("late"))
}
