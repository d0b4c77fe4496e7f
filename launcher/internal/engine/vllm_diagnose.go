package engine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Diagnose explains an exit. The real cause stands up to 200 lines before the
// end of vLLM's log, above the stack traces of the processes that only noticed
// it: give some 400 lines.
func (*VLLM) Diagnose(exit Exit, tail []string) Cause {
	if exit.OOMKilled {
		return Cause{CauseKilledForMemory, "the kernel killed it since its memory limit was reached: raise the limit, or let fewer models sleep in host memory"}
	}
	if signal := unix.Signal(exit.Signal); slices.Contains(fromOutside, signal) {
		return Cause{CauseKilled, killedMessage(signal)}
	}
	lines := complaints(tail)
	for _, s := range vllmSymptoms {
		for _, line := range lines {
			if m := s.pattern.FindStringSubmatchIndex(line); m != nil {
				return Cause{s.code, short(tidy(string(s.pattern.ExpandString(nil, s.message, line, m))))}
			}
		}
	}
	return withoutSymptom(exit, lines)
}

// fromOutside are the signals that no program sends itself when it crashes.
var fromOutside = []unix.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGINT, unix.SIGHUP}

func killedMessage(signal unix.Signal) string {
	text := fmt.Sprintf("it was killed from outside by %s", unix.SignalName(signal))
	if signal == unix.SIGKILL {
		text += ": where the launcher cannot see it, that may be the kernel, for want of memory (dmesg)"
	}
	return text
}

// withoutSymptom says what is left to say when no line is known.
func withoutSymptom(exit Exit, lines []string) Cause {
	said := ""
	if e := lastException(lines); e != "" {
		said = "; the last error is: " + short(e)
	}
	switch {
	case engineDied(lines):
		return Cause{CauseEngineCoreDied, "a process of the engine died: see the log above its last stack trace" + said}
	case exit.Signal != 0:
		return Cause{CauseKilled, "it crashed with " + unix.SignalName(unix.Signal(exit.Signal)) + said}
	case exit.Code == nil:
		return Cause{CauseExited, "it ended, with an exit status that nobody saw" + said}
	case *exit.Code == 126, *exit.Code == 127:
		return Cause{CauseProgramCannotBeRun, fmt.Sprintf(
			"the program cannot be run (exit code %d of a shell): check the launcher's setting vllm%s", *exit.Code, said)}
	}
	return Cause{CauseExited, fmt.Sprintf("it exited with code %d%s", *exit.Code, said)}
}

var (
	ansiColor = regexp.MustCompile("\x1b\\[[0-9;]*m")
	// "(EngineCore pid=7) " or, in releases of 2025, "(VllmWorker rank=1 pid=7) "
	processPrefix = regexp.MustCompile(`^\([^)]*\bpid=\d+[^)]*\) `)
	// "ERROR 11-21 09:28:44 [core.py:1366] "; uvicorn's is "INFO:     "
	levelPrefix = regexp.MustCompile(`^(DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::| \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\]) ?`)
	// The last line of a stack trace; where pydantic raised it, the next one.
	exception = regexp.MustCompile(`^(?:([A-Za-z_][\w.]*(?:Error|Exception): .+)|  (?:Value error, )?(.+?) \[type=.*)$`)
	// What a process says when it only noticed that another one failed.
	noticed = regexp.MustCompile(`EngineDeadError|Engine core initialization failed|WorkerProc initialization failed|: cancelled$`)
)

// complaints strips the log's prefixes, and leaves out what was logged as
// harmless: it may quote anything.
func complaints(tail []string) []string {
	var lines []string
	for _, line := range tail {
		line = strings.TrimRight(ansiColor.ReplaceAllString(line, ""), "\r\n")
		line = processPrefix.ReplaceAllString(line, "")
		if level := levelPrefix.FindStringSubmatch(line); level != nil {
			if level[1] != "ERROR" && level[1] != "CRITICAL" {
				continue
			}
			line = line[len(level[0]):]
		}
		lines = append(lines, line)
	}
	return lines
}

// lastException is the last exception that is not about another process.
func lastException(lines []string) string {
	last := ""
	for _, line := range lines {
		if m := exception.FindStringSubmatch(line); m != nil && !noticed.MatchString(line) {
			last = m[1] + m[2]
		}
	}
	return last
}

func engineDied(lines []string) bool {
	for _, line := range lines {
		if strings.Contains(line, "EngineDeadError") || strings.Contains(line, "Engine core initialization failed") {
			return true
		}
	}
	return false
}

// tidy closes the gap that an empty group leaves.
func tidy(message string) string {
	return strings.Join(strings.Fields(message), " ")
}

// short cuts what a log line brought in to a length that people read.
func short(text string) string {
	const most = 400
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return text
}
