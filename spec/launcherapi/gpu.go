package launcherapi

// GPUList is the answer to GET /v2/gpus.
type GPUList struct {
	Source        string `json:"source" doc:"Where the launcher reads its GPUs from." enum:"nvml,simulated,file"`
	GPUs          []GPU  `json:"gpus"`
	HostSleepers  uint64 `json:"host_sleeper_bytes" doc:"Main memory that sleepers hold."`
	Budgets       Budget `json:"budgets"`
	QueuedSwaps   int    `json:"queued_swaps" doc:"Swaps that wait for their turn."`
	ActiveSwaps   int    `json:"active_swaps"`
	InstanceCount int    `json:"instance_count"`
}

// GPU is one device, its memory and the instances on it.
type GPU struct {
	UUID             string      `json:"uuid"`
	Index            int         `json:"index" doc:"Index in PCI bus order, as CUDA_VISIBLE_DEVICES takes it."`
	Product          string      `json:"product"`
	MIG              bool        `json:"mig"`
	Healthy          bool        `json:"healthy"`
	HealthReason     string      `json:"health_reason,omitempty"`
	MemoryTotalBytes uint64      `json:"memory_total_bytes"`
	MemoryUsedBytes  uint64      `json:"memory_used_bytes"`
	MemoryFreeBytes  uint64      `json:"memory_free_bytes"`
	ForeignBytes     uint64      `json:"foreign_bytes" doc:"Device memory of processes that are not the launcher's."`
	ReservedBytes    uint64      `json:"reserved_bytes" doc:"Reserved for an instance that starts or wakes, and not taken yet."`
	Awake            []GPUHolder `json:"awake" doc:"Instances that are awake on the GPU, or that are becoming awake or leaving that state."`
	Sleepers         []GPUHolder `json:"sleepers"`
	SwapID           string      `json:"swap_id,omitempty" doc:"The swap that has its turn on this GPU."`
}

// GPUHolder is one instance's share of a GPU.
type GPUHolder struct {
	InstanceID string `json:"instance_id"`
	State      string `json:"state"`
	Bytes      uint64 `json:"memory_bytes"`
	Measured   bool   `json:"measured" doc:"Whether memory_bytes is measured. false: it is estimated from gpu-memory-utilization."`
}

// Budget bounds what sleepers may hold; 0 means no bound.
type Budget struct {
	MaxSleepersPerGPU     int      `json:"max_sleepers_per_gpu"`
	MaxSleeperBytesPerGPU uint64   `json:"max_sleeper_bytes_per_gpu"`
	MaxHostSleeperBytes   uint64   `json:"max_host_sleeper_bytes"`
	MaxInstances          int      `json:"max_instances"`
	MinResidency          Duration `json:"min_residency" doc:"How long an instance stays awake before a swap may send it away. An earlier swap waits."`
}
