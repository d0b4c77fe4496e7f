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
	if cause, ok := exit.fromOutside(); ok {
		return cause
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
	pattern := s.pattern()
	for _, line := range lines {
		if m := pattern.FindStringSubmatchIndex(line.text); m != nil {
			return Cause{s.code, short(tidy(string(pattern.ExpandString(nil, s.message, line.text, m))))}, true
		}
	}
	return Cause{}, false
}

// fromOutside is the cause of an end that another process or the kernel brought about.
func (e Exit) fromOutside() (Cause, bool) {
	if e.OOMKilled {
		return Cause{CauseKilledForMemory, "the kernel killed the engine because it reached its memory limit: raise the limit, or let fewer models sleep in main memory"}, true
	}
	if signal := unix.Signal(e.Signal); slices.Contains(outsideSignals, signal) {
		return Cause{CauseKilled, killedMessage(signal)}, true
	}
	return Cause{}, false
}

// outsideSignals are the signals that no program sends itself when it crashes.
var outsideSignals = []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP}

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
	return exit.plain("vllm", said)
}

// plain is the cause of which nothing is known but the exit and perhaps what the engine said.
// setting is that of the engine's program.
func (e Exit) plain(setting, said string) Cause {
	switch {
	case e.Signal != 0:
		return Cause{CauseKilled, "the engine crashed with " + unix.SignalName(unix.Signal(e.Signal)) + said}
	case e.Code == nil:
		return Cause{CauseExited, "the engine ended with an unknown exit status" + said}
	case *e.Code == 126, *e.Code == 127:
		return Cause{CauseProgramCannotBeRun, fmt.Sprintf(
			"the program cannot be run (exit code %d of a shell): check the launcher's setting %s%s", *e.Code, setting, said)}
	}
	return Cause{CauseExited, fmt.Sprintf("the engine exited with code %d%s", *e.Code, said)}
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
