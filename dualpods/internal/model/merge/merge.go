package merge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// DefaultEntry is the name of the entry of a Model without specs.
const DefaultEntry = "default"

// The defaults of what neither spec nor the entry says.
const (
	DefaultTargetRequests = 100
	DefaultScaleDownDelay = 300 * time.Second
	DefaultScaleUpTimeout = 600 * time.Second
	DefaultUnschedulable  = 30 * time.Second
)

// Profiles returns a ResourceProfile by its name; nil: there is none.
type Profiles func(name string) *v1alpha1.ResourceProfile

// Pools returns a SeatPool of the Model's namespace by its name; nil: there is none.
type Pools func(name string) *v1alpha1.SeatPool

// Entry is an entry of a Model with what it inherits.
type Entry struct {
	Name  string
	Group string // the members of a simultaneousScaleUpGroup have the same; empty: it is in none

	Settings v1alpha1.ServerSettings // with the defaults of the engine and the launchers
	Names    []string                // by which the engine serves: the Model's, then its aliases
	Adapters []v1alpha1.ModelAdapter
	Profile  v1alpha1.ResourceProfileSpec // zero: the entry names none
	Units    int64                        // of the profile
	Pool     string                       // the SeatPool whose seats are its replicas; empty: it has Pods of its own
	RunsIn   v1alpha1.ModelRunsIn
	Hash     string // of all that decides what runs

	Min, Max, Target                                  int // Max 0: no bound. Target 0: a standby
	ScaleDownDelay, ScaleUpTimeout, UnschedulableTime time.Duration

	// Problem says why the entry cannot run, and what would be right; empty: it can.
	Problem string
}

// IsStandby reports whether the entry answers only while no other can.
func (e *Entry) IsStandby() bool { return e.Target == 0 }

// ObjectName returns the name of the entry's InferenceServerConfig and Deployment.
func (e *Entry) ObjectName(model string) string { return model + "-" + e.Name }

// Limits returns what a replica may use: the limits of the profile for all of its units.
func (e *Entry) Limits() corev1.ResourceList { return times(e.Profile.Limits, e.Units) }

// Claims returns the claims of devices that a container uses.
func (e *Entry) Claims() (all []corev1.ResourceClaim) {
	for _, c := range e.Profile.ResourceClaims {
		all = append(all, corev1.ResourceClaim{Name: c.Name})
	}
	return all
}

// Requests returns what a replica requests, likewise.
func (e *Entry) Requests() corev1.ResourceList { return times(e.Profile.Requests, e.Units) }

func times(of corev1.ResourceList, units int64) corev1.ResourceList {
	if len(of) == 0 {
		return nil
	}
	all := corev1.ResourceList{}
	for name, quantity := range of {
		quantity = quantity.DeepCopy()
		quantity.Mul(units)
		all[name] = quantity
	}
	return all
}

// Accelerators returns the limits that are no processor time, memory or disk.
func (e *Entry) Accelerators() corev1.ResourceList {
	limits := e.Limits()
	maps.DeleteFunc(limits, func(name corev1.ResourceName, _ resource.Quantity) bool { return !isAccelerator(name) })
	return limits
}

// isAccelerator reports whether a resource is one of a device plugin: its name has a domain other
// than Kubernetes' own.
func isAccelerator(name corev1.ResourceName) bool {
	domain, _, has := strings.Cut(string(name), "/")
	return has && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// Entries returns the entries of a Model in their order.
func Entries(m *v1alpha1.Model, profiles Profiles, pools Pools) []Entry {
	specs := m.Specs
	if len(specs) == 0 {
		specs = []v1alpha1.ModelEntry{{Name: DefaultEntry}}
	}
	all := make([]Entry, len(specs))
	for i := range specs {
		all[i] = entryOf(m, &specs[i], profiles, pools)
	}
	return all
}

func entryOf(m *v1alpha1.Model, own *v1alpha1.ModelEntry, profiles Profiles, pools Pools) Entry {
	e := Entry{
		Name: own.Name, Group: own.SimultaneousScaleUpGroup, Settings: inherit(&m.Spec.ServerSettings, own),
		Names: append([]string{m.Name}, m.Spec.Aliases...), Adapters: m.Spec.Adapters, Pool: own.SeatPool,
	}
	s := &e.Settings
	e.Min, e.Max = int(or(s.MinReplicas, 0)), int(or(s.MaxReplicas, 0))
	e.Target = int(or(s.TargetRequests, DefaultTargetRequests))
	e.ScaleDownDelay, e.ScaleUpTimeout = seconds(s.ScaleDownDelaySeconds, DefaultScaleDownDelay), seconds(s.ScaleUpTimeoutSeconds, DefaultScaleUpTimeout)
	e.UnschedulableTime = seconds(s.UnschedulableSeconds, DefaultUnschedulable)
	if s.Engine == "" {
		s.Engine = v1alpha1.EngineVLLM
	}
	if e.Pool == "" {
		e.readProfile(profiles)
	} else {
		e.readPool(pools)
	}
	e.RunsIn = e.runsIn()
	if e.Problem == "" {
		e.Problem = e.problem()
	}
	e.Hash = e.hash()
	return e
}

// inherit returns the settings of an entry: where it says nothing, those of spec.
func inherit(base *v1alpha1.ServerSettings, own *v1alpha1.ModelEntry) v1alpha1.ServerSettings {
	s := *own.ServerSettings.DeepCopy()
	for _, text := range []struct{ own, base *string }{
		{&s.URL, &base.URL}, {(*string)(&s.Engine), (*string)(&base.Engine)}, {&s.Image, &base.Image}, {&s.ResourceProfile, &base.ResourceProfile},
		{&s.LauncherConfigName, &base.LauncherConfigName}, {&s.ModelCache, &base.ModelCache}, {&s.PriorityClassName, &base.PriorityClassName},
	} {
		if *text.own == "" {
			*text.own = *text.base
		}
	}
	for _, number := range []struct{ own, base **int32 }{
		{&s.MinReplicas, &base.MinReplicas}, {&s.MaxReplicas, &base.MaxReplicas}, {&s.TargetRequests, &base.TargetRequests},
		{&s.ScaleDownDelaySeconds, &base.ScaleDownDelaySeconds}, {&s.ScaleUpTimeoutSeconds, &base.ScaleUpTimeoutSeconds}, {&s.UnschedulableSeconds, &base.UnschedulableSeconds},
	} {
		if *number.own == nil {
			*number.own = *number.base
		}
	}
	if s.Args == nil {
		s.Args = base.Args
	}
	env := maps.Clone(base.Env)
	for _, name := range own.UnsetEnv {
		delete(env, name)
	}
	if env == nil {
		env = s.Env
	} else {
		maps.Copy(env, s.Env)
	}
	s.Env = env
	return s
}

func or(number *int32, otherwise int32) int32 {
	if number == nil {
		return otherwise
	}
	return *number
}

func seconds(number *int32, otherwise time.Duration) time.Duration {
	if number == nil {
		return otherwise
	}
	return time.Duration(*number) * time.Second
}

// readProfile finds the entry's ResourceProfile.
func (e *Entry) readProfile(profiles Profiles) {
	s := &e.Settings
	if s.ResourceProfile == "" {
		return
	}
	name, number, several := strings.Cut(s.ResourceProfile, ":")
	e.Units = 1
	if several {
		e.Units, _ = strconv.ParseInt(number, 10, 64) // the API server has checked it
	}
	profile := profiles(name)
	if profile == nil {
		e.Problem = fmt.Sprintf("there is no ResourceProfile %s: create it, or name another one in resourceProfile", name)
		return
	}
	e.Profile = *profile.Spec.DeepCopy()
	if s.LauncherConfigName == "" {
		s.LauncherConfigName = e.Profile.LauncherConfigName
	}
	if s.Image == "" && e.runsIn() == v1alpha1.RunsInPods {
		s.Image = string(e.Profile.Images[string(s.Engine)])
	}
}

// readPool finds the entry's SeatPool. The profile, launchers, image and priority class of spec are for the entries with
// Pods of their own.
func (e *Entry) readPool(pools Pools) {
	s := &e.Settings
	s.ResourceProfile, s.LauncherConfigName, s.Image, s.PriorityClassName = "", "", "", ""
	pool := pools(e.Pool)
	switch {
	case pool == nil || !pool.DeletionTimestamp.IsZero():
		e.Problem = fmt.Sprintf("there is no SeatPool %s: create it, or name another one in seatPool", e.Pool)
	case s.Engine != v1alpha1.EngineVLLM:
		e.Problem = fmt.Sprintf("engine: the launchers of seats run VLLM, not %s: set engine of this entry to VLLM, or remove seatPool", s.Engine)
	default:
		s.LauncherConfigName = pool.Spec.LauncherConfigName
	}
}

// runsIn returns what runs the entry: launchers run vLLM on GPUs of NVIDIA, and its own Pods run
// everything else. Without a profile, an entry with launchers has one GPU for each replica.
func (e *Entry) runsIn() v1alpha1.ModelRunsIn {
	if e.Pool != "" {
		return v1alpha1.RunsInSeats
	}
	if e.Settings.Engine != v1alpha1.EngineVLLM {
		return v1alpha1.RunsInPods
	}
	if e.Settings.ResourceProfile == "" {
		return v1alpha1.RunsInLauncher
	}
	accelerators := e.Accelerators()
	if gpus, ok := accelerators[podmeta.ResourceGPU]; ok && len(accelerators) == 1 && gpus.Sign() > 0 {
		return v1alpha1.RunsInLauncher
	}
	return v1alpha1.RunsInPods
}

// hash identifies what runs: 12 hexadecimal digits.
func (e *Entry) hash() string {
	s := e.Settings
	s.MinReplicas, s.MaxReplicas, s.TargetRequests = nil, nil, nil
	s.ScaleDownDelaySeconds, s.ScaleUpTimeoutSeconds, s.UnschedulableSeconds = nil, nil, nil
	text, err := json.Marshal(struct {
		Settings v1alpha1.ServerSettings
		Names    []string
		Adapters []v1alpha1.ModelAdapter
		Profile  v1alpha1.ResourceProfileSpec
		Pool     string `json:",omitempty"` // entries without one keep their hashes over an upgrade from before there were any
	}{s, e.Names, e.Adapters, e.Profile, e.Pool})
	if err != nil {
		panic(err) // these types cannot fail
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}
