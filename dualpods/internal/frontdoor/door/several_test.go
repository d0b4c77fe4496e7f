package door_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"hotseat.dev/hotseat/dualpods/internal/frontdoor/access"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/demand"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/directory"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/door"
	"hotseat.dev/hotseat/dualpods/internal/frontdoor/metrics"
	"hotseat.dev/hotseat/spec/podmeta"
	"hotseat.dev/hotseat/spec/v1alpha1"
)

// engines answer without a network.
type engines func(*http.Request) (*http.Response, error)

func (e engines) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return e(r)
}

// answered is the answer of an engine: its address.
func answered(r *http.Request) *http.Response {
	body := io.NopCloser(strings.NewReader(r.URL.Host))
	return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: body, ContentLength: -1, Request: r}
}

// side is one of several front doors.
type side struct {
	*door.Door
	dir *directory.Directory
	own *demand.Own
}

func newSide(peers door.Peers, e engines) *side {
	s := &side{own: demand.NewOwn()}
	s.Door, s.dir = door.New(door.Options{
		Own: s.own, Peers: peers, Namespace: func(string) string { return namespace }, Access: access.New(namespace, false),
		Transport: e, SignEvery: time.Hour, Observer: metrics.New(s.own), Logger: slog.New(slog.DiscardHandler),
	})
	return s
}

func (s *side) model(byPrefix bool) {
	m := &v1alpha1.Model{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: llama.Name}}
	if byPrefix {
		m.Spec.LoadBalancing = &v1alpha1.LoadBalancing{Strategy: v1alpha1.StrategyPrefixHash}
	}
	s.dir.SetModel(m)
}

func (s *side) pod(n int) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("llama-%d", n),
		Labels: map[string]string{podmeta.LabelModel: llama.Name, podmeta.LabelModelEntry: "default", podmeta.LabelServes: llama.Name},
	}}
	pod.Status.PodIP = fmt.Sprintf("10.0.0.%d", n)
	s.dir.SetPod(pod)
}

// ask asks for the answer to a prompt.
func (s *side) ask(prompt string) (int, string) {
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", bytes.NewBufferString(fmt.Sprintf(`{"model": "llama", "prompt": %q}`, prompt)))
	r.Header.Set("Content-Type", "application/json")
	got := httptest.NewRecorder()
	s.ServeHTTP(got, r)
	return got.Code, got.Body.String()
}

func TestFrontDoorsAgreeOnTheRing(t *testing.T) {
	echo := engines(func(r *http.Request) (*http.Response, error) { return answered(r), nil })
	one, other := newSide(nobody{}, echo), newSide(nobody{}, echo)
	one.model(true)
	for n := range 8 {
		one.pod(n)
		other.pod(7 - n)
	}
	other.model(true)
	chosen := map[string]bool{}
	for i := range 200 {
		_, a := one.ask(fmt.Sprint("prompt ", i))
		_, b := other.ask(fmt.Sprint("prompt ", i))
		require.Equal(t, a, b)
		chosen[a] = true
	}
	assert.Greater(t, len(chosen), 4)
}

// A request at one front door counts at the other one within 100 ms: the fastest of ten, since the test may run on a
// machine that is slow for a moment.
func TestFrontDoorsAgreeOnLoad(t *testing.T) {
	asked, end := make(chan string), make(chan struct{})
	one := newSide(nobody{}, func(r *http.Request) (*http.Response, error) {
		asked <- r.URL.Host
		<-end
		return answered(r), nil
	})
	tells := httptest.NewServer(one.own)
	defer tells.Close()
	changed, transport := make(chan struct{}, 1000), &http.Transport{}
	defer transport.CloseIdleConnections()
	listener := demand.NewListener(demand.Options{Client: &http.Client{Transport: transport}, Logger: slog.New(slog.DiscardHandler), Changed: func([]types.NamespacedName) { changed <- struct{}{} }})
	defer listener.Close()
	listener.Listen(map[string]string{"one": tells.URL})
	other := newSide(listener, func(r *http.Request) (*http.Response, error) { return answered(r), nil })
	for _, s := range []*side{one, other} {
		s.model(false)
		s.pod(1)
		s.pod(2)
	}
	inFlight := func(n int) {
		for {
			if count, _ := listener.Of(llama); count.Total() == n {
				return
			}
			<-changed
		}
	}
	for spoken := false; !spoken; runtime.Gosched() {
		_, spoken = listener.Of(llama)
	}
	fastest, done := time.Hour, make(chan struct{})
	for range 10 {
		go func() { one.ask("x"); done <- struct{}{} }()
		busy := <-asked
		since := time.Now()
		inFlight(1)
		fastest = min(fastest, time.Since(since))
		_, chosen := other.ask("x")
		assert.NotEqual(t, busy, chosen, "the other front door knows which Pod is busy")
		end <- struct{}{}
		<-done
		inFlight(0)
	}
	assert.Less(t, fastest, 100*time.Millisecond)
}

// slow are peers that let other requests go first.
type slow struct{}

func (slow) Of(types.NamespacedName) (demand.Count, bool) {
	for range 100 {
		runtime.Gosched()
	}
	return demand.Count{}, true
}

func TestRequestsThatComeTogetherAreSpread(t *testing.T) {
	for _, byPrefix := range []bool{false, true} {
		asked, end := make(chan struct{}), make(chan struct{})
		s := newSide(slow{}, func(r *http.Request) (*http.Response, error) {
			asked <- struct{}{}
			<-end
			return answered(r), nil
		})
		s.model(byPrefix)
		for n := range 4 {
			s.pod(n)
		}
		done := make(chan struct{})
		for range 40 {
			go func() { s.ask("x"); done <- struct{}{} }()
		}
		for range 40 {
			<-asked
		}
		for pod, n := range s.own.Of(llama).InFlight {
			assert.LessOrEqual(t, n, map[bool]int{false: 10, true: 13}[byPrefix], "%s, of a mean of 10 and a bound of 125 %%", pod)
		}
		close(end)
		for range 40 {
			<-done
		}
		assert.Empty(t, s.own.All())
	}
}

// The last Pod goes at the moment at which a request comes. Another one comes once somebody waits.
func TestRequestAtTheMomentOfScaleDownIsNotLost(t *testing.T) {
	const seeds = 1000
	how := map[string]int{}
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 43)) //nolint:gosec // a schedule
		dead := make(chan struct{})               // the engine of the Pod that goes
		s := newSide(nobody{}, func(r *http.Request) (*http.Response, error) {
			select {
			case <-dead:
				if r.URL.Host == "10.0.0.1:8000" {
					return nil, errors.New("connection refused")
				}
			default:
			}
			return answered(r), nil
		})
		s.model(false)
		s.pod(1)
		const requests = 3
		got := make(chan string, requests)
		for range requests {
			pause := random.IntN(20)
			go func() {
				for range pause {
					runtime.Gosched()
				}
				status, by := s.ask("x")
				got <- fmt.Sprint(status, " ", by)
			}()
		}
		order := random.Perm(2)
		for _, step := range order { // mostly the label goes first, but a node may die
			for range random.IntN(20) {
				runtime.Gosched()
			}
			if step == 0 {
				s.dir.DeletePod(types.NamespacedName{Namespace: namespace, Name: "llama-1"})
			} else {
				close(dead)
			}
		}
		for n, back := 0, false; n < requests; {
			select {
			case a := <-got:
				require.True(t, strings.HasPrefix(a, "200 10.0.0."), "seed %d: %s", seed, a)
				how[a]++
				n++
			default:
				if !back && s.own.Of(llama).Held > 0 {
					back = true
					s.pod(2)
				}
				runtime.Gosched()
			}
		}
		require.Empty(t, s.own.All(), "seed %d", seed)
		s.Close()
	}
	assert.Len(t, how, 2, "some were served before, and some after: %v", how)
}
