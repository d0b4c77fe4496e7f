//go:build cluster && clusterlong

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
)

func TestAControllerThatIsKilledAfterAnyStepUpOrDownIsFollowedByOneThatComesToTheSameEnd(t *testing.T) {
	plain := newSite(t)
	plain.withoutPolicyForRequesters() // so that the controller adds the finalizer
	s := plain.crashing()
	s.onOneGPU()
	up := []string{"no finalizer", "no record", "swap not asked", "swap under way", "carries nothing", "not ready", "not published", "gate shut"}
	down := []string{"unbinding, carries", "resting, awake", "resting, asleep or gone", "leaving, released"}
	for n, row := range up {
		warm := s.upAndDown(fmt.Sprintf("up-%d", n), row, down[n%len(down)])
		hot := s.upAndDown(fmt.Sprintf("up-%d", n), row, down[(n+1)%len(down)])
		assert.Equal(t, warm.PID, hot.PID, "it was woken, after %q", row)
	}
}

func TestAControllerThatIsKilledWhileItCancelsAStartIsFollowedByOneThatDoes(t *testing.T) {
	s := newSite(t).crashing()
	for n, row := range []string{"resting, starting or failed", "resting, asleep or gone"} {
		app := fmt.Sprintf("slow-%d", n)
		s.run(row)
		s.start(server{app: app, node: 1, args: []string{"--sim-load-time=1h"}})
		s.instance("launcher-node-1", app, "starting")
		s.delete(app)
		s.crashed(row, "")
		s.gone(app)
		s.free("launcher-node-1")
		s.eventually("the start is cancelled", func() bool { return len(s.instances(s.launcher("launcher-node-1"))) == 0 })
	}
}

func TestAControllerThatIsKilledWhileItReplacesARequesterIsFollowedByOneThatDoes(t *testing.T) {
	s := newSite(t).crashing()
	s.run("")
	s.deploy(server{app: "victim", node: 1, gate: true}, 1)
	for _, row := range []string{"not awake, ready", "died, not noted", "died while it served", "resting, starting or failed", "leftover"} {
		was := s.shown("victim")
		i := s.instance("launcher-node-1", "victim", "awake")
		s.run(row)
		s.kill(i)
		if row != "leftover" { // that one is for what a crash has left
			s.crashed(row, "")
		}
		s.replaced("victim", was)
		s.answers("victim")
		assert.NotEqual(t, i.PID, s.instance("launcher-node-1", "victim", "awake").PID)
		assert.Len(t, s.instances(s.launcher("launcher-node-1")), 1)
		s.kubectl("annotate", "pod/launcher-node-1", podmeta.AnnotationFailuresPrefix+i.InstanceID+"-") // the next one is not to back off
	}
}

func TestAControllerThatIsKilledWhileItWakesAModelAgainIsFollowedByOneThatDoes(t *testing.T) {
	s := newSite(t).crashing()
	s.run("")
	s.start(server{app: "tired", node: 1, gate: true, labels: map[string]string{"example.com/model": "tired"}})
	for n, row := range []string{"not awake, ready", "not awake, shown", "not awake any more", "swap not asked", "not ready"} {
		was := s.served("tired", 1)[0]
		i := s.instance("launcher-node-1", "tired", "awake")
		s.run(row)
		_, err := s.launcher("launcher-node-1").Sleep(t.Context(), i.InstanceID, launcherapi.SleepRequest{})
		require.NoError(t, err)
		s.crashed(row, "")
		s.eventually("another attempt is written down", func() bool { return s.records("launcher-node-1")[0].Attempt == n+2 })
		s.instance("launcher-node-1", "tired", "awake")
		now := s.served("tired", 1)[0]
		s.stillAnswers(now)
		assert.Equal(t, was.UID, now.UID)
		assert.Equal(t, i.PID, s.instance("launcher-node-1", "tired", "awake").PID)
	}
}

func TestAControllerThatIsKilledWhileALauncherGoesIsFollowedByOneThatLetsItGo(t *testing.T) {
	s := newSite(t).crashing()
	for n, row := range []string{"provider leaving", "unbinding, carries", "leaving, released"} {
		app := fmt.Sprintf("moved-%d", n)
		s.run(row)
		s.start(server{app: app, node: 1})
		s.served(app, 1)
		s.delete("launcher-node-1")
		s.crashed(row, "")
		s.gone(app)
		s.eventually("the launcher is gone", func() bool { return len(s.launchers()) == 0 })
		s.addLauncher(1)
	}
}

func TestAControllerThatIsKilledWhileALauncherVanishesIsFollowedByOneThatLetsItsRequesterGo(t *testing.T) {
	s := newSite(t).crashing()
	for n, row := range []string{"launcher gone, ready", "not bound, shown", "provider vanished"} {
		app := fmt.Sprintf("orphan-%d", n)
		s.run("")
		s.start(server{app: app, node: 1, gate: true})
		s.served(app, 1)
		s.stop() // it is away while the launcher vanishes
		s.delete("launcher-node-1", "--grace-period=0", "--force")
		s.kubectl("patch", "pod/launcher-node-1", "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
		s.eventually("the launcher is gone", func() bool { return len(s.launchers()) == 0 })
		s.run(row)
		s.crashed(row, "")
		s.gone(app)
		s.addLauncher(1)
	}
}

func TestAControllerThatIsKilledAfterItDroppedTheRecordOfALauncherThatWentFirstIsFollowedByOneThatLetsBothGo(t *testing.T) {
	s := newSite(t).crashing()
	s.run("")
	s.start(server{app: "last", node: 1})
	s.served("last", 1)
	s.stop() // it is away while both go, which its finalizers hold
	s.delete("launcher-node-1", "--grace-period=0", "--force")
	s.delete("last")
	s.eventually("the launcher's containers have ended", func() bool { return s.pod("launcher-node-1").Status.Phase == corev1.PodSucceeded })
	s.run("unbinding, launcher gone")
	s.crashed("unbinding, launcher gone", "")
	s.gone("last")
	s.eventually("the launcher is gone", func() bool { return len(s.launchers()) == 0 })
	s.addLauncher(1)
}

func TestAControllerThatIsKilledAfterItDeletedAModelThatDoesNotSleepIsFollowedByOneThatLetsItsRequesterGo(t *testing.T) {
	s := newSite(t).crashing()
	s.onOneGPU()
	s.run("resting, never sleeps")
	s.start(server{app: "wakeful", node: 1, args: []string{"--sim-fail-sleep=100"}})
	s.served("wakeful", 1)
	s.delete("wakeful")
	s.crashed("resting, never sleeps", "")
	s.gone("wakeful")
	s.free("launcher-node-1")
	s.eventually("the model is gone", func() bool { return len(s.instances(s.launcher("launcher-node-1"))) == 0 })
	s.start(server{app: "next", node: 1})
	s.served("next", 1)
}

func TestAControllerThatIsKilledAfterItDeletedARequesterOfAClosedNodeIsFollowedByOneThatIsDone(t *testing.T) {
	s := newBareSite(t).crashing()
	s.run("node closed")
	s.start(server{app: "early", node: 1})
	s.eventually("the requester runs", func() bool { return s.pod("early").Status.Phase == corev1.PodRunning })
	s.kubectl("cordon", cluster.NodeName(1))
	t.Cleanup(func() {
		_, err := s.cluster.Kubectl(context.Background(), nil, "uncordon", cluster.NodeName(1))
		assert.NoError(t, err)
	})
	s.crashed("node closed", "")
	s.gone("early")
}

func TestAControllerThatIsKilledWhenASwapFailedIsFollowedByOneThatBacksOffAsItWouldHave(t *testing.T) {
	s := newSite(t).crashing()
	s.run("swap failed")
	s.start(server{app: "failing", node: 1, args: []string{"--sim-crash-at-load=exit:3"}})
	s.crashed("swap failed", "")
	s.told("failing", "the next one is at ")
	record := s.records("launcher-node-1")[0]
	assert.GreaterOrEqual(t, record.Attempt, 2)
	assert.NotEmpty(t, record.Failure)
	s.delete("failing")
	s.gone("failing")
	s.free("launcher-node-1")
	s.eventually("nothing is left of it", func() bool { return len(s.instances(s.launcher("launcher-node-1"))) == 0 })
}

func TestAControllerThatIsKilledAfterItCalledASwapOffIsFollowedByOneThatLetsTheRequesterGo(t *testing.T) {
	s := newSite(t).crashing()
	s.onOneGPU()
	s.run("resting, swap waits")
	endHeld := s.heldUp("queued")
	s.delete("queued")
	s.crashed("resting, swap waits", "")
	s.gone("queued")
	s.free("launcher-node-1")
	endHeld()
	s.start(server{app: "next", node: 1})
	s.served("next", 1)
	assert.Len(t, s.instances(s.launcher("launcher-node-1")), 1)
}

func TestAControllerThatIsKilledWhileItMakesRoomOnAnotherLauncherIsFollowedByOneThatDoes(t *testing.T) {
	laneOf(t)
	for _, row := range []string{"room taken elsewhere", "room made"} {
		t.Run(row, func(t *testing.T) {
			plain, one, two := newPoolOfTwo(t)
			s := plain.crashing()
			s.run("")
			s.sleepers()
			s.run(row)
			pod := s.start(server{app: "stranger", node: 1, of: "another", args: []string{"--gpu-memory-utilization=0.3"}})
			s.crashed(row, "")
			assert.Equal(t, pod.UID, s.served("stranger", 1)[0].UID)
			assert.Equal(t, map[string]string{"org/newer": "sleeping"}, s.states(one), "the one that slept longest is gone, and no other")
			assert.Equal(t, map[string]string{"org/stranger": "awake"}, s.states(two))
		})
	}
}

func TestAControllerThatIsKilledAfterItMadeALauncherMakesNoOther(t *testing.T) {
	s := newPool(t, func(c *v1alpha1.LauncherConfig) { c.Spec.Population.Mode = v1alpha1.OnDemand }).crashing()
	s.run("no launcher")
	s.deploy(server{app: "cold", node: 1}, 1)
	s.crashed("no launcher", "")
	s.served("cold", 1)
	s.answers("cold")
	assert.Len(t, s.poolPods(), 1)
}

func TestAControllerThatIsKilledAfterItFoundItsAttemptOutdatedIsFollowedByOneThatMakesTheOther(t *testing.T) {
	s := newSite(t).crashing()
	s.onOneGPU()
	first := s.upAndDown("sleeper", "", "")
	s.run("no record")
	pod := s.start(server{app: "sleeper", node: 1, gate: true, labels: map[string]string{"example.com/model": "sleeper"}, args: []string{"--sim-load-time=200ms"}})
	s.ended("no record")
	require.Equal(t, first.InstanceID, s.records("launcher-node-1")[0].Instance)
	_, err := s.launcher("launcher-node-1").Delete(t.Context(), first.InstanceID) // which the record would have woken
	require.NoError(t, err)
	s.run("attempt outdated")
	s.crashed("attempt outdated", "")
	assert.Equal(t, pod.UID, s.served("sleeper", 1)[0].UID)
	now := s.instance("launcher-node-1", "sleeper", "awake")
	assert.NotEqual(t, first.PID, now.PID)
	assert.Equal(t, 2, s.records("launcher-node-1")[0].Attempt)
}

func TestAControllerThatIsKilledAfterItHidARequesterWhoseModelSleepsAndWhoseInputChangedIsFollowedByOneThatServesIt(t *testing.T) {
	s := newSite(t).crashing()
	s.onOneGPU()
	v := server{app: "edited", node: 1, gate: true, config: "edited"}
	s.configure(v, map[string]v1alpha1.LabelValue{"example.com/model": "edited"})
	s.run("")
	pod := s.start(v)
	s.served("edited", 1)
	first := s.serving("edited", 1)
	s.stop() // it is away meanwhile
	_, err := s.launcher("launcher-node-1").Sleep(t.Context(), first.InstanceID, launcherapi.SleepRequest{})
	require.NoError(t, err)
	second := s.edit("edited", `{"spec":{"modelServerConfig":{"args":["org/edited","--gpu-memory-utilization=0.4","--seed=3"]}}}`)
	s.run("unwanted, shown")
	s.crashed("unwanted, shown", "")
	now := s.serving("edited", second)
	assert.NotEqual(t, first.InstanceID, now.InstanceID)
	serves := s.served("edited", 1)[0]
	assert.Equal(t, pod.UID, serves.UID)
	s.stillAnswers(serves)
	old, err := s.launcher("launcher-node-1").Get(t.Context(), first.InstanceID)
	require.NoError(t, err)
	assert.Equal(t, "sleeping", old.State)
}
