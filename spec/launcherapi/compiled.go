package launcherapi

import "time"

// CompileKind decides whether engines can use what other engines have compiled. The
// caches of two nodes have the same key if their kinds are equal.
type CompileKind struct {
	Engine string   `json:"engine" doc:"The engine and its compilers, with their versions." example:"torch 2.13.0, triton 3.7.1, vllm 0.30.0"`
	Python string   `json:"python,omitempty" doc:"The interpreter that runs it: compiled code names files of the installation."`
	GPUs   []string `json:"gpus" doc:"Products of the node's GPUs, each once."`
	CPU    string   `json:"cpu" doc:"Architecture and model of the processor, and a hash of its features: some compiled code runs on the processor."`
}

// CompileCache is a folder in which engines of one kind keep what they compile.
type CompileCache struct {
	Key      string      `json:"key" doc:"Key of the cache, made from its kind."`
	Kind     CompileKind `json:"kind"`
	Own      bool        `json:"own" doc:"Whether this launcher's engines use it."`
	Path     string      `json:"path" doc:"Value of VLLM_CACHE_ROOT of the engines that use it."`
	Bytes    int64       `json:"size_bytes"`
	Files    int         `json:"files"`
	Starts   int         `json:"starts" doc:"How many different combinations of model and arguments have compiled code here."`
	LastUsed time.Time   `json:"last_used" doc:"When an engine last became ready with it, or a launcher began to use it."`
}

// CompileCacheList is the answer to a call that lists compile caches.
type CompileCacheList struct {
	Folder     string         `json:"folder"`
	UsedBytes  int64          `json:"used_bytes"`
	LimitBytes int64          `json:"limit_bytes,omitempty" doc:"Above this the launcher removes caches that no launcher uses, the least recently used first. Absent: it removes none."`
	Caches     []CompileCache `json:"caches" doc:"This launcher's own cache first, then the others, the most recently used first."`
}

// CompileCacheType is the content type in which a cache is copied to another node: a tar
// stream.
const CompileCacheType = "application/x-tar"
