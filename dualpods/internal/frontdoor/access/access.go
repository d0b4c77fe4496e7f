// Package access knows the tokens of clients, each with the Models that it is for.
package access

import (
	"crypto/sha256"
	"net/http"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/launcher/inference"
)

// The keys of a Secret with a token.
const (
	keyToken     = "token"     // #nosec G101 -- the name of a key
	keyModels    = "models"    // names of Models, one on each line or separated by commas; absent: all
	keyNamespace = "namespace" // of the Models; absent: that of the front door's Models
)

// The headers with a token: OpenAI's and Anthropic's.
const (
	headerBearer = "Authorization"
	headerKey    = "X-Api-Key"
)

// Grant says which Models a client may ask.
type Grant struct {
	everything bool
	namespace  string
	models     []string // nil: all of the namespace
}

// Allows reports whether the client may ask a Model.
func (g Grant) Allows(model types.NamespacedName) bool {
	return g.everything || g.namespace == model.Namespace && (g.models == nil || slices.Contains(g.models, model.Name))
}

// Tokens are the tokens of all clients. It is safe for concurrent use.
type Tokens struct {
	namespace string
	require   bool

	mu      sync.RWMutex
	grants  map[[sha256.Size]byte]map[types.NamespacedName]Grant // by the token's sum, and the Secret
	secrets map[types.NamespacedName][sha256.Size]byte           // also those without a token
}

// New returns no tokens. A Secret that names no namespace is for the Models of the one given. Without any Secret
// every client may ask every Model, unless a token is required.
func New(namespace string, require bool) *Tokens {
	return &Tokens{namespace: namespace, require: require, grants: map[[sha256.Size]byte]map[types.NamespacedName]Grant{}, secrets: map[types.NamespacedName][sha256.Size]byte{}}
}

// Required reports whether requests need a token.
func (t *Tokens) Required() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.require || len(t.secrets) > 0
}

// Set notes a Secret. An empty token opens nothing, but the Secret closes the door to clients without a token.
func (t *Tokens) Set(secret *corev1.Secret) {
	name := types.NamespacedName{Namespace: secret.Namespace, Name: secret.Name}
	token := strings.TrimSpace(string(secret.Data[keyToken]))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(name)
	sum := sha256.Sum256([]byte(token))
	t.secrets[name] = sum
	if token == "" {
		return
	}
	grant := Grant{namespace: t.namespace}
	if of := strings.TrimSpace(string(secret.Data[keyNamespace])); of != "" {
		grant.namespace = of
	}
	if names, ok := secret.Data[keyModels]; ok {
		grant.models = strings.FieldsFunc(string(names), func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
		if grant.models == nil {
			grant.models = []string{} // none, which is not all
		}
	}
	if t.grants[sum] == nil {
		t.grants[sum] = map[types.NamespacedName]Grant{}
	}
	t.grants[sum][name] = grant
}

// Delete forgets a Secret.
func (t *Tokens) Delete(name types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(name)
}

func (t *Tokens) forget(name types.NamespacedName) {
	sum := t.secrets[name]
	delete(t.secrets, name)
	delete(t.grants[sum], name)
	if len(t.grants[sum]) == 0 {
		delete(t.grants, sum)
	}
}

// Of returns what the client of a request may ask, and whether it may ask anything at all. Several Secrets with one
// token are a mistake: the token is for the Models of the one whose name comes first.
func (t *Tokens) Of(r *http.Request) (Grant, bool) {
	if !t.Required() {
		return Grant{everything: true}, true
	}
	token := tokenOf(r.Header)
	if token == "" {
		return Grant{}, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	grants := t.grants[sha256.Sum256([]byte(token))]
	var first types.NamespacedName
	for name := range grants {
		if first.Name == "" || name.String() < first.String() {
			first = name
		}
	}
	grant, ok := grants[first]
	return grant, ok
}

// tokenOf returns the token of a request; empty: it has none.
func tokenOf(h http.Header) string {
	if token, ok := inference.BearerToken(h); ok {
		return token
	}
	return strings.TrimSpace(h.Get(headerKey))
}

// Remove removes the token from what is passed on.
func Remove(h http.Header) {
	h.Del(headerBearer)
	h.Del(headerKey)
}
