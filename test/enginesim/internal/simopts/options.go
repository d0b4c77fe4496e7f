package simopts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Option is one setting as flag, environment variable and documentation.
type Option struct {
	Name  string // without the leading --sim-
	Value string // what its value is, for people
	Doc   string
	set   func(*Settings, string) error
}

// Flag is the option's name on the command line.
func (o Option) Flag() string { return "--sim-" + o.Name }

// Env is the option's name in the environment.
func (o Option) Env() string {
	return "ENGINESIM_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
}

// Set reads value into s.
func (o Option) Set(s *Settings, value string) error {
	if err := o.set(s, value); err != nil {
		return fmt.Errorf("argument %s: %w", o.Flag(), err)
	}
	return nil
}

// FromEnv applies the options that getenv knows to s.
func FromEnv(s *Settings, getenv func(string) string) error {
	for _, o := range Options {
		if v := getenv(o.Env()); v != "" {
			if err := o.Set(s, v); err != nil {
				return fmt.Errorf("cannot read %s: %w", o.Env(), err)
			}
		}
	}
	return nil
}

// Options are all of them, in the order that help shows.
var Options = []Option{
	{"import-time", "DURATION", "time before the process handles SIGTERM, which until then ends it at once", duration(func(s *Settings) *time.Duration { return &s.ImportTime })},
	{"load-time", "DURATION", "loading takes so long", duration(func(s *Settings) *time.Duration { return &s.LoadTime })},
	{"compile-time", "DURATION", "compiling takes so long, after loading, unless VLLM_CACHE_ROOT has what an engine of the same model compiled; it is kept there", duration(func(s *Settings) *time.Duration { return &s.CompileTime })},
	{"sleep-time", "DURATION", "falling asleep takes so long", duration(func(s *Settings) *time.Duration { return &s.SleepTime })},
	{"wake-time", "DURATION", "waking takes so long", duration(func(s *Settings) *time.Duration { return &s.WakeTime })},
	{"token-time", "DURATION", "time between two tokens of an answer", duration(func(s *Settings) *time.Duration { return &s.TokenTime })},
	{"tokens", "N", "tokens of an answer that neither max_tokens nor a stop string cuts short", number(func(s *Settings) *int { return &s.Tokens })},
	{"max-model-len", "N", "the longest context the model can do", number(func(s *Settings) *int { return &s.MaxModelLen })},
	{"residue", "BYTES", "device memory that a sleeping worker keeps", bytes(func(s *Settings) *uint64 { return &s.ResidueBytes })},
	{"weights-bytes", "BYTES", "host memory that each worker really fills; kept at sleep level 1, dropped at level 2", bytes(func(s *Settings) *uint64 { return &s.WeightsBytes })},
	{"weights-file", "PATH", "read the weights from this file, which is made sparse with that size when it is not there", text(func(s *Settings) *string { return &s.WeightsFile })},
	{"crash-at-load", "CRASH", "crash while loading", crash(func(s *Settings) *Crash { return &s.CrashAtLoad })},
	{"crash-at-ready", "CRASH", "crash when ready", crash(func(s *Settings) *Crash { return &s.CrashAtReady })},
	{"crash-at-sleep", "CRASH", "crash when told to sleep", crash(func(s *Settings) *Crash { return &s.CrashAtSleep })},
	{"crash-at-wake", "CRASH", "crash when told to wake", crash(func(s *Settings) *Crash { return &s.CrashAtWake })},
	{"hang-at-load", "TIMES", "never become ready", times(func(s *Settings) *Times { return &s.HangAtLoad })},
	{"hang-at-sleep", "TIMES", "never answer /sleep", times(func(s *Settings) *Times { return &s.HangAtSleep })},
	{"hang-at-wake", "TIMES", "never answer /wake_up", times(func(s *Settings) *Times { return &s.HangAtWake })},
	{"hang-at-health", "TIMES", "never answer /health", times(func(s *Settings) *Times { return &s.HangAtHealth })},
	{"fail-sleep", "TIMES", "answer /sleep with 500 and stay awake", times(func(s *Settings) *Times { return &s.FailSleep })},
	{"fail-wake", "TIMES", "answer /wake_up with 500 and stay asleep", times(func(s *Settings) *Times { return &s.FailWake })},
	{"fail-wake-in-part", "TIMES", "answer /wake_up with 500, with the weights awake and the rest asleep, as when one of several workers fails", times(func(s *Settings) *Times { return &s.FailWakeInPart })},
	{"garbled-after-wake", "TIMES", "answer requests with garbage after /wake_up; all else is well", times(func(s *Settings) *Times { return &s.GarbledAfterWake })},
	{"mute-after-wake", "TIMES", "answer no request for an answer after /wake_up; all else is well", times(func(s *Settings) *Times { return &s.MuteAfterWake })},
	{"mute-after", "DURATION", "answer no request for an answer any more, so long after the engine is ready; all else is well", duration(func(s *Settings) *time.Duration { return &s.MuteAfter })},
	{"hang-at-reload", "TIMES", "never answer the reload of the weights that follows sleep level 2", times(func(s *Settings) *Times { return &s.HangAtReload })},
	{"fail-reload", "TIMES", "answer that reload with 500", times(func(s *Settings) *Times { return &s.FailReload })},
	{"once-file", "PATH", "crashes and a hang while loading happen once only among the engines that share this file; it is made when one does", text(func(s *Settings) *string { return &s.OnceFile })},
	{"health-lies", "BOOL", "answer /health with 200 also while the engine is dead", boolean(func(s *Settings) *bool { return &s.HealthLies })},
	{"reuse-port", "BOOL", "set SO_REUSEPORT with a single API server too, as older releases of vLLM do, so that two engines share a port in silence", boolean(func(s *Settings) *bool { return &s.ReusePort })},
	{"term-waits", "BOOL", "on SIGTERM with requests in flight refuse new ones, leave those open without another word, and wait for the clients to go, as vLLM does now and then", boolean(func(s *Settings) *bool { return &s.TermWaits })},
	{"ignore-term", "BOOL", "ignore SIGTERM and SIGINT for good, in every process", boolean(func(s *Settings) *bool { return &s.IgnoreTerm })},
	{"stray", "group|session|double-fork", "one more worker, which leaves the process group, the session, or both and its parent too, and ignores SIGTERM", choice(func(s *Settings) *string { return &s.Stray }, "group", "session", "double-fork")},
	{"stray-env", "keep|clear", "whether that worker keeps its environment", choice(func(s *Settings) *string { return &s.StrayEnv }, "keep", "clear")},
	{"stray-bytes", "BYTES", "device memory that this worker holds", bytes(func(s *Settings) *uint64 { return &s.StrayBytes })},
	{"free-late-after-sleep", "DURATION", "device memory goes down so long after /sleep answered", duration(func(s *Settings) *time.Duration { return &s.FreeLateAfterSleep })},
	{"free-late-after-exit", "DURATION", "device memory counts as held so long after a worker that was asked to end did so", duration(func(s *Settings) *time.Duration { return &s.FreeLateAfterExit })},
	{"dead-delay", "DURATION", "from the death of a child to the exit of the API server (vLLM: 3 to 5 s)", duration(func(s *Settings) *time.Duration { return &s.DeadDelay })},
	{"log-lines", "N", "further log lines while loading", number(func(s *Settings) *int { return &s.LogLines })},
	{"log-not-utf8", "N", "further log lines with bytes that are not UTF-8", number(func(s *Settings) *int { return &s.LogNotUTF8 })},
	{"log-long-line", "BYTES", "one further log line of that length", bytes(func(s *Settings) *uint64 { return &s.LogLongLine })},
	{"oom", "BOOL", "run out of device memory while loading, exit 1", boolean(func(s *Settings) *bool { return &s.OutOfMemory })},
	{"gated", "BOOL", "fail as with a gated model and no token, exit 1", boolean(func(s *Settings) *bool { return &s.Gated })},
}

type setter = func(*Settings, string) error

func duration(field func(*Settings) *time.Duration) setter {
	return func(s *Settings, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return fmt.Errorf("invalid duration: %q", v)
		}
		*field(s) = d
		return nil
	}
}

func number(field func(*Settings) *int) setter {
	return func(s *Settings, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return fmt.Errorf("invalid number: %q", v)
		}
		*field(s) = n
		return nil
	}
}

// bytes reads a number of bytes, with an optional KiB, MiB or GiB.
func bytes(field func(*Settings) *uint64) setter {
	return func(s *Settings, v string) error {
		digits, shift := v, 0
		for unit, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
			if d, ok := strings.CutSuffix(v, unit); ok {
				digits, shift = d, bits
			}
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 64)
		if err != nil || n<<shift>>shift != n {
			return fmt.Errorf("invalid number of bytes: %q", v)
		}
		*field(s) = n << shift
		return nil
	}
}

func text(field func(*Settings) *string) setter {
	return func(s *Settings, v string) error {
		*field(s) = v
		return nil
	}
}

func boolean(field func(*Settings) *bool) setter {
	return func(s *Settings, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("invalid boolean: %q", v)
		}
		*field(s) = b
		return nil
	}
}

func choice(field func(*Settings) *string, among ...string) setter {
	return func(s *Settings, v string) error {
		if !slices.Contains(among, v) {
			return fmt.Errorf("invalid choice: %q (choose from %s)", v, strings.Join(among, ", "))
		}
		*field(s) = v
		return nil
	}
}

func times(field func(*Settings) *Times) setter {
	return func(s *Settings, v string) error {
		if v == "always" || v == "true" {
			*field(s) = Always
			return nil
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return fmt.Errorf("invalid number of times: %q (a number, or always)", v)
		}
		*field(s) = Times(n)
		return nil
	}
}

func crash(field func(*Settings) *Crash) setter {
	return func(s *Settings, v string) error {
		c, err := ParseCrash(v)
		if err != nil {
			return err
		}
		*field(s) = c
		return nil
	}
}
