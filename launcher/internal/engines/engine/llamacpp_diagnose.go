package engine

import (
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// llamaLinePrefix begins a line of llama-server's log: the time since its start, and the level,
// of which I and W are harmless.
var llamaLinePrefix = regexp.MustCompile(`^\d+\.\d+\.\d+\.\d+ ([A-Z]) `)

// llamaSymptoms are in order: the first symptom that any line matches is the cause. The texts are
// those of build 10434 of llama.cpp; the ones about device memory were read in its source.
var llamaSymptoms = []symptom{
	logs(CauseBrokenInstallation, `error while loading shared libraries: (.+)`,
		"the program cannot be loaded: $1"),
	logs(CauseDeviceUnavailable, `^error while handling argument "[^"]*": invalid device: (.+)`,
		"llama-server has no device $1: its build may lack the backend of the GPU"),
	logs(CauseWrongFlag, `^error while handling argument "([^"]*)": (.+)`,
		"llama-server does not accept its argument $1: $2"),
	logs(CauseWrongFlag, `^error: (invalid argument: .+)`,
		"llama-server does not accept its arguments: $1"),
	logs(CausePortTaken, `couldn't bind HTTP server socket, hostname: (\S+), port: (\d+)`,
		"the engine cannot listen at $1 (port $2): another program may listen there, or have left its socket"),

	// Device memory.
	logs(CauseOutOfDeviceMemory, `allocating ([\d.]+ MiB) on device (\d+): cudaMalloc failed: out of memory`,
		"GPU $2 ran out of memory: $1 more were wanted; lower --ctx-size or --n-gpu-layers, use more GPUs, or free the GPU of what else uses it"),
	logs(CauseOutOfDeviceMemory, `Device memory allocation of size (\d+) failed|ErrorOutOfDeviceMemory|CUDA error: out of memory|unable to allocate (?:CUDA|Vulkan|ROCm)\d+ buffer`,
		"the GPU ran out of memory: lower --ctx-size or --n-gpu-layers, use more GPUs, or free the GPU of what else uses it"),
	logs(CauseNoRoomForCache, `failed to allocate buffer for kv cache|failed to allocate (?:buffer for )?(?:rs|recurrent) cache`,
		"there is no memory for the cache of the context: lower --ctx-size"),
	logs(CauseOutOfHostMemory, `failed to allocate buffer of size (\d+)|unable to allocate CPU buffer|insufficient memory|std::bad_alloc`,
		"an allocation of main memory failed: lower --ctx-size, or give the engine more memory"),

	// The model.
	logs(CauseModelNotFound, `failed to open GGUF file '([^']*)' \(No such file or directory\)`,
		"there is no file $1: give the path of a GGUF file, or pull the model into the launcher's store"),
	logs(CauseModelBroken, `failed to open GGUF file '([^']*)' \((.+)\)`,
		"the model's file $1 cannot be read: $2"),
	logs(CauseModelUnsupported, `invalid magic characters: '([^']*)', expected 'GGUF'|failed to read magic`,
		"the model's file is no GGUF file, and llama-server reads no others"),
	logs(CauseModelUnsupported, `unknown model architecture: '([^']*)'`,
		"this release of llama.cpp does not know the model's architecture $1: use a newer one"),
	logs(CauseModelUnsupported, `unknown pre-tokenizer type: '([^']*)'`,
		"this release of llama.cpp does not know the model's tokenizer $1: use a newer one"),
	logs(CauseModelBroken, `illegal split file idx: \d+ \(file: (.*)\), model must be loaded with the first split`,
		"$1 is not the first part of the model: give the first one"),
	logs(CauseModelBroken, `Failed to load CLIP model from (.+)`,
		"$1 is no projector of this model (--mmproj)"),
	logs(CauseModelBroken, `failed to load lora adapter '([^']*)'`,
		"$1 is no LoRA adapter of this model"),
	logs(CauseModelBroken, `error loading model: (.+)`,
		"the model cannot be loaded: $1"),
}

// Diagnose explains an exit.
func (*LlamaCpp) Diagnose(exit Exit, tail []string) Cause {
	if cause, ok := exit.fromOutside(); ok {
		return cause
	}
	if unix.Signal(exit.Signal) == unix.SIGILL {
		return Cause{CauseBrokenInstallation, "the program uses instructions that this processor does not have: use a build of llama.cpp for this machine"}
	}
	lines, said := llamaComplaints(tail)
	for _, s := range llamaSymptoms {
		if cause, ok := s.in(lines); ok {
			return cause
		}
	}
	if said == "" && exit.Code != nil && *exit.Code == 1 {
		said = "; " + lostLines
	}
	return exit.plain("llamacpp", said)
}

// lostLines explains a log without an error. llama-server writes its log in a thread of its own,
// which its exit cuts off: of a hundred failures, a few have no reason.
const lostLines = "llama-server at times loses the last lines of its log, as it did here: start it again to see why"

// llamaComplaints are the lines that were not logged as harmless. said is the first one that was
// logged as an error, to be put behind a message.
func llamaComplaints(tail []string) (lines logLines, said string) {
	for _, line := range tail {
		line = strings.TrimRight(ansiColor.ReplaceAllString(line, ""), "\r\n")
		prefix := llamaLinePrefix.FindStringSubmatch(line)
		if prefix == nil {
			lines = append(lines, logLine{text: line})
			continue
		}
		if prefix[1] == "I" || prefix[1] == "W" || prefix[1] == "D" {
			continue
		}
		line = line[len(prefix[0]):]
		lines = append(lines, logLine{text: line})
		if said == "" {
			said = "; the first error is: " + short(line)
		}
	}
	return lines, said
}
