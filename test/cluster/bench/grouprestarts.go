package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/dualpods/authoritytest"
	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/cluster"
	"hotseat.dev/hotseat/test/helpers/figures"
)

// restarts kills an engine of a group, whose policy has that one server started again in place, or all
// Pods of the group created again. Each turn has a ModelServing and a model of its own: the controller goes
// on to graver restarts, and pauses, if the group was restarted or the instance ended a moment ago.
func (s *site) restarts(ctx context.Context, turns int) ([]figures.Row, error) {
	times := map[v1alpha1.RecoveryPolicy]figures.Times{}
	for turn := range turns {
		for n, policy := range []v1alpha1.RecoveryPolicy{v1alpha1.RecoverRole, v1alpha1.RecoverGroup} {
			took, err := s.restart(ctx, fmt.Sprintf("killed-%d-%d", turn, n), policy)
			if err != nil {
				return nil, err
			}
			times[policy] = append(times[policy], took)
		}
	}
	return []figures.Row{faster(
		"an engine of a group of four servers is killed → all serve again; it is started again in place, in 2 s; bare: all Pods of the group are recreated",
		times[v1alpha1.RecoverRole], times[v1alpha1.RecoverGroup], leastRestart,
	)}, nil
}

// restart makes a group, and returns how long it takes from the kill of one of its engines until it
// runs again. It is an error if other Pods are recreated than the policy says.
func (s *site) restart(ctx context.Context, name string, policy v1alpha1.RecoveryPolicy) (took time.Duration, err error) {
	if err := s.model(ctx, name); err != nil {
		return 0, err
	}
	serving := fourServers(name, name)
	serving.Spec.RecoveryPolicy = policy
	if _, err := s.timed(ctx, name, func() (time.Time, error) { return time.Now(), s.api.Create(ctx, serving) }, runs); err != nil {
		return 0, err
	}
	before, err := s.podsOf(ctx, name)
	if err != nil {
		return 0, err
	}
	took, err = s.timed(ctx, name, func() (time.Time, error) { return s.killServer(ctx, name+"-0-decode-0-0") }, runsNot, runs)
	if err != nil {
		return 0, err
	}
	after, err := s.podsOf(ctx, name)
	if err != nil {
		return 0, err
	}
	if same, want := stayed(before, after), map[v1alpha1.RecoveryPolicy]int{v1alpha1.RecoverRole: groupServers}[policy]; same != want {
		return 0, fmt.Errorf("%d Pods of ModelServing %s stayed with the policy %s, and not %d", same, name, policy, want)
	}
	return took, s.removeServing(ctx, serving)
}

// removeServing deletes a ModelServing, and waits until its Pods are gone.
func (s *site) removeServing(ctx context.Context, serving *v1alpha1.ModelServing) error {
	if err := s.api.Delete(ctx, serving); err != nil {
		return fmt.Errorf("cannot delete ModelServing %s: %w", serving.Name, err)
	}
	return s.wait(ctx, "--for=delete", "pod", "-l", podmeta.LabelServing+"="+serving.Name)
}

// killServer ends the engine of a requester by SIGKILL, and says when.
func (s *site) killServer(ctx context.Context, name string) (at time.Time, err error) {
	var requester corev1.Pod
	var launchers corev1.PodList
	if err := errors.Join(
		s.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &requester),
		s.api.List(ctx, &launchers, client.InNamespace(namespace), client.MatchingLabels{podmeta.LabelLauncherConfig: "simulated"}),
	); err != nil {
		return at, fmt.Errorf("cannot find the launcher of Pod %s: %w", name, err)
	}
	for i := range launchers.Items {
		records, _ := podmeta.ReadBindings(&launchers.Items[i])
		for _, record := range records {
			if record.RequesterUID == requester.UID {
				return s.killInstance(ctx, &launchers.Items[i], record.Instance)
			}
		}
	}
	return at, fmt.Errorf("no launcher has a record of Pod %s", name)
}

// killInstance ends an instance of a launcher by SIGKILL.
func (s *site) killInstance(ctx context.Context, launcher *corev1.Pod, id string) (at time.Time, err error) {
	var authorities corev1.Secret
	if err := s.api.Get(ctx, client.ObjectKey{Namespace: system, Name: authoritytest.SecretName}, &authorities); err != nil {
		return at, fmt.Errorf("cannot read the certificate authority: %w", err)
	}
	secured, err := authoritytest.Launcher(&authorities, mtls.LauncherName(namespace, "simulated"))
	if err != nil {
		return at, err
	}
	watch, err := s.watchLauncher(launcher.Status.PodIP, secured)
	if err != nil {
		return at, err
	}
	defer watch.close()
	instance, err := watch.client.Get(ctx, id)
	if err != nil {
		return at, fmt.Errorf("cannot ask the launcher for instance %s: %w", id, err)
	}
	for node := 1; node <= s.Nodes; node++ {
		if cluster.NodeName(node) == launcher.Spec.NodeName {
			return s.Signal(ctx, node, "KILL", cluster.Process{CommandLine: "/enginesim .*" + instance.Model, PID: instance.PID})
		}
	}
	return at, fmt.Errorf("there is no node %s", launcher.Spec.NodeName)
}
