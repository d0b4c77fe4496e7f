package authority

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is the time of a test.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// kept is a Keeper over an API server that has nothing.
type kept struct {
	*Keeper
	t       *testing.T
	api     client.Client
	clock   clock
	changes int
}

func newKept(t *testing.T) *kept {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	k := &kept{t: t, api: fake.NewClientBuilder().WithScheme(scheme).Build(), clock: clock{now: time.Now().Add(-2 * retireAfter)}} // what crypto/tls compares with is the time of the machine
	k.Keeper = k.another()
	return k
}

// another is a Keeper of another replica.
func (k *kept) another() *Keeper {
	return New(Options{API: k.api, Namespace: "system", Changed: func() { k.changes++ }, Now: k.clock.read, Log: logr.Discard()})
}

func (k *kept) pass(keeper *Keeper) time.Duration {
	k.t.Helper()
	again, err := keeper.look(k.t.Context())
	require.NoError(k.t, err)
	return again
}

func (k *kept) secret() *corev1.Secret {
	k.t.Helper()
	var s corev1.Secret
	require.NoError(k.t, k.api.Get(k.t.Context(), client.ObjectKey{Namespace: "system", Name: SecretName}, &s))
	return &s
}

func (k *kept) ask(value string) {
	k.t.Helper()
	s := k.secret()
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[AnnotationRotation] = value
	require.NoError(k.t, k.api.Update(k.t.Context(), s))
}

func (k *kept) trusted() int { return len(k.now.all) }

func TestAnAuthorityIsMadeOnceAndIsTheSameForTheNextReplica(t *testing.T) {
	k := newKept(t)
	again := k.pass(k.Keeper)
	assert.Equal(t, 1, k.changes)
	assert.InDelta(t, float64(caLife*2/3), float64(again), float64(24*time.Hour))
	first := k.secret()
	assert.Equal(t, first.Data[corev1.TLSCertKey], k.now.Certificates())
	k.pass(k.Keeper)
	next := k.another()
	k.pass(next)
	assert.Equal(t, first.ResourceVersion, k.secret().ResourceVersion, "nothing is written again")
	assert.Equal(t, k.now.Certificates(), next.now.Certificates())
	assert.Equal(t, 2, k.changes, "each has heard of it once")
}

func TestAnAuthorityIsFollowedWhenAskedAndBeforeItEndsAndIsRetiredLater(t *testing.T) {
	k := newKept(t)
	k.pass(k.Keeper)
	first := k.now.all[0].certificate
	k.ask("1")
	again := k.pass(k.Keeper)
	assert.Equal(t, 2, k.trusted())
	assert.NotEqual(t, first.Raw, k.now.all[0].certificate.Raw)
	assert.Equal(t, first.Raw, k.now.all[1].certificate.Raw, "the one before is trusted still")
	assert.InDelta(t, float64(retireAfter), float64(again), float64(time.Minute))
	k.pass(k.Keeper)
	assert.Equal(t, 2, k.trusted(), "who asked has been heard")
	k.clock.pass(again + time.Second)
	k.pass(k.Keeper)
	assert.Equal(t, 1, k.trusted(), "the one before is retired")
	second := k.now.all[0].certificate
	k.clock.pass(caLife*2/3 + 24*time.Hour)
	k.pass(k.Keeper)
	assert.Equal(t, 2, k.trusted())
	assert.Equal(t, second.Raw, k.now.all[1].certificate.Raw, "a third of its life was left")
	assert.True(t, k.clock.read().Before(second.NotAfter))
}

func TestASecretThatIsRemovedOrSpoiledIsMadeAnew(t *testing.T) {
	for what, harm := range map[string]func(*kept){
		"removed": func(k *kept) { require.NoError(k.t, k.api.Delete(k.t.Context(), k.secret())) },
		"no key": func(k *kept) {
			s := k.secret()
			delete(s.Data, corev1.TLSPrivateKeyKey)
			require.NoError(k.t, k.api.Update(k.t.Context(), s))
		},
		"the key of another": func(k *kept) {
			other := newKept(k.t)
			other.pass(other.Keeper)
			s := k.secret()
			s.Data[corev1.TLSPrivateKeyKey] = other.now.keys
			require.NoError(k.t, k.api.Update(k.t.Context(), s))
		},
	} {
		t.Run(what, func(t *testing.T) {
			k := newKept(t)
			k.pass(k.Keeper)
			before := k.now.Certificates()
			harm(k)
			k.pass(k.Keeper)
			assert.NotEqual(t, before, k.now.Certificates())
			assert.Equal(t, k.now.Certificates(), k.secret().Data[corev1.TLSCertKey])
		})
	}
}

func TestTheKeeperIsToldOfAChangeAndWhoWaitsGetsTheAuthority(t *testing.T) {
	k := newKept(t)
	ctx, stop := context.WithCancel(t.Context())
	short, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	_, err := k.Current(short)
	require.ErrorContains(t, err, "cannot wait for the certificate authority, Secret system/hotseat-ca")
	ended := make(chan error, 1)
	go func() { ended <- k.Start(ctx) }()
	first, err := k.Current(ctx)
	require.NoError(t, err)
	k.ask("now")
	k.Nudge()
	require.Eventually(t, func() bool {
		now, err := k.Current(ctx)
		return err == nil && string(now.Certificates()) != string(first.Certificates())
	}, patience.Wait(), time.Millisecond)
	stop()
	assert.NoError(t, <-ended)
}

// served is a launcher, as far as certificates go, with its files.
type served struct {
	dir     string
	address string
}

func (s *served) write(t *testing.T, of *Authorities, trusts *Authorities, now time.Time) {
	t.Helper()
	cert, key, err := of.Server("vllm.ns.launchers.hotseat.dev", now)
	require.NoError(t, err)
	for name, text := range map[string][]byte{mtls.CertFile: cert, mtls.KeyFile: key, mtls.CAFile: trusts.Certificates()} {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), text, 0o600))
	}
}

func serve(t *testing.T, k *kept) *served {
	t.Helper()
	s := &served{dir: t.TempDir()}
	s.write(t, k.now, k.now, k.clock.read())
	config, err := mtls.Server{
		CertFile: filepath.Join(s.dir, mtls.CertFile), KeyFile: filepath.Join(s.dir, mtls.KeyFile), ClientCAFile: filepath.Join(s.dir, mtls.CAFile),
	}.Config()
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	s.address = l.Addr().String()
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mtls.Shown(r) {
			w.WriteHeader(http.StatusForbidden)
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		assert.ErrorIs(t, <-ended, http.ErrServerClosed)
	})
	return s
}

// call asks a launcher of that name once, by a connection of its own.
func (k *kept) call(s *served, name string) (int, error) {
	k.t.Helper()
	config, err := k.Launcher(k.t.Context(), name)
	require.NoError(k.t, err)
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Get("https://" + s.address)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Body.Close()
}

func TestTheControllerAndALauncherKnowEachOtherBeforeWhileAndAfterAnAuthorityIsFollowed(t *testing.T) {
	const name = "vllm.ns.launchers.hotseat.dev"
	k := newKept(t)
	k.pass(k.Keeper)
	s := serve(t, k)
	known := func(what string) {
		t.Helper()
		status, err := k.call(s, name)
		require.NoError(t, err, what)
		assert.Equal(t, http.StatusOK, status, what)
	}
	known("at first")
	_, err := k.call(s, "other.ns.launchers.hotseat.dev")
	require.ErrorContains(t, err, "certificate is valid for "+name)
	before := k.now
	k.ask("1")
	k.pass(k.Keeper)
	known("the launcher has not heard of the next")
	s.write(t, before, k.now, k.clock.read())
	known("it trusts the next, and has its own certificate of the one before")
	s.write(t, k.now, k.now, k.clock.read())
	known("it has heard of the next")
	k.clock.pass(retireAfter + time.Minute)
	k.pass(k.Keeper)
	known("the one before is retired")
	s.write(t, k.now, k.now, k.clock.read())
	known("and not trusted any more")
	s.write(t, before, before, k.clock.read())
	_, err = k.call(s, name)
	assert.ErrorContains(t, err, "unknown authority", "a launcher that slept through all of it")
}

func TestTheControllersOwnCertificateIsRenewed(t *testing.T) {
	k := newKept(t)
	k.pass(k.Keeper)
	first, err := k.client(k.now.all[0])
	require.NoError(t, err)
	again, err := k.client(k.now.all[0])
	require.NoError(t, err)
	assert.Same(t, first, again)
	k.clock.pass(clientLife * 2 / 3)
	next, err := k.client(k.now.all[0])
	require.NoError(t, err)
	assert.NotSame(t, first, next)
	assert.True(t, k.clock.read().Before(first.Leaf.NotAfter))
}

func TestRequestersOfANamespaceAreToldWhomToTrust(t *testing.T) {
	k := newKept(t)
	k.pass(k.Keeper)
	p := &Publisher{API: k.api, Current: k.Current}
	look := func() (c corev1.ConfigMap) {
		t.Helper()
		_, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "ns"}})
		require.NoError(t, err)
		require.NoError(t, k.api.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "hotseat-ca"}, &c))
		assert.Equal(t, map[string]string{"ca.crt": string(k.now.Certificates())}, c.Data)
		return c
	}
	first := look()
	assert.Equal(t, first.ResourceVersion, look().ResourceVersion, "it is written once")
	k.ask("1")
	k.pass(k.Keeper)
	changed := look()
	changed.Data["more"] = "somebody's"
	require.NoError(t, k.api.Update(t.Context(), &changed))
	look()
	require.NoError(t, k.api.Delete(t.Context(), &changed))
	look()
	assert.False(t, apierrors.IsNotFound(k.api.Get(t.Context(), client.ObjectKeyFromObject(&first), &first)))
}

func TestAPersonCallsALauncherInTheControllersPlaceForALimitedTime(t *testing.T) {
	k := newKept(t)
	_, err := Read(t.Context(), k.api, "system")
	require.EqualError(t, err, `cannot read the certificate authority in namespace system: secrets "hotseat-ca" not found`)
	k.pass(k.Keeper)
	k.ask("1")
	k.pass(k.Keeper) // another authority follows
	s := serve(t, k)
	now, err := Read(t.Context(), k.api, "system")
	require.NoError(t, err)
	begun := time.Now()
	text, until, err := now.ByHand(time.Hour, begun)
	require.NoError(t, err)
	assert.WithinDuration(t, begun.Add(time.Hour), until, time.Second) // certificates know whole seconds

	own, err := tls.X509KeyPair(text, text)
	require.NoError(t, err)
	assert.Equal(t, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, own.Leaf.ExtKeyUsage, "whoever has it cannot pass for a launcher")
	assert.Equal(t, until, own.Leaf.NotAfter)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(text))
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: "vllm.ns.launchers.hotseat.dev", Certificates: []tls.Certificate{own},
	}}
	resp, err := (&http.Client{Transport: transport}).Get("https://" + s.address)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)

	for _, life := range []time.Duration{0, -time.Second, clientLife + time.Second} {
		_, _, err := now.ByHand(life, begun)
		assert.ErrorContains(t, err, "a certificate cannot last "+life.String()+": it can last up to 24h0m0s")
	}
	secret := k.secret()
	secret.Data[corev1.TLSCertKey] = []byte("spoiled")
	require.NoError(t, k.api.Update(t.Context(), secret))
	_, err = Read(t.Context(), k.api, "system")
	assert.ErrorContains(t, err, "cannot use Secret system/hotseat-ca")
}

func TestTheControllersOwnServerIsSignedByTheAuthorityOfNow(t *testing.T) {
	k := newKept(t)
	_, err := k.Serving("early")(nil)
	require.ErrorContains(t, err, "no certificate authority yet")
	k.pass(k.Keeper)
	const name = "hotseat.system.svc"
	serving := k.Serving(name)
	verified := func(by []byte, c *tls.Certificate) error {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(by)
		_, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: pool, CurrentTime: k.clock.read()})
		return err
	}
	first, err := serving(nil)
	require.NoError(t, err)
	before, err := k.Current(t.Context())
	require.NoError(t, err)
	require.NoError(t, verified(before.Certificates(), first))
	same, err := serving(nil)
	require.NoError(t, err)
	assert.Same(t, first, same)

	k.clock.pass(serverLife)
	renewed, err := serving(nil)
	require.NoError(t, err)
	require.NoError(t, verified(before.Certificates(), renewed), "before it ends it is made anew")

	k.ask("another")
	k.pass(k.Keeper)
	after, err := k.Current(t.Context())
	require.NoError(t, err)
	next, err := serving(nil)
	require.NoError(t, err)
	require.NoError(t, verified(after.Certificates(), next))
	require.Error(t, verified(before.Certificates(), next), "another authority signs")
}
