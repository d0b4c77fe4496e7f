package authority

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"hotseat.dev/hotseat/spec/mtls"
	"hotseat.dev/hotseat/spec/podmeta"
)

func TestCertificateOfAgentsIsRenewedAndFollowsTheAuthority(t *testing.T) {
	k := newKept(t)
	k.pass(k.Keeper)
	a := &Servers{API: k.api, Kind: "agents", Namespace: "system", Secret: podmeta.AgentSecret, Name: mtls.AgentName("system"), Current: k.Current, Now: k.clock.read}
	look := func() (secret corev1.Secret, again time.Duration) {
		t.Helper()
		result, err := a.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		require.NoError(t, k.api.Get(t.Context(), client.ObjectKey{Namespace: "system", Name: podmeta.AgentSecret}, &secret))
		_, good := k.now.Good(secret.Data[mtls.CertFile], secret.Data[mtls.KeyFile], "system.agents.hotseat.dev", k.clock.read())
		assert.True(t, good)
		assert.Equal(t, k.now.Certificates(), secret.Data[mtls.CAFile])
		return secret, result.RequeueAfter
	}
	first, again := look()
	assert.Equal(t, longestWait, again)
	same, _ := look()
	assert.Equal(t, first.ResourceVersion, same.ResourceVersion, "nothing is written again")

	k.ask("1")
	k.pass(k.Keeper)
	followed, _ := look()
	assert.NotEqual(t, first.Data, followed.Data, "another authority signs")
	k.clock.pass(serverLife*2/3 - time.Hour)
	_, again = look()
	assert.Less(t, again, longestWait)
	k.clock.pass(again + time.Second)
	renewed, _ := look()
	assert.NotEqual(t, followed.Data[mtls.CertFile], renewed.Data[mtls.CertFile])

	delete(renewed.Data, mtls.KeyFile)
	require.NoError(t, k.api.Update(t.Context(), &renewed))
	look()
	require.NoError(t, k.api.Delete(t.Context(), &renewed))
	look()
}
