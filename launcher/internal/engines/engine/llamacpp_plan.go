package engine

import (
	"bufio"
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Plan decides how to run llama-server. The command line is
//
//	--model FILE --alias … --host SOCKET --slots --slot-save-path … [--device none] --metrics
//
// and the rest as it was given, or --host … --port … for the socket.
// The path of the socket has to end in .sock: by that llama-server knows that it is none of a
// host. The socket must not be there yet: llama-server does not remove it.
//
// The model is that of --model, or the first argument where that is no flag, as for vLLM. It is
// the path of a GGUF file, of a folder with one, or what the launcher's store finds. A model in
// several parts is named by its first one. If a folder has several models, --hf-file names one; the
// launcher keeps that flag to itself, since llama-server would look for the file at the hub.
func (*LlamaCpp) Plan(r Request) (Plan, error) {
	if r.Rank != nil {
		return Plan{}, inputError("rank", "", "llama.cpp has no ranks: leave rank out")
	}
	words, field, err := splitArguments(r)
	if err != nil {
		return Plan{}, err
	}
	line, err := readLlamaLine(words, r.InstanceHost)
	if err != nil {
		return Plan{}, inField(err, field)
	}
	if err := checkTogether(r.GPUs); err != nil {
		return Plan{}, err
	}
	env, notes, err := llamaEnvironment(r)
	if err != nil {
		return Plan{}, err
	}
	s := line.llamaSettings
	key, err := llamaKey(s, env)
	if err != nil {
		return Plan{}, inField(err, field)
	}
	gpus := max(len(r.GPUs), 1)
	p := Plan{
		Model: s.model, ServedNames: s.aliases,
		TP: gpus, PP: 1, PCP: 1, DPLocal: 1,
		PublicHost: s.host, PublicPort: s.port,
		APIKey: key, KeepAlive: llamaKeepAlive, TakesSocket: true,
		Notes: append(line.notes, notes...),
		env:   env,
	}
	if len(p.ServedNames) == 0 {
		p.ServedNames = []string{cmp.Or(r.ServedName, p.Model)}
	}
	file, err := s.modelFile(s.model)
	if err != nil {
		return Plan{}, inField(err, field)
	}
	p.DeviceMemory = s.memory(file, gpus)
	p.inFolder = func(folder string) (DeviceMemory, error) {
		file, err := s.ggufIn(folder)
		return s.memory(file, gpus), inField(err, field)
	}
	p.lacks = s.lacks
	without := s.devices == "" && (len(r.GPUs) == 0 || r.Accelerator != AcceleratorNVML)
	p.argv = func(p Plan, at listenAt) []string {
		file, _ := s.modelFile(cmp.Or(p.Folder, s.model)) // errors were told of by Plan and ReadFrom
		argv := []string{"--model", file, "--alias", names(p.ServedNames)}
		if at.socket != "" {
			argv = append(argv, "--host", at.socket)
		} else {
			argv = append(argv, "--host", at.host, "--port", strconv.Itoa(at.port))
		}
		argv = append(argv, "--slots")
		if r.SaveDir != "" {
			argv = append(argv, "--slot-save-path", r.SaveDir)
		}
		if without {
			argv = append(argv, "--device", "none")
		}
		argv = append(argv, "--metrics")
		return append(argv, line.rest...)
	}
	return p, nil
}

// llamaLine is what the launcher has read from an instance's arguments.
type llamaLine struct {
	llamaSettings
	rest  []string // the arguments without model, names and address
	notes []string
}

func readLlamaLine(words []string, instanceHost string) (llamaLine, error) {
	var line llamaLine
	if len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		words = slices.Concat([]string{"--model"}, words)
	}
	for len(words) > 0 {
		it, err := readLlamaItem(words)
		if err != nil {
			return line, err
		}
		if it.name == "--model" && line.model != "" {
			return line, inputError("", "--model", "more than one model is given: %q and %q", line.model, it.values[0])
		}
		if err := line.read(it); err != nil {
			return line, err
		}
		switch it.name {
		case "--model", "--hf-file", "--alias", "--host", "--port":
		default:
			line.rest = append(line.rest, it.raw...)
		}
		words = words[len(it.raw):]
	}
	if line.model == "" || line.model[0] == '-' {
		return line, inputError("", "--model", "the model is missing: give --model with the path of a GGUF file, or a model of the store")
	}
	note, err := readHost(line.host, instanceHost)
	if note != "" {
		line.notes = append(line.notes, note)
	}
	return line, err
}

// llamaDefaults are variables that users may set to other values. There is no page for people at
// the public port. Without the second one, llama-server clears each slot but the one that it used
// last, so that only one conversation could be saved.
var llamaDefaults = []string{"LLAMA_ARG_UI=false", "LLAMA_ARG_CACHE_IDLE_SLOTS=false"}

// llamaEnvironment is environment for llama-server.
func llamaEnvironment(r Request) (env, notes []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		if flag, ok := llamaVariables[name]; ok {
			why := cmp.Or(refusedByLlama(flag), "give "+flag+" in the arguments, where the launcher reads it")
			return nil, nil, inputError("env_vars."+name, flag, "%s cannot be set: %s; leave it out", name, why)
		}
	}
	r.BaseEnv = slices.DeleteFunc(slices.Concat(llamaDefaults, r.BaseEnv), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return llamaVariables[name] != ""
	})
	var visible []string
	if len(r.GPUs) > 0 {
		visible = VisibleDevices(r.GPUs)
		if !r.GPUs[0].MIG { // Vulkan knows no MIG devices
			_, indices, _ := strings.Cut(visible[len(visible)-1], "=")
			visible = append(visible, "GGML_VK_VISIBLE_DEVICES="+indices)
		}
	}
	return environment(r, visible)
}

// llamaKey is the first key that the engine accepts: of --api-key or else of the variable, and
// then of the file.
func llamaKey(s llamaSettings, env []string) (Secret, error) {
	keys := s.keys
	if value, set := lookup(env, llamaKeyVariable); set && len(keys) == 0 {
		keys = commaSeparated(value)
	}
	if s.keyFile != "" && len(keys) == 0 {
		data, err := readRegular(s.keyFile)
		if err != nil {
			return "", inputError("", "--api-key-file", "cannot read the file %s of --api-key-file: %s", s.keyFile, withoutPath(err))
		}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			if text := lines.Text(); text != "" && text[0] != '#' {
				keys = append(keys, text)
			}
		}
	}
	if len(keys) == 0 {
		return "", nil
	}
	return Secret(keys[0]), nil
}
