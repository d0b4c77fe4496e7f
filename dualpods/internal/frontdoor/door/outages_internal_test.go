package door

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
)

func TestSeatThatFailedForOneModelIsAskedForTheNext(t *testing.T) {
	now := time.Unix(1, 0)
	o := newOutages(func() time.Time { return now })
	of := func(model string) *request {
		return &request{model: &directory.Model{Key: types.NamespacedName{Namespace: "team", Name: model}}}
	}
	seat := &directory.Endpoint{Pod: "seat", Address: "10.0.0.1:8000"}
	o.failed(outageOf(of("a"), seat))
	assert.Equal(t, firstOutage, o.left(outageOf(of("a"), seat)))
	assert.Zero(t, o.left(outageOf(of("b"), seat)))
	o.answered(outageOf(of("b"), seat))
	assert.Equal(t, firstOutage, o.left(outageOf(of("a"), seat)))
}
