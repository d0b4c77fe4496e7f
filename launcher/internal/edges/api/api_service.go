package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"hotseat.dev/hotseat/spec/launcherapi"
)

// none is the input of an operation that takes nothing.
type none struct{}

func (s *Server) index(context.Context, *none) (*body[launcherapi.Service], error) {
	endpoints := map[string]string{"openapi": "GET " + openapiPath + ".json", "docs": "GET " + docsPath}
	for _, r := range routes() {
		endpoints[r.id] = r.method + " " + r.path
	}
	return answer(launcherapi.Service{
		Name: launcherapi.ServiceName, Version: launcherapi.ServiceVersion, Server: "hotseat launcher " + s.opts.Version, Endpoints: endpoints,
	}, nil)
}

func (s *Server) health(context.Context, *none) (*body[launcherapi.Health], error) {
	health := launcherapi.Health{Status: "OK"}
	if since := s.opts.StalledSince(); !since.IsZero() {
		health.StateDisk = "does not answer since " + since.UTC().Format(time.RFC3339)
	}
	return answer(health, nil)
}

type readyOutput struct {
	Status int
	Body   launcherapi.Ready
}

func (s *Server) ready(context.Context, *none) (*readyOutput, error) {
	ready := s.opts.Ready()
	if ready.Status != launcherapi.ReadyStatus {
		return &readyOutput{http.StatusServiceUnavailable, ready}, nil
	}
	return &readyOutput{http.StatusOK, ready}, nil
}

func docReady(op *huma.Operation, schemas huma.Registry) {
	op.Responses["503"] = &huma.Response{
		Description: "Not yet, or not any more",
		Content:     map[string]*huma.MediaType{jsonContentType: {Schema: schemaOf[launcherapi.Ready](schemas)}},
	}
}

func (s *Server) metrics(context.Context, *none) (*streamOutput, error) {
	return &streamOutput{func(ctx huma.Context) {
		r, w := humachi.Unwrap(ctx)
		s.opts.Metrics.ServeHTTP(w, r)
	}}, nil
}

func docMetrics(op *huma.Operation, _ huma.Registry) {
	op.Responses["200"] = &huma.Response{
		Description: "Prometheus text format",
		Content:     map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}
}
