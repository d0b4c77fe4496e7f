package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/test/cluster"
)

// stages have KWOK run each Pod a third of a second after it is there, as a quick
// kubelet does, at the address that the Pod's annotation says, and end it as soon
// as it is deleted.
const stages = `apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageAllNodes: true
  nodeLeaseDurationSeconds: 0 # nobody looks at leases here
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 4
  podsOnNodeSyncParallelism: 16
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select( .type == "Ready" ) | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      conditions: [{type: Ready, status: "True", reason: Played, lastTransitionTime: {{ Now | Quote }}}]
      allocatable: {cpu: "64", memory: 512Gi, pods: "100", nvidia.com/gpu: "1"} # for who has a scheduler
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-running}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
    - {key: '.metadata.annotations["bench.hotseat.dev/ip"]', operator: Exists}
  delay: {durationMilliseconds: 300}
  next:
    statusTemplate: |
      phase: Running
      podIP: {{ index .metadata.annotations "bench.hotseat.dev/ip" | Quote }}
      podIPs: [{ip: {{ index .metadata.annotations "bench.hotseat.dev/ip" | Quote }}}]
      conditions: [{type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}]
      containerStatuses:
      {{ range .spec.containers }}
      - {name: {{ .name | Quote }}, image: {{ .image | Quote }}, ready: true, started: true, restartCount: 0, state: {running: {startedAt: {{ Now | Quote }}}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-delete}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
  next: {delete: true}
`

// ipAnnotation is where a played Pod says its address.
const ipAnnotation = "bench.hotseat.dev/ip"

// played is an API server with nodes and Pods that KWOK plays, and the stand-in.
type played struct {
	*site
	b          *bench
	nodes      int
	group      string          // ModelCacheNodeGroup of the launchers; empty: none
	ctx        context.Context // ends when a program does that should not
	fail       context.CancelCauseFunc
	programs   []*program
	controller *program
	crowd      *crowd
	next       []int // number of each node's next requester
	http       *http.Client
}

// program is a process of a part.
type program struct {
	name   string
	cmd    *exec.Cmd
	log    string
	told   atomic.Bool // to end
	exited chan struct{}
}

// newPlayed starts all but the controller. There are no nodes yet.
//
// most is how many instances a launcher has at most; 0: any number.
func (b *bench) newPlayed(part string, nodes, most int) (p *played, err error) {
	kwok, err := cluster.KWOK(b.ctx, b.progress)
	if err != nil {
		return nil, err
	}
	s, err := b.newSite(part, cluster.Options{})
	if err != nil {
		return nil, err
	}
	p = &played{site: s, b: b, nodes: nodes, next: slices.Repeat([]int{firstRequester}, nodes), http: &http.Client{Transport: &http.Transport{DialContext: s.Dial, DisableKeepAlives: true}}}
	p.ctx, p.fail = context.WithCancelCause(b.ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if out, err := s.InNetwork(b.ctx, "ip", "route", "add", "local", podRange, "dev", "lo").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot give the stand-in the addresses of Pods: %w: %s", err, out)
	}
	// The stand-in speaks plain HTTP, so its requesters have no certificate from the policy.
	if err := s.install(b.ctx, "requesterDefaults.enabled=false"); err != nil {
		return nil, err
	}
	if err := p.kubeconfigs(); err != nil {
		return nil, err
	}
	certificates, err := p.certifyAgents()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(p.file("kwok.yaml"), []byte(stages), 0o600); err != nil {
		return nil, fmt.Errorf("cannot write KWOK's configuration: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program: %w", err)
	}
	o, err := json.Marshal(standInOptions{Most: most, Nodes: nodes, Kubeconfig: p.file("kwok"), Agents: certificates})
	if err != nil {
		return nil, err
	}
	if _, err := p.start("stand-in", []string{standInEnv + "=" + string(o)}, self); err != nil {
		return nil, err
	}
	if _, err := p.start("kwok", nil, kwok, "--config", p.file("kwok.yaml"), "--kubeconfig", p.file("kwok")); err != nil {
		return nil, err
	}
	if p.crowd, err = watchCrowd(b.ctx, s.config); err != nil {
		return nil, err
	}
	return p, nil
}

// certifyAgents has a controller make the certificate of the agents, and puts it into a folder, as
// kubelets mount its Secret.
func (p *played) certifyAgents() (dir string, err error) {
	if err := p.startController(); err != nil {
		return "", err
	}
	defer func() { p.controller.stop() }()
	if err := p.wait(p.ctx, "--namespace", system, "--for=create", "secret/"+podmeta.AgentSecret); err != nil {
		return "", err
	}
	var secret corev1.Secret
	if err := p.api.Get(p.ctx, client.ObjectKey{Namespace: system, Name: podmeta.AgentSecret}, &secret); err != nil {
		return "", fmt.Errorf("cannot read the certificate of the agents: %w", err)
	}
	dir = p.file("agents")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("cannot make a folder: %w", err)
	}
	for name, data := range secret.Data {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return "", fmt.Errorf("cannot write the certificate of the agents: %w", err)
		}
	}
	return dir, nil
}

func (p *played) file(name string) string { return filepath.Join(p.b.dir, p.Name+"-"+name) }

// kubeconfigs are for programs in the cluster's network: KWOK is the
// administrator, the controller who it is in a cluster of its own.
func (p *played) kubeconfigs() error {
	config, err := clientcmd.LoadFromFile(p.Kubeconfig())
	if err != nil {
		return fmt.Errorf("cannot read the cluster's kubeconfig: %w", err)
	}
	for _, c := range config.Clusters {
		c.Server = cluster.Server
	}
	if err := clientcmd.WriteToFile(*config, p.file("kwok")); err != nil {
		return fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	for _, u := range config.AuthInfos {
		as(u)
	}
	if err := clientcmd.WriteToFile(*config, p.file("controller")); err != nil {
		return fmt.Errorf("cannot write a kubeconfig: %w", err)
	}
	return nil
}

func as(u *clientcmdapi.AuthInfo) {
	u.Impersonate = controllerUser
	u.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + system, "system:authenticated"}
}

// start runs a program in the cluster's network until the part ends.
func (p *played) start(name string, env []string, path string, args ...string) (*program, error) {
	g := &program{name: name, cmd: p.InNetwork(context.Background(), path, args...), log: p.file(name + ".log"), exited: make(chan struct{})}
	log, err := os.Create(g.log)
	if err != nil {
		return nil, fmt.Errorf("cannot make a log: %w", err)
	}
	defer log.Close() // the program has its own copy
	g.cmd.Env, g.cmd.Stdout, g.cmd.Stderr = append(os.Environ(), env...), log, log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel ends the program with the thread that started it, which this
		// goroutine therefore keeps to itself: so with this process at the latest.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := g.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = g.cmd.Wait()
		if !g.told.Load() {
			text, _ := os.ReadFile(g.log)
			p.fail(fmt.Errorf("%s ended: %w: %s", name, err, text[max(0, len(text)-2000):]))
		}
		close(g.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	p.programs = append(p.programs, g)
	return g, nil
}

// stop ends a program.
func (g *program) stop() {
	g.told.Store(true)
	_ = g.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	late := time.AfterFunc(10*time.Second, func() { _ = g.cmd.Process.Kill() })
	defer late.Stop()
	<-g.exited
}

// startController starts the controller anew.
func (p *played) startController(args ...string) (err error) {
	p.controller, err = p.start("controller", []string{"KUBECONFIG=" + p.file("controller")}, "bin/controller", append(args, "--pprof-address="+pprofAddress, "--ca-namespace="+system)...)
	return err
}

// pprofAddress is where the controller answers /debug/pprof, in the cluster's network.
const pprofAddress = "10.100.0.1:6060"

// untilController waits until the controller answers there.
func (p *played) untilController() error {
	return p.poll(50*time.Millisecond, func(ctx context.Context) (lacks string, err error) {
		if _, refused := p.ask(ctx, http.MethodGet, pprofAddress, "/debug/pprof/cmdline"); refused != nil {
			lacks = "the controller does not answer: " + refused.Error()
		}
		return lacks, nil
	})
}

// poll calls look again and again until nothing lacks.
func (p *played) poll(every time.Duration, look func(context.Context) (lacks string, err error)) error {
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	for {
		lacks, err := look(ctx)
		if err != nil || lacks == "" {
			return err
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return fmt.Errorf("waited in vain: %s: %w", lacks, context.Cause(ctx))
		}
	}
}

// profile puts a profile of the controller, such as heap, into the folder that was
// asked for, if one was.
func (p *played) profile(what string) error {
	if p.b.profiles == "" {
		return nil
	}
	name, _, _ := strings.Cut(what, "?")
	data, err := p.ask(p.ctx, http.MethodGet, pprofAddress, "/debug/pprof/"+what)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.b.profiles, name+".pprof"), data, 0o644); err != nil {
		return fmt.Errorf("cannot write a profile: %w", err)
	}
	return nil
}

func (p *played) close() error {
	for i := len(p.programs) - 1; i >= 0; i-- {
		p.programs[i].stop()
	}
	if p.crowd != nil {
		p.crowd.close()
	}
	p.fail(nil)
	return p.Down()
}

// notes are what the stand-in saw, by the UIDs of requesters.
func (p *played) notes(ctx context.Context) (map[string]note, error) {
	body, err := p.ask(ctx, http.MethodGet, notesAddress, "/notes")
	if err != nil {
		return nil, err
	}
	var byKey map[string]note
	if err := json.Unmarshal(body, &byKey); err != nil {
		return nil, fmt.Errorf("cannot read the stand-in's notes: %w", err)
	}
	notes := map[string]note{}
	for key, n := range byKey {
		uid, _, _ := strings.Cut(key, ".")
		notes[uid] = n
	}
	return notes, nil
}

func (p *played) ask(ctx context.Context, method, address, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("cannot ask %s: %w", address, err)
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
