package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"hotseat.dev/hotseat/dualpods/requestertest"
	"hotseat.dev/hotseat/launcher/launchertest"
)

// The addresses of Pods that KWOK plays say what they are: a range for each node,
// in it the launcher, the agent, and requesters from firstRequester on, whose
// GPU is the last digit. All of podRange is the stand-in's.
const (
	podRange       = "10.128.0.0/9"
	podsOfNode     = 8192
	gpusOfNode     = 10
	launcherNumber = 1
	agentNumber    = 2
	firstRequester = 20
	mostNodes      = 1000
)

const (
	launcherPort = 8001
	spiPort      = 8081
	notesAddress = "10.100.0.1:9000" // in the cluster's network, of the control plane
)

func podAddress(node, number int) string {
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], 10<<24|128<<16+uint32(node*podsOfNode+number))
	return net.IP(ip[:]).String()
}

// whose is the node of a Pod and its number there, by its address.
func whose(address net.IP) (node, number int) {
	ip := binary.BigEndian.Uint32(address.To4()) - (10<<24 | 128<<16)
	return int(ip / podsOfNode), int(ip % podsOfNode)
}

// gpusOfRequester are the GPUs of the requester with that number: what its node's kubelet gives it,
// and what its program says.
func gpusOfRequester(node, number int) []string { return []string{gpuOf(node, number%gpusOfNode)} }

func gpuOf(node, n int) string { return fmt.Sprintf("GPU-%08x-0000-0000-0000-%012x", node, n) }

// note is what the stand-ins saw of one binding, named by its swap's key.
type note struct {
	Woke  bool      `json:"woke"`  // the swap woke an instance, and made none
	Came  time.Time `json:"came"`  // the swap
	Over  time.Time `json:"over"`  // and was answered
	Ready time.Time `json:"ready"` // the requester was told so
}

// standIn is every launcher, every requester program and every agent of the played Pods, and the
// kubelets that the agents ask, in one process. Launchers and requester programs are those of
// packages launchertest and requestertest, whose tests compare them with the real ones. The agents
// are real.
type standIn struct {
	mu         sync.Mutex
	launchers  map[int]*launchertest.Launcher      // by node
	requesters map[[2]int]*requestertest.Requester // by node and number
	notes      map[string]*note
	hung       map[int]chan struct{} // by node; closed when it hangs no more
	models     *fetching             // into the stores of all launchers; nil: there is none
	most       int                   // instances of a launcher; 0: any number
}

// standInEnv makes a process of this program the stand-in; its value is [standInOptions] as JSON.
const standInEnv = "HOTSEAT_BENCH_STAND_IN"

type standInOptions struct {
	Most       int    // instances of a launcher; 0: any number
	Nodes      int    // that have an agent
	Kubeconfig string // by which kubelets see their Pods
	Agents     string // folder with the certificate of the agents, and for the sockets of kubelets
}

// serveStandIn serves until ctx ends.
func serveStandIn(ctx context.Context) error {
	var o standInOptions
	if err := json.Unmarshal([]byte(os.Getenv(standInEnv)), &o); err != nil {
		return fmt.Errorf("cannot read %s: %w", standInEnv, err)
	}
	s := &standIn{most: o.Most, launchers: map[int]*launchertest.Launcher{}, requesters: map[[2]int]*requestertest.Requester{}, notes: map[string]*note{}, hung: map[int]chan struct{}{}}
	notes := http.NewServeMux()
	notes.HandleFunc("GET /notes", s.showNotes)
	notes.HandleFunc("POST /hang", s.hang)
	notes.HandleFunc("POST /models", s.fetch)
	notes.HandleFunc("POST /alike", alike)
	var servers []*http.Server
	failed := make(chan error, 4)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { failed <- serveAgents(ctx, o) })
	for address, handler := range map[string]http.Handler{
		fmt.Sprintf(":%d", launcherPort): http.HandlerFunc(s.launcher), fmt.Sprintf(":%d", spiPort): http.HandlerFunc(s.requester), notesAddress: notes,
	} {
		server := &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: time.Minute}
		servers = append(servers, server)
		running.Go(func() { failed <- server.ListenAndServe() })
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	stop()
	for _, server := range servers {
		err = errors.Join(err, server.Close())
	}
	running.Wait()
	return err
}

// here is the node and number of the Pod that a request is to.
func here(r *http.Request) (node, number int) {
	return whose(r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr).IP)
}

func (s *standIn) launcher(w http.ResponseWriter, r *http.Request) {
	node, _ := here(r)
	if r.URL.Path == "/v2/models/watch" {
		s.watchModels(w, r, node)
		return
	}
	s.mu.Lock()
	l, ok := s.launchers[node]
	if !ok {
		gpus := make([]string, gpusOfNode)
		for n := range gpus {
			gpus[n] = gpuOf(node, n)
		}
		l = launchertest.New(launchertest.Options{GPUs: gpus, Swapped: s.swapped, Most: s.most})
		s.launchers[node] = l
	}
	s.mu.Unlock()
	l.ServeHTTP(&hanging{w, r.Context(), func() <-chan struct{} {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.hung[node]
	}}, r)
}

// hanging is an answer that is neither written nor gone on with while its launcher
// hangs.
type hanging struct {
	http.ResponseWriter
	ctx  context.Context        // of the request
	hung func() <-chan struct{} // nil: it does not
}

// Unwrap is for [http.ResponseController].
func (h *hanging) Unwrap() http.ResponseWriter { return h.ResponseWriter }

func (h *hanging) Write(p []byte) (int, error) {
	if over := h.hung(); over != nil {
		select {
		case <-over:
		case <-h.ctx.Done():
			return 0, h.ctx.Err()
		}
	}
	return h.ResponseWriter.Write(p)
}

// hang has the launchers of nodes hang from now on, or answer again.
func (s *standIn) hang(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	for text := range strings.SplitSeq(query.Get("nodes"), ",") {
		node, err := strconv.Atoi(text)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		case query.Get("on") == "true" && s.hung[node] == nil:
			s.hung[node] = make(chan struct{})
		case query.Get("on") != "true" && s.hung[node] != nil:
			close(s.hung[node])
			delete(s.hung, node)
		}
	}
}

// alike is what a scheduler's extender says that thinks the same of all nodes
// (https://kubernetes.io/docs/reference/config-api/kube-scheduler-config.v1/).
func alike(w http.ResponseWriter, r *http.Request) {
	var asked struct{ NodeNames []string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	type priority struct {
		Host  string
		Score int64
	}
	all := []priority{}
	for _, name := range asked.NodeNames {
		all = append(all, priority{Host: name})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(all) // the scheduler is gone when this fails
}

func (s *standIn) at(key string, change func(*note)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notes[key] == nil {
		s.notes[key] = &note{}
	}
	change(s.notes[key])
}

func (s *standIn) swapped(key string, woke bool, came, over time.Time) {
	s.at(key, func(n *note) { n.Woke, n.Came, n.Over = n.Woke || woke, came, over })
}

func (s *standIn) showNotes(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(s.notes) // the reader is gone when this fails
}

func (s *standIn) requester(w http.ResponseWriter, r *http.Request) {
	node, number := here(r)
	s.mu.Lock()
	one, ok := s.requesters[[2]int{node, number}]
	if !ok {
		one = requestertest.New(requestertest.Options{
			Instance: fmt.Sprintf("%d-%d", node, number), GPUs: gpusOfRequester(node, number), BecameReady: s.becameReady,
		})
		s.requesters[[2]int{node, number}] = one
	}
	s.mu.Unlock()
	one.ServeHTTP(w, r)
}

func (s *standIn) becameReady(binding string, came time.Time) {
	s.at(binding, func(n *note) { n.Ready = came })
}
