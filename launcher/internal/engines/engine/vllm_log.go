package engine

import (
	"regexp"
	"strings"
)

// logLine is a line of vLLM's log without its prefixes.
type logLine struct {
	text     string
	depth    int  // of the process that wrote it: 0 API server, 1 EngineCore, 2 Worker
	harmless bool // logged as less than an error: the line may quote anything
}

type logLines []logLine

var (
	ansiColor = regexp.MustCompile("\x1b\\[[0-9;]*m")
	// "(EngineCore pid=7) " or, in releases of 2025, "(EngineCore_DP0 pid=7) " and
	// "(VllmWorker rank=1 pid=7) "
	processPrefix = regexp.MustCompile(`^\(([^)]*)\bpid=\d+[^)]*\) `)
	// "ERROR 11-21 09:28:44 [core.py:1366] "; uvicorn's is "INFO:     "
	levelPrefix = regexp.MustCompile(`^(DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::| \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\]) ?`)
	// The last line of a stack trace; for an exception of pydantic, the line after
	// it.
	exception = regexp.MustCompile(`^(?:([A-Za-z_][\w.]*(?:Error|Exception): .+)|  (?:Value error, )?(.+?) \[type=.*)$`)
	// One call of a stack trace: the last one before an exception is where that was
	// raised.
	stackFrame = regexp.MustCompile(`^ +File "(?:.*/(?:site-packages|python[0-9.]+)/)?([^"]+)", line (\d+), in `)
	// The first line of an exception of pydantic, before the lines that say what is
	// wrong.
	heading = regexp.MustCompile(`: \d+ validation errors? for `)
	// Lines of a process that only noticed that another one failed.
	noticed = regexp.MustCompile(`EngineDeadError|Engine core initialization failed|WorkerProc initialization failed|: cancelled$`)
)

// readLog strips the log's prefixes.
func readLog(tail []string) logLines {
	var lines logLines
	for _, line := range tail {
		line = strings.TrimRight(ansiColor.ReplaceAllString(line, ""), "\r\n")
		var l logLine
		if process := processPrefix.FindStringSubmatch(line); process != nil {
			l.depth = depthOf(process[1])
			line = line[len(process[0]):]
		}
		if level := levelPrefix.FindStringSubmatch(line); level != nil {
			l.harmless = level[1] != "ERROR" && level[1] != "CRITICAL"
			line = line[len(level[0]):]
		}
		l.text = line
		lines = append(lines, l)
	}
	return lines
}

func depthOf(process string) int {
	switch {
	case strings.Contains(process, "Worker"):
		return 2
	case strings.Contains(process, "EngineCore"):
		return 1
	}
	return 0
}

// complaints are the lines that were not logged as harmless.
func (lines logLines) complaints() (out logLines) {
	for _, line := range lines {
		if !line.harmless {
			out = append(out, line)
		}
	}
	return out
}

// rootException is the first exception of the innermost process that has one: later
// exceptions, of that process and of the processes around it, follow from the
// first. An exception that another one led to is printed after that one (PEP 3134).
// Where the stack trace is there too, the place that raised the exception is told.
func (lines logLines) rootException() string {
	first, depth, frame := "", -1, ""
	for _, line := range lines {
		if m := stackFrame.FindStringSubmatch(line.text); m != nil {
			frame = " (" + m[1] + ", line " + m[2] + ")"
			continue
		}
		m := exception.FindStringSubmatch(line.text)
		switch {
		case m == nil || line.depth <= depth:
		case noticed.MatchString(line.text), heading.MatchString(line.text):
		default:
			first, depth = m[1]+m[2]+frame, line.depth
		}
		if m != nil {
			frame = ""
		}
	}
	return first
}
