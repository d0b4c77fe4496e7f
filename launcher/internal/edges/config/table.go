package config

import "strings"

// setting is a row of the table.
type setting struct {
	// key is the name in the file, with a dot between a section and a name in
	// it. The names of the flag and of the environment variable follow from it.
	key string
	// standard is the default, written as for the flag.
	standard string
	help     string
	value    value
}

func flagName(key string) string { return "--" + strings.NewReplacer("_", "-", ".", "-").Replace(key) }

func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// section is settings that belong together, which help shows under its title.
type section struct {
	title    string
	settings []setting
}

// table gives all settings, bound to the fields of c.
func table(c *Config) []setting {
	var all []setting
	for _, s := range sections(c) {
		all = append(all, s.settings...)
	}
	return all
}

// sections gives all settings by what they are about, those first that are used most.
func sections(c *Config) []section {
	return []section{
		{"Engine, GPUs and state", machineSettings(c)},
		{"Addresses and access", accessSettings(c)},
		{"The front door", doorSettings(c)},
		{"How engines start", startSettings(c)},
		{"Time limits", timeSettings(c)},
		{"Checks of engines", checkSettings(c)},
		{"Requests that wait, and watches", waitingSettings(c)},
		{"Budgets", budgetSettings(c)},
		{"Models on disk", modelSettings(c)},
		{"Compiled code", compileSettings(c)},
		{"Logs", logSettings(c)},
	}
}

func machineSettings(c *Config) []setting {
	return []setting{
		{"vllm", "", "program to run in place of vllm; default: vllm on PATH", optional(&c.VLLM, text)},
		{"llama_server", "", "program of the engine llamacpp, which runs models as GGUF files; default: llama-server on PATH, if it is there", optional(&c.LlamaServer, text)},
		{"gpus", "auto", "where to find the GPUs: auto, nvml, simulated:N or file:PATH; auto: by NVML, or two simulated GPUs if it finds none", text(&c.GPUs)},
		{"visible_gpus", "", "which GPUs to use, by index or UUID, or all; default: those of CUDA_VISIBLE_DEVICES if it is set, else all", words(&c.VisibleGPUs)},
		{"state_dir", "", "folder for logs and for what must outlive the launcher (default $XDG_STATE_HOME/hotseat, for root /var/lib/hotseat)", optional(&c.StateDir, path)},
		{"on_exit", "stop", "what to do with the engines when the launcher is told to end", choice(&c.OnExit, "stop", "leave")},
		{"cgroups", "auto", "which cgroups to put instances in; auto: the first of v2, v1 and none that works", choice(&c.Cgroups, "auto", "v2", "v1", "none")},
		{"enable_sleep_mode", "auto", "whether to give engines --enable-sleep-mode; auto: only on real GPUs", choice(&c.EnableSleepMode, "auto", "always", "never")},
		{"env_file_dirs", "", "folders with files from which env_vars of an instance may take values (from_file)", paths(&c.EnvFileDirs)},
	}
}

func accessSettings(c *Config) []setting {
	return []setting{
		{"listen", "127.0.0.1:8001", "address of the control API", address(&c.Listen)},
		{"instance_host", "127.0.0.1", "address on which the instances' public ports listen; --host in an instance's options can narrow it, but not widen it", host(&c.InstanceHost)},
		{"rank_address", "", "address of this machine at which ranks of a server over several launchers listen for each other; every launcher of the server must reach it; default: --instance-host, unless that is 0.0.0.0 or ::", optional(&c.RankAddress, host)},
		{"engine_socket", "auto", "whether engines listen on a Unix socket, which no other user reaches, or on a port of loopback, where every local user reaches their developer endpoints; auto: on a socket if the launcher finds that vllm has --uds", choice(&c.EngineSocket, "auto", "always", "never")},
		{"token_file", "", "file with the token that clients must send; not everybody should be able to read it; default: no token", optional(&c.TokenFile, path)},
		{"tls_cert", "", "file with the certificate for serving the control API by TLS; needs --tls-key; default: plain HTTP", optional(&c.TLSCert, path)},
		{"tls_key", "", "file with the key of that certificate", optional(&c.TLSKey, path)},
		{"client_ca", "", "file with the certificates of the authorities that sign clients' certificates; clients then show a certificate, or the token if there is --token-file too", optional(&c.ClientCA, path)},
		{"insecure_public", "false", "allow addresses that other machines reach, without a token or certificate", boolean(&c.InsecurePublic)},
		{"public_metrics", "false", "let everybody who reaches the control API read its metrics, which name models and instances", boolean(&c.PublicMetrics)},
		{"llm_d_compat", "false", "answer the engine's own sleep endpoints at the instances' ports, which the controller of the llm-d community needs", boolean(&c.LLMDCompat)},
	}
}

const frontDoorKey = "front_door"

func doorSettings(c *Config) []setting {
	return []setting{
		{frontDoorKey, "127.0.0.1:8000", "address at which the launcher serves all models by their names; empty for none", optional(&c.FrontDoor, address)},
		{"front_door_token_file", "", "file with the token that clients of the front door must send; default: no token", optional(&c.FrontDoorTokenFile, path)},
		{"front_door_open", "false", "allow an address of the front door that other machines reach, without a token", boolean(&c.FrontDoorOpen)},
		{"front_door_turn", "5s", "how long a model that has requests stays awake at least, while requests for others wait", duration(&c.FrontDoorTurn)},
	}
}

func startSettings(c *Config) []setting {
	return []setting{
		{"start_method", "auto", "how to start engines: by fork from a preloader (a process that has the engine loaded), or by exec, without preloaders; auto: by fork where possible, waiting for a preloader that still loads, and else by exec", choice(&c.StartMethod, "auto", "exec", "fork")},
		{"preload_python", "", "Python interpreter that loads engines to fork from; default: that of the vllm command", optional(&c.PreloadPython, text)},
		{"preload_memory_limit", "8GiB", "memory that all preloaders may take together; 0 for no limit", size(&c.PreloadMemoryLimit)},
		{"preload_idle_timeout", "24h", "how long to keep a preloader from which nothing is forked; 0 for ever", duration(&c.PreloadIdleTimeout)},
	}
}

func timeSettings(c *Config) []setting {
	return []setting{
		{"start_timeout", "15m", "how long an engine may take to become ready; 0 for the default", limit(&c.StartTimeout)},
		{"sleep_timeout", "2m", "how long an engine may take to fall asleep; 0 for the default", limit(&c.SleepTimeout)},
		{"wake_timeout", "2m", "how long an engine may take to wake; 0 for the default", limit(&c.WakeTimeout)},
		{"drain_timeout", "30s", "how long answers in flight may take before a sleep or a stop cuts them; 0 for the default", limit(&c.DrainTimeout)},
		{"stop_grace", "10s", "how long an engine may take to end before it is killed; 0 for the default", limit(&c.StopGrace)},
		{"starting_grace", "2s", "how long an engine that is still starting may take to end before it is killed; 0 for the default", limit(&c.StartingGrace)},
		{"memory_timeout", "30s", "how long to wait until the GPU's memory is free again; 0 for the default", limit(&c.MemoryTimeout)},
	}
}

func checkSettings(c *Config) []setting {
	return []setting{
		{"fingerprint", "true", "whether to ask an engine for one token when it has started and after each wake, and to end an engine whose answers have become wrong", boolean(&c.Fingerprint)},
		{"fingerprint_timeout", "10s", "how long an engine that has woken may take for that answer before it is ended; 0 for the default", limit(&c.FingerprintTimeout)},
		{"hang_timeout", "10m", "how long requests to an engine that is awake may be in flight while nothing comes back, before the launcher checks whether the engine hangs, and ends it if it does; 0 for never", duration(&c.HangTimeout)},
	}
}

func waitingSettings(c *Config) []setting {
	return []setting{
		{"hold_timeout", "2m", "how long to hold a request for an instance that is not awake; 0 for the default", limit(&c.HoldTimeout)},
		{"max_held_requests", "256", "how many requests to hold for each instance", number(&c.MaxHeldRequests, 0)},
		{"watch_buffer", "1000", "how many past events a watch can start from", number(&c.WatchBuffer, 1)},
	}
}

func budgetSettings(c *Config) []setting {
	b := &c.Budgets
	return []setting{
		{"budgets.max_instances", "0", "how many instances there may be; 0 for no limit", number(&b.MaxInstances, 0)},
		{"budgets.max_sleepers_per_gpu", "0", "how many instances may sleep on a GPU; 0 for no limit", number(&b.MaxSleepersPerGPU, 0)},
		{"budgets.max_sleeper_bytes_per_gpu", "0", "how much memory of a GPU sleeping instances may hold; 0 for no limit", size(&b.MaxSleeperBytesPerGPU)},
		{"budgets.max_host_sleeper_bytes", "0", "how much main memory sleeping instances may hold; 0 for no limit", size(&b.MaxHostSleeperBytes)},
		{"budgets.min_residency", "0s", "how long an instance stays awake before another may take its place", duration(&b.MinResidency)},
	}
}

func modelSettings(c *Config) []setting {
	return []setting{
		{"model_store", "", "folder of models, as launcher pull fills it; instances read a model from there if it has it; default: none", optional(&c.ModelStore, path)},
		{"model_user", "", "name of this launcher among those that share the store; give its successor the same name; default: made from the state folder", optional(&c.ModelUser, text)},
		{"model_storage_limit", "0", "disk space that the store's models may take together when the launcher pulls one; 0 for the whole disk", size(&c.ModelStorageLimit)},
		{"model_retention", "keep", "what to do, when a pull needs room, with a model that nobody uses or keeps: leave it there (keep), or remove it, least recently used first (lru)", choice(&c.ModelRetention, "keep", "lru")},
		{"model_source", "", "programs that fetch models of further schemes, as SCHEME=PROGRAM; see spec/fetchapi", programs(&c.ModelSources)},
		{"model_claims", "", "mounted volumes with models, as CLAIM=DIR; instances look there after the model store, and pvc://CLAIM/folder names a folder in one", claims(&c.ModelClaims)},
		{"model_streams", "8", "how many files of a model to fetch at once", number(&c.ModelStreams, 1)},
		{"model_fetch_memory", "256MiB", "main memory that the program that fetches a model may take, with the files that it caches; it takes effect where the launcher's cgroup has a memory controller; 0 for no limit", size(&c.ModelFetchMemory)},
		{"model_bytes_per_second", "0", "how much a pull may fetch in a second, all streams together; 0 for no limit", size(&c.ModelBytesPerSecond)},
	}
}

func compileSettings(c *Config) []setting {
	return []setting{
		{"compile_cache", "auto", "whether to keep what engines compile for the next start (in the model store, or else the state folder), and to start engines that compile the same code one after the other; auto: one after the other only on real GPUs; off: neither", choice(&c.CompileCache, "auto", "always", "off")},
		{"compile_cache_limit", "50GiB", "disk space for compiled code; beyond that the launcher removes what engines of other versions or GPUs have compiled; 0 for no limit", size(&c.CompileCacheLimit)},
	}
}

func logSettings(c *Config) []setting {
	return []setting{
		{"log_level", "info", "what the launcher itself logs", level(&c.LogLevel)},
		{"log_format", "text", "form of the launcher's own log", choice(&c.LogFormat, "text", "json")},
		{"log_max_bytes", "2GiB", "disk space for the engines' logs together; 0 for no limit", size(&c.LogMaxBytes)},
		{"log_max_files", "1000", "how many of the engines' logs to keep; 0 for no limit", number(&c.LogMaxFiles, 0)},
		{"log_max_age", "168h", "how long to keep an engine's log; 0 for no limit", duration(&c.LogMaxAge)},
	}
}
