package engine

import (
	"regexp"
	"sync"
)

// symptom is a line that vLLM, or a library under it, logs before it dies, and what
// the line means for the user. $1 and so on in the message are the pattern's
// groups. The pattern is compiled when it is first used: most launchers never look for most causes,
// and all patterns take 250 kB.
type symptom struct {
	code    CauseCode
	pattern func() *regexp.Regexp
	message string
}

func logs(code CauseCode, pattern, message string) symptom {
	return symptom{code, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) }), message}
}

// vllmSymptoms are in order: the first symptom that any line matches is the cause.
// The texts are those of vLLM 0.30.0, some also of releases since 0.9 and up to
// 0.32, of PyTorch, Transformers and the Hugging Face Hub's client.
var vllmSymptoms = []symptom{
	logs(CauseWrongFlag, `^\S+(?: serve)?: error: ((?:unrecognized|argument|ambiguous option|the following arguments).+)`,
		"vLLM does not accept its arguments: $1"),
	logs(CauseSleepModeUnsupported, `Sleep mode is not supported on current platform`,
		"sleep mode does not exist on this platform: leave --enable-sleep-mode out, and let the launcher's setting enable_sleep_mode be auto or never"),
	logs(CauseMaxModelLenTooLong, `User-specified max_model_len \((\d+)\) is greater than the derived max_model_len \(\w+=(\d+)`,
		"--max-model-len $1 is more than the $2 that the model can do: lower it, or leave it out"),
	logs(CauseMIGUnsupported, `(?:invalid literal for int\(\) with base 10: |Non-integer device ID )'(MIG-[^']*)'`,
		"this release of vLLM cannot run on the MIG device $1: use a whole GPU, or a release that takes MIG devices by UUID"),

	// Device memory.
	logs(CauseDeviceMemoryTaken, `Free memory on device (?:(\S+) )?\(([\d.]+)/([\d.]+) GiB\) on startup is less than desired GPU memory utilization \(([\d.]+), ([\d.]+) GiB\)`,
		"the GPU $1 has $2 of its $3 GiB free, but --gpu-memory-utilization $4 asks for $5 GiB: lower it, or free the GPU of what else uses it"),
	logs(CauseNoRoomForCache, `max seq len \((\d+)\), \(([\d.]+) GiB KV cache is needed, which is larger than the available KV cache memory \(([\d.]+) GiB\)`,
		"one request of --max-model-len $1 needs $2 GiB of KV cache, but only $3 GiB are left beside the weights: lower --max-model-len, or raise --gpu-memory-utilization"),
	logs(CauseNoRoomForCache, `No available memory for the cache blocks`,
		"the weights leave no memory for the KV cache: raise --gpu-memory-utilization, or use more GPUs or a smaller model"),
	logs(CauseOutOfDeviceMemory, `OutOfMemoryError: .*?Tried to allocate ([\d.]+ \w+)\. GPU \d+ has a total capacity of ([\d.]+ \w+) of which ([\d.]+ \w+) is free`,
		"the GPU ran out of memory: $1 more were wanted, with $3 of $2 free; lower --gpu-memory-utilization or --max-num-seqs, use more GPUs, or free the GPU of what else uses it"),
	logs(CauseOutOfDeviceMemory, `(?:CUDA|HIP) out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY`,
		"the GPU ran out of memory: lower --gpu-memory-utilization or --max-num-seqs, use more GPUs, or free the GPU of what else uses it"),

	// The model.
	logs(CauseGatedModel, `Access to model (\S+) is restricted`,
		"the model $1 is gated: ask its owner for access on the hub, and give a token that has it in the environment as HF_TOKEN"),
	logs(CauseGatedModel, `GatedRepoError|trying to access a gated repo\.|Cannot access gated repo`,
		"the model is gated: ask its owner for access on the hub, and give a token that has it in the environment as HF_TOKEN"),
	logs(CauseModelNotFound, `HFValidationError: .*: '([^']*)'`,
		"there is no model at $1: that folder does not exist here, and it is no name on the hub either"),
	logs(CauseModelNotFound, `Invalid repository ID or local directory specified: '([^']*)'`,
		"there is no model at $1: it holds neither a config.json nor a params.json, or it is no name on the hub"),
	logs(CauseModelNotFound, `(\S+) is not a local folder and is not a valid model identifier`,
		"there is no model $1, neither as a folder here nor on the hub: check the name, and for a private model give a token in the environment as HF_TOKEN"),
	logs(CauseModelNotFound, `RepositoryNotFoundError`,
		"the hub has no such model: check the name, and for a private model give a token in the environment as HF_TOKEN"),
	logs(CauseModelNotFound, `outgoing traffic has been disabled`,
		"the model is not in the local cache, and HF_HUB_OFFLINE forbids to download it: download it first, or unset HF_HUB_OFFLINE"),
	logs(CauseHubUnreachable, `We couldn't connect to '([^']*)'`,
		"the model is not in the local cache, and $1 cannot be reached to download it: check network and proxy, or download it first"),
	logs(CauseHubUnreachable, `cannot find the appropriate snapshot folder`,
		"the model is not in the local cache, and the hub cannot be reached to download it: check network and proxy, or download it first"),
	logs(CauseModelUnsupported, `Model architectures (\[[^\]]*\]) are not supported`,
		"this release of vLLM does not know the model's architecture $1: use a newer release, or another model"),
	logs(CauseModelUnsupported, "model type `([^`]*)` but Transformers does not recognize",
		"the installed Transformers does not know the model type $1: use a newer release, or another model"),
	logs(CauseModelUnsupported, `contains custom code which must be executed|requires you to execute`,
		"the model brings code of its own: add --trust-remote-code, if you trust it"),
	logs(CauseModelBroken, "Cannot find any model weights with `([^`]*)`",
		"there are no weights in $1: the model is not whole, download it again"),
	logs(CauseModelBroken, `SafetensorError: (.+)`,
		"a file of the model's weights is broken ($1): download the model again"),
	logs(CauseModelBroken, `config file at '([^']*)' is not a valid JSON`,
		"$1 is not valid JSON: download the model again"),
	logs(CauseModelBroken, `Couldn't instantiate the backend tokenizer|Can't load tokenizer for`,
		"the model has no tokenizer that can be loaded: download the model again, or name one with --tokenizer"),

	// The machine.
	logs(CausePortTaken, `\[Errno 98\] Address already in use|EADDRINUSE`,
		"a port that the engine needs is taken by another process: start the instance again"),
	logs(CauseDeviceUnavailable, `Failed to infer device type`,
		"vLLM finds no accelerator: check that the GPU is visible here (nvidia-smi), and that this build of vLLM is made for it"),
	logs(CauseDeviceUnavailable, `(No CUDA GPUs are available|no CUDA-capable device is detected|Found no NVIDIA driver|CUDA driver version is insufficient[^.]*|The NVIDIA driver on your system is too old[^.]*|invalid device ordinal|Driver/library version mismatch|CUDA-capable device\(s\) is/are busy or unavailable|GPU is lost)`,
		"the GPU cannot be used ($1): check the driver and that the GPU is visible here (nvidia-smi)"),
	logs(CauseDiskFull, `\[Errno 28\] No space left on device|No space left on device \(os error 28\)`,
		"a disk is full (the model cache, a temporary folder or /dev/shm): make room and start again"),
	logs(CauseOutOfHostMemory, `Available memory on node \d+ \(([\d.]+)/[\d.]+ GiB\) .* is less than (?:requested memory for kv \(|desired CPU memory utilization \([\d.]+, )([\d.]+) GiB\)`,
		"the host has $1 GiB of memory free, and the engine asks for $2 GiB: lower VLLM_CPU_KVCACHE_SPACE or --gpu-memory-utilization, which on a CPU means main memory"),
	logs(CauseOutOfHostMemory, `^MemoryError|\[Errno 12\] Cannot allocate memory|can't allocate memory|cudaErrorHostMemory`,
		"the host ran out of memory: give the launcher more, or let fewer models sleep in it"),
	logs(CauseBrokenInstallation, `^(?:ModuleNotFoundError|ImportError): (.+)`,
		"the installation of vLLM is broken ($1): install it again, or choose another with the launcher's setting vllm"),
	logs(CauseBrokenInstallation, `(error while loading shared libraries: .+|undefined symbol: \S+|PackageNotFoundError: .+)`,
		"the installation of vLLM is broken ($1): install it again, or choose another with the launcher's setting vllm"),
	logs(CauseBrokenInstallation, `(\S+) is not found in LD_PRELOAD`,
		"this release of vLLM wants $1 loaded before all else: install it, and start the launcher with its path in LD_PRELOAD"),
	logs(CauseBrokenInstallation, `No working C\+\+ compiler found|Failed to find C compiler`,
		"there is no C++ compiler, which PyTorch needs to compile parts of the model: install one (g++)"),
}

// vllmExtensions are warnings by vLLM that a compiled part of it cannot be loaded,
// long before it fails for want of that part. They count where no other symptom is
// known.
var vllmExtensions = []symptom{
	logs(CauseBrokenInstallation, "Failed to import from (vllm\\.\\w+).*?([^\\s'\"(]+): version [`']([^`']+)' not found",
		"$1, the part of vLLM that is compiled, needs $3, which $2 does not have: install a newer one, or a release of vLLM that was built for this system"),
	logs(CauseBrokenInstallation, `Failed to import from (vllm\.\w+).*?(undefined symbol: [^\s'")]+|[^\s'"(]+: cannot open shared object file)`,
		"$1, the part of vLLM that is compiled, cannot be loaded ($2): install vLLM again, together with the PyTorch that it was built for"),
}

const (
	diedSomehow = "a process of the engine died: see the log above its last stack trace"
	// A process that fails logs why. A process that is killed cannot.
	diedSilently = "a process of the engine died and logged no reason: possibly the kernel killed it, because memory was short (see dmesg)"
)

// vllmEchoes are lines that only say that something else went wrong.
var vllmEchoes = []symptom{
	logs(CauseEngineCoreDied, `Worker proc (\S+) died unexpectedly \(exit code: -(\d+)\)`,
		"the engine's process $1 was killed by signal $2: for signal 9, look whether the host ran out of memory (dmesg)"),
	logs(CauseEngineCoreDied, `(Worker proc \S+ died unexpectedly \(exit code: \d+\))`,
		"a process of the engine died: $1"),
	logs(CauseEngineCoreDied, `EngineDeadError|Engine core initialization failed`,
		diedSomehow),
}
