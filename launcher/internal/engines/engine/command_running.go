package engine

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// commandVariable tells a later launcher what a process of a command is. The arguments of a
// process do not: a program may be a script that runs another one.
const commandVariable = launcherPrefix + "COMMAND"

// commandMark is the value of commandVariable.
type commandMark struct {
	Name   string   `json:"name"`
	Model  string   `json:"model"`
	Args   []string `json:"args,omitempty"`
	Memory uint64   `json:"gpu_memory,omitempty"`
}

func (m commandMark) text() (string, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("cannot write down a command: %w", err)
	}
	if len(commandVariable)+len("=")+len(text) >= maxArgument {
		return "", inputError("args", "", "the arguments have %d bytes together; a command must have fewer than %d", len(text), maxArgument)
	}
	return string(text), nil
}

// Running reads the environment of a process that was started with a Plan.
func (c *Command) Running(_, env []string) (Running, error) {
	text, set := lookup(env, commandVariable)
	var mark commandMark
	if err := json.Unmarshal([]byte(text), &mark); !set || err != nil || mark.Name != c.opts.Name {
		return Running{}, fmt.Errorf("the process is not that of the command %s", c.opts.Name)
	}
	r := Running{
		Args: append([]string{}, mark.Args...), Devices: visibleDevices(env), Model: mark.Model, ServedNames: []string{mark.Model},
		DeviceMemory: DeviceMemory{Bytes: mark.Memory}, KeepAlive: closesEach,
	}
	r.Socket, _ = lookup(env, socketVariable)
	if r.Socket == "" {
		port, _ := lookup(env, portVariable)
		var err error
		if r.Port, err = strconv.Atoi(port); err != nil {
			return r, fmt.Errorf("cannot read the port of a command: %w", err)
		}
	}
	return r, nil
}
