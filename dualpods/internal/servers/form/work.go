package form

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"hotseat.dev/hotseat/spec/podmeta"
)

// work is a form in the making, and what was found wrong on the way.
type work struct {
	form     Form
	problems []podmeta.Problem
}

func (w *work) invalid(field, message string) {
	w.problems = append(w.problems, podmeta.Problem{Kind: podmeta.Invalid, Field: field, Message: message})
}

func (w *work) cannotGive(field, message string) {
	w.problems = append(w.problems, podmeta.Problem{Kind: podmeta.LauncherCannotGive, Field: field, Message: message})
}

func (w *work) done() (Form, []podmeta.Problem) {
	w.form.tidy()
	return w.form, w.problems
}

// takeAddress takes --host and --port out of the engine's arguments and returns
// the port, or 0 where the arguments name none.
func (w *work) takeAddress(args []string, field string) (rest []string, port int32) {
	rest = []string{}
	if at := slices.IndexFunc(args, func(arg string) bool { return strings.ContainsRune(arg, 0) }); at >= 0 {
		w.invalid(field, fmt.Sprintf("argument %d holds a zero byte, which no program can be given", at+1))
	}
	for i := 0; i < len(args); i++ {
		flag, value, inline := strings.Cut(args[i], "=")
		if flag == "--" {
			return append(rest, args[i:]...), port
		}
		if flag != "--host" && flag != "--port" {
			rest = append(rest, args[i])
			continue
		}
		if !inline {
			i++
			if i == len(args) {
				w.invalid(field, flag+" has no value behind it")
				break
			}
			value = args[i]
		}
		if flag == "--host" {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > math.MaxUint16 {
			w.invalid(field, fmt.Sprintf("--port %q is no port: it should be a number from 1 to 65535", value))
			continue
		}
		port = int32(n)
	}
	return rest, port
}

// setEnv takes a variable into the form, unless it is the launcher's to decide.
func (w *work) setEnv(name, value, field string) {
	switch {
	case slices.Contains(theLaunchers, name):
		w.form.Ignored = append(w.form.Ignored, field)
	case name == "HOTSEAT_INSTANCE" || name == "HOTSEAT_LAUNCHER":
		w.cannotGive(field, "cannot be set: by it a launcher knows its own engines")
	case name == "" || strings.ContainsAny(name, "=\x00"):
		w.invalid(field, fmt.Sprintf("%q cannot be the name of an environment variable", name))
	case strings.ContainsRune(value, 0):
		w.invalid(field, "its value holds a zero byte, which no environment can")
	default:
		w.form.Env[name] = value
	}
}

// checkPort sees to it that the requester can listen where it should answer.
func (w *work) checkPort(requester *corev1.Pod, admin int32, field string) {
	taken := map[int32]string{admin: "the requester's admin port"}
	if c := podmeta.ProgramOf(requester).Container; c != nil {
		for _, probe := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe, c.StartupProbe} {
			if port := probePort(probe, c); port != 0 && taken[port] == "" {
				taken[port] = "what the requester's own probes ask"
			}
		}
	}
	if who := taken[w.form.Port]; who != "" {
		w.invalid(field, fmt.Sprintf("%d is %s: inference requests need another port", w.form.Port, who))
	}
}

// probePort returns the port that a probe asks by HTTP, or 0.
func probePort(probe *corev1.Probe, c *corev1.Container) int32 {
	if probe == nil || probe.HTTPGet == nil {
		return 0
	}
	if probe.HTTPGet.Port.Type == intstr.Int {
		return probe.HTTPGet.Port.IntVal
	}
	for _, port := range c.Ports {
		if port.Name == probe.HTTPGet.Port.StrVal {
			return port.ContainerPort
		}
	}
	return 0
}
