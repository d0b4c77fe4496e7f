package process

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The variables that mark every process of a tree.
const (
	instanceMark = "HOTSEAT_INSTANCE="
	launcherMark = "HOTSEAT_LAUNCHER="
)

// publicMark is the variable with the address at which clients reach the tree.
const publicMark = "HOTSEAT_PUBLIC="

// environment returns the whole environment of a command's process: the command's
// variables, the marks, and the variables that name the scratch folder and the public
// address, if there are any. These replace the command's variables of the same names.
func (h *Host) environment(c Command, scratch string) []string {
	own := []string{instanceMark + c.Name, launcherMark + h.opts.Mark}
	if scratch != "" && c.Scratch != "" {
		own = append(own, c.Scratch+"="+scratch)
	}
	if c.Public != "" {
		own = append(own, publicMark+c.Public)
	}
	env := slices.DeleteFunc(slices.Clone(c.Env), func(variable string) bool {
		return slices.ContainsFunc(append(own, publicMark), func(ours string) bool {
			name, _, _ := strings.Cut(ours, "=")
			return strings.HasPrefix(variable, name+"=")
		})
	})
	return append(env, own...)
}

// PublicAddress returns the address at which clients reach a tree, from the environment of
// one of its processes. ok is false if the environment has none that can be believed: it has
// the marks of another tree, or the address is not one of an IP address, or of none, and a
// port.
func PublicAddress(env []string, mark, name string) (host string, port int, ok bool) {
	address := ""
	marked := 0
	for _, variable := range env {
		switch {
		case variable == launcherMark+mark, variable == instanceMark+name:
			marked++
		case strings.HasPrefix(variable, publicMark):
			address = strings.TrimPrefix(variable, publicMark)
		}
	}
	host, digits, err := net.SplitHostPort(address)
	if err != nil || marked != 2 {
		return "", 0, false
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" && host != "localhost" {
		return "", 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 16)
	return host, int(number), err == nil && number > 0
}
