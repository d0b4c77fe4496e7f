package launcherapi

import "time"

// CompileKind is what decides whether engines can use what others have compiled. Two
// nodes where all of it is the same have caches of one key.
type CompileKind struct {
	Engine string   `json:"engine" doc:"The engine and what it compiles with, with their versions." example:"torch 2.13.0, triton 3.7.1, vllm 0.30.0"`
	Python string   `json:"python,omitempty" doc:"The interpreter that runs it: what is compiled names files of the installation."`
	GPUs   []string `json:"gpus" doc:"Products of the GPUs of the node, each once."`
	CPU    string   `json:"cpu" doc:"Architecture and model of the processor, and a hash of its features: some of what is compiled runs there."`
}

// CompileCache is a folder in which engines of one kind keep what they compile.
type CompileCache struct {
	Key      string      `json:"key" doc:"Made of the kind."`
	Kind     CompileKind `json:"kind"`
	Own      bool        `json:"own" doc:"This launcher's engines use it."`
	Path     string      `json:"path" doc:"The engines' VLLM_CACHE_ROOT."`
	Bytes    int64       `json:"size_bytes"`
	Files    int         `json:"files"`
	Starts   int         `json:"starts" doc:"How many different models and arguments an engine has started with, and has what it compiled for them here."`
	LastUsed time.Time   `json:"last_used" doc:"When an engine last became ready with it, or a launcher began to use it."`
}

// CompileCacheList is the answer to a call that lists compile caches.
type CompileCacheList struct {
	Folder     string         `json:"folder"`
	UsedBytes  int64          `json:"used_bytes"`
	LimitBytes int64          `json:"limit_bytes,omitempty" doc:"Beyond this, caches go that no launcher uses, the one that was used longest ago first. Absent: none goes."`
	Caches     []CompileCache `json:"caches" doc:"This launcher's own comes first, then those that were used last."`
}

// CompileCacheType is the content type of a cache on its way to another node: a tar
// stream.
const CompileCacheType = "application/x-tar"
