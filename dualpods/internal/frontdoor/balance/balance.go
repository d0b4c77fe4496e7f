// Package balance chooses the Pod that answers a request for a Model. It is pure.
package balance

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Endpoint is a Pod that may answer.
type Endpoint struct {
	Name   string // of the Pod
	Weight int    // the targetRequests of its entry; 0: it is a standby
	Load   int    // the requests that it answers, from all front doors
}

// LeastLoad returns the index of the endpoint whose load would be the least for its weight, with one
// more request. Among equal ones it is the first by name. There is at least one.
func LeastLoad(among []Endpoint) int {
	best := 0
	for i := range among {
		a, b := &among[i], &among[best]
		order := cmp.Compare((a.Load+1)*b.weight(), (b.Load+1)*a.weight())
		if cmp.Or(order, cmp.Compare(a.Name, b.Name)) < 0 {
			best = i
		}
	}
	return best
}

// weight returns what the load is divided by. Standbys are equal.
func (e *Endpoint) weight() int { return max(e.Weight, 1) }

// Ring is a ring of points of endpoints, by the hash of their names. All front doors make the same one.
type Ring struct {
	points []point // by hash
	names  []string
	index  map[string]int // of names
}

type point struct {
	hash  uint64
	owner int // index of names
}

// unitWeight is the weight with which an endpoint has as many points as replication says.
// mostUnits bounds how many times that it may have.
const (
	unitWeight = 100
	mostUnits  = 16
)

// NewRing makes a ring. An endpoint has replication points for each 100 of its weight, and one at least.
func NewRing(of []Endpoint, replication int) *Ring {
	r := &Ring{index: map[string]int{}}
	for i, e := range of {
		r.index[e.Name] = i
		r.names = append(r.names, e.Name)
		points := min(max(replication*e.weight()/unitWeight, 1), replication*mostUnits)
		if e.Weight == 0 {
			points = replication
		}
		for n := range points {
			r.points = append(r.points, point{xxhash.Sum64String(e.Name + "#" + strconv.Itoa(n)), i})
		}
	}
	slices.SortFunc(r.points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(r.names[a.owner], r.names[b.owner]))
	})
	return r
}

// Choose returns the index of the endpoint for a key: the first one on the ring, from the key's hash on, whose
// load stays within percent of the mean for its weight, with one more request. If there is none among them,
// it is the one of LeastLoad. among are the endpoints that may answer now, some of those of the ring; there
// is at least one.
func (r *Ring) Choose(key string, among []Endpoint, percent int) int {
	index := make([]int, len(r.names)) // of names: that of among, plus one
	requests, weights := 1, 0
	for i := range among {
		requests += among[i].Load
		weights += among[i].weight()
		if at, ok := r.index[among[i].Name]; ok {
			index[at] = i + 1
		}
	}
	hash := xxhash.Sum64String(key)
	start, _ := slices.BinarySearchFunc(r.points, hash, func(p point, h uint64) int { return cmp.Compare(p.hash, h) })
	asked := make([]bool, len(r.names))
	for n, left := 0, len(among); n < len(r.points) && left > 0; n++ {
		owner := r.points[(start+n)%len(r.points)].owner
		if asked[owner] || index[owner] == 0 {
			continue
		}
		asked[owner] = true
		left--
		// Load+1 ≤ ceil(mean × percent/100 × weight), the mean being requests for a unit of weight.
		e := &among[index[owner]-1]
		if bound := requests * percent * e.weight(); e.Load*100*weights < bound {
			return index[owner] - 1
		}
	}
	return LeastLoad(among)
}

// Prefix returns the first characters of a text.
func Prefix(text string, characters int) string {
	for at := range text {
		if characters == 0 {
			return text[:at]
		}
		characters--
	}
	return text
}
