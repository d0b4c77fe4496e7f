package api

import (
	"fmt"
	"html"
	"net/http"
	"strings"
	"time"
)

// health says whether the engine lives; asleep it lives.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	if s.faults.take(&s.faults.settings.HangAtHealth) {
		<-r.Context().Done()
		return
	}
	status := http.StatusOK
	if s.opts.Engine.State().Dead && !s.opts.Settings.HealthLies {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(status)
}

func (s *Server) empty(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]string{"version": s.opts.Version})
}

// serverLoad is 0 unless the load is tracked.
func (s *Server) serverLoad(w http.ResponseWriter, _ *http.Request) {
	load := int64(0)
	if s.opts.TrackLoad {
		load = s.load.Load()
	}
	reply(w, http.StatusOK, map[string]int64{"server_load": load})
}

type modelPermission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

type modelCard struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Created     int64             `json:"created"`
	OwnedBy     string            `json:"owned_by"`
	Root        string            `json:"root"`
	Parent      *string           `json:"parent"`
	MaxModelLen int               `json:"max_model_len"`
	Permission  []modelPermission `json:"permission"`
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	now := time.Now().Unix()
	var cards []modelCard
	for _, name := range s.opts.Names {
		cards = append(cards, modelCard{
			ID: name, Object: "model", Created: now, OwnedBy: "vllm", Root: s.opts.Root, MaxModelLen: s.opts.MaxModelLen,
			Permission: []modelPermission{{
				ID: "modelperm-" + newID(), Object: "model_permission", Created: now,
				AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
			}},
		})
	}
	reply(w, http.StatusOK, struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{"list", cards})
}

// openapi names the paths and no more.
func (s *Server) openapi(w http.ResponseWriter, _ *http.Request) {
	paths := map[string]map[string]struct{}{}
	for _, r := range s.table {
		if paths[r.path] == nil {
			paths[r.path] = map[string]struct{}{}
		}
		for _, m := range r.methods {
			paths[r.path][strings.ToLower(m)] = struct{}{}
		}
	}
	reply(w, http.StatusOK, map[string]any{
		"openapi": "3.1.0", "info": map[string]string{"title": "FastAPI", "version": "0.1.0"}, "paths": paths,
	})
}

func (s *Server) docs(w http.ResponseWriter, _ *http.Request) {
	var body strings.Builder
	body.WriteString("<!DOCTYPE html><title>FastAPI</title><ul>")
	for _, line := range s.Routes() {
		fmt.Fprintf(&body, "<li>%s</li>", html.EscapeString(line))
	}
	body.WriteString("</ul>")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", fmt.Sprint(body.Len()))
	w.WriteHeader(http.StatusOK)
	// A client that went away needs no answer.
	_, _ = w.Write([]byte(body.String()))
}
