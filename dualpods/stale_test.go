package dualpods_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hotseat.dev/hotseat/dualpods"
)

func TestOnlyAStaleCacheIsStale(t *testing.T) {
	models := schema.GroupResource{Resource: "models"}
	conflict := fmt.Errorf("cannot write: %w", apierrors.NewConflict(models, "a", errors.New("another version")))
	gone, forbidden := apierrors.NewNotFound(models, "a"), apierrors.NewForbidden(models, "a", errors.New("no right"))
	for name, is := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":                    {nil, false},
		"a conflict":                 {conflict, true},
		"exists":                     {apierrors.NewAlreadyExists(models, "a"), true},
		"two that are stale":         {fmt.Errorf("cannot act: %w", errors.Join(conflict, nil, gone)), true},
		"no right":                   {forbidden, false},
		"a conflict, and no right":   {errors.Join(conflict, forbidden), false},
		"a conflict in another join": {errors.Join(errors.Join(conflict), fmt.Errorf("cannot: %w", forbidden)), false},
	} {
		assert.Equal(t, is.want, dualpods.IsStale(is.err), name)
	}
}

func TestWriteIsHiddenUntilTheCacheShowsIt(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	assert.False(t, dualpods.LastWrite{}.IsHidden(""))
	w := dualpods.WriteOf("1", "2", now)
	assert.True(t, w.IsHidden("1"))
	assert.False(t, w.IsHidden("2"))
	assert.Equal(t, time.Second, w.Pause(3*time.Second, now.Add(2*time.Second)))
	w = dualpods.WriteOf("1", "1", now)
	assert.False(t, w.IsHidden("1"), "no event follows it")
	assert.Equal(t, time.Second, w.Pause(time.Second, now))
}
