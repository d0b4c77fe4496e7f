package podmeta

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Rank is which rank of a server over several launchers the engine of a requester is. Its zero
// value is no rank.
type Rank struct {
	Index int // 0: the entry, which answers requests; the others are workers
	Size  int // how many ranks the server has; 0: the engine is a server of its own
}

// MaxRanks is how many ranks a server has at most, as launcherapi.Rank says.
const MaxRanks = 64

// IsOne reports whether the engine is a rank.
func (r Rank) IsOne() bool { return r.Size > 0 }

// IsWorker reports whether the engine is a rank that answers no requests.
func (r Rank) IsWorker() bool { return r.Index > 0 }

// String returns the value of AnnotationRank; empty: no rank.
func (r Rank) String() string {
	if !r.IsOne() {
		return ""
	}
	return fmt.Sprintf("%d/%d", r.Index, r.Size)
}

// rank reads AnnotationRank.
func (r *reading) rank() Rank {
	text, ok := r.pod.Annotations[AnnotationRank]
	if !ok {
		return Rank{}
	}
	index, size, _ := strings.Cut(text, "/")
	is := Rank{}
	is.Index, _ = strconv.Atoi(index)
	is.Size, _ = strconv.Atoi(size)
	if is.String() != text || is.Size < 2 || is.Size > MaxRanks || is.Index < 0 || is.Index >= is.Size {
		r.add(annotationField(AnnotationRank), fmt.Sprintf("%q is no rank: the controller of ModelServings writes it, as in 1/2, which is the second of two; nobody else should", text))
		return Rank{}
	}
	return is
}

// Server is a start of a server over several launchers, as one of its requesters is told of it.
type Server struct {
	Attempt string `json:"attempt"` // the attempt of the requester that takes part: its [Binding.SwapKey]
	Group   string `json:"group"`   // names the start, the same for all ranks: the attempt of the entry
	Entry   string `json:"entry"`   // HOST:PORT at which the entry meets the others
	// Restarts is what [ServerRestarts] said of the rank's launcher then. All that the container had begun
	// is lost with it.
	Restarts int32 `json:"restarts,omitempty"`
}

// Encode returns the value of AnnotationServer or AnnotationNextServer.
func (s Server) Encode() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings cannot fail
	}
	return string(text)
}

// ReadServer reads AnnotationServer. It is zero if there is none, or none that can be read.
func ReadServer(pod *corev1.Pod) Server { return readServer(pod, AnnotationServer) }

// ServerOf returns the start that a rank was told of for an attempt, by AnnotationServer or
// AnnotationNextServer. It is zero if the rank was told of none.
func ServerOf(pod *corev1.Pod, attempt string) Server {
	for _, key := range []string{AnnotationServer, AnnotationNextServer} {
		if s := readServer(pod, key); s.Attempt == attempt {
			return s
		}
	}
	return Server{}
}

func readServer(pod *corev1.Pod, key string) (s Server) {
	if json.Unmarshal([]byte(pod.Annotations[key]), &s) != nil {
		return Server{}
	}
	return s
}
