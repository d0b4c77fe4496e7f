package authority

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/podmeta"
)

// SecretName is the name of the Secret of the authorities, in the namespace of the
// controller.
const SecretName = "hotseat-ca"

// Annotations of that Secret.
const (
	// AnnotationRotation is written by people: another value asks for another
	// authority.
	AnnotationRotation = "hotseat.dev/ca-rotation"
	// annotationRotated is the value that the newest authority was made for.
	annotationRotated = "hotseat.dev/ca-rotated"
)

// Options configure a [Keeper].
type Options struct {
	// API reads the Secret from a cache, and writes to the server.
	API       client.Client
	Namespace string // of the Secret
	// Changed is called, from Start's goroutine, when there are other authorities.
	Changed func()
	Now     func() time.Time
	Log     logr.Logger
}

// Keeper keeps the authorities in their Secret, and has the certificates by which
// the controller calls. Its methods may be called from several goroutines at once.
type Keeper struct {
	opts  Options
	nudge chan struct{}
	known chan struct{} // closed once there are authorities

	mu      sync.Mutex
	now     *Authorities
	clients map[*signer]*tls.Certificate
	servers map[string]*tls.Certificate // by name
}

// New makes a Keeper; Start has it work.
func New(opts Options) *Keeper {
	return &Keeper{opts: opts, nudge: make(chan struct{}, 1), known: make(chan struct{}), clients: map[*signer]*tls.Certificate{}, servers: map[string]*tls.Certificate{}}
}

// Fixed makes a Keeper of what a Secret has now, which need not be started.
func Fixed(secret *corev1.Secret) (*Keeper, error) {
	there, err := parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("cannot use Secret %s: %w", SecretName, err)
	}
	k := New(Options{Changed: func() {}, Now: time.Now})
	k.use(there)
	return k, nil
}

// Nudge has the Secret looked at again: it has changed.
func (k *Keeper) Nudge() {
	select {
	case k.nudge <- struct{}{}:
	default: // it will be
	}
}

// retryAfter is when a look at the Secret that failed is taken again.
const retryAfter = time.Second

// longestWait bounds the time between two looks: a timer of years is none.
const longestWait = 24 * time.Hour

// Start keeps the authorities until ctx ends. It runs in the replica that leads.
func (k *Keeper) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		again, err := k.look(ctx)
		if err != nil && ctx.Err() == nil {
			k.opts.Log.Error(err, "cannot keep the certificate authority", "secret", k.opts.Namespace+"/"+SecretName)
			again = retryAfter
		}
		timer := time.NewTimer(min(again, longestWait))
		select {
		case <-k.nudge:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return nil
}

// look reads the Secret, and brings it up to date.
func (k *Keeper) look(ctx context.Context) (again time.Duration, err error) {
	var secret corev1.Secret
	err = k.opts.API.Get(ctx, client.ObjectKey{Namespace: k.opts.Namespace, Name: SecretName}, &secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return 0, fmt.Errorf("cannot read it: %w", err)
	}
	var there *Authorities
	if len(secret.Data) > 0 {
		if there, err = parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
			k.opts.Log.Error(err, "cannot use the certificate authority; creating another one", "secret", k.opts.Namespace+"/"+SecretName)
		}
	}
	asked := secret.Annotations[AnnotationRotation]
	now, again, err := Next(there, !missing && asked != secret.Annotations[annotationRotated], k.opts.Now())
	if err != nil {
		return 0, err
	}
	if now != there {
		if err := k.write(ctx, &secret, missing, now, asked); err != nil {
			return 0, err
		}
	}
	k.use(now)
	return again, nil
}

func (k *Keeper) write(ctx context.Context, secret *corev1.Secret, missing bool, now *Authorities, asked string) error {
	secret = secret.DeepCopy()
	secret.Data = map[string][]byte{corev1.TLSCertKey: now.cert, corev1.TLSPrivateKeyKey: now.keys}
	if missing {
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: k.opts.Namespace, Name: SecretName, Labels: map[string]string{podmeta.LabelManagedBy: podmeta.ManagedBy}}
		if err := k.opts.API.Create(ctx, secret); err != nil {
			return fmt.Errorf("cannot make it: %w", err)
		}
		return nil
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[annotationRotated] = asked
	if err := k.opts.API.Update(ctx, secret); err != nil {
		return fmt.Errorf("cannot change it: %w", err)
	}
	k.opts.Log.Info("the certificate authorities have changed", "newest", now.all[0].certificate.Subject.CommonName, "trusted", len(now.all))
	return nil
}

// use has calls be made by these authorities from now on.
func (k *Keeper) use(now *Authorities) {
	k.mu.Lock()
	before := k.now
	if before != nil && string(before.keys) == string(now.keys) {
		k.mu.Unlock()
		return
	}
	k.now = now
	clear(k.clients)
	clear(k.servers)
	k.mu.Unlock()
	if before == nil {
		close(k.known)
	}
	k.opts.Changed()
}

// Current are the authorities. It waits until there are any.
func (k *Keeper) Current(ctx context.Context) (*Authorities, error) {
	select {
	case <-k.known:
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot wait for the certificate authority, Secret %s/%s: %w", k.opts.Namespace, SecretName, ctx.Err())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now, nil
}

// Launcher is how the controller calls a launcher of that name.
func (k *Keeper) Launcher(ctx context.Context, name string) (*tls.Config, error) {
	now, err := k.Current(ctx)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, ServerName: name, RootCAs: now.pool(), GetClientCertificate: k.show(now)}, nil
}

// Requester is how the controller calls requesters. Their certificates are their
// own: the address says whom it calls, and what it says there is for nobody else
// of use.
func (k *Keeper) Requester(ctx context.Context) (*tls.Config, error) {
	now, err := k.Current(ctx)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, GetClientCertificate: k.show(now)}, nil
}

// show gives the newest of the controller's certificates that the server knows
// the authority of: a server that has not heard of the newest yet is shown the
// one before. Without any it shows none.
func (k *Keeper) show(now *Authorities) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		var errs []error
		for _, s := range now.all {
			c, err := k.client(s)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if asked.SupportsCertificate(c) == nil {
				return c, nil
			}
		}
		return &tls.Certificate{}, errors.Join(errs...)
	}
}

// client is the controller's certificate of an authority.
func (k *Keeper) client(of *signer) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.clients[of]; c != nil && k.opts.Now().Before(renewal(c.Leaf)) {
		return c, nil
	}
	c, err := of.client("hotseat-controller", clientLife, k.opts.Now())
	if err != nil {
		return nil, err
	}
	k.clients[of] = c
	return c, nil
}

// Serving gives the certificate by which the controller itself answers under a name,
// signed by the newest authority.
func (k *Keeper) Serving(name string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.now == nil {
			return nil, errors.New("there is no certificate authority yet")
		}
		if c := k.servers[name]; c != nil && k.opts.Now().Before(renewal(c.Leaf)) {
			return c, nil
		}
		c, err := k.now.all[0].server("hotseat-controller", name, k.opts.Now())
		if err == nil {
			k.servers[name] = c
		}
		return c, err
	}
}
