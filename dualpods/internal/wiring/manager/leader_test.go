package manager

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// answering is a lock whose writes end as err says.
type answering struct {
	resourcelock.Interface // nil
	err                    error
	takes                  time.Duration
}

func (a *answering) Identity() string { return "me" }

func (a *answering) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	time.Sleep(a.takes)
	return a.err
}

func (a *answering) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return a.Create(ctx, r)
}

func TestAReplicaKnowsByItsOwnClockForHowLongItLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &answering{takes: time.Second}
		l := &lease{Interface: server}
		leads := leading(l)
		mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me"}
		assert.False(t, leads(), "it has not led")
		require.NoError(t, l.Create(t.Context(), mine))
		assert.True(t, leads())
		time.Sleep(leaseDuration - server.takes - time.Millisecond)
		assert.True(t, leads())
		time.Sleep(time.Millisecond)
		assert.False(t, leads(), "another may lead, to whom the Lease ran out since the write was begun")
		require.NoError(t, l.Update(t.Context(), mine))
		assert.True(t, leads())
		server.err = errors.New("no answer")
		require.Error(t, l.Update(t.Context(), mine))
		assert.True(t, leads(), "what was written before holds")
		time.Sleep(leaseDuration)
		require.Error(t, l.Update(t.Context(), mine))
		assert.False(t, leads())
		server.err = nil
		require.NoError(t, l.Update(t.Context(), mine))
		require.NoError(t, l.Update(t.Context(), resourcelock.LeaderElectionRecord{}))
		assert.False(t, leads(), "it gave the Lease back")
	})
	assert.Nil(t, leading(nil))
}

func TestTheChartLetsTheControllerReadAndChangeItsOwnLeaseAlone(t *testing.T) {
	text, err := os.ReadFile("../../../../deploy/chart/templates/rbac.yaml")
	require.NoError(t, err)
	var verbs []string
	for _, rule := range strings.Split(string(text), "- apiGroups: ")[1:] {
		rule, _, _ = strings.Cut(rule, "---")
		if !strings.Contains(rule, "resources: [leases]") {
			continue
		}
		_, list, _ := strings.Cut(rule, "verbs: [")
		list, _, _ = strings.Cut(list, "]")
		own := strings.Contains(rule, "resourceNames: ["+leaseName+"]")
		for verb := range strings.SplitSeq(list, ", ") {
			assert.Equal(t, verb != "create", own, "%s: what is made has no name yet, all else has the Lease's", verb)
			verbs = append(verbs, verb)
		}
	}
	assert.ElementsMatch(t, []string{"create", "get", "update"}, verbs)
}
