package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
)

// settings are what the command line says.
type settings struct {
	listen, demandListen, probesListen string
	tlsCert, tlsKey                    string // files; empty: clients speak HTTP
	demandTLS                          string // a folder; empty: the controller and the other front doors speak HTTP
	scalerListen                       string // empty: the front door is no external scaler of KEDA
	scalerTLS                          string // a folder; empty: only with scalerPlain
	scalerPlain                        bool   // KEDA may speak without TLS
	namespace                          string // of the Models that a host name without a rule stands for
	hosts                              map[string]string
	domain                             string // of host names that begin with a namespace
	watchNamespace, ownNamespace       string
	podUID, kubeconfig                 string
	requireTokens                      bool
	connections                        int
	dialTimeout, shutdownDelay, grace  time.Duration
	level                              slog.Level
	help                               string
}

var errHelp = errors.New("help was asked for")

const intro = `The front door is the address of all Models of a cluster: it answers the OpenAI API, holds requests while no
replica serves their Model, and tells the controller how many requests there are.

Usage: frontdoor --namespace NAMESPACE --own-namespace NAMESPACE [flags]

`

// parse reads the flags.
func parse(args []string) (settings, error) {
	var s settings
	var level string
	flags := pflag.NewFlagSet("frontdoor", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {}
	flags.StringVar(&s.listen, "listen", ":8000", "`address` for clients")
	flags.StringVar(&s.tlsCert, "tls-cert", "", "`file` with the certificate for clients, which then speak HTTPS; the program reads it again for each connection, so a renewed certificate takes effect at once")
	flags.StringVar(&s.tlsKey, "tls-key", "", "`file` with the key of that certificate")
	flags.StringVar(&s.demandListen, "demand-listen", ":8002", "`address` where the controller and the other front doors ask for the number of requests")
	flags.StringVar(&s.demandTLS, "demand-tls", "", "`folder` with tls.crt, tls.key and ca.crt, which the controller makes: then only the controller and front doors with that certificate may ask; a front door calls the others with it")
	flags.StringVar(&s.probesListen, "probes-listen", ":8082", "`address` of /healthz, /readyz and /metrics")
	flags.StringVar(&s.scalerListen, "scaler-listen", "", "`address` at which this front door is an external scaler of KEDA, by gRPC; empty: it is none")
	flags.StringVar(&s.scalerTLS, "scaler-tls", "", "`folder` with tls.crt, tls.key, and the authority of KEDA's certificate in ca.crt; the program reads the files again for each connection")
	flags.BoolVar(&s.scalerPlain, "scaler-plain", false, "answer every client at --scaler-listen, without TLS")
	flags.StringVar(&s.namespace, "namespace", "", "`namespace` of the Models of clients whose host name has no --host")
	flags.StringToStringVar(&s.hosts, "host", nil, "`HOST=NAMESPACE`: the namespace of the Models of a host name; may be given again")
	flags.StringVar(&s.domain, "host-domain", "", "`domain` of host names that begin with a namespace: NAMESPACE.DOMAIN stands for the Models of NAMESPACE")
	flags.StringVar(&s.watchNamespace, "watch-namespace", "", "the only `namespace` whose Models are served; empty: all")
	flags.StringVar(&s.ownNamespace, "own-namespace", "", "`namespace` of the front doors")
	flags.StringVar(&s.podUID, "pod-uid", "", "`UID` of this Pod")
	flags.BoolVar(&s.requireTokens, "require-tokens", false, "refuse clients without a token also while there is no Secret with one")
	flags.IntVar(&s.connections, "max-connections", 4096, "how many connections of clients may be open; beyond that, those without a request are closed first")
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "`file` that says where the API server is; empty: that of the Pod's cluster")
	flags.DurationVar(&s.dialTimeout, "dial-timeout", time.Second, "how long a replica may take to accept a connection; `duration`")
	flags.DurationVar(&s.shutdownDelay, "shutdown-delay", 5*time.Second, "how long to go on serving after SIGTERM, because Services may still lead clients here; `duration`")
	flags.DurationVar(&s.grace, "grace", 330*time.Second, "how long requests may take after that; `duration` that ends before the Pod's terminationGracePeriodSeconds")
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	s.help = intro + flags.FlagUsages()
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return s, errHelp
	case err != nil:
		return s, err
	case flags.NArg() > 0:
		return s, fmt.Errorf("%q is no flag: there are only flags; see --help", flags.Arg(0))
	}
	if err := s.check(level); err != nil {
		return s, err
	}
	s.domain = strings.ToLower(s.domain)
	lower := map[string]string{}
	for host, namespace := range s.hosts {
		lower[strings.ToLower(host)] = namespace
	}
	s.hosts = lower
	return s, nil
}

// check returns an error if a flag is missing or has a wrong value.
func (s *settings) check(level string) error {
	switch {
	case s.namespace == "":
		return errors.New("--namespace is missing: give the namespace of the Models")
	case s.ownNamespace == "":
		return errors.New("--own-namespace is missing: give the namespace of this Pod")
	case (s.tlsCert == "") != (s.tlsKey == ""):
		return errors.New("--tls-cert and --tls-key belong together: give both, or none of them")
	case s.scalerListen != "" && (s.scalerTLS == "") != s.scalerPlain:
		return errors.New("--scaler-listen needs either --scaler-tls, or --scaler-plain to go without TLS")
	case s.connections < 1:
		return fmt.Errorf("--max-connections %d is too few: give 1 or more", s.connections)
	case s.level.UnmarshalText([]byte(level)) != nil:
		return fmt.Errorf("--log-level %q is none of debug, info, warn and error", level)
	}
	return nil
}

// namespaceOf returns the namespace whose Models a host name stands for.
func (s *settings) namespaceOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(host)
	if namespace, ok := s.hosts[host]; ok {
		return namespace
	}
	if namespace, domain, _ := strings.Cut(host, "."); s.domain != "" && domain == s.domain {
		return namespace
	}
	return s.namespace
}

// readiness answers the kubelet's probes, and Prometheus.
type readiness struct {
	is      atomic.Bool
	metrics http.Handler
}

func (r *readiness) set(is bool) { r.is.Store(is) }

func (r *readiness) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch {
	case q.URL.Path == "/healthz":
	case q.URL.Path == "/metrics":
		r.metrics.ServeHTTP(w, q)
	case q.URL.Path == "/readyz" && r.is.Load():
	case q.URL.Path == "/readyz":
		http.Error(w, "not ready", http.StatusServiceUnavailable)
	default:
		http.NotFound(w, q)
	}
}
