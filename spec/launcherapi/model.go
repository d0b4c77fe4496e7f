package launcherapi

import (
	"time"

	"hotseat.dev/hotseat/spec/fetchapi"
)

// ModelRequest asks for a model to be in the model store.
type ModelRequest struct {
	URI string `json:"uri" minLength:"1" maxLength:"2048" doc:"Address of the model: hf://org/name or hf://org/name@revision on the hub, or one of https, file, s3, gs, azblob or oci, as launcher pull takes them." example:"hf://Qwen/Qwen3-0.6B"`
	Ref string `json:"ref,omitempty" maxLength:"1024" doc:"Another name by which the version is found besides, such as the branch whose commit the uri names." example:"main"`

	Include []string `json:"include,omitempty" maxItems:"64" doc:"Patterns of the files that are meant, as those of hf download --include: * is any text, slashes too; ? is one character; [a-z] one of a set. Absent: all files. Each has to match a file. Two selections of one revision are two models." example:"[\"*.safetensors\",\"*.json\"]"`
	Exclude []string `json:"exclude,omitempty" maxItems:"64" doc:"Patterns of files that are not meant, though include may match them." example:"[\"original/\"]"`

	ExpectedBytes  int64  `json:"expected_bytes,omitempty" minimum:"1" doc:"How large the model was said to be. One whose size differs by more than a tenth is refused before anything is fetched."`
	ExpectedDigest string `json:"expected_digest,omitempty" pattern:"^sha256:[0-9a-f]{64}$" doc:"The digest that the model has to have. One with another is not served: it is refused before anything is fetched where its source tells the hash of each file, else once it is fetched."`

	WantedBy string `json:"wanted_by,omitempty" maxLength:"256" doc:"Who wants the model: as long as somebody does it is not removed by others." example:"pool-a"`

	UnlessThere bool `json:"unless_there,omitempty" doc:"Where wanted_by has the model whole already, what this request says of it is noted, and its source is not asked which version it has now. The source is asked all the same where private is said otherwise than before, or the model is not as expected."`

	Retention string `json:"retention,omitempty" enum:"keep,lru,default" doc:"What becomes of the model when its room is needed for another and nobody uses it. keep: it stays. lru: it goes, the one that was used longest ago first; nor does any other go for it, where wanted_by is given. default: what was said before is taken back. Absent: as said before, else keep where wanted_by is given, and as the launcher's --model-retention says where not." example:"keep"`

	Credentials fetchapi.Credentials `json:"credentials,omitempty" writeOnly:"true" doc:"What is shown to the source in place of the launcher's own credential for it: values by the names of the variables that modelfetch else reads, such as HF_TOKEN, AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS_JSON, AZURE_STORAGE_KEY or DOCKER_AUTH_CONFIG. They are for this call alone, are never shown, and are not kept."`

	Warm bool `json:"warm,omitempty" doc:"It is read into main memory, as POST /v2/models/{model_id}/warm does, once it is there and whenever the launcher starts. The answer does not wait for that."`

	Private bool `json:"private,omitempty" doc:"Whoever has the model served has to show a right of his own to its source: its instances are made only where the source lets them read, by the credentials in their env_vars or in the launcher's environment. Where others want the same version without it, it is not private."`
}

// What becomes of a model when its room is needed for another and nobody uses it.
const (
	RetentionKeep    = "keep"
	RetentionLRU     = "lru"
	RetentionDefault = "default" // of a request: as if nothing had been said
)

// States of a Model.
const (
	ModelDownloading = "Downloading" // this launcher fetches it
	ModelReady       = "Ready"       // each of its files is as it was published
	ModelPartial     = "Partial"     // it was not fetched to its end, or another process fetches it
	ModelDamaged     = "Damaged"     // a file of it is missing or was changed
	ModelFailed      = "Failed"      // this launcher could not fetch it
)

// How much of a Model main memory held when that was looked at last.
const (
	PageCacheNone  = "none"  // less than a tenth
	PageCachePart  = "part"  // more than that
	PageCacheWhole = "whole" // at least nine tenths
)

// Model is one version of a model in the model store.
type Model struct {
	ID       string `json:"id" doc:"Made of the address, the revision, and of include and exclude."`
	URI      string `json:"uri" doc:"Address of its source, without the revision."`
	Ref      string `json:"ref,omitempty" doc:"Revision that was asked for, such as a branch."`
	Revision string `json:"revision" doc:"Which version of the source it is. Empty where that can be told only when everything is fetched."`
	State    string `json:"state" enum:"Downloading,Ready,Partial,Damaged,Failed"`
	Reason   string `json:"reason,omitempty" doc:"Why it is in this state, in words."`
	Cause    string `json:"cause,omitempty" doc:"Of a failure, a short code: NotFound, AccessDenied, Unavailable, IntegrityMismatch, CapacityExceeded, Invalid or Internal."`

	Include []string `json:"include,omitempty" doc:"Patterns of the files that it has of its source."`
	Exclude []string `json:"exclude,omitempty" doc:"Patterns of the files that it has not."`
	Lacks   []string `json:"lacks,omitempty" doc:"Some of the files that include and exclude leave out and that an engine may need. Such a model is given to an instance by its id alone, not by its name."`

	Digest string `json:"digest,omitempty" doc:"sha256: and the SHA-256 of a line for each file, sorted by name, as sha256sum prints them. Absent until the hash of each file is known."`

	Bytes int64 `json:"size_bytes"`
	Files int   `json:"files"`

	FetchedBytes int64 `json:"fetched_bytes,omitempty" doc:"While it is fetched: how much of it is there."`
	NetworkBytes int64 `json:"network_bytes,omitempty" doc:"While it is fetched: how much has come over the network."`
	Rate         int64 `json:"bytes_per_second,omitempty" doc:"While it is fetched: how fast, since the fetch began."`
	LeftMS       int64 `json:"left_ms,omitempty" doc:"While it is fetched: how long the rest takes at that rate."`

	Path      string     `json:"path,omitempty" doc:"Folder that has its files by their names; absent while that is not there."`
	HubCache  string     `json:"hub_cache,omitempty" doc:"Of a model from the hub: folder in which the hub's own libraries find it, for HF_HUB_CACHE."`
	Published *time.Time `json:"published,omitempty" doc:"Since when it is there; of one that is partial: when its folder last changed."`
	Refs      []string   `json:"refs,omitempty" doc:"Names by which it was asked for, such as branches."`
	WantedBy  []string   `json:"wanted_by,omitempty" doc:"Who wants it: it is removed when none of them does any more."`
	LRUBy     []string   `json:"lru_by,omitempty" doc:"Those of them for whom it may go when its room is needed for another."`
	PrivateBy []string   `json:"private_by,omitempty" doc:"Those of them who say that it is private."`
	WarmBy    []string   `json:"warm_by,omitempty" doc:"Those of them who want it in main memory."`
	Retention string     `json:"retention,omitempty" enum:"keep,lru" doc:"What becomes of it when its room is needed for another and nobody uses it: keep, it stays; lru, it goes. Absent: as the launcher's --model-retention says, for nobody has said otherwise."`
	LastUsed  *time.Time `json:"last_used,omitempty" doc:"When an instance took it or gave it back last, or it was asked for; else since when it is there."`
	InUseBy   []string   `json:"in_use_by,omitempty" doc:"Whose leases keep it from being removed."`

	PageCache      string `json:"page_cache,omitempty" enum:"none,part,whole" doc:"How much of its files main memory held when that was looked at last, some ten seconds ago: none, less than a tenth; whole, nine tenths or more; part, else. Absent where it is not whole, before the first look, and where the kernel does not tell."`
	PageCacheBytes *int64 `json:"page_cache_bytes,omitempty" doc:"Where one model is asked for: how much of its files main memory holds. Absent where the kernel does not tell, which it does the owner of the files and who may write to them."`
}

// WarmedModel is the answer to a call that reads a model into main memory.
type WarmedModel struct {
	ID         string `json:"id"`
	Bytes      int64  `json:"size_bytes"`
	FreshBytes int64  `json:"fresh_bytes" doc:"How much of it was brought into main memory by this call; the rest was there, or had no room."`
	LeftBytes  int64  `json:"left_bytes" doc:"How much of it, at most, is left on the disk, because no more main memory was free."`
	TotalMS    int64  `json:"total_ms"`

	PageCacheBytes *int64 `json:"page_cache_bytes,omitempty" doc:"How much of its files main memory holds now. Absent where the kernel does not tell."`
}

// ModelList is the answer to a list call.
type ModelList struct {
	Store       string  `json:"store" doc:"The folder."`
	UsedBytes   int64   `json:"used_bytes" doc:"What all files take, each counted once."`
	LimitBytes  int64   `json:"limit_bytes,omitempty" doc:"What they may take. Absent: as much as the disk has."`
	TotalModels int     `json:"total_models"`
	Models      []Model `json:"models"`
}

// ModelEvent is one line of the watch stream of models.
type ModelEvent struct {
	Type   EventType `json:"type" enum:"CREATED,UPDATED,DELETED"`
	Object Model     `json:"object"`
}

// ModelHeartbeat is the object of a HEARTBEAT event among those of models.
type ModelHeartbeat struct {
	TotalModels int `json:"total_models"`
}
