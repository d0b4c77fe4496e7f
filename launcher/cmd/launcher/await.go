package main

import (
	"cmp"
	"context"
	"fmt"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// awaitAwake follows a start until the instance is awake. When the instance ends
// instead, the error has all that is known about that.
func awaitAwake(ctx context.Context, cl *client.Client, instance launcherapi.Instance, told *progress) (launcherapi.Instance, error) {
	return awaitState(ctx, cl, instance, told, startOver)
}

// awaitState follows an instance until over says that the wait is over, or has
// failed. When the instance is deleted before, the error is a *deletedError.
func awaitState(ctx context.Context, cl *client.Client, instance launcherapi.Instance, told *progress, over func(launcherapi.Instance) (bool, error)) (launcherapi.Instance, error) {
	for since := instance.Revision; ; {
		told.state(instance)
		if done, err := over(instance); done {
			return instance, err
		}
		last, err := awaitEvent(ctx, cl, instance, since)
		since = last.Revision
		if client.IsGone(err) { // the launcher was started again, or has had too many events since
			last, since, err = listed(ctx, cl, instance.InstanceID)
		}
		if err != nil {
			return last, err
		}
		instance = last
	}
}

// listed gives an instance as a list shows it, and the revision of the list.
func listed(ctx context.Context, cl *client.Client, id string) (launcherapi.Instance, uint64, error) {
	list, err := cl.List(ctx)
	if err != nil {
		return launcherapi.Instance{}, 0, err
	}
	for _, i := range list.Instances {
		if i.InstanceID == id {
			return i, list.Revision, nil
		}
	}
	return launcherapi.Instance{}, 0, &deletedError{id}
}

// startOver says whether a start is over, by an error when the instance is not
// awake then.
func startOver(i launcherapi.Instance) (bool, error) {
	state := launcher.State(i.State)
	if state.Ended() {
		return true, ended(i)
	}
	return !state.Moving(), nil
}

// awaitEvent gives an instance as the next event after a revision shows it.
func awaitEvent(ctx context.Context, cl *client.Client, instance launcherapi.Instance, since uint64) (launcherapi.Instance, error) {
	for event, err := range cl.Watch(ctx, &since) {
		switch {
		case err != nil:
			return instance, err
		case event.Object.InstanceID != instance.InstanceID:
		case event.Type == launcherapi.EventDeleted:
			return event.Object, &deletedError{instance.InstanceID}
		default:
			return event.Object, nil
		}
	}
	return instance, context.Cause(ctx)
}

// deletedError says that an instance was deleted while a command waited for it.
type deletedError struct{ id string }

func (e *deletedError) Error() string { return fmt.Sprintf("%s was deleted meanwhile", e.id) }

// ended is the error for an instance that has ended.
func ended(i launcherapi.Instance) error {
	e := launcher.EngineFailedf("%s is %s: %s", i.InstanceID, i.State, cmp.Or(i.Reason, "somebody stopped it"))
	e.InstanceID, e.ExitCode, e.FailureCause, e.LastLogLines = i.InstanceID, i.ExitCode, i.Cause, i.LastLogLines
	return e
}
