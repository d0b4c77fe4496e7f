// Adapter serves Kubernetes' custom metrics API for the tests of autoscalers: it
// has any metric that the Pods of a selector answer at port 8080, path /metrics,
// which it asks whenever it is asked. An autoscaler of the product's users has
// an adapter of theirs, such as that for Prometheus.
// (https://kubernetes.io/docs/reference/external-api/custom-metrics.v1beta2)
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const version = "custom.metrics.k8s.io/v1beta2"

// metricValueList is the type of that name of the API.
type metricValueList struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
	Items           []metricValue   `json:"items"`
}

type metricValue struct {
	DescribedObject corev1.ObjectReference `json:"describedObject"`
	Metric          struct {
		Name string `json:"name"`
	} `json:"metric"`
	Timestamp     metav1.Time       `json:"timestamp"`
	WindowSeconds int64             `json:"windowSeconds"`
	Value         resource.Quantity `json:"value"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("cannot find the API server: %w", err)
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("cannot ask the API server: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/"+version, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version, APIResources: []metav1.APIResource{},
		}, nil)
	})
	mux.HandleFunc("GET /apis/"+version+"/namespaces/{namespace}/pods/{pod}/{metric}", func(w http.ResponseWriter, r *http.Request) {
		list, err := values(r.Context(), api, r.PathValue("namespace"), r.URL.Query().Get("labelSelector"), r.PathValue("metric"))
		answer(w, list, err)
	})
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", ":6443")
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	server := httptest.NewUnstartedServer(mux) // with a certificate that nobody checks
	server.Listener = listener
	server.StartTLS()
	select {}
}

func answer(w http.ResponseWriter, what any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(what) // fails when the client has gone
}

// values asks every Pod that runs. One that does not have the metric now, such as
// a requester that nobody is bound to, is left out.
func values(ctx context.Context, api kubernetes.Interface, namespace, selector, metric string) (metricValueList, error) {
	list := metricValueList{TypeMeta: metav1.TypeMeta{Kind: "MetricValueList", APIVersion: version}, Items: []metricValue{}}
	pods, err := api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return list, fmt.Errorf("cannot list Pods: %w", err)
	}
	for _, pod := range pods.Items {
		value, ok := scrape(ctx, pod.Status.PodIP, metric)
		if !ok {
			continue
		}
		v := metricValue{
			DescribedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name},
			Timestamp:       metav1.Now(), Value: *resource.NewMilliQuantity(int64(value*1000), resource.DecimalSI),
		}
		v.Metric.Name = metric
		list.Items = append(list.Items, v)
	}
	return list, nil
}

// scrape adds up the series of a metric.
func scrape(ctx context.Context, ip, metric string) (sum float64, found bool) {
	ctx, stop := context.WithTimeout(ctx, 2*time.Second)
	defer stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(ip, "8080")+"/metrics", nil)
	if err != nil {
		return 0, false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, false
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		rest, ok := strings.CutPrefix(lines.Text(), metric)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		words := strings.Fields(rest)
		if value, err := strconv.ParseFloat(words[len(words)-1], 64); err == nil {
			sum, found = sum+value, true
		}
	}
	return sum, found
}
