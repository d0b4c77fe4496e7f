package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	admissionapi "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/mtls/mtlstest"
	"hotseat.dev/hotseat/spec/v1alpha1"
	"hotseat.dev/hotseat/test/helpers/patience"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

// asker sends requests as an API server does, and trusts one authority.
type asker struct {
	t    *testing.T
	http http.Client
	url  string
}

// newAsker starts a webhook server whose Guard finds these uses.
func newAsker(t *testing.T, uses func(context.Context, *v1alpha1.ClusterModelCache) ([]string, error)) *asker {
	t.Helper()
	ca := mtlstest.New(t, "ca")
	certificate := ca.Server(t, ServerName("system"))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	require.NoError(t, free.Close())
	server := NewServer(port, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }, &Guard{Uses: uses})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), ServerName: ServerName("system")}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		assert.NoError(t, <-ended)
	})
	require.Eventually(t, func() bool { return server.StartedChecker()(nil) == nil }, patience.Wait(), time.Millisecond)
	return &asker{t: t, http: http.Client{Transport: transport}, url: fmt.Sprintf("https://127.0.0.1:%d%s", port, Path)}
}

// ask requests the deletion of an object, and returns the webhook's response.
func (a *asker) ask(old []byte) *admissionapi.AdmissionResponse {
	a.t.Helper()
	body, err := json.Marshal(admissionapi.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request:  &admissionapi.AdmissionRequest{UID: "u", Operation: admissionapi.Delete, OldObject: runtime.RawExtension{Raw: old}},
	})
	require.NoError(a.t, err)
	resp, err := a.http.Post(a.url, "application/json", bytes.NewReader(body))
	require.NoError(a.t, err)
	defer resp.Body.Close()
	var review admissionapi.AdmissionReview
	require.NoError(a.t, json.NewDecoder(resp.Body).Decode(&review))
	require.EqualValues(a.t, "u", review.Response.UID)
	return review.Response
}

func TestADeletionIsRefusedWhereSomebodyUsesTheModelNowAndNowhereElse(t *testing.T) {
	nine := make([]string, 0, 9)
	for n := range 9 {
		nine = append(nine, fmt.Sprintf("on node n%d by instance a", n))
	}
	cache := v1alpha1.ClusterModelCache{ObjectMeta: metav1.ObjectMeta{Name: "llama", UID: "1"}}
	cache.Status.Nodes = []v1alpha1.ModelNode{{Node: "n1", State: v1alpha1.ModelNodeReady, InUseBy: []string{"instance a"}}} // the status is stale
	cache.Status.InUse = 1
	going := cache
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for what, c := range map[string]struct {
		object  any
		uses    []string
		err     error
		refused []string // texts in the refusal
		warned  string
	}{
		"somebody uses it":                    {object: cache, uses: []string{"on node n1 by instance a"}, refused: []string{"ClusterModelCache llama is in use: on node n1 by instance a. Scale down the requesters of the model, then delete it again"}},
		"at many places":                      {object: cache, uses: nine, refused: []string{"on node n7 by instance a; and at 1 more places"}},
		"nobody does, whatever the status is": {object: cache},
		"it is being deleted":                 {object: going, uses: nine},
		"it cannot be told":                   {object: cache, err: errors.New("cannot list the launchers"), warned: "cannot list the launchers"},
		"it is no such object":                {object: "x", uses: nine, warned: "cannot read the object"},
	} {
		t.Run(what, func(t *testing.T) {
			a := newAsker(t, func(_ context.Context, asked *v1alpha1.ClusterModelCache) ([]string, error) {
				assert.EqualValues(t, "1", asked.UID)
				return c.uses, c.err
			})
			object, err := json.Marshal(c.object)
			require.NoError(t, err)
			answer := a.ask(object)
			assert.Equal(t, len(c.refused) == 0, answer.Allowed)
			for _, words := range c.refused {
				assert.EqualValues(t, http.StatusForbidden, answer.Result.Code)
				assert.Contains(t, answer.Result.Message, words)
			}
			if c.warned != "" {
				require.Len(t, answer.Warnings, 1)
				assert.Contains(t, answer.Warnings[0], c.warned)
			}
		})
	}
}

func TestAnAPIServerThatTrustsAnotherAuthorityDoesNotSpeakToIt(t *testing.T) {
	a := newAsker(t, nil)
	a.http.Transport.(*http.Transport).TLSClientConfig.RootCAs = x509.NewCertPool()
	_, err := a.http.Get(a.url)
	require.ErrorContains(t, err, "unknown authority")
}

// published is a Publisher with a fake API server that has objects of the chart.
type published struct {
	t   *testing.T
	api client.Client
	ca  string
	*Publisher
}

func newPublished(t *testing.T, objects ...client.Object) *published {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	p := &published{t: t, api: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), ca: "first"}
	p.Publisher = &Publisher{
		API: p.api, Namespace: "system", Address: netip.MustParseAddr("10.1.2.3"), Port: 9443,
		Certificates: func(context.Context) ([]byte, error) { return []byte(p.ca), nil },
	}
	return p
}

func configuration() *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: Configuration, UID: "hook"},
		Webhooks:   []admissionv1.ValidatingWebhook{{Name: "models.hotseat.dev"}},
	}
}

// pass runs a pass. It returns the certificates that the API server trusts, the addresses that it
// reaches, and the EndpointSlice.
func (p *published) pass() (trusted string, reached []string, slice discoveryv1.EndpointSlice) {
	p.t.Helper()
	_, err := p.Reconcile(p.t.Context(), reconcile.Request{})
	require.NoError(p.t, err)
	var hook admissionv1.ValidatingWebhookConfiguration
	if p.api.Get(p.t.Context(), client.ObjectKey{Name: Configuration}, &hook) == nil {
		trusted = string(hook.Webhooks[0].ClientConfig.CABundle)
	}
	if p.api.Get(p.t.Context(), client.ObjectKey{Namespace: "system", Name: Service}, &slice) == nil {
		for _, e := range slice.Endpoints {
			reached = append(reached, e.Addresses...)
		}
	}
	return trusted, reached, slice
}

func TestTheAPIServerTrustsTheAuthorityOfNowAndReachesTheReplicaThatLeads(t *testing.T) {
	p := newPublished(t, configuration())
	trusted, reached, slice := p.pass()
	assert.Equal(t, "first", trusted)
	assert.Equal(t, []string{"10.1.2.3"}, reached)
	assert.EqualValues(t, 9443, *slice.Ports[0].Port)
	assert.Equal(t, Service, slice.Labels[discoveryv1.LabelServiceName])
	require.Len(t, slice.OwnerReferences, 1)
	assert.EqualValues(t, "hook", slice.OwnerReferences[0].UID, "it goes with the release")

	p.ca = "second\nfirst"
	trusted, _, same := p.pass()
	assert.Equal(t, p.ca, trusted, "another authority is known at once")
	assert.Equal(t, slice.ResourceVersion, same.ResourceVersion, "what is right is not written")

	p.Address = netip.MustParseAddr("10.1.2.4") // another replica is the leader
	_, reached, _ = p.pass()
	assert.Equal(t, []string{"10.1.2.4"}, reached)

	require.NoError(t, p.api.Delete(t.Context(), &slice))
	_, reached, _ = p.pass()
	assert.Equal(t, []string{"10.1.2.4"}, reached, "what somebody deleted is made again")
}

func TestWithoutAConfigurationNothingIsMade(t *testing.T) {
	trusted, reached, _ := newPublished(t).pass()
	assert.Empty(t, trusted)
	assert.Empty(t, reached)
}
