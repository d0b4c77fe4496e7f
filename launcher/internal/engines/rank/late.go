package rank

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// This file replaces the variables that are known only when an instance is about to start: its
// leased ports, and what its rank is. The text with $(NAME) is the identity of an instance, so
// that the ranks of a server, and later instances with other ports, have the same.

// reference matches $(NAME) of such a variable, with all $ before it.
var reference = regexp.MustCompile(`\$+\((PORT_[0-7]|GROUP_SIZE|ENTRY_ADDRESS|WORKER_INDEX)\)`)

// LateValues returns the values of the variables by name. r may be nil.
func LateValues(ports []int, r *Rank) map[string]string {
	values := map[string]string{}
	for n, port := range ports {
		values["PORT_"+strconv.Itoa(n)] = strconv.Itoa(port)
	}
	if r != nil {
		maps.Copy(values, r.Late())
	}
	return values
}

// MissingPortError reports a reference to a port that is not leased.
type MissingPortError struct {
	Number int // as in $(PORT_0)
}

func (e *MissingPortError) Error() string {
	return fmt.Sprintf("$(PORT_%d) is used, and no such port is leased", e.Number)
}

// PutLate replaces $(NAME) in a text as Kubernetes does: $$(NAME) stands for $(NAME), and a
// reference to a variable without a value stays. Other references, such as $(HOME), stay as they
// are. The error is a *MissingPortError.
func PutLate(text string, values map[string]string) (string, error) {
	var missing error
	out := reference.ReplaceAllStringFunc(text, func(found string) string {
		name := strings.TrimSuffix(strings.TrimLeft(found, "$"), ")")[1:]
		dollars := len(found) - len("(") - len(name) - len(")")
		escaped := strings.Repeat("$", dollars/2)
		value, known := values[name]
		switch {
		case dollars%2 == 0:
			return escaped + "(" + name + ")"
		case known:
			return escaped + value
		}
		if number, isPort := strings.CutPrefix(name, "PORT_"); isPort && missing == nil {
			n, _ := strconv.Atoi(number) // the pattern has one digit there
			missing = &MissingPortError{Number: n}
		}
		return escaped + "$(" + name + ")"
	})
	return out, missing
}

// PutLateIn replaces references in the arguments and variables of a spec. A value that comes from
// a file stays as it is. field is the field of the body that the error is about.
func PutLateIn(spec launcherapi.InstanceSpec, values map[string]string) (out launcherapi.InstanceSpec, field string, err error) {
	put := func(where, text string) string {
		replaced, missing := PutLate(text, values)
		if missing != nil && err == nil {
			field, err = where, missing
		}
		return replaced
	}
	if spec.Options != nil {
		spec.Options = new(put("options", *spec.Options))
	}
	if spec.Args != nil {
		args := make([]string, len(spec.Args))
		for n, arg := range spec.Args {
			args[n] = put(fmt.Sprintf("args[%d]", n), arg)
		}
		spec.Args = args
	}
	if spec.EnvVars != nil {
		env := maps.Clone(spec.EnvVars)
		for _, name := range slices.Sorted(maps.Keys(env)) {
			if v := env[name]; v.FromFile == "" {
				env[name] = launcherapi.EnvValue{Value: put("env_vars."+name, v.Value)}
			}
		}
		spec.EnvVars = env
	}
	return spec, field, err
}
