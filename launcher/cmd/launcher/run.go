package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) runCommand() *cobra.Command {
	var id, method, cache string
	var gpus, env []string
	var wait, noWait bool
	cmd := &cobra.Command{
		Use:   "run [flags] MODEL [ARGS...]",
		Short: "Start an instance of a model",
		Long: `Start an instance of a model, and print its id. ARGS are options of vllm serve. The
flags of this command come first; everything from the model on is the engine's.
Name the GPUs of the model: --gpu 0, --gpu 0,1 or --gpu all; or --gpu none for a model
that uses none. Only on a machine without GPUs may the flag be left out.

When standard output is a terminal, the command waits until the model answers.`,
		Example: `  launcher run --gpu 0 --id qwen Qwen/Qwen3-8B --max-model-len 4096
  launcher run --gpu 0,1 --id big --env HF_TOKEN -- meta-llama/Llama-3.3-70B-Instruct -tp 2
  id=$(launcher run --gpu 0 --wait Qwen/Qwen3-8B)`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("the model is missing: launcher run --gpu 0 MODEL")
			case wait && noWait:
				return usagef("--wait and --no-wait do not go together")
			}
			if err := cmp.Or(checkOwnFlags(cmd, args[1:]), checkStart(method, cache)); err != nil {
				return err
			}
			wait = wait || !noWait && !cmd.Flags().Changed("wait") && isTerminal(c.out)
			return nil
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&id, "id", "", "`ID` of the instance; default: one that the launcher makes")
	startMethodFlag(cmd, &method)
	modelCacheFlag(cmd, &cache)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the instance is awake, or has failed")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait, not even on a terminal")
	gpuFlag(cmd, &gpus)
	envFlag(cmd, &env)
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		spec := launcherapi.InstanceSpec{Args: args, StartMethod: method, ModelCache: cache}
		var err error
		if spec.EnvVars, err = environment(env); err != nil {
			return err
		}
		if err := placeOn(ctx, cl, gpus, &spec); err != nil {
			return err
		}
		told := newProgress(c.err)
		instance, err := cl.Create(ctx, id, spec)
		if swapHelps(err) {
			return fmt.Errorf("%w; use launcher swap in place of run to put what is awake there to sleep", err)
		}
		if launcher.CodeOf(err) == launcherapi.CodeExists {
			return fmt.Errorf("%w; launcher swap %s wakes it, and launcher stop %s ends it", err, id, id)
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

// noGPU is the value of --gpu for a model that uses none; allGPUs names every GPU.
const (
	noGPU   = "none"
	allGPUs = "all"
)

// placeOn puts the GPUs of --gpu into a spec. Without them the engine would see every GPU of
// the node and take memory that no swap can free.
func placeOn(ctx context.Context, cl *client.Client, wanted []string, spec *launcherapi.InstanceSpec) (err error) {
	switch {
	case slices.Equal(wanted, []string{noGPU}):
		if spec.EnvVars == nil {
			spec.EnvVars = map[string]launcherapi.EnvValue{}
		}
		spec.EnvVars["CUDA_VISIBLE_DEVICES"] = launcherapi.EnvValue{}
		return nil
	case len(wanted) > 0:
		spec.GPUUUIDs, err = pickGPUs(ctx, cl, wanted)
		return err
	}
	list, err := cl.GPUs(ctx)
	if err != nil || len(list.GPUs) == 0 {
		return err
	}
	return usagef("--gpu is missing; give --gpu %d, --gpu %s, or --gpu %s for a model that uses no GPU", list.GPUs[0].Index, allGPUs, noGPU)
}

// checkOwnFlags refuses a flag of the command among the arguments of the engine.
func checkOwnFlags(cmd *cobra.Command, args []string) error {
	for _, arg := range args {
		flag, _, _ := strings.Cut(arg, "=")
		if name, ok := strings.CutPrefix(flag, "--"); ok && cmd.NonInheritedFlags().Lookup(name) != nil {
			return usagef("%s stands after the model, where flags are the engine's, and it is a flag of launcher run: put it before the model", flag)
		}
	}
	return nil
}

func gpuFlag(cmd *cobra.Command, gpus *[]string) {
	cmd.Flags().StringSliceVar(gpus, "gpu", nil, "a `GPU`, by index or UUID, or all; for several, separate them by commas or repeat the flag")
}

func envFlag(cmd *cobra.Command, env *[]string) {
	cmd.Flags().StringArrayVar(env, "env", nil, "a variable for the engine, `NAME=VALUE`, or NAME alone to pass on the value it has here; may be repeated")
}

// The values of --start-method and --model-cache.
var (
	startMethods = []string{launcherapi.StartAuto, launcherapi.StartExec, launcherapi.StartFork}
	modelCaches  = []string{launcherapi.ModelCacheAuto, launcherapi.ModelCacheRequire, launcherapi.ModelCacheOff}
)

// checkStart refuses a value that these flags do not have.
func checkStart(method, cache string) error {
	switch {
	case method != "" && !slices.Contains(startMethods, method):
		return usagef("--start-method is auto, exec or fork, not %q", method)
	case cache != "" && !slices.Contains(modelCaches, cache):
		return usagef("--model-cache is auto, require or off, not %q", cache)
	}
	return nil
}

func startMethodFlag(cmd *cobra.Command, method *string) {
	cmd.Flags().StringVar(method, "start-method", "", "how the engine is started: `auto|exec|fork` (default auto)")
	complete(cmd, "start-method", startMethods...)
}

func modelCacheFlag(cmd *cobra.Command, cache *string) {
	cmd.Flags().StringVar(cache, "model-cache", "", "whether the engine reads the model from the launcher's model store: `auto|require|off`; auto does where the store has it (default auto)")
	complete(cmd, "model-cache", modelCaches...)
}
