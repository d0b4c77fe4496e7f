package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/api"
	"hotseat.dev/hotseat/test/enginesim/internal/tree"
)

// answer serves until it is told to stop or EngineCore is gone, and ends what
// is below.
func (a *apiServer) answer(ln net.Listener) error {
	handler := api.New(api.Options{
		Engine: a.engine, Log: a.out, Names: a.names, Root: a.model, MaxModelLen: a.maxModelLen, Seed: a.seed,
		Replicas: a.dp, Workers: a.dp * a.tp * a.pp, APIKeys: a.apiKeys, DevMode: a.devMode, TrackLoad: a.trackLoad,
		AccessLog: a.accessLog, Version: tree.Version, Settings: a.sim, Crash: a.crash,
	})
	if a.devMode {
		a.out.Warn("__init__.py:44", "SECURITY WARNING: Development endpoints are enabled! This should NOT be used in production!")
	}
	a.out.Info("entry.py:139", "Starting vLLM server on http://%s", ln.Addr())
	a.out.Info("launcher.py:61", "Available routes are:")
	for _, line := range handler.Routes() {
		a.out.Info("launcher.py:70", "%s", line)
	}
	srv := &http.Server{Handler: handler, IdleTimeout: a.keepAlive, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		//nolint:errcheck // it always ends with an error: that it was closed
		srv.Serve(ln)
	}()
	a.errs.Plain("INFO:     Started server process [%d]\nINFO:     Waiting for application startup.\nINFO:     Application startup complete.", os.Getpid())
	if a.sim.CrashAtReady.Due("api", a.sim.OnceFile) {
		go a.crash(a.sim.CrashAtReady)
	}
	a.untilTheEnd()
	err := a.tree.Close()
	a.errs.Plain("INFO:     Shutting down")
	a.closeServer(srv)
	<-served
	a.errs.Plain("INFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.")
	return err
}

// untilTheEnd returns when the server should end: on a signal, with the
// requests in flight ended, or some time after EngineCore has gone.
func (a *apiServer) untilTheEnd() {
	for {
		select {
		case <-a.signals:
			if a.sim.IgnoreTerm {
				continue
			}
			a.out.Info("launcher.py:129", "[shutdown] API server: shutdown triggered")
			a.drain()
			a.engine.Stop()
			return
		case <-a.tree.Died():
			if a.crashing.Load() {
				select {}
			}
			a.out.Error("async_llm.py:843", "AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.")
			a.engine.Die()
			time.Sleep(a.sim.DeadDelay)
			return
		}
	}
}

// drain waits for the requests in flight as long as --shutdown-timeout says.
func (a *apiServer) drain() {
	mode := "abort"
	if a.shutdownTimeout > 0 {
		mode = "drain"
	}
	a.out.Info("launcher.py:145", "[shutdown] API server: stopping engine client mode=%s timeout=%.0fs", mode, a.shutdownTimeout.Seconds())
	if a.shutdownTimeout > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), a.shutdownTimeout)
		defer cancel()
		//nolint:errcheck // what is not done by then is cut
		a.engine.Drain(ctx)
	}
}

// closeServer lets answers that have ended be written, and cuts what has not.
func (a *apiServer) closeServer(srv *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if srv.Shutdown(ctx) != nil {
		//nolint:errcheck // the process ends with the connections
		srv.Close()
	}
}
