package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/engines/rank"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// Plan decides how to run vLLM. The command line is
//
//	serve MODEL --uds … [--nnodes …] [--enable-sleep-mode] and the rest
//
// or --host … --port … or --headless in place of --uds, with the rest as it was given. The launcher's address stands before any flag that
// could take it for a value, and no later argument has an address.
func (*VLLM) Plan(r Request) (Plan, error) {
	tokens, field, err := splitArguments(r)
	if err != nil {
		return Plan{}, err
	}
	line, err := readCommandLine(tokens, r.InstanceHost, r.Rank)
	if err != nil {
		return Plan{}, inField(err, field)
	}
	s := line.settings
	if err := checkGPUs(s, r); err != nil {
		return Plan{}, err
	}
	env, notes, err := environment(r, ownVariables(r.GPUs))
	if err != nil {
		return Plan{}, err
	}

	inject := s.sleepMode == nil && wantsSleepMode(r)
	p := Plan{
		Model:        s.model,
		Revision:     s.revision,
		ServedNames:  s.servedNames,
		TP:           s.tp,
		PP:           s.pp,
		PCP:          s.pcp,
		DPLocal:      s.localRanks(),
		Rank:         r.Rank,
		Compiles:     line.compiles(),
		PublicHost:   s.host,
		PublicPort:   s.port,
		DeviceMemory: DeviceMemory{Share: s.utilization},
		Forks:        true,
		SleepMode:    inject || s.sleepMode != nil && *s.sleepMode,
		APIKey:       apiKey(s.apiKeys, env),
		KeepAlive:    keepAlive(env),
		Config:       line.config,
		ConfigPath:   line.configPath,
		ConfigWords:  line.configWords,
		Notes:        append(line.notes, notes...),
		env:          env,
	}
	if _, set := lookup(env, socketFolder); !set {
		p.Scratch = socketFolder
	}
	if len(p.ServedNames) == 0 {
		p.ServedNames = []string{cmp.Or(r.ServedName, p.Model)}
	}
	if s.sleepMode != nil && !*s.sleepMode {
		p.Notes = append(p.Notes, "--no-enable-sleep-mode: this instance will keep its device memory while it sleeps")
	}
	p.argv = func(p Plan, at listenAt) []string {
		argv := append([]string{"serve", cmp.Or(p.Folder, s.model)}, listenFlags(at)...)
		if p.Rank != nil {
			argv = append(argv, p.Rank.Arguments()...)
		}
		if (p.Folder != "" || r.ServedName != "") && len(s.servedNames) == 0 {
			argv = append(argv, "--served-model-name", p.ServedNames[0])
		}
		if inject {
			argv = append(argv, "--enable-sleep-mode")
		}
		if p.ConfigPath != "" {
			argv = append(argv, "--config", p.ConfigPath)
		}
		return append(argv, line.rest...)
	}
	return p, nil
}

// listenFlags tells vLLM where to listen.
func listenFlags(at listenAt) []string {
	switch {
	case at.socket != "":
		return []string{"--uds", at.socket}
	case at.port == 0:
		return []string{headless}
	}
	return []string{"--host", at.host, "--port", strconv.Itoa(at.port)}
}

// splitArguments gives the arguments of a request, and the field they came from.
func splitArguments(r Request) (tokens []string, field string, err error) {
	switch {
	case r.Options != nil && r.Args != nil:
		return nil, "", inputError("args", "", "both options and args are given: leave one of them out")
	case r.Options == nil && r.Args == nil:
		return nil, "", inputError("options", "", "the engine's arguments are missing: give them as options (one string) or args (a list)")
	case r.Options == nil:
		tokens, field = r.Args, "args"
	default:
		field = "options"
		if tokens, err = launcherapi.SplitOptions(*r.Options); err != nil {
			return nil, "", inputError(field, "", "options cannot be split into arguments: %s", strings.ToLower(err.Error()))
		}
	}
	for n, token := range tokens {
		switch {
		case len(token) >= maxArgument:
			return nil, "", inputError(field, "", "argument %d has %d bytes; an argument must have fewer than %d", n+1, len(token), maxArgument)
		case strings.ContainsRune(token, 0):
			return nil, "", inputError(field, "", "an argument holds a zero byte: %q", token)
		}
	}
	return tokens, field, nil
}

// maxArgument is the length, in bytes, from which on Linux refuses to start a
// program with an argument, or a variable with its name, of that length: its
// MAX_ARG_STRLEN (include/uapi/linux/binfmts.h), for pages of 4 KiB.
const maxArgument = 128 << 10

// inField says which field of the body an error is about.
func inField(err error, field string) error {
	var input *InputError
	if errors.As(err, &input) {
		input.Field = field
	}
	return err
}

// gpusNeeded is how many GPUs the engine needs.
func gpusNeeded(s settings, r *rank.Rank) (int, error) {
	all := s.tp * s.pp * s.pcp * s.localRanks()
	if r == nil {
		return all, nil
	}
	need, err := r.GPUs(all)
	if wrong, ok := errors.AsType[*rank.Error](err); ok {
		return 0, inputError("rank."+wrong.Field, mismatchedFlag(s), "%s (%s)", wrong.Message, degrees(s))
	}
	return need, err
}

func checkGPUs(s settings, r Request) error {
	need, err := gpusNeeded(s, r.Rank)
	gpus := r.GPUs
	if err != nil || len(gpus) == 0 {
		return err
	}
	if s.deviceIDs {
		return inputError("gpu_uuids", "--device-ids", "--device-ids and gpu_uuids both choose the GPUs: leave --device-ids out")
	}
	if err := checkTogether(gpus); err != nil {
		return err
	}
	if need == len(gpus) {
		return nil
	}
	product := degrees(s)
	if r.Rank != nil {
		product += fmt.Sprintf(" ÷ %d ranks", r.Rank.Size)
	}
	return inputError("gpu_uuids", mismatchedFlag(s), "the arguments need %d %s (%s), but gpu_uuids names %d",
		need, plural(need, "GPU"), product, len(gpus))
}

// checkTogether checks that one engine can have these GPUs.
func checkTogether(gpus []GPU) error {
	seen := map[string]bool{}
	for _, gpu := range gpus {
		if seen[gpu.UUID] {
			return inputError("gpu_uuids", "", "gpu_uuids names %s twice", gpu.UUID)
		}
		seen[gpu.UUID] = true
		// CUDA shows a process one MIG device only: NVIDIA Multi-Instance GPU
		// User Guide, "CUDA Device Enumeration".
		if gpu.MIG && len(gpus) > 1 {
			return inputError("gpu_uuids", "", "%s is a MIG device, and an engine can use only one: ask for it alone", gpu.UUID)
		}
	}
	return nil
}

// degrees spells out the product behind the number of GPUs.
func degrees(s settings) string {
	text := fmt.Sprintf("tensor parallel %d x pipeline parallel %d", s.tp, s.pp)
	if s.pcp != 1 {
		text += fmt.Sprintf(" x prefill context parallel %d", s.pcp)
	}
	if s.localRanks() != 1 {
		text += fmt.Sprintf(" x local data parallel %d", s.localRanks())
	}
	return text
}

// mismatchedFlag is the flag that most likely has to change.
func mismatchedFlag(s settings) string {
	switch {
	case s.pp > s.tp:
		return "--pipeline-parallel-size"
	case s.localRanks() > s.tp:
		return "--data-parallel-size"
	}
	return "--tensor-parallel-size"
}

func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

func wantsSleepMode(r Request) bool {
	switch cmp.Or(r.SleepMode, SleepModeAuto) {
	case SleepModeAlways:
		return true
	case SleepModeAuto:
		return r.Accelerator == AcceleratorNVML
	}
	return false
}

// apiKey is the first key that the engine accepts: those of --api-key, or the
// one in the environment when the flag is not given (vLLM's
// entrypoints/serve/middleware/register.py).
func apiKey(keys, env []string) Secret {
	if len(keys) == 0 {
		value, _ := lookup(env, "VLLM_API_KEY")
		return Secret(value)
	}
	i := slices.IndexFunc(keys, func(k string) bool { return k != "" })
	if i < 0 {
		return ""
	}
	return Secret(keys[i])
}
