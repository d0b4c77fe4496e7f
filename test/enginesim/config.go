package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"hotseat.dev/hotseat/spec/simgpu"
	"hotseat.dev/hotseat/test/enginesim/internal/cmdline"
	"hotseat.dev/hotseat/test/enginesim/internal/simopts"
	"hotseat.dev/hotseat/test/enginesim/internal/tree"
	"hotseat.dev/hotseat/test/enginesim/internal/vlog"
)

// config is what the command line and the environment come to.
type config struct {
	model           string
	names           []string // served names
	host, uds       string
	port            int
	reusePort       bool
	tp, pp, dp      int
	nodes, node     int    // --nnodes, --node-rank
	masterAddr      string // of the entry
	masterPort      int
	headless        bool
	utilization     float64
	maxModelLen     int
	maxLogprobs     int
	pooling         bool // --runner pooling
	slots           int  // --max-num-seqs
	seed            int64
	rootPath        string
	apiKeys         []string
	devMode         bool
	sleepMode       bool
	trackLoad       bool
	accessLog       bool
	keepAlive       time.Duration
	shutdownTimeout time.Duration
	nonDefault      string // the arguments given, as vLLM logs them
	sim             simopts.Settings
}

// Defaults of vLLM 0.30.
const (
	defaultModel       = "Qwen/Qwen3-0.6B"
	defaultPort        = 8000
	defaultMasterPort  = 29501
	defaultUtilization = 0.92
	defaultSlots       = 256
	defaultKeepAlive   = 5 // seconds
)

// unsupported are options of vLLM that change what a client or a supervisor
// sees and that the stand-in does not know.
var unsupported = []string{"ssl_keyfile", "ssl_certfile", "grpc"}

func configure(args []string, log *vlog.Logger) (*config, error) {
	c := &config{sim: simopts.Defaults()}
	if err := simopts.FromEnv(&c.sim, os.Getenv); err != nil {
		return nil, &cmdline.UsageError{Prog: "vllm serve", Message: err.Error()}
	}
	given, err := cmdline.NewParser(simOptions()).Parse(args)
	if err != nil {
		return nil, err
	}
	for _, w := range given.Warnings {
		log.Warn("argparse_utils.py:441", "%s", w)
	}
	for _, dest := range unsupported {
		if given.Has(dest) {
			return nil, &cmdline.UsageError{Prog: "vllm serve", Message: fmt.Sprintf("enginesim does not know --%s; use vLLM itself", strings.ReplaceAll(dest, "_", "-"))}
		}
	}
	for _, o := range simopts.Options {
		if v := given.Str(dest(o), ""); v != "" {
			if err := o.Set(&c.sim, v); err != nil {
				return nil, &cmdline.UsageError{Prog: "vllm serve", Message: err.Error()}
			}
		}
	}
	c.read(given)
	return c, nil
}

// read fills c from what was given.
func (c *config) read(given *cmdline.Args) {
	c.model = given.ModelTag
	if c.model == "" {
		c.model = given.Str("model", defaultModel)
	}
	c.names = given.Values["served_model_name"]
	if len(c.names) == 0 {
		c.names = []string{c.model}
	}
	c.host, c.port, c.uds = given.Str("host", ""), given.Int("port", defaultPort), given.Str("uds", "")
	c.tp, c.pp = given.Int("tensor_parallel_size", 1), given.Int("pipeline_parallel_size", 1)
	c.nodes, c.node, c.headless = given.Int("nnodes", 1), given.Int("node_rank", 0), given.Bool("headless")
	c.masterAddr, c.masterPort = given.Str("master_addr", "127.0.0.1"), given.Int("master_port", defaultMasterPort)
	c.dp = given.Int("data_parallel_size_local", given.Int("data_parallel_size", 1))
	// One API server binds its port alone; several share it.
	c.reusePort = c.sim.ReusePort || given.Int("api_server_count", c.dp) > 1
	c.utilization = given.Float("gpu_memory_utilization", defaultUtilization)
	c.slots, c.seed = given.Int("max_num_seqs", defaultSlots), int64(given.Int("seed", 0))
	c.maxLogprobs, c.pooling = given.Int("max_logprobs", 20), given.Str("runner", "auto") == "pooling"
	c.maxModelLen = given.Int("max_model_len", -1)
	if c.maxModelLen < 0 {
		c.maxModelLen = c.sim.MaxModelLen
	}
	c.rootPath = given.Str("root_path", "")
	c.apiKeys = given.Values["api_key"]
	if key := os.Getenv("VLLM_API_KEY"); len(c.apiKeys) == 0 && key != "" {
		c.apiKeys = []string{key}
	}
	c.devMode = os.Getenv("VLLM_SERVER_DEV_MODE") == "1"
	c.sleepMode = given.Bool("enable_sleep_mode")
	c.trackLoad = given.Bool("enable_server_load_tracking")
	level := given.Str("uvicorn_log_level", "info")
	c.accessLog = !given.Bool("disable_uvicorn_access_log") && !slices.Contains([]string{"warning", "error", "critical"}, level)
	c.keepAlive = time.Duration(seconds(os.Getenv("VLLM_HTTP_TIMEOUT_KEEP_ALIVE"), defaultKeepAlive)) * time.Second
	c.shutdownTimeout = time.Duration(given.Int("shutdown_timeout", 0)) * time.Second
	c.nonDefault = python(given)
}

func seconds(value string, otherwise int) int {
	if n, err := strconv.Atoi(value); err == nil {
		return n
	}
	return otherwise
}

// python writes the arguments as Python writes a dictionary, keys hidden.
func python(given *cmdline.Args) string {
	items := []string{fmt.Sprintf("'model_tag': '%s'", given.ModelTag)}
	for _, dest := range given.Dests() {
		value := "'" + strings.Join(given.Values[dest], "', '") + "'"
		if len(given.Values[dest]) > 1 || dest == "served_model_name" {
			value = "[" + value + "]"
		}
		if dest == "api_key" {
			value = "'***'"
		}
		items = append(items, fmt.Sprintf("'%s': %s", dest, value))
	}
	return "{" + strings.Join(items, ", ") + "}"
}

// simOptions are the stand-in's own options as the command line sees them.
func simOptions() []*cmdline.Option {
	var options []*cmdline.Option
	for _, o := range simopts.Options {
		options = append(options, &cmdline.Option{Names: []string{o.Flag()}, Arity: cmdline.Optional})
	}
	return options
}

func dest(o simopts.Option) string {
	return strings.ReplaceAll(strings.TrimPrefix(o.Flag(), "--"), "-", "_")
}

func (c *config) boot() tree.Boot {
	gpus := os.Getenv(simgpu.EnvDir)
	visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	if set && visible == "" { // for CUDA, that is no device
		gpus = ""
	}
	return tree.Boot{
		Model: c.names[0], Path: c.model, Utilization: c.utilization, TP: c.tp, PP: c.pp, DP: c.dp, Nodes: c.nodes, Node: c.node,
		GPUDir: gpus, Visible: visible, API: os.Getpid(), Settings: c.sim,
	}
}
