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
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// IndexConfig is the field that Pods are indexed by in the cache: the
// LauncherConfig that they are launchers of.
const IndexConfig = "launcherConfig"

// IndexedConfig is the value of that field.
func IndexedConfig(pod *corev1.Pod) []string {
	if !dualpods.IsLauncher(pod) {
		return nil
	}
	return []string{pod.Labels[podmeta.LabelLauncherConfig]}
}

// Views knows what the launchers say, by the UID of their Pods.
type Views interface {
	View(key string) nodeview.View
}

// Options configure a [Pool].
type Options struct {
	// API reads from a cache, in which Pods are indexed by IndexConfig and by
	// dualpods.IndexNode and which holds those Secrets alone that have the label
	// podmeta.LabelLauncherConfig, and writes to the server.
	API      client.Client
	Views    Views
	Recorder events.EventRecorder
	Launcher Image
	// Authority signs the launchers' certificates.
	Authority Authority
}

// Authority has the certificate authorities that count now, as
// [authority.Keeper] does.
type Authority interface {
	Current(ctx context.Context) (*authority.Authorities, error)
}

// Pool keeps the launchers of all LauncherConfigs. Its methods may be called
// from several goroutines at once.
type Pool struct {
	opts  Options
	mu    sync.Mutex
	owner map[string]client.ObjectKey  // LauncherConfig by UID of a launcher Pod
	made  map[string]bool              // by kind and name, what this Pool has made and the cache has not heard of yet
	sets  map[client.ObjectKey]edition // by LauncherConfig, its DaemonSet as this Pool wrote it last
	// deserted is, by UID of a launcher Pod that a requester has waited for, since when
	// none does any more; zero while one does.
	deserted map[string]time.Time
}

// edition is one specification of an object. The API server gives each the next
// generation, whoever writes it.
type edition struct {
	uid        types.UID
	generation int64
}

func editionOf(o client.Object) edition { return edition{o.GetUID(), o.GetGeneration()} }

// New makes a Pool.
func New(opts Options) *Pool {
	return &Pool{opts: opts, owner: map[string]client.ObjectKey{}, made: map[string]bool{}, sets: map[client.ObjectKey]edition{}, deserted: map[string]time.Time{}}
}

// ConfigOf is the LauncherConfig of the launcher Pod of that UID, as nodeview
// names it.
func (p *Pool) ConfigOf(launcher string) (config client.ObjectKey, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	config, ok = p.owner[launcher]
	return config, ok
}

// Reconcile looks at one LauncherConfig.
func (p *Pool) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var config v1alpha1.LauncherConfig
	err := p.opts.API.Get(ctx, request.NamespacedName, &config)
	if apierrors.IsNotFound(err) || err == nil && !config.DeletionTimestamp.IsZero() {
		p.note(request.NamespacedName, nil)
		p.forget(request.NamespacedName)
		return reconcile.Result{}, nil // what it owns goes with it
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("cannot read LauncherConfig %s: %w", request, err)
	}
	launchers, err := p.launchers(ctx, &config)
	if err != nil {
		return reconcile.Result{}, err
	}
	p.note(request.NamespacedName, launchers)
	found := finding{config: &config, launchers: launchers}
	if found.template, found.problems, err = p.template(ctx, &config); err != nil {
		return reconcile.Result{}, err
	}
	if len(found.problems) == 0 {
		err = p.provide(ctx, &found)
	}
	again, removeErr := p.removeUnwanted(ctx, &found)
	if again == 0 || found.again > 0 && found.again < again {
		again = found.again
	}
	if taken, ok := errors.AsType[*takenError](err); ok {
		found.taken, found.failure, err = taken.Error(), taken.Error(), nil
		if again == 0 || takenPause < again {
			again = takenPause
		}
	}
	err = errors.Join(err, removeErr)
	if err != nil && !apierrors.IsConflict(err) {
		found.failure = err.Error()
	}
	err = errors.Join(err, p.tell(ctx, &found))
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return reconcile.Result{}, nil // everything of it is going
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictPause}, nil // the cache is behind
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// template is what the launchers of a LauncherConfig are made from.
func (p *Pool) template(ctx context.Context, config *v1alpha1.LauncherConfig) (corev1.PodTemplateSpec, []podmeta.Problem, error) {
	group, missing, err := p.modelGroup(ctx, config)
	if err != nil {
		return corev1.PodTemplateSpec{}, nil, err
	}
	claims, err := p.missingClaims(ctx, config)
	if err != nil {
		return corev1.PodTemplateSpec{}, nil, err
	}
	made, problems := Template(config, p.opts.Launcher, secretName(config), group)
	return made, slices.Concat(problems, missing, claims), nil
}

// finding is what a pass knows of a LauncherConfig.
type finding struct {
	config    *v1alpha1.LauncherConfig
	template  corev1.PodTemplateSpec
	problems  []podmeta.Problem
	launchers []*corev1.Pod
	set       *appsv1.DaemonSet // with mode PerNode; nil: not there yet
	taken     string            // what the launchers are to have, and is somebody else's
	failure   string            // what the pass could not do
	again     time.Duration     // after it certificates are looked at again; 0: when something changes
}

func (f *finding) hash() string { return f.template.Annotations[podmeta.AnnotationTemplateHash] }

func (f *finding) outdated(pod *corev1.Pod) bool {
	return len(f.problems) == 0 && pod.Annotations[podmeta.AnnotationTemplateHash] != f.hash()
}

// launchers are the Pods that a LauncherConfig has made, those of its DaemonSet
// among them. They are the cache's own: nobody changes them.
func (p *Pool) launchers(ctx context.Context, config *v1alpha1.LauncherConfig) ([]*corev1.Pod, error) {
	var list corev1.PodList
	err := p.opts.API.List(ctx, &list, client.InNamespace(config.Namespace), client.MatchingFields{IndexConfig: config.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("cannot list the launchers of LauncherConfig %s: %w", client.ObjectKeyFromObject(config), err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Labels[podmeta.LabelManagedBy] == podmeta.ManagedBy {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

func (p *Pool) note(config client.ObjectKey, launchers []*corev1.Pod) {
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
	maps.DeleteFunc(p.deserted, func(uid string, _ time.Time) bool { _, there := p.owner[uid]; return !there })
}

// provide makes what the launchers need, the DaemonSet, and room for launchers
// of the present template. What the API server finds wrong with the template is
// a problem of it.
func (p *Pool) provide(ctx context.Context, f *finding) error {
	var err error
	if f.again, err = p.ensureTrust(ctx, f.config, f.launchers); err != nil {
		return err
	}
	if f.config.Spec.Population.Mode == v1alpha1.OnDemand {
		err = p.try(ctx, f)
	} else {
		err = p.ensureDaemonSet(ctx, f)
	}
	if apierrors.IsInvalid(err) {
		f.problems = append(f.problems, podmeta.Problem{Kind: podmeta.Invalid, Field: fieldTemplate, Message: "is refused by the API server: " + err.Error()})
		return nil
	}
	if err != nil {
		return err
	}
	return p.replace(ctx, f)
}

// try has the API server say what it thinks of a Pod of a template that nobody
// has told about yet.
func (p *Pool) try(ctx context.Context, f *finding) error {
	c := accepted(f.config)
	if c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == f.config.Generation {
		return nil
	}
	pod := podOn(f.config, f.template, "any")
	pod.Name = objectName(f.config.Name) + "-try"
	if err := p.opts.API.Create(ctx, pod, client.DryRunAll); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("cannot try the template of its launchers: %w", err)
	}
	return nil
}

func (p *Pool) ensureDaemonSet(ctx context.Context, f *finding) error {
	want := appsv1.DaemonSetSpec{
		Selector:       &metav1.LabelSelector{MatchLabels: Labels(f.config.Name)},
		Template:       f.template,
		UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
	}
	key := client.ObjectKey{Namespace: f.config.Namespace, Name: objectName(f.config.Name)}
	var set appsv1.DaemonSet
	err := p.opts.API.Get(ctx, key, &set)
	if apierrors.IsNotFound(err) {
		set = appsv1.DaemonSet{Spec: want}
		set.Namespace, set.Name, set.Labels = key.Namespace, key.Name, Labels(f.config.Name)
		set.OwnerReferences = []metav1.OwnerReference{ownedBy(f.config)}
		if err := p.create(ctx, "DaemonSet", &set); err != nil {
			return fmt.Errorf("cannot make DaemonSet %s: %w", key, err)
		}
		f.set = &set
		p.wrote(f.config, &set)
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read DaemonSet %s: %w", key, err)
	}
	p.heard("DaemonSet", &set)
	if !metav1.IsControlledBy(&set, f.config) {
		return &takenError{madeKey("DaemonSet", &set)}
	}
	f.set = &set
	if p.isAsWritten(f.config, &set) && set.Spec.Template.Annotations[podmeta.AnnotationTemplateHash] == f.hash() {
		return nil
	}
	changed := set.DeepCopy()
	changed.Spec.Template, changed.Spec.UpdateStrategy = want.Template, want.UpdateStrategy
	if err := p.opts.API.Update(ctx, changed); err != nil {
		return fmt.Errorf("cannot change DaemonSet %s: %w", key, err)
	}
	f.set = changed
	p.wrote(f.config, changed)
	return nil
}

// wrote notes a DaemonSet that this Pool has written, as the API server answered.
func (p *Pool) wrote(config *v1alpha1.LauncherConfig, set *appsv1.DaemonSet) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sets[client.ObjectKeyFromObject(config)] = editionOf(set)
}

func (p *Pool) forget(config client.ObjectKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sets, config)
}

// isAsWritten says that nobody has written another specification since this Pool
// did. The specifications themselves cannot be compared: the API server fills in
// what a template leaves out.
func (p *Pool) isAsWritten(config *v1alpha1.LauncherConfig, set *appsv1.DaemonSet) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sets[client.ObjectKeyFromObject(config)] == editionOf(set)
}

// takenError says that an object that a LauncherConfig is to have is there, and
// is somebody else's.
type takenError struct{ object string }

func (e *takenError) Error() string {
	return e.object + " is there, and is somebody else's: delete it, or give the LauncherConfig another name"
}

// takenPause is when to look again whether an object of somebody else is still in
// the way: the cache has none of those, so that nobody tells when it is gone.
const takenPause = 30 * time.Second

// create makes an object, unless this Pool has made it before. One of its name
// that is somebody else's is an error.
func (p *Pool) create(ctx context.Context, kind string, o client.Object) error {
	name := madeKey(kind, o)
	err := p.opts.API.Create(ctx, o)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case apierrors.IsAlreadyExists(err) && p.made[name]:
		return nil
	case apierrors.IsAlreadyExists(err):
		return &takenError{name}
	case err == nil:
		p.made[name] = true
	}
	return err
}

// heard forgets an object that this Pool has made and the cache knows by now: one
// of its name that is there later may be somebody else's.
func (p *Pool) heard(kind string, o client.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.made, madeKey(kind, o))
}

func madeKey(kind string, o client.Object) string {
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

// replace deletes launchers of an earlier template, and those that have ended
// for good, where nobody is bound to them: the DaemonSet, or the next need,
// makes new ones. A record that came meanwhile keeps its launcher: the deletion
// is of the Pod as it was read.
func (p *Pool) replace(ctx context.Context, f *finding) error {
	var errs []error
	for _, pod := range f.launchers {
		if !pod.DeletionTimestamp.IsZero() || bound(pod) || !f.outdated(pod) && !podmeta.Finished(pod) {
			continue
		}
		err := p.opts.API.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("cannot replace launcher %s: %w", pod.Name, err))
		}
	}
	return errors.Join(errs...)
}
