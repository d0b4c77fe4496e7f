// Package simopts holds the stand-in's own options: what vLLM does not have and
// a test wants to set. Each is a flag --sim-NAME and an environment variable
// ENGINESIM_NAME (upper case, underscores); the flag wins.
package simopts

import "time"

// Settings are the stand-in's own options, sent whole to each process of the
// engine's tree.
type Settings struct {
	ImportTime  time.Duration // before there is a handler for SIGTERM
	LoadTime    time.Duration // how long a worker takes to load the model
	CompileTime time.Duration // how long it takes to compile the model; 0: it compiles nothing
	SleepTime   time.Duration // how long falling asleep takes
	WakeTime    time.Duration // how long waking takes
	TokenTime   time.Duration // between two tokens of an answer
	Tokens      int           // tokens of an answer that nothing cuts short
	DeadDelay   time.Duration // from the death of a child to the exit of the API server

	ResidueBytes uint64 // device memory a sleeping worker keeps
	WeightsBytes uint64 // host memory a worker really fills
	WeightsFile  string // read the weights from this file in place of making them

	CrashAtLoad, CrashAtReady, CrashAtSleep, CrashAtWake Crash
	HangAtLoad                                           Times
	HangAtSleep, HangAtWake, HangAtHealth                Times
	FailSleep, FailWake, FailWakeInPart                  Times
	HangAtReload, FailReload                             Times
	GarbledAfterWake, MuteAfterWake                      Times
	MuteAfter                                            time.Duration // from when on no request is answered; 0: none is left out
	OnceFile                                             string

	HealthLies bool // /health says 200 also when the engine is dead
	ReusePort  bool // share the port as older releases of vLLM do
	TermWaits  bool // SIGTERM leaves requests in flight open, and waits for them
	IgnoreTerm bool
	Stray      string // how a further worker leaves: group, session, double-fork
	StrayEnv   string // keep or clear
	StrayBytes uint64 // device memory it holds

	FreeLateAfterSleep, FreeLateAfterExit time.Duration

	LogLines    int    // further log lines while loading
	LogNotUTF8  int    // further log lines with bytes that are not UTF-8
	LogLongLine uint64 // length of one further log line

	OutOfMemory bool // fail the start as one that runs out of device memory
	Gated       bool // fail the start as one of a gated model
	MaxModelLen int  // the model's own limit
}

// Defaults are the settings of an engine that is well.
func Defaults() Settings {
	return Settings{
		Tokens:       16,
		DeadDelay:    300 * time.Millisecond,
		ResidueBytes: 3 << 29,
		StrayEnv:     "keep",
		MaxModelLen:  65536,
	}
}
