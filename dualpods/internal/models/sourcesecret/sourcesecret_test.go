package sourcesecret

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"hotseat.dev/hotseat/spec/fetchapi"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

func TestALoginOfARegistryIsTakenFromTheSecretThatKubectlMakes(t *testing.T) {
	const login = `{"auths": {}}`
	has := fetchapi.Credentials{DockerConfig: login}
	found := Found{Named: Named{Namespace: "ns", Secret: "hub"}, Secrets: []Secret{{Name: "hub", Version: "1", Data: has}}}
	s := found.Shown("oci://ghcr.io/org/m:v1")
	assert.Empty(t, s.Problem)
	assert.Equal(t, map[string]string{"DOCKER_AUTH_CONFIG": DockerConfig}, s.Keys)
	assert.Equal(t, login, s.Values["DOCKER_AUTH_CONFIG"])
	assert.Contains(t, has, DockerConfig, "what was read is not changed")
}

// holder has what is read: Secrets by their keys, and one account.
type holder struct {
	secrets map[string]fetchapi.Credentials
	account *corev1.ServiceAccount
	refuses string // to let this be read
}

func (h *holder) lists(names ...string) {
	h.account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}
	for _, name := range names {
		h.account.Secrets = append(h.account.Secrets, corev1.ObjectReference{Name: name})
	}
}

func (h *holder) reader(t *testing.T) Reader {
	return Reader{
		Secret: func(_ context.Context, key client.ObjectKey) (*corev1.Secret, error) {
			assert.Equal(t, "ns", key.Namespace)
			if key.Name == h.refuses {
				return nil, errors.New("forbidden")
			}
			has, there := h.secrets[key.Name]
			if !there {
				return nil, apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
			}
			s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "v" + key.Name}, Data: map[string][]byte{}}
			for name, value := range has {
				s.Data[name] = []byte(value)
			}
			return s, nil
		},
		Account: func(_ context.Context, key client.ObjectKey) (*corev1.ServiceAccount, error) {
			assert.Equal(t, client.ObjectKey{Namespace: "ns", Name: "reader"}, key)
			switch {
			case h.refuses == key.Name:
				return nil, errors.New("forbidden")
			case h.account == nil:
				return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), key.Name)
			}
			return h.account, nil
		},
	}
}

func logins(auths string) fetchapi.Credentials {
	return fetchapi.Credentials{DockerConfig: `{"auths": {` + auths + `}}`}
}

func TestOfTheSecretsThatAServiceAccountListsTheOneCountsThatHasWhatTheSourceTakes(t *testing.T) {
	secrets := map[string]fetchapi.Credentials{
		"token": {"token": "x", "ca.crt": "x", "namespace": "ns"}, // as Kubernetes made them for each account
		"hub":   {"HF_TOKEN": "a"}, "same": {"HF_TOKEN": "a\n", "AWS_REGION": "eu"}, "other": {"HF_TOKEN": "b"}, "mistyped": {"HF_TOKEN": "a", "HF_TOKN": "a"}, "empty": {"HF_TOKEN": " "},
		"bucket": {"AWS_ACCESS_KEY_ID": "i", "AWS_SECRET_ACCESS_KEY": "s"}, "half": {"AWS_ACCESS_KEY_ID": "i"}, "region": {"AWS_REGION": "eu"},
		"ghcr": logins(`"https://ghcr.io/v2/": {"auth": "a"}`), "quay": logins(`"quay.io": {"auth": "q"}`), "both": logins(`"ghcr.io": {"auth": "a"}, "docker.io": {}`),
		"differs": logins(`"ghcr.io": {"auth": "b"}`), "hubless": {DockerConfig: "no JSON"}, "docker": logins(`"https://index.docker.io/v1/": {"auth": "d"}`), "podman": logins(`"docker.io": {"auth": "d"}`),
		"login": logins(`"ghcr.io": {"auth": "dTpw"}`), "kubectl": logins(`"https://ghcr.io": {"username": "u", "password": "p", "email": "e", "auth": "dTpw"}`),
		"kept": logins(`"ghcr.io": {}`),
	}
	const s3, oci = "s3://bucket/m", "oci://ghcr.io/org/m:v1"
	for name, c := range map[string]struct {
		uri          string // hf://org/m
		lists, pulls []string
		is           string // name of the Secret that counts
		reason, says string // why there is none
		runs         bool
		key          string // HF_TOKEN
	}{
		"the only one":                          {lists: []string{"hub"}, is: "hub"},
		"beside the account's own token":        {lists: []string{"token", "hub"}, is: "hub"},
		"beside one of another source":          {lists: []string{"bucket", "ghcr", "hub"}, is: "hub"},
		"of two that say the same the first":    {lists: []string{"same", "hub"}, is: "same"},
		"one that is not there does not matter": {lists: []string{"gone", "hub"}, is: "hub"},
		"two that say different things":         {lists: []string{"hub", "other"}, reason: v1alpha1.ReasonSecretInvalid, says: "Secrets hub and other, which ServiceAccount ns/reader lists, have different values of HF_TOKEN: list only one of them"},
		"a key that is not known":               {lists: []string{"mistyped"}, reason: v1alpha1.ReasonSecretInvalid, says: `the keys of Secret ns/mistyped of ServiceAccount ns/reader cannot be used: "HF_TOKN" is not known`},
		"none":                                  {reason: v1alpha1.ReasonSecretMissing, says: "ServiceAccount ns/reader lists no Secret with HF_TOKEN: list a Secret that has it among the secrets of the account"},
		"none that has it":                      {lists: []string{"bucket", "gone", "empty"}, reason: v1alpha1.ReasonSecretMissing, says: "none of the Secrets that ServiceAccount ns/reader lists (bucket; gone, which does not exist; empty) has HF_TOKEN: list a Secret"},
		"none, of a Job that runs as it":        {lists: []string{"bucket"}, runs: true, reason: v1alpha1.ReasonAccountUsed, says: "none of the Secrets that ServiceAccount ns/reader lists (bucket) has HF_TOKEN: the Job uses the identity of that account"},
		"a half":                                {uri: s3, lists: []string{"half"}, reason: v1alpha1.ReasonSecretInvalid, says: "a part of that is missing"},
		"what stands beside another alone":      {uri: s3, lists: []string{"region", "bucket"}, is: "bucket", key: "AWS_ACCESS_KEY_ID"},
		"of a bucket":                           {uri: s3, lists: []string{"hub", "bucket"}, is: "bucket", key: "AWS_ACCESS_KEY_ID"},
		"a Secret for images":                   {uri: oci, pulls: []string{"quay", "ghcr"}, is: "ghcr", key: "DOCKER_AUTH_CONFIG"},
		"among the others":                      {uri: oci, lists: []string{"token", "ghcr"}, pulls: []string{"ghcr"}, is: "ghcr", key: "DOCKER_AUTH_CONFIG"},
		"two Secrets with one login":            {uri: oci, pulls: []string{"both", "ghcr"}, is: "both", key: "DOCKER_AUTH_CONFIG"},
		"two logins":                            {uri: oci, pulls: []string{"ghcr", "differs"}, reason: v1alpha1.ReasonSecretInvalid, says: "have different values of a login for ghcr.io in DOCKER_AUTH_CONFIG or .dockerconfigjson"},
		"no login for that registry":            {uri: oci, pulls: []string{"quay", "hubless"}, reason: v1alpha1.ReasonSecretMissing, says: "has a login for ghcr.io in"},
		"of Docker's own registry":              {uri: "oci://docker.io/org/m", pulls: []string{"ghcr", "docker"}, is: "docker", key: "DOCKER_AUTH_CONFIG"},
		"of Docker's own registry, otherwise":   {uri: "oci://registry-1.docker.io/org/m", pulls: []string{"both", "podman"}, is: "podman", key: "DOCKER_AUTH_CONFIG"},
		"one login in two forms":                {uri: oci, pulls: []string{"login", "kubectl"}, is: "login", key: "DOCKER_AUTH_CONFIG"},
		"a login that a program keeps":          {uri: oci, pulls: []string{"kept", "ghcr"}, is: "ghcr", key: "DOCKER_AUTH_CONFIG"},
		"of a source that takes no credentials": {uri: "https://host/m", lists: []string{"hub"}, runs: true, reason: v1alpha1.ReasonAccountUsed, says: "(hub) has credentials for the source, which takes none: the Job uses the identity of that account"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &holder{secrets: secrets}
			h.lists(c.lists...)
			for _, name := range c.pulls {
				h.account.ImagePullSecrets = append(h.account.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
			}
			found, err := h.reader(t).Read(t.Context(), Named{Namespace: "ns", Account: "reader", Runs: c.runs})
			require.NoError(t, err)
			uri, key := "hf://org/m", "HF_TOKEN"
			if c.uri != "" {
				uri = c.uri
			}
			if c.key != "" {
				key = c.key
			}
			s := found.Shown(uri)
			assert.Equal(t, c.is, s.Secret)
			if c.is != "" {
				assert.Equal(t, Shown{Of: "Secret ns/" + c.is + " of ServiceAccount ns/reader", Secret: c.is, Reason: v1alpha1.ReasonSecretRead, Values: s.Values, Keys: s.Keys}, s)
				assert.NotEmpty(t, s.Values[key])
				assert.NotEmpty(t, secrets[c.is][s.Keys[key]])
				return
			}
			assert.Equal(t, c.reason, s.Reason)
			assert.Nil(t, s.Values)
			if c.runs {
				assert.Contains(t, s.Note, c.says)
				assert.Empty(t, s.Problem)
			} else {
				assert.Contains(t, s.Problem, c.says)
			}
		})
	}
}

func TestWhatACacheNamesIsReadAndWhatIsMissingIsTold(t *testing.T) {
	const uri = "hf://org/m"
	h := &holder{secrets: map[string]fetchapi.Credentials{"hub": {"HF_TOKEN": "a"}}}
	shown := func(named Named) Shown {
		t.Helper()
		named.Namespace = "ns"
		found, err := h.reader(t).Read(t.Context(), named)
		require.NoError(t, err)
		return found.Shown(uri)
	}
	assert.Equal(t, Shown{}, shown(Named{Runs: true}), "nothing is named")
	assert.Equal(t, "a", shown(Named{Secret: "hub"}).Values["HF_TOKEN"])
	assert.Equal(t, v1alpha1.ReasonSecretMissing, shown(Named{Secret: "gone"}).Reason)
	assert.Equal(t, v1alpha1.ReasonAccountMissing, shown(Named{Account: "reader"}).Reason)
	assert.Equal(t, v1alpha1.ReasonAccountMissing, shown(Named{Secret: "hub", Account: "reader", Runs: true}).Reason, "its Job could not run")
	h.lists("gone")
	both := shown(Named{Secret: "hub", Account: "reader", Runs: true})
	assert.Equal(t, "Secret ns/hub", both.Of, "what is named counts, and not what is listed")
	assert.Equal(t, "hub", both.Secret)

	for _, refused := range []string{"hub", "reader"} {
		h.lists("hub")
		h.refuses = refused
		found, err := h.reader(t).Read(t.Context(), Named{Namespace: "ns", Account: "reader"})
		require.Error(t, err)
		s := found.Shown(uri)
		assert.Equal(t, v1alpha1.ReasonSecretInvalid, s.Reason)
		assert.Contains(t, s.Problem, "ns/"+refused+": forbidden")
	}
}

func TestOfAnAccountThatListsThousandsOfSecretsTheFirstAreLookedAt(t *testing.T) {
	h := &holder{secrets: map[string]fetchapi.Credentials{"hub": {"HF_TOKEN": "a"}}}
	var names []string
	for n := range 5000 {
		names = append(names, fmt.Sprint("s", n))
	}
	shown := func(lists ...string) (Shown, int) {
		t.Helper()
		h.lists(lists...)
		found, err := h.reader(t).Read(t.Context(), Named{Namespace: "ns", Account: "reader"})
		require.NoError(t, err)
		return found.Shown("hf://org/m"), len(found.Secrets)
	}
	s, read := shown(append(names, "hub")...)
	assert.Equal(t, mostListed, read)
	assert.Equal(t, v1alpha1.ReasonSecretMissing, s.Reason)
	assert.Contains(t, s.Problem, "and 4969 more, which are not read) has HF_TOKEN")
	s, _ = shown(append([]string{"hub"}, names...)...)
	assert.Equal(t, "hub", s.Secret)
}

func TestAnotherVersionOfAnAccountOrOfASecretThatItListsIsToldFromTheOneBefore(t *testing.T) {
	h := &holder{secrets: map[string]fetchapi.Credentials{"hub": {}}}
	versions := func() string {
		t.Helper()
		found, err := h.reader(t).Read(t.Context(), Named{Namespace: "ns", Account: "reader"})
		require.NoError(t, err)
		return found.Versions()
	}
	assert.Empty(t, versions())
	h.lists("hub", "gone")
	assert.Equal(t, "7,vhub,", versions())
}
