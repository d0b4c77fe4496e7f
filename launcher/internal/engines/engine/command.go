package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Command is the adapter for a program that the launcher's configuration names: any server of an
// API like OpenAI's. It is ended to sleep, and has nothing to save.
type Command struct {
	caller
	opts CommandOptions
}

var _ Restarted = (*Command)(nil)

// CommandOptions configures a Command. Words and the arguments of an instance may contain
// ${PORT} or ${SOCKET}, which stand for where the program is to listen.
type CommandOptions struct {
	Name      string   // of the engine
	Words     []string // arguments of the program that stand before those of the instance
	Health    string   // path that answers 200 once the program is up; empty: it is up once it accepts connections
	Inference []string // paths outside /v1/ that are work for the model
	ModelName string   // by which the program knows its model; empty: the name that clients use
	// Client makes the calls to the program. Default: as for the other engines.
	Client *http.Client
}

// NewCommand makes the adapter.
func NewCommand(o CommandOptions) *Command { return &Command{newCaller(o.Client), o} }

// Name is that of the command in the configuration.
func (c *Command) Name() string { return c.opts.Name }

// Paths are those below /v1/, the health path, and what the configuration names.
func (c *Command) Paths() Paths {
	p := Paths{Status: []string{"/v1/models"}, Inference: c.opts.Inference}
	if c.opts.Health != "" {
		p.Status = append(p.Status, c.opts.Health)
	}
	return p
}

// Ready asks the health path once. Without one it connects.
func (c *Command) Ready(ctx context.Context, base string) error {
	if c.opts.Health != "" {
		_, err := c.call(ctx, http.MethodGet, base, c.opts.Health, nil, "")
		return err
	}
	address := strings.TrimPrefix(strings.TrimPrefix(base, socketScheme), "http://")
	ctx, stop := context.WithTimeout(ctx, dialTime)
	defer stop()
	conn, err := Dial(ctx, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

var errNoQuestion = errors.New("the launcher has no question for the program of a command")

// Probe is an error: the launcher does not know what the program answers.
func (*Command) Probe(context.Context, string, string, Secret, string) (Answer, error) {
	return Answer{}, errNoQuestion
}

// Progress is empty: the program does not count.
func (*Command) Progress(context.Context, string, Secret) (string, error) { return "", nil }

// Save does nothing.
func (*Command) Save(context.Context, string, string, Secret) error { return nil }

// Restore does nothing.
func (*Command) Restore(context.Context, string, string, Secret) error { return nil }

// Diagnose gives the last line that the program wrote. Its meaning is not known.
func (c *Command) Diagnose(exit Exit, tail []string) Cause {
	if cause, ok := exit.fromOutside(); ok {
		return cause
	}
	said := ""
	for _, line := range slices.Backward(tail) {
		if line = strings.TrimSpace(ansiColor.ReplaceAllString(line, "")); line != "" {
			said = "; its last line is: " + short(line)
			break
		}
	}
	return exit.plain("commands, "+c.opts.Name, said)
}

// closesEach says that a connection is used for one request: how long a program keeps an idle one
// open is not known.
const closesEach = time.Duration(-1)

// The texts that stand for where the program is to listen, and the variables that say so too.
const (
	portVariable   = "PORT"
	socketVariable = "SOCKET"
	portText       = "${" + portVariable + "}"
	socketText     = "${" + socketVariable + "}"
)

// Plan decides how to run the program: its words, and then those of the request.
func (c *Command) Plan(r Request) (Plan, error) {
	if r.Rank != nil {
		return Plan{}, inputError("rank", "", "the engine %s is a command, and has no ranks: leave rank out", c.opts.Name)
	}
	var words []string
	if r.Options != nil || r.Args != nil { // the program may need no more
		var err error
		if words, _, err = splitArguments(r); err != nil {
			return Plan{}, err
		}
	}
	if err := checkTogether(r.GPUs); err != nil {
		return Plan{}, err
	}
	words = slices.Clone(words)
	all := slices.Concat(c.opts.Words, words)
	where := PortOnly
	if usesText(all, socketText) {
		where = SocketOnly
		if usesText(all, portText) {
			return Plan{}, inputError("args", "", "the command %s has %s and %s: keep one", c.opts.Name, portText, socketText)
		}
	}
	name := cmp.Or(c.opts.ModelName, r.ServedName, c.opts.Name)
	env, notes, err := c.environment(r, commandMark{Name: c.opts.Name, Model: name, Args: words, Memory: r.GPUMemory})
	if err != nil {
		return Plan{}, err
	}
	return Plan{
		Model: name, ServedNames: []string{name}, FindsModel: true,
		TP: max(len(r.GPUs), 1), PP: 1, PCP: 1, DPLocal: 1,
		DeviceMemory: DeviceMemory{Bytes: r.GPUMemory}, KeepAlive: closesEach, Listens: where,
		Notes: notes, env: env,
		argv: func(_ Plan, at listenAt) []string {
			argv := slices.Clone(all)
			for n := range argv {
				argv[n] = at.in(argv[n])
			}
			return argv
		},
		addressEnv: func(at listenAt) []string {
			if at.socket != "" {
				return []string{socketVariable + "=" + at.socket}
			}
			return []string{fmt.Sprint(portVariable, "=", at.port)}
		},
	}, nil
}

func usesText(words []string, text string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(word, text) })
}

// in puts the address into a word of a command.
func (at listenAt) in(word string) string {
	if at.socket != "" {
		return strings.ReplaceAll(word, socketText, at.socket)
	}
	return strings.ReplaceAll(word, portText, fmt.Sprint(at.port))
}

// environment is environment for the program.
func (c *Command) environment(r Request, mark commandMark) (env, notes []string, err error) {
	for _, name := range []string{portVariable, socketVariable, commandVariable} {
		if _, set := r.Env[name]; set {
			return nil, nil, inputError("env_vars."+name, "", "%s cannot be set for a command: the launcher sets it; leave it out", name)
		}
	}
	r.BaseEnv = slices.DeleteFunc(slices.Clone(r.BaseEnv), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == portVariable || name == socketVariable
	})
	text, err := mark.text()
	if err != nil {
		return nil, nil, err
	}
	decided := []string{commandVariable + "=" + text}
	if len(r.GPUs) > 0 {
		decided = append(decided, VisibleDevices(r.GPUs)...)
	}
	return environment(r, decided)
}

// isCommand reports whether an environment is that of the program of a command.
func isCommand(env []string) bool {
	_, set := lookup(env, commandVariable)
	return set
}
