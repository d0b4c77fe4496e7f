//go:build cluster && clusterlong

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
)

func TestModelOfASeatOnALostNodeIsServedElsewhere(t *testing.T) {
	s := newPool(t, nil)
	s.onOneGPUOf(1, "0") // so that each node has one seat
	s.onOneGPUOf(2, "0")
	s.declareSeats(2, "", "a", "b")
	lost := ""
	for _, model := range []string{"a", "b"} {
		s.chatOK(model)
		if s.seats("pool")[s.seatOf(model)].Spec.NodeName == cluster.NodeName(2) {
			lost = model
		}
	}
	require.NotEmpty(t, lost)
	was := s.seats("pool")[s.seatOf(lost)].UID

	back := s.loseNode(2)
	s.eventually("the seat of the lost node serves no more", func() bool {
		pod := s.seats("pool")[s.seatNamed(was)]
		return pod == nil || pod.Labels[podmeta.LabelServes] == ""
	})
	s.chatOK(lost)
	assert.Equal(t, cluster.NodeName(1), s.nodeServing(lost))

	s.kubectl("delete", "pod", "other-gpus")
	for _, pod := range s.all() { // what Kubernetes does by itself in a minute
		if pod.Spec.NodeName == cluster.NodeName(2) {
			s.delete(pod.Name, "--grace-period=0", "--force")
		}
	}
	s.eventually("the pool has two seats on the node that is left", func() bool {
		all := s.seats("pool")
		for _, pod := range all {
			if pod.Spec.NodeName != cluster.NodeName(1) {
				return false
			}
		}
		return len(all) == 2 && s.seatNamed(was) == "" && s.seatPool("pool").Status.Seats.Idle+s.seatPool("pool").Status.Seats.Taken == 2
	})
	s.chatOK("a")
	s.chatOK("b")
	back()
}

// seatNamed returns the name of the seat with a UID; empty: there is none.
func (s *site) seatNamed(uid any) string {
	s.t.Helper()
	for name, pod := range s.seats("pool") {
		if any(pod.UID) == uid {
			return name
		}
	}
	return ""
}

// nodeServing returns the node of the only seat that serves a Model.
func (s *site) nodeServing(model string) string {
	s.t.Helper()
	var nodes []string
	for _, pod := range s.seats("pool") {
		if pod.Labels[podmeta.LabelServes] == model {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	require.Len(s.t, nodes, 1)
	return nodes[0]
}

func TestControllerKilledAtAnyOtherRowOfSeatsComesToTheSameEnd(t *testing.T) {
	plain := newPool(t, nil)
	plain.waitForLaunchers()
	s := plain.crashing()
	s.run("")
	s.declareSeats(1, ", scaleDownDelaySeconds: 1", "a", "b")
	for n, when := range []string{"before seat: ", "seat: "} {
		at := func(row string) string { s.run(when + row); return when + row }
		set := func(spec string) { s.kubectl("patch", "seatpool/pool", "--type=merge", "-p", `{"spec": `+spec+`}`) }

		row := at("too few")
		set(`{"replicas": 2}`)
		s.crashed(row, "")
		s.idleSeats("pool", 2)

		row = at("one too many")
		set(`{"replicas": 1}`)
		s.crashed(row, "")
		s.idleSeats("pool", 1)

		row = at("template edited")
		set(fmt.Sprintf(`{"template": {"metadata": {"labels": {"edition": "n%d"}}}}`, n))
		s.crashed(row, "")
		s.eventually("the seat is of the new template", func() bool {
			all := s.seats("pool")
			for _, pod := range all {
				return len(all) == 1 && pod.Labels["edition"] == fmt.Sprintf("n%d", n)
			}
			return false
		})
		s.idleSeats("pool", 1)

		s.killedAtAnEdit(at, n)
		s.killedAtAReturn(at)
	}
}

// killedAtAnEdit has the controller killed while a seat gets the edited model of its entry.
func (s *crashSite) killedAtAnEdit(at func(row string) string, n int) {
	s.t.Helper()
	stop := s.chats("a", s.frontDoor(), 1)
	s.serves("a", "seats (1)")
	before := podmeta.ReadAssignment(s.seats("pool")[s.seatOf("a")]).Hash
	row := at("model edited")
	s.kubectl("patch", "mdl/a", "--type=merge", "-p", fmt.Sprintf(`{"spec": {"env": {"EDITION": "n%d"}}}`, n))
	s.crashed(row, "")
	s.eventually("the seat has the new edition", func() bool {
		for _, pod := range s.seats("pool") {
			of := podmeta.ReadAssignment(pod)
			assert.Equal(s.t, of.Model, pod.Labels[podmeta.LabelModel], "%s: all or nothing", row)
			if pod.Labels[podmeta.LabelServes] == "a" && of.Hash != before && of.Hash == s.entry("a", "seats").Hash {
				return true
			}
		}
		return false
	})
	onlyAnswers(s.t, stop(), 1)
	s.idleSeats("pool", 1)
}

// killedAtAReturn has the controller killed while a draining seat takes requests again, because no other Model waits for it
// any more.
func (s *crashSite) killedAtAReturn(at func(row string) string) {
	s.t.Helper()
	s.kubectl("patch", "seatpool/pool", "--type=merge", "-p", `{"spec": {"drainSeconds": 60}}`)
	end := s.doorStream(s.frontDoor(), "a", 400) // 20 s
	row := at("not needed after all")
	waits, leave := context.WithCancel(s.t.Context())
	left := make(chan error, 1)
	go func() { _, _, err := s.chatAt(waits, s.frontDoor(), "b"); left <- err }()
	s.eventually("the seat drains for b", func() bool {
		return !podmeta.ReadAssignment(s.seats("pool")[s.seatOf("a")]).Leaves.IsZero()
	})
	leave()
	require.Error(s.t, <-left)
	s.crashed(row, "")
	s.eventually("the seat takes requests again", func() bool {
		pod := s.seats("pool")[s.seatOf("a")]
		return pod.Labels[podmeta.LabelServes] == "a" && podmeta.ReadAssignment(pod).Leaves.IsZero()
	})
	status, text, err := s.chatAt(s.t.Context(), s.frontDoor(), "a")
	require.NoError(s.t, err)
	assert.Equal(s.t, http.StatusOK, status, text)
	got, why := end()
	assert.Equal(s.t, []any{400, ""}, []any{got, why}, "%s: its stream runs to its end", row)
	s.kubectl("patch", "seatpool/pool", "--type=merge", "-p", `{"spec": {"drainSeconds": 3}}`)
	s.idleSeats("pool", 1)
}
