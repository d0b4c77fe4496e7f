// Package config reads the configuration of `launcher serve`. A setting is taken
// from its flag, else from its environment variable, else from the configuration
// file, else from its default. One table has all four.
package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// Config is the whole configuration, checked. The help of the table says more
// about each setting. Paths are absolute, no duration and no number is
// negative.
type Config struct {
	File           string // the configuration file; empty: none. Package catalogue reads its models
	Listen         string // host:port
	GPUs           string // as package gpu reads it
	VisibleGPUs    []string
	StateDir       string
	VLLM           string // program; empty: vllm on PATH
	LlamaServer    string // program; empty: llama-server on PATH, if it is there
	TokenFile      string // empty: no token is asked for
	TLSCert        string // with TLSKey; both empty: plain HTTP
	TLSKey         string
	ClientCA       string // empty: no certificate is asked for
	InsecurePublic bool
	PublicMetrics  bool
	InstanceHost   string // without a port
	RankAddress    string // empty: InstanceHost, unless that stands for every address
	Cgroups        string // auto, v2, v1 or none

	FrontDoor          string // host:port; empty: there is none
	FrontDoorAsked     bool   // it is not the default
	FrontDoorTokenFile string // empty: no token is asked for
	FrontDoorOpen      bool   // other machines may call without a token
	FrontDoorTurn      time.Duration
	OnExit             string // stop or leave

	StartTimeout  time.Duration
	SleepTimeout  time.Duration
	WakeTimeout   time.Duration
	StopGrace     time.Duration
	StartingGrace time.Duration
	DrainTimeout  time.Duration
	MemoryTimeout time.Duration
	HoldTimeout   time.Duration

	Fingerprint        bool // compare the answers of engines that have woken
	FingerprintTimeout time.Duration
	HangTimeout        time.Duration // 0: engines that hang are not ended

	MaxHeldRequests int // per instance
	WatchBuffer     int // events, above 0

	LogMaxBytes int64         // 0: no limit
	LogMaxFiles int           // 0: no limit
	LogMaxAge   time.Duration // 0: no limit
	LogLevel    slog.Level
	LogFormat   string // text or json

	EnvFileDirs     []string
	LLMDCompat      bool
	EnableSleepMode string // auto, always or never
	EngineSocket    string // auto, always or never

	StartMethod        string // auto, exec or fork
	PreloadPython      string // empty: the Python of the vllm command
	PreloadMemoryLimit uint64 // bytes, of all preloaders; 0: no limit
	PreloadIdleTimeout time.Duration

	ModelStore          string            // folder; empty: none
	ModelUser           string            // empty: named by the state folder
	ModelStorageLimit   int64             // bytes; 0: no limit
	ModelRetention      string            // keep or lru
	ModelSources        []string          // SCHEME=PROGRAM, of schemes that modelfetch does not have
	ModelClaims         map[string]string // where volumes with models are mounted, by their names
	ModelStreams        int               // above 0
	ModelBytesPerSecond int64             // of each pull; 0: no limit
	ModelFetchMemory    int64             // bytes, of each pull, at least minFetchMemory; 0: no limit

	CompileCache      string // auto, always or off
	CompileCacheLimit int64  // bytes; 0: no limit

	Budgets launcherapi.Budget
}

// minFetchMemory is what modelfetch takes with what it is about to write.
const minFetchMemory = 64 << 20

// Error is a mistake in the configuration, in one line: where the mistake is, what
// is wrong and what would be right.
type Error struct {
	// Where is the flag, the environment variable, or the file with line and,
	// where it is known, key ("hotseat.yaml:3: listen").
	Where   string
	Problem string
}

func (e *Error) Error() string {
	return strings.Join(strings.Fields(e.Where+": "+e.Problem), " ")
}

// StopsEngines reports whether the launcher stops the engines when it is told to end.
// Otherwise it leaves them running.
func (c *Config) StopsEngines() bool { return c.OnExit == "stop" }

// check finds mistakes that show only between settings. where tells where a setting
// was made.
func (c *Config) check(where func(key string) string) error {
	if n := c.ModelFetchMemory; n > 0 && n < minFetchMemory {
		return &Error{where("model_fetch_memory"), fmt.Sprintf("must be 0, for no limit, or at least 64MiB, which modelfetch needs for itself, not %d", n)}
	}
	if c.FrontDoor != "" && !isLoopback(c.FrontDoor) && c.FrontDoorTokenFile == "" && !c.FrontDoorOpen {
		return &Error{where("front_door"), c.FrontDoor + " can be reached from other machines, and there is no token: " +
			"give one with --front-door-token-file, serve at 127.0.0.1, or allow it with --front-door-open"}
	}
	if c.InsecurePublic || c.TokenFile != "" || c.ClientCA != "" {
		return nil
	}
	if !isLoopback(c.Listen) {
		return &Error{where("listen"), c.Listen + " can be reached from other machines, and there is no token: " +
			"give one with --token-file, ask for certificates with --client-ca, listen on 127.0.0.1, or allow it with --insecure-public"}
	}
	return nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// defaultStateDir follows the XDG base directory specification for a user, and
// the Filesystem Hierarchy Standard for root.
func defaultStateDir(uid int, env func(string) (string, bool)) (string, error) {
	if uid == 0 {
		return "/var/lib/hotseat", nil
	}
	// A relative path there is to be ignored, the specification says.
	if dir, _ := env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "hotseat"), nil
	}
	if home, _ := env("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "hotseat"), nil
	}
	return "", &Error{flagName("state_dir"), "there is no default without HOME or XDG_STATE_HOME: name the folder"}
}

// readFile reads the configuration file.
func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		if pathErr := (*os.PathError)(nil); errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return nil, &Error{path, "cannot read the configuration file: " + err.Error()}
	}
	return data, nil
}
