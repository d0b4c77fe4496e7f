package engine

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Diagnose explains an exit. The real cause stands up to 200 lines before the end
// of vLLM's log, above the stack traces of the processes that only noticed the
// failure: give some 400 lines.
func (*VLLM) Diagnose(exit Exit, tail []string) Cause {
	if exit.OOMKilled {
		return Cause{CauseKilledForMemory, "the kernel killed the engine because it reached its memory limit: raise the limit, or let fewer models sleep in main memory"}
	}
	if signal := unix.Signal(exit.Signal); slices.Contains(fromOutside, signal) {
		return Cause{CauseKilled, killedMessage(signal)}
	}
	said := readLog(tail)
	for _, s := range vllmSymptoms {
		if cause, ok := s.in(said.complaints()); ok {
			return cause
		}
	}
	for _, s := range vllmExtensions {
		if cause, ok := s.in(said); ok {
			return cause
		}
	}
	return withoutSymptom(exit, said.complaints())
}

// in is the cause that a symptom tells of; false: no line has the symptom.
func (s symptom) in(lines logLines) (Cause, bool) {
	for _, line := range lines {
		if m := s.pattern.FindStringSubmatchIndex(line.text); m != nil {
			return Cause{s.code, short(tidy(string(s.pattern.ExpandString(nil, s.message, line.text, m))))}, true
		}
	}
	return Cause{}, false
}

// fromOutside are the signals that no program sends itself when it crashes.
var fromOutside = []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP}

func killedMessage(signal unix.Signal) string {
	text := fmt.Sprintf("another process killed the engine with %s", unix.SignalName(signal))
	if signal == unix.SIGKILL {
		text += ": possibly it was the kernel, because memory was short (see dmesg)"
	}
	return text
}

// withoutSymptom is the cause when no line has a known symptom.
func withoutSymptom(exit Exit, lines logLines) Cause {
	said := ""
	if e := lines.rootException(); e != "" {
		said = "; the first error is: " + short(e)
	}
	for _, s := range vllmEchoes {
		if cause, ok := s.in(lines); ok {
			if said == "" && cause.Message == diedSomehow {
				cause.Message = diedSilently
			}
			cause.Message += said
			return cause
		}
	}
	switch {
	case exit.Signal != 0:
		return Cause{CauseKilled, "the engine crashed with " + unix.SignalName(unix.Signal(exit.Signal)) + said}
	case exit.Code == nil:
		return Cause{CauseExited, "the engine ended with an unknown exit status" + said}
	case *exit.Code == 126, *exit.Code == 127:
		return Cause{CauseProgramCannotBeRun, fmt.Sprintf(
			"the program cannot be run (exit code %d of a shell): check the launcher's setting vllm%s", *exit.Code, said)}
	}
	return Cause{CauseExited, fmt.Sprintf("the engine exited with code %d%s", *exit.Code, said)}
}

// tidy closes the gap that an empty group leaves in a message.
func tidy(message string) string {
	return strings.Join(strings.Fields(message), " ")
}

// short cuts a text from a log to a length that people read.
func short(text string) string {
	const most = 400
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return text
}
