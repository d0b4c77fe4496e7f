package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"hotseat.dev/hotseat/launcher/internal/engines/rank"
)

// settings are what the launcher reads from the arguments of vLLM.
type settings struct {
	model       string
	revision    string
	servedNames []string
	host        string
	port        int
	tp, pp, pcp int
	dp          int
	dpLocal     *int
	dpAlone     bool // this server is one rank of any number
	utilization float64
	sleepMode   *bool
	apiKeys     []string
	deviceIDs   bool
	// What keeps vLLM from compiling: --enforce-eager, -O0, and the mode of
	// --compilation-config.
	eager, unoptimized, uncompiled bool

	ranked bool // the engine is one rank of a server over several launchers
}

// The defaults of vLLM 0.30.0: vllm/config/parallel.py and vllm/config/cache.py.
// Releases before 0.20 had a memory utilization of 0.9.
const (
	vllmDefaultModel       = "Qwen/Qwen3-0.6B"
	vllmDefaultUtilization = 0.92
)

func defaultSettings() settings {
	return settings{tp: 1, pp: 1, pcp: 1, dp: 1, utilization: vllmDefaultUtilization}
}

// localRanks is how many data parallel ranks run in this server
// (EngineArgs.create_engine_config).
func (s *settings) localRanks() int {
	switch {
	case s.dpAlone:
		return 1
	case s.dpLocal != nil:
		return *s.dpLocal
	}
	return s.dp
}

// vllmShort maps short forms to the long names of flags that are read.
var vllmShort = map[string]string{
	"-tp":  "--tensor-parallel-size",
	"-pp":  "--pipeline-parallel-size",
	"-pcp": "--prefill-context-parallel-size",
	"-dp":  "--data-parallel-size",
	"-dpl": "--data-parallel-size-local",
	"-dpn": "--data-parallel-rank",
	"-dpe": "--data-parallel-external-lb",
	"-dpm": "--data-parallel-multi-port-external-lb",
	"-n":   "--nnodes",
	"-r":   "--node-rank",
	"-asc": "--api-server-count",
}

// reader takes one flag's values into the settings.
type reader func(s *settings, it item) error

// vllmReaders is every flag that matters to the launcher.
var vllmReaders = map[string]reader{
	"--model":             text(func(s *settings, v string) { s.model = v }),
	"--revision":          text(func(s *settings, v string) { s.revision = v }),
	"--served-model-name": texts(func(s *settings, v []string) { s.servedNames = v }),
	"--host":              text(func(s *settings, v string) { s.host = v }),
	"--port":              number(0, 65535, func(s *settings, n int) { s.port = n }),
	"--config":            text(func(*settings, string) {}), // readConfigOf reads it
	"--api-key":           texts(func(s *settings, v []string) { s.apiKeys = v }),

	"--tensor-parallel-size":          number(1, maxRanks, func(s *settings, n int) { s.tp = n }),
	"--pipeline-parallel-size":        number(1, maxRanks, func(s *settings, n int) { s.pp = n }),
	"--prefill-context-parallel-size": number(1, maxRanks, func(s *settings, n int) { s.pcp = n }),
	"--data-parallel-size":            inOneServer(number(1, maxRanks, func(s *settings, n int) { s.dp = n })),
	"--data-parallel-size-local":      inOneServer(number(0, maxRanks, func(s *settings, n int) { s.dpLocal = &n })),
	"--data-parallel-rank":            inOneServer(text(func(s *settings, _ string) { s.dpAlone = true })),
	"--data-parallel-external-lb":     inOneServer(noValue(func(s *settings) { s.dpAlone = true })),
	"--no-data-parallel-external-lb":  noValue(func(s *settings) { s.dpAlone = false }),
	"--data-parallel-hybrid-lb":       unlessRanked(noValue(func(*settings) {})),
	"--data-parallel-start-rank":      unlessRanked(text(func(*settings, string) {})),

	"--gpu-memory-utilization": share(func(s *settings, x float64) { s.utilization = x }),
	"--enable-sleep-mode":      noValue(func(s *settings) { s.sleepMode = new(true) }),
	"--no-enable-sleep-mode":   noValue(func(s *settings) { s.sleepMode = new(false) }),
	"--device-ids":             text(func(s *settings, _ string) { s.deviceIDs = true }),

	// Flags that would change the meaning of a port or a path: decision 0015 goes
	// through all flags of the server.
	"--root-path":          refuse("it has the engine answer at other paths, so that the public port would let its developer endpoints through"),
	"--middleware":         refuse("it stands before the engine's paths and may rewrite them, so that nobody could say what the public port lets through"),
	"--uds":                refuse("the launcher owns the engine's address"),
	"--ssl-keyfile":        refuse(noTLS),
	"--ssl-certfile":       refuse(noTLS),
	"--ssl-ca-certs":       refuse(noTLS),
	"--ssl-cert-reqs":      refuse(noTLS),
	"--ssl-ciphers":        refuse(noTLS),
	"--enable-ssl-refresh": refuse(noTLS),
	"--headless":           refuse("without an API server nobody can reach the engine; " + byRank),
	"--grpc":               refuse("the launcher speaks HTTP to the engine"),
	"--data-parallel-multi-port-external-lb": refuse(
		"it opens one server for each rank, each on a port of its own; make one instance for each instead"),
	"--nnodes": onlyOne("an instance lives on one node; " + byRank),

	// Flags that the launcher writes for a rank.
	"--node-rank":                    unranked,
	"--master-addr":                  unranked,
	"--master-port":                  unranked,
	"--distributed-executor-backend": executorOfRank,
	"--api-server-count": number(1, 1024, func(*settings, int) {
		// No API server at all would be the same as --headless.
	}),
}

const (
	byRank   = "for an instance with rank in the body of its call, the launcher writes it"
	maxRanks = 1 << 16
	noTLS    = "the launcher speaks plain HTTP to the engine, and TLS ends before it"
)

// vllmReadNames are the spellings that a flag may abbreviate, sorted.
var vllmReadNames = slices.Sorted(slices.Values(slices.AppendSeq(
	slices.Collect(maps.Keys(vllmReaders)), maps.Keys(vllmShort))))

// read takes one item into the settings.
func (s *settings) read(it item) error {
	read, ok := vllmReaders[it.flag]
	if !ok {
		if strings.HasPrefix(it.flag, "--ssl-") { // a flag of another release
			return refuse(noTLS)(s, it)
		}
		return nil
	}
	if it.dotted {
		return inputError("", it.flag, "%s takes no keys: write %s VALUE", it.flag, it.flag)
	}
	return read(s, it)
}

// valued is for flags that need a value.
func valued(read reader) reader {
	return func(s *settings, it item) error {
		if len(it.values) == 0 {
			return inputError("", it.flag, "%s needs a value", it.flag)
		}
		return read(s, it)
	}
}

func text(set func(*settings, string)) reader {
	return valued(func(s *settings, it item) error {
		set(s, it.values[0])
		return nil
	})
}

func texts(set func(*settings, []string)) reader {
	return valued(func(s *settings, it item) error {
		set(s, it.values)
		return nil
	})
}

func number(least, most int, set func(*settings, int)) reader {
	return valued(func(s *settings, it item) error {
		n, err := strconv.Atoi(strings.TrimSpace(it.values[0]))
		if err != nil || n < least || n > most {
			return inputError("", it.flag, "%s must be a whole number from %d to %d, not %q", it.flag, least, most, it.values[0])
		}
		set(s, n)
		return nil
	})
}

func share(set func(*settings, float64)) reader {
	return valued(func(s *settings, it item) error {
		x, err := strconv.ParseFloat(strings.TrimSpace(it.values[0]), 64)
		if err != nil || !(x > 0 && x <= 1) {
			return inputError("", it.flag, "%s must be a number above 0 and at most 1, not %q", it.flag, it.values[0])
		}
		set(s, x)
		return nil
	})
}

// noValue is for flags that take no value.
func noValue(set func(*settings)) reader {
	return func(s *settings, it item) error {
		if it.inline {
			return inputError("", it.flag, "%s takes no value: leave out %q", it.flag, "="+it.values[0])
		}
		set(s)
		return nil
	}
}

func refuse(why string) reader {
	return func(_ *settings, it item) error {
		return inputError("", it.flag, "%s cannot be used: %s; leave it out", it.flag, why)
	}
}

// unranked is for flags that the launcher writes for a rank. Another engine may have them.
func unranked(s *settings, it item) error {
	if s.ranked {
		return refuse("the launcher writes it, from rank in the body of the call")(s, it)
	}
	return nil
}

// executorOfRank refuses another executor than that of ranks.
func executorOfRank(s *settings, it item) error {
	if s.ranked && !slices.Equal(it.values, []string{rank.Executor}) {
		return refuse("the ranks of a server are executed by "+rank.Executor)(s, it)
	}
	return nil
}

// inOneServer is for flags of data parallelism, which ranks cannot have.
func inOneServer(read reader) reader {
	return func(s *settings, it item) error {
		if err := read(s, it); err != nil || !s.ranked || s.dp == 1 && !s.dpAlone && (s.dpLocal == nil || *s.dpLocal == 1) {
			return err
		}
		return notDataParallel(s, it)
	}
}

var notDataParallel = refuse("a server with ranks cannot be data parallel as well; make a server for each replica")

// unlessRanked refuses a flag of data parallelism for a rank.
func unlessRanked(read reader) reader {
	return func(s *settings, it item) error {
		if s.ranked {
			return notDataParallel(s, it)
		}
		return read(s, it)
	}
}

// onlyOne accepts 1 and refuses every other number. A rank may not have the flag at all.
func onlyOne(why string) reader {
	return valued(func(s *settings, it item) error {
		if s.ranked {
			return unranked(s, it)
		}
		if strings.TrimSpace(it.values[0]) == "1" {
			return nil
		}
		return refuse(why)(s, it)
	})
}
