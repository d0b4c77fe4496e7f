package process

import (
	"slices"
	"strings"
)

// The variables that mark every process of a tree.
const (
	instanceMark = "HOTSEAT_INSTANCE="
	launcherMark = "HOTSEAT_LAUNCHER="
)

// environment returns the whole environment of a command's process: the command's
// variables, the marks, and the variable that names the scratch folder, if there is
// one. The marks and that variable replace the command's variables of the same names.
func (h *Host) environment(c Command, scratch string) []string {
	own := []string{instanceMark + c.Name, launcherMark + h.opts.Mark}
	if scratch != "" && c.Scratch != "" {
		own = append(own, c.Scratch+"="+scratch)
	}
	env := slices.DeleteFunc(slices.Clone(c.Env), func(variable string) bool {
		return slices.ContainsFunc(own, func(ours string) bool {
			name, _, _ := strings.Cut(ours, "=")
			return strings.HasPrefix(variable, name+"=")
		})
	})
	return append(env, own...)
}
