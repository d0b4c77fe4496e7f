package launcherpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/dualpods"
	"hotseat.dev/hotseat/dualpods/internal/launchers/nodeview"
	"hotseat.dev/hotseat/dualpods/internal/trust/authority"
	"hotseat.dev/hotseat/spec/launcherapi"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// IndexConfig is the cache's index of launcher Pods by the name of their
// LauncherConfig.
const IndexConfig = "launcherConfig"

// IndexedConfig returns a Pod's values in the index IndexConfig.
func IndexedConfig(pod *corev1.Pod) []string {
	name := dualpods.ConfigName(pod)
	if name == "" {
		return nil
	}
	return []string{name}
}

// Views returns what the launchers report, by the UID of their Pods.
type Views interface {
	Pick(key string, keep func(id string, i launcherapi.Instance) bool) nodeview.View
}

// Options configure a [Pool].
type Options struct {
	// API reads from a cache and writes to the API server. The cache indexes Pods by
	// IndexConfig and by dualpods.IndexNode. It holds only Secrets that have the label
	// podmeta.LabelLauncherConfig.
	API      client.Client
	Views    Views
	Recorder events.EventRecorder
	Launcher Image
	// Authority signs the launchers' certificates.
	Authority Authority
	// Need returns what a requester needs a launcher of; nil: its input is invalid, and no
	// launcher serves it.
	Need func(ctx context.Context, requester *corev1.Pod) (*dualpods.LauncherNeed, error)
	// PriorityClass is the name of the PriorityClass of launchers whose template names none,
	// if it exists; empty: none.
	PriorityClass string
	// Again requests the reconciliation of a LauncherConfig; nil: nobody does.
	Again func(config client.ObjectKey)
	Now   func() time.Time // the clock; nil: time.Now
}

// Authority returns the certificate authorities in force. [authority.Keeper]
// implements it.
type Authority interface {
	Current(ctx context.Context) (*authority.Authorities, error)
}

// Pool manages the launchers of all LauncherConfigs. Its methods are safe for
// concurrent use.
type Pool struct {
	opts        Options
	mu          sync.Mutex
	owner       map[string]client.ObjectKey      // LauncherConfig by UID of the launcher Pod
	unconfirmed map[string]bool                  // objects that this Pool created and the cache does not show yet, by kind and name
	written     map[client.ObjectKey]specVersion // the DaemonSet as this Pool wrote it last, by LauncherConfig
	// noWaiterSince is the time since which no requester waits for a launcher, by the UID of
	// the launcher's Pod; zero while one waits. Launchers without a waiter are absent.
	noWaiterSince map[string]time.Time
	refusals      map[place]refusal // launchers that could not be created last
	replaced      *replacements
}

// specVersion identifies one specification of an object: the API server increases the
// generation with each change of the specification, whoever writes it.
type specVersion struct {
	uid        types.UID
	generation int64
}

func specVersionOf(o client.Object) specVersion { return specVersion{o.GetUID(), o.GetGeneration()} }

// New makes a Pool.
func New(opts Options) *Pool {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Pool{opts: opts, owner: map[string]client.ObjectKey{}, unconfirmed: map[string]bool{}, written: map[client.ObjectKey]specVersion{}, noWaiterSince: map[string]time.Time{}, refusals: map[place]refusal{}, replaced: newReplacements()}
}

// ConfigOf returns the LauncherConfig of a launcher Pod, by the Pod's UID, which is
// its key in nodeview.
func (p *Pool) ConfigOf(launcher string) (config client.ObjectKey, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	config, ok = p.owner[launcher]
	return config, ok
}

// Reconcile reconciles one LauncherConfig.
func (p *Pool) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var config v1alpha1.LauncherConfig
	err := p.opts.API.Get(ctx, request.NamespacedName, &config)
	if apierrors.IsNotFound(err) || err == nil && !config.DeletionTimestamp.IsZero() {
		p.trackLaunchers(request.NamespacedName, nil)
		p.forgetDaemonSet(request.NamespacedName)
		p.replaced.forgetConfig(request.NamespacedName)
		return reconcile.Result{}, nil // the garbage collector deletes what it owns
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot read LauncherConfig %s: %w", request, err)
	}
	launchers, err := p.launchers(ctx, &config)
	if err != nil {
		return reconcile.Result{}, err
	}
	p.trackLaunchers(request.NamespacedName, launchers)
	p.replaced.keep(request.NamespacedName, launchers)
	found := observation{config: &config, launchers: launchers}
	if found.template, found.priority, found.problems, err = p.template(ctx, &config); err != nil {
		return reconcile.Result{}, err
	}
	if len(found.problems) == 0 {
		err = p.ensure(ctx, &found)
	}
	again, removeErr := p.removeUnwanted(ctx, &found)
	if err == nil && len(found.problems) == 0 {
		err = p.replace(ctx, &found) // after the removal: an idle launcher needs no successor
	}
	refused, left := p.refused(request.NamespacedName)
	found.refused = refused
	again = dualpods.Sooner(dualpods.Sooner(again, found.requeueAfter), left)
	if taken, ok := errors.AsType[*nameTakenError](err); ok {
		found.nameTaken, found.failure, err = taken.Error(), taken.Error(), nil
		again = dualpods.Sooner(again, nameTakenRecheck)
	}
	err = errors.Join(err, removeErr)
	if err != nil && !apierrors.IsConflict(err) {
		found.failure = err.Error()
	}
	err = errors.Join(err, p.updateStatus(ctx, &found))
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, nil // the namespace is being deleted with all that is in it
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil // the cache is stale
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// template returns the Pod template of the launchers of a LauncherConfig, and their priority.
func (p *Pool) template(ctx context.Context, config *v1alpha1.LauncherConfig) (made corev1.PodTemplateSpec, is priority, problems []podmeta.Problem, err error) {
	group, missing, err := p.modelGroup(ctx, config)
	if err != nil {
		return made, is, nil, err
	}
	claims, err := p.missingClaims(ctx, config)
	if err != nil {
		return made, is, nil, err
	}
	class, err := p.defaultClass(ctx)
	if err != nil {
		return made, is, nil, err
	}
	made, problems = Template(config, p.opts.Launcher, secretName(config), group, class)
	is, err = p.priorityOf(ctx, &made)
	return made, is, slices.Concat(problems, missing, claims, is.problems()), err
}

// observation is what one pass knows of a LauncherConfig.
type observation struct {
	config       *v1alpha1.LauncherConfig
	template     corev1.PodTemplateSpec
	problems     []podmeta.Problem
	launchers    []*corev1.Pod
	daemonSet    *appsv1.DaemonSet  // of mode PerNode; nil: it does not exist yet
	nameTaken    string             // the name that is taken by an object of another owner
	failure      string             // what the pass could not do
	rollout      *rollout           // nil: nothing was decided about launchers of earlier templates
	uncounted    map[types.UID]bool // launchers on nodes that the DaemonSet does not count
	priority     priority           // of the launchers
	refused      string             // why a launcher could not be created for a requester
	requeueAfter time.Duration      // until the certificates are checked again; 0: at the next event
	// selection is which nodes the LauncherConfig selects; nil: it was not read yet.
	selection *dualpods.Selection
}

func (f *observation) hash() string { return f.template.Annotations[podmeta.AnnotationTemplateHash] }

func (f *observation) outdated(pod *corev1.Pod) bool {
	return len(f.problems) == 0 && pod.Annotations[podmeta.AnnotationTemplateHash] != f.hash()
}

// launchers returns the Pods that a LauncherConfig or its DaemonSet owns. They belong to
// the cache: callers must not change them.
func (p *Pool) launchers(ctx context.Context, config *v1alpha1.LauncherConfig) ([]*corev1.Pod, error) {
	var list corev1.PodList
	err := p.opts.API.List(ctx, &list, client.InNamespace(config.Namespace), client.MatchingFields{IndexConfig: config.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("cannot list the launchers of LauncherConfig %s: %w", client.ObjectKeyFromObject(config), err)
	}
	var pods []*corev1.Pod
	made := dualpods.NewLaunchers(p.opts.API)
	for i := range list.Items {
		kind, of, err := made.KindOf(ctx, &list.Items[i])
		if err != nil {
			return nil, err
		}
		if kind == dualpods.KindLauncher && of.UID == config.UID {
			pods = append(pods, &list.Items[i])
		}
	}
	return pods, nil
}

func (p *Pool) trackLaunchers(config client.ObjectKey, launchers []*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, of := range p.owner {
		if of == config {
			delete(p.owner, uid)
		}
	}
	for _, pod := range launchers {
		p.owner[string(pod.UID)] = config
	}
	maps.DeleteFunc(p.noWaiterSince, func(uid string, _ time.Time) bool { _, there := p.owner[uid]; return !there })
}

// ensure creates the certificates and the DaemonSet. A template that the API server refuses
// is a problem of the LauncherConfig.
func (p *Pool) ensure(ctx context.Context, f *observation) error {
	var err error
	if f.requeueAfter, err = p.ensureCertificates(ctx, f.config, f.launchers); err != nil {
		return err
	}
	if f.config.Spec.Population.Mode == v1alpha1.OnDemand {
		err = p.validateTemplate(ctx, f)
	} else {
		err = p.ensureDaemonSet(ctx, f)
	}
	if apierrors.IsInvalid(err) {
		f.problems = append(f.problems, podmeta.Problem{Kind: podmeta.Invalid, Field: fieldTemplate, Message: "is refused by the API server: " + err.Error()})
		return nil
	}
	return err
}

// validateTemplate has the API server validate a Pod of the template by a dry run, unless the
// status says that the template was accepted.
func (p *Pool) validateTemplate(ctx context.Context, f *observation) error {
	c := acceptedCondition(f.config)
	if c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == f.config.Generation {
		return nil
	}
	pod := podOn(f.config, f.template, "any")
	pod.Name = dualpods.LauncherSet(f.config.Name) + "-try"
	if err := p.opts.API.Create(ctx, pod, client.DryRunAll); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("cannot validate the template of its launchers: %w", err)
	}
	return nil
}

func (p *Pool) ensureDaemonSet(ctx context.Context, f *observation) error {
	want := appsv1.DaemonSetSpec{
		Selector:       &metav1.LabelSelector{MatchLabels: Labels(f.config.Name)},
		Template:       f.template,
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
	}
	key := client.ObjectKey{Namespace: f.config.Namespace, Name: dualpods.LauncherSet(f.config.Name)}
	var set appsv1.DaemonSet
	err := p.opts.API.Get(ctx, key, &set)
	if apierrors.IsNotFound(err) {
		set = appsv1.DaemonSet{Spec: want}
		set.Namespace, set.Name, set.Labels = key.Namespace, key.Name, Labels(f.config.Name)
		set.OwnerReferences = []metav1.OwnerReference{ownedBy(f.config)}
		if err := p.create(ctx, "DaemonSet", &set); err != nil {
			return fmt.Errorf("cannot make DaemonSet %s: %w", key, err)
		}
		f.daemonSet = &set
		p.recordWrite(f.config, &set)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read DaemonSet %s: %w", key, err)
	}
	p.confirmCreated("DaemonSet", &set)
	if !metav1.IsControlledBy(&set, f.config) {
		return &nameTakenError{objectKey("DaemonSet", &set)}
	}
	f.daemonSet = &set
	if p.isUnchanged(f.config, &set) && set.Spec.Template.Annotations[podmeta.AnnotationTemplateHash] == f.hash() {
		return nil
	}
	changed := set.DeepCopy()
	changed.Spec.Template, changed.Spec.UpdateStrategy = want.Template, want.UpdateStrategy
	if err := p.opts.API.Update(ctx, changed); err != nil {
		return fmt.Errorf("cannot change DaemonSet %s: %w", key, err)
	}
	f.daemonSet = changed
	p.recordWrite(f.config, changed)
	return nil
}

// recordWrite records the specification of a DaemonSet as this Pool wrote it.
func (p *Pool) recordWrite(config *v1alpha1.LauncherConfig, set *appsv1.DaemonSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written[client.ObjectKeyFromObject(config)] = specVersionOf(set)
}

func (p *Pool) forgetDaemonSet(config client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.written, config)
	maps.DeleteFunc(p.refusals, func(at place, _ refusal) bool { return at.config == config })
}

// isUnchanged reports whether the specification is the one that this Pool wrote last.
// It compares generations, because the API server fills in defaults that the
// template leaves out.
func (p *Pool) isUnchanged(config *v1alpha1.LauncherConfig, set *appsv1.DaemonSet) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written[client.ObjectKeyFromObject(config)] == specVersionOf(set)
}

// nameTakenError says that an object of another owner has a name that a LauncherConfig
// needs.
type nameTakenError struct{ object string }

func (e *nameTakenError) Error() string {
	return e.object + " exists and belongs to another owner: delete it, or give the LauncherConfig another name"
}

// nameTakenRecheck is the period after which the Pool tries again to create an object
// whose name was taken. The cache does not hold objects of others, so that no event
// reports their deletion.
const nameTakenRecheck = 30 * time.Second

// create creates an object. It is no error when this Pool created the object before
// and the cache does not show it yet. An object of another owner is an error.
func (p *Pool) create(ctx context.Context, kind string, o client.Object) error {
	name := objectKey(kind, o)
	err := p.opts.API.Create(ctx, o)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case apierrors.IsAlreadyExists(err) && p.unconfirmed[name]:
		return nil
	case apierrors.IsAlreadyExists(err):
		return &nameTakenError{name}
	case err == nil:
		p.unconfirmed[name] = true
	}
	return err
}

// confirmCreated records that the cache shows an object that this Pool created. An object that
// has the name after a deletion may have another owner.
func (p *Pool) confirmCreated(kind string, o client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unconfirmed, objectKey(kind, o))
}

func objectKey(kind string, o client.Object) string {
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}
