package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) runCommand() *cobra.Command {
	var id, method, cache string
	var gpus, env []string
	var wait bool
	cmd := &cobra.Command{
		Use:   "run [flags] -- ARGS...",
		Short: "Start an instance",
		Long: `Start an instance. ARGS are those of vllm serve: the model and its options. The
flags of this command come first; everything from the model on is the engine's.
Without --gpu the engine sees every GPU, and takes no turn on any.`,
		Example: `  launcher run --gpu 0 --wait -- Qwen/Qwen3-8B --max-model-len 4096
  launcher run --gpu 0,1 --id big --env HF_TOKEN -- meta-llama/Llama-3.3-70B-Instruct -tp 2`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("the model is missing: launcher run --gpu 0 -- MODEL")
			}
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&id, "id", "", "`ID` of the instance; the launcher makes one when it is not given")
	startMethodFlag(cmd, &method)
	modelCacheFlag(cmd, &cache)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it answers, or has failed")
	gpuFlag(cmd, &gpus)
	envFlag(cmd, &env)
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		spec := launcherapi.InstanceSpec{Args: args, StartMethod: method, ModelCache: cache}
		var err error
		if spec.EnvVars, err = environment(env); err != nil {
			return err
		}
		if spec.GPUUUIDs, err = pickGPUs(ctx, cl, gpus); err != nil {
			return err
		}
		told := newProgress(c.err)
		instance, err := cl.Create(ctx, id, spec)
		if swapHelps(err) {
			return fmt.Errorf("%w; launcher swap in place of run sends away who is awake there", err)
		}
		if err != nil {
			return err
		}
		if wait {
			c.follows = true
			if instance, err = awaitAwake(ctx, cl, instance, told); err != nil {
				return err
			}
		}
		return c.show(instance, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, instance.InstanceID)
			return err
		})
	})
}

func gpuFlag(cmd *cobra.Command, gpus *[]string) {
	cmd.Flags().StringSliceVar(gpus, "gpu", nil, "a `GPU` by index or UUID; again, or several with commas, for more")
}

func envFlag(cmd *cobra.Command, env *[]string) {
	cmd.Flags().StringArrayVar(env, "env", nil, "a variable of the engine's environment, `NAME=VALUE`, or NAME for the value that it has here")
}

func startMethodFlag(cmd *cobra.Command, method *string) {
	cmd.Flags().StringVar(method, "start-method", "", "`HOW` its process is made: auto, exec or fork")
	complete(cmd, "start-method", launcherapi.StartAuto, launcherapi.StartExec, launcherapi.StartFork)
}

func modelCacheFlag(cmd *cobra.Command, cache *string) {
	cmd.Flags().StringVar(cache, "model-cache", "", "`WHERE` its model is read: auto for the launcher's model store where that has it, require or off")
	complete(cmd, "model-cache", launcherapi.ModelCacheAuto, launcherapi.ModelCacheRequire, launcherapi.ModelCacheOff)
}

// awaitAwake follows a start until the instance is awake. When the instance ends
// instead, the error has all that is known about that.
func awaitAwake(ctx context.Context, cl *client.Client, instance launcherapi.Instance, told *progress) (launcherapi.Instance, error) {
	for since := instance.Revision; ; {
		told.state(instance)
		if over, err := startOver(instance); over {
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
	return launcherapi.Instance{}, 0, launcher.NotFound(id)
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
			return event.Object, launcher.NotFound(instance.InstanceID)
		default:
			return event.Object, nil
		}
	}
	return instance, context.Cause(ctx)
}

// ended is the error for an instance that has ended.
func ended(i launcherapi.Instance) error {
	e := launcher.EngineFailedf("%s is %s: %s", i.InstanceID, i.State, i.Reason)
	e.InstanceID, e.ExitCode, e.FailureCause, e.LastLogLines = i.InstanceID, i.ExitCode, i.Cause, i.LastLogLines
	return e
}
