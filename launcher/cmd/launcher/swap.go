package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// swapFlags are those of the swap command.
type swapFlags struct {
	gpus, env      []string
	id, out        string
	method, cache  string
	level          int
	drain, timeout span
	canary, dryRun bool
}

func (c *cli) swapCommand() *cobra.Command {
	var f swapFlags
	cmd := &cobra.Command{
		Use:   "swap [flags] ID | swap [flags] --gpu GPU -- MODEL [ARGS...]",
		Short: "Wake or start an instance, and put to sleep what is awake on its GPUs",
		Long: `Wake or start an instance, and put to sleep, or stop, what is awake on its GPUs.
ID names an instance that exists; with MODEL and ARGS, those of vllm serve, the
launcher starts a new one. With --gpu alone, the swap only frees these GPUs.

When a swap fails, the launcher undoes it: what was awake is awake again. When that
fails too, "undo failed" says in which state each instance is left.`,
		Example: `  launcher swap llama
  launcher swap --gpu 0 --id llama --canary -- meta-llama/Llama-3.2-1B --max-model-len 4096
  launcher swap --gpu 0 --out stop`,
		ValidArgsFunction: c.completeInstances(1),
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error { return f.check(cmd.ArgsLenAtDash(), args) }
	gpuFlag(cmd, &f.gpus)
	envFlag(cmd, &f.env)
	cmd.Flags().StringVar(&f.id, "id", "", "`ID` of the new instance; default: one that the launcher makes")
	startMethodFlag(cmd, &f.method)
	modelCacheFlag(cmd, &f.cache)
	cmd.Flags().StringVar(&f.out, "out", launcherapi.OutSleep, "what to do with the instances that are awake on the GPUs: `sleep|stop`")
	cmd.Flags().IntVar(&f.level, "level", 0, "sleep level of the instances that fall asleep: 1 keeps the weights in main memory, 2 drops them (default 1)")
	cmd.Flags().Var(&f.drain, "drain-timeout", "how long answers in flight may take before they are cut; 0 for the launcher's default, 1ms to not wait for them")
	cmd.Flags().Var(&f.timeout, "timeout", "how long the whole swap may take before it is undone; 0 for the launcher's default")
	cmd.Flags().BoolVar(&f.canary, "canary", false, "ask the incoming instance for an answer before it gets requests")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would happen and whether it fits; change nothing")
	complete(cmd, "out", launcherapi.OutSleep, launcherapi.OutStop)
	complete(cmd, "level", "1", "2")
	c.formatFlag(cmd)
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		request, err := f.request(ctx, cl, cmd.ArgsLenAtDash(), args)
		if err != nil {
			return err
		}
		told := newProgress(c.err)
		result, err := cl.Swap(ctx, request, told.swap)
		told.close()
		if launcher.CodeOf(err) == launcherapi.CodeExists {
			return fmt.Errorf("%w; launcher swap %s wakes it", err, f.id)
		}
		if err != nil {
			return err
		}
		return c.show(result, func(w io.Writer) error { return describeSwap(w, result) })
	})
}

// check refuses flags and arguments that do not go together. dash is how many
// arguments stand before "--", or −1 without one.
func (f *swapFlags) check(dash int, args []string) error {
	var err error
	if dash >= 0 {
		err = f.checkNew(dash, args)
	} else {
		err = f.checkKnown(args)
	}
	switch {
	case err != nil:
		return err
	case f.out != launcherapi.OutSleep && f.out != launcherapi.OutStop:
		return usagef("--out is sleep or stop, not %q", f.out)
	case f.level != 0:
		if err := launcherapi.CheckSleepLevel(f.level); err != nil {
			return usagef("--level: %v", err)
		}
	}
	return nil
}

// checkNew checks the arguments of a swap to a new instance. dash is how many stand before --.
func (f *swapFlags) checkNew(dash int, args []string) error {
	switch {
	case dash > 0:
		return usagef("%q names an instance and %q describes a new one; give one of them", args[0], "-- "+strings.Join(args[dash:], " "))
	case len(args) == 0:
		return usagef("the model is missing after --")
	case len(f.gpus) == 0:
		return usagef("--gpu is missing; name the GPUs to swap on: launcher swap --gpu 0 -- %s", args[0])
	}
	return checkStart(f.method, f.cache)
}

// checkKnown checks the arguments of a swap to an instance that exists, or to none.
func (f *swapFlags) checkKnown(args []string) error {
	switch {
	case len(args) > 1:
		return usagef("%q is one argument too many; the command line of a new instance stands after --", args[1])
	case len(args) == 0 && len(f.gpus) == 0:
		return usagef("ID is missing; name an instance to wake, or give a command line after --, or the GPUs to free by --gpu")
	case f.id+f.method+f.cache != "" || len(f.env) > 0:
		return usagef("--id, --env, --start-method and --model-cache are for a new instance; give its command line after --")
	}
	return nil
}

func (f *swapFlags) request(ctx context.Context, cl *client.Client, dash int, args []string) (launcherapi.SwapRequest, error) {
	req := launcherapi.SwapRequest{
		Out:          &launcherapi.SwapOut{Mode: f.out, Level: f.level},
		DrainTimeout: f.drain.value, Timeout: f.timeout.value, Canary: f.canary, DryRun: f.dryRun,
	}
	var err error
	if req.GPUUUIDs, err = pickGPUs(ctx, cl, f.gpus); err != nil {
		return req, err
	}
	switch {
	case dash >= 0:
		env, err := environment(f.env)
		if err != nil {
			return req, err
		}
		req.In = &launcherapi.SwapIn{ID: f.id, Args: args, EnvVars: env, StartMethod: f.method, ModelCache: f.cache}
	case len(args) == 1:
		req.In = &launcherapi.SwapIn{InstanceID: args[0]}
	}
	return req, nil
}

// describeSwap describes the result of a swap in a line or two.
func describeSwap(w io.Writer, r launcherapi.SwapResult) error {
	awake := "no instance"
	if r.In != nil {
		awake = r.In.InstanceID
	}
	words := states(r.Out)
	for _, id := range r.Evicted {
		words = append(words, id+" was evicted")
	}
	for _, id := range r.Deleted {
		words = append(words, id+" was deleted meanwhile")
	}
	if r.Cut > 0 {
		words = append(words, fmt.Sprintf("%d answers in flight were cut", r.Cut))
	}
	rest := ""
	if len(words) > 0 {
		rest = "; " + strings.Join(words, ", ")
	}
	line := fmt.Sprintf("%s is awake%s (%s)", awake, rest, ms(r.TotalMS))
	switch r.Outcome {
	case launcherapi.OutcomeNoop:
		line = fmt.Sprintf("nothing to do: %s is awake already", awake)
	case launcherapi.OutcomeDryRun:
		line = fmt.Sprintf("it fits: %s would be awake", awake)
		if len(r.Out) > 0 {
			line += fmt.Sprintf(", and not %s", strings.Join(ids(r.Out), ", "))
		}
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

func states(instances []launcherapi.Instance) []string {
	words := make([]string, len(instances))
	for n, i := range instances {
		words[n] = fmt.Sprintf("%s is %s", i.InstanceID, i.State)
	}
	return words
}

func ids(instances []launcherapi.Instance) []string {
	words := make([]string, len(instances))
	for n, i := range instances {
		words[n] = i.InstanceID
	}
	return words
}
