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

// table gives all settings, bound to the fields of c.
func table(c *Config) []setting {
	b := &c.Budgets
	return []setting{
		{"listen", "127.0.0.1:8001", "address of the control API", address(&c.Listen)},
		{"gpus", "auto", "where GPUs are found: auto, nvml, simulated:N or file:PATH", text(&c.GPUs)},
		{"state_dir", "", "folder of the logs and of what outlives the launcher (default $XDG_STATE_HOME/hotseat, for root /var/lib/hotseat)", optional(&c.StateDir, path)},
		{"vllm", "", "program to run in place of vllm; empty for vllm on PATH", optional(&c.VLLM, text)},
		{"token_file", "", "file of the token that clients must give, and that not everybody should be able to read; empty for none", optional(&c.TokenFile, path)},
		{"tls_cert", "", "file of the certificate to serve the control API by TLS with, with --tls-key; empty for plain HTTP", optional(&c.TLSCert, path)},
		{"tls_key", "", "file of the certificate's key", optional(&c.TLSKey, path)},
		{"client_ca", "", "file of the certificates that must have signed a client's own, in place of a token or, with --token-file, beside it; empty for none", optional(&c.ClientCA, path)},
		{"insecure_public", "false", "allow addresses that other machines reach, without a token or certificate", boolean(&c.InsecurePublic)},
		{"public_metrics", "false", "let everybody who reaches the control API read its metrics, which name models and instances", boolean(&c.PublicMetrics)},
		{"instance_host", "127.0.0.1", "where the instances' public ports listen; --host of an instance's options may narrow it, and never widens it", host(&c.InstanceHost)},
		{"cgroups", "auto", "cgroup of each instance", choice(&c.Cgroups, "auto", "v2", "v1", "none")},
		{"on_exit", "stop", "what becomes of the engines when the launcher is told to end", choice(&c.OnExit, "stop", "leave")},

		{"start_timeout", "15m", "how long an engine may take until it is ready; 0 for the default", limit(&c.StartTimeout)},
		{"sleep_timeout", "2m", "how long an engine may take to fall asleep; 0 for the default", limit(&c.SleepTimeout)},
		{"wake_timeout", "2m", "how long an engine may take to wake; 0 for the default", limit(&c.WakeTimeout)},
		{"stop_grace", "10s", "how long an engine may take to end before it is killed; 0 for the default", limit(&c.StopGrace)},
		{"starting_grace", "2s", "how long an engine that is still starting may take to end before it is killed; 0 for the default", limit(&c.StartingGrace)},
		{"drain_timeout", "30s", "how long answers in flight may take before a sleep or a stop cuts them; 0 for the default", limit(&c.DrainTimeout)},
		{"memory_timeout", "30s", "how long to wait for device memory to come back; 0 for the default", limit(&c.MemoryTimeout)},
		{"hold_timeout", "2m", "how long a request is held for an instance that is not awake; 0 for the default", limit(&c.HoldTimeout)},
		{"max_held_requests", "64", "how many requests are held for each instance", number(&c.MaxHeldRequests, 0)},
		{"watch_buffer", "1000", "how many events a watch can go back", number(&c.WatchBuffer, 1)},

		{"log_max_bytes", "2GiB", "what the engines' logs may hold together; 0 for no limit", size(&c.LogMaxBytes)},
		{"log_max_files", "1000", "how many of the engines' logs are kept; 0 for no limit", number(&c.LogMaxFiles, 0)},
		{"log_max_age", "168h", "how long an engine's log is kept; 0 for no limit", duration(&c.LogMaxAge)},
		{"log_level", "info", "what the launcher itself logs", level(&c.LogLevel)},
		{"log_format", "text", "form of the launcher's own log", choice(&c.LogFormat, "text", "json")},
		{"env_file_dirs", "", "folders whose files env_vars may name by from_file", paths(&c.EnvFileDirs)},
		{"llm_d_compat", "false", "answer the engine's own sleep endpoints at the instances' ports", boolean(&c.LLMDCompat)},
		{"enable_sleep_mode", "auto", "give engines --enable-sleep-mode", choice(&c.EnableSleepMode, "auto", "always", "never")},

		{"start_method", "auto", "how engines are started: fork from a process that has them loaded, exec, or auto for fork where it can be (a start waits for a process that loads); exec keeps no such process", choice(&c.StartMethod, "auto", "exec", "fork")},
		{"preload_python", "", "Python that loads engines to fork; empty for the one of the vllm command", optional(&c.PreloadPython, text)},
		{"preload_memory_limit", "8GiB", "what processes with a loaded engine may hold together; 0 for no limit", size(&c.PreloadMemoryLimit)},
		{"preload_idle_timeout", "24h", "how long such a process is kept that forks nothing; 0 for ever", duration(&c.PreloadIdleTimeout)},

		{"model_store", "", "folder of the models that launcher pull has fetched; instances read from there what it has; empty for none", optional(&c.ModelStore, path)},
		{"model_user", "", "name of this launcher, and of those that come after it, among launchers that share that folder; empty for one made of the state folder", optional(&c.ModelUser, text)},
		{"model_storage_limit", "0", "what the models of that folder may take together when the launcher pulls one; 0 for as much as the disk has", size(&c.ModelStorageLimit)},
		{"model_retention", "keep", "what becomes of a model that nobody uses, wants or has pinned when the launcher pulls one that has no room: it stays, or goes (lru: the one that was used longest ago first)", choice(&c.ModelRetention, "keep", "lru")},
		{"model_gc_high_threshold", "100", "how full the store may be, in percent of its limit and of its disk: above that, once a model was fetched, models go that nobody uses and whose retention is lru, the one that was used longest ago first; 100 for none", number(&c.ModelGCHigh, 1)},
		{"model_gc_low_threshold", "80", "how full it is then at most, in percent; what is wanted with retention lru is not fetched beyond it", number(&c.ModelGCLow, 0)},
		{"model_source", "", "programs that are sources of models, SCHEME=PROGRAM, for schemes that there are no others for; see spec/fetchapi", programs(&c.ModelSources)},
		{"model_claims", "", "volumes with models, as CLAIM=DIR where each is mounted; instances read what a ModelCache keeps there after what the model store has, and pvc://CLAIM/folder is a folder of one; empty for none", claims(&c.ModelClaims)},
		{"model_streams", "8", "how many files of a model are fetched at once", number(&c.ModelStreams, 1)},
		{"model_fetch_memory", "256MiB", "what modelfetch, which fetches a model, may take of main memory, with its files as far as they are there, where the launcher's control group has a memory controller; 0 for no limit", size(&c.ModelFetchMemory)},
		{"model_bytes_per_second", "0", "what all streams of a pull may take together; 0 for as much as there is", size(&c.ModelBytesPerSecond)},

		{"compile_cache", "auto", "keep what engines compile for the next start, in the folder of models or else the state folder, and start one after the other that compile the same: auto does the latter for real GPUs alone; off leaves it to the engines", choice(&c.CompileCache, "auto", "always", "off")},
		{"compile_cache_limit", "50GiB", "what is kept of it; beyond that, what engines of other versions or GPUs have left goes; 0 for no limit", size(&c.CompileCacheLimit)},

		{"budgets.max_sleepers_per_gpu", "0", "how many instances may sleep on a GPU; 0 for no limit", number(&b.MaxSleepersPerGPU, 0)},
		{"budgets.max_sleeper_bytes_per_gpu", "0", "what sleepers may hold of a GPU's memory; 0 for no limit", size(&b.MaxSleeperBytesPerGPU)},
		{"budgets.max_host_sleeper_bytes", "0", "what sleepers may hold of the host's memory; 0 for no limit", size(&b.MaxHostSleeperBytes)},
		{"budgets.max_instances", "0", "how many instances there may be; 0 for no limit", number(&b.MaxInstances, 0)},
		{"budgets.min_residency", "0s", "how long an instance stays awake before another may take its place", duration(&b.MinResidency)},
	}
}
