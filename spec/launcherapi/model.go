package launcherapi

import (
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// ModelRequest asks the launcher to pull a model into its model store.
type ModelRequest struct {
	URI string `json:"uri" minLength:"1" maxLength:"2048" doc:"Address of the model: hf://org/name or hf://org/name@revision on the hub, or an https, file, s3, gs, azblob or oci address, as for launcher pull." example:"hf://Qwen/Qwen3-0.6B"`
	Ref string `json:"ref,omitempty" maxLength:"1024" doc:"One more name of the version, such as the branch whose commit the uri names." example:"main"`

	Include []string `json:"include,omitempty" maxItems:"64" doc:"Patterns of the files to fetch, as for hf download --include: * matches any text, including slashes; ? matches one character; [a-z] matches one of a set. Absent: all files. Each pattern must match a file. Two selections of one revision are two models." example:"[\"*.safetensors\",\"*.json\"]"`
	Exclude []string `json:"exclude,omitempty" maxItems:"64" doc:"Patterns of files to leave out, even if include matches them." example:"[\"original/\"]"`

	ExpectedBytes  int64  `json:"expected_bytes,omitempty" minimum:"1" doc:"How many bytes the model may have. The launcher refuses a larger model before it fetches anything. expected_digest names the exact content."`
	ExpectedDigest string `json:"expected_digest,omitempty" pattern:"^sha256:[0-9a-f]{64}$" doc:"Expected digest of the model. The launcher refuses a model with another digest: before it fetches anything if the source tells the hash of each file, else after the fetch."`

	WantedBy string `json:"wanted_by,omitempty" maxLength:"256" doc:"Name of the holder that wants the model, such as a cache. Other callers cannot remove the model while a holder wants it." example:"pool-a"`

	UnlessThere bool `json:"unless_there,omitempty" doc:"If the store already has the model whole for the holder in wanted_by, only record the settings of this request, and do not ask the source for its current version. The launcher still asks the source if private has changed, or if the model is not as expected."`

	Retention string `json:"retention,omitempty" enum:"keep,lru" doc:"What happens to the model when another model needs its room and no instance uses it. keep: it stays. lru: the launcher may evict it, the least recently used first; with wanted_by, no other model is evicted for it either. Absent: the retention that was set before; if there is none, keep with wanted_by, else the launcher's --model-retention." example:"keep"`

	Credentials fetchapi.Credentials `json:"credentials,omitempty" writeOnly:"true" doc:"Credentials for the source, used instead of the launcher's own: a value for each variable, such as HF_TOKEN, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS_JSON, AZURE_STORAGE_KEY or DOCKER_AUTH_CONFIG. The launcher uses them for this call only, and neither shows nor keeps them."`

	Warm bool `json:"warm,omitempty" doc:"Read the model into main memory after the fetch and at each start of the launcher, as POST /v2/models/{model_id}/warm does. The answer does not wait for that."`

	Private bool `json:"private,omitempty" doc:"Require each instance of the model to prove its own right to read it: the source must accept the credentials in the instance's env_vars or in the launcher's environment. A version that another caller wants without private is not private."`
}

// What becomes of a model when its room is needed for another and nobody uses it.
const (
	RetentionKeep = "keep"
	RetentionLRU  = "lru"
)

// States of a Model.
const (
	ModelDownloading = "Downloading" // this launcher is fetching it
	ModelReady       = "Ready"       // each of its files is as it was published
	ModelPartial     = "Partial"     // its fetch is incomplete, or another process is fetching it
	ModelDamaged     = "Damaged"     // a file of it is missing or was changed
	ModelFailed      = "Failed"      // this launcher could not fetch it
)

// Values of Model.PageCache: how much of a model main memory held at the last look.
const (
	PageCacheNone  = "none"  // less than a tenth
	PageCachePart  = "part"  // between the two
	PageCacheWhole = "whole" // at least nine tenths
)

// Model is one version of a model in the model store.
type Model struct {
	ID       string `json:"id" doc:"Id of the version, made from its address, revision, include and exclude."`
	URI      string `json:"uri" doc:"Address of the model at its source, without the revision."`
	Ref      string `json:"ref,omitempty" doc:"The revision that a caller asked for, such as a branch."`
	Revision string `json:"revision" doc:"Revision of the source that this version has. Empty while it is unknown: some sources tell it only after the fetch."`
	State    string `json:"state" enum:"Downloading,Ready,Partial,Damaged,Failed"`
	Reason   string `json:"reason,omitempty" doc:"Why it is in this state, in words."`
	Cause    string `json:"cause,omitempty" doc:"Short code of a failure: NotFound, AccessDenied, Unavailable, IntegrityMismatch, CapacityExceeded, Invalid or Internal."`

	Include []string `json:"include,omitempty" doc:"Patterns of the files that were selected."`
	Exclude []string `json:"exclude,omitempty" doc:"Patterns of the files that were left out."`
	Lacks   []string `json:"lacks,omitempty" doc:"Files that the selection leaves out and that an engine may need; not all are listed. An instance gets such a model only if it names the id."`

	Digest string `json:"digest,omitempty" doc:"sha256: and the SHA-256 of the output of sha256sum for all files, sorted by name. Absent until the hash of each file is known."`

	Bytes int64 `json:"size_bytes"`
	Files int   `json:"files"`

	FetchedBytes int64 `json:"fetched_bytes,omitempty" doc:"During a fetch: bytes of the model that are on the disk."`
	NetworkBytes int64 `json:"network_bytes,omitempty" doc:"During a fetch: bytes received over the network."`
	Rate         int64 `json:"bytes_per_second,omitempty" doc:"During a fetch: its average rate so far."`
	LeftMS       int64 `json:"left_ms,omitempty" doc:"During a fetch: the time left at that rate."`

	Path      string     `json:"path,omitempty" doc:"Folder with the files of the model. Absent until the model is published."`
	Published *time.Time `json:"published,omitempty" doc:"When the model was published; if it is partial, when its folder last changed."`
	Refs      []string   `json:"refs,omitempty" doc:"Names by which callers asked for it, such as branches."`
	WantedBy  []string   `json:"wanted_by,omitempty" doc:"Holders that want the model. The launcher removes it when the last of them no longer wants it."`
	LRUBy     []string   `json:"lru_by,omitempty" doc:"Holders in wanted_by with the retention lru."`
	PrivateBy []string   `json:"private_by,omitempty" doc:"Holders in wanted_by for which it is private."`
	WarmBy    []string   `json:"warm_by,omitempty" doc:"Holders in wanted_by that want it in main memory."`
	Retention string     `json:"retention,omitempty" enum:"keep,lru" doc:"What happens to it when another model needs its room and no instance uses it. keep: it stays. lru: the launcher may evict it. Absent: the launcher's --model-retention applies."`
	LastUsed  *time.Time `json:"last_used,omitempty" doc:"When an instance last began or ceased to use it, or a caller last asked for it; if never, when it was published."`
	InUseBy   []string   `json:"in_use_by,omitempty" doc:"Holders of the leases that keep it from being removed."`

	PageCache      string `json:"page_cache,omitempty" enum:"none,part,whole" doc:"How much of its files main memory held at the last look, up to about ten seconds ago. none: less than a tenth. whole: nine tenths or more. part: between the two. Absent if the model is not whole, before the first look, and if the kernel does not tell."`
	PageCacheBytes *int64 `json:"page_cache_bytes,omitempty" doc:"Bytes of its files that main memory holds, in the answer for one model. Absent if the kernel does not tell: it tells only the owner of the files and users who may write them."`
}

// WarmedModel is the answer to a call that reads a model into main memory.
type WarmedModel struct {
	ID         string `json:"id"`
	Bytes      int64  `json:"size_bytes"`
	FreshBytes int64  `json:"fresh_bytes" doc:"Bytes that this call read into main memory. The rest was there already, or found no room."`
	LeftBytes  int64  `json:"left_bytes" doc:"Bytes, at most, that are not in main memory because no more of it was free."`
	TotalMS    int64  `json:"total_ms"`

	PageCacheBytes *int64 `json:"page_cache_bytes,omitempty" doc:"Bytes of its files that main memory holds now. Absent if the kernel does not tell."`
}

// ModelList is the answer to a call that lists models.
type ModelList struct {
	Store       string  `json:"store" doc:"Folder of the model store."`
	UsedBytes   int64   `json:"used_bytes" doc:"Bytes of all files, each counted once."`
	LimitBytes  int64   `json:"limit_bytes,omitempty" doc:"Bytes that they may take. Absent: only the disk limits them."`
	TotalModels int     `json:"total_models"`
	Models      []Model `json:"models"`
}

// ModelEvent is one line of the watch stream of models.
type ModelEvent struct {
	Type   EventType `json:"type" enum:"CREATED,UPDATED,DELETED"`
	Object Model     `json:"object"`
}

// ModelHeartbeat is the object of a HEARTBEAT event in the watch stream of models.
type ModelHeartbeat struct {
	TotalModels int `json:"total_models"`
}
