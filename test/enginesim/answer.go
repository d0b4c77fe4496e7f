package main

import (
	"context"
	"math"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"hotseat.dev/hotseat/test/enginesim/internal/api"
	"hotseat.dev/hotseat/test/enginesim/internal/tree"
)

// answer serves until it is told to stop or EngineCore is gone, and ends what
// is below. Without a listener it serves nobody: another process was ready on
// that port first, which vLLM does not notice either.
func (a *apiServer) answer(ln net.Listener) error {
	handler := api.New(api.Options{
		Engine: a.engine, Log: a.out, Names: a.names, Root: a.model, MaxModelLen: a.maxModelLen, MaxLogprobs: a.maxLogprobs, Pooling: a.pooling, Seed: a.seed,
		Replicas: a.dp, Workers: a.dp * a.tp * a.pp, WorkerClass: a.workerClass(), RootPath: a.rootPath, APIKeys: a.apiKeys, DevMode: a.devMode, TrackLoad: a.trackLoad,
		AccessLog: a.accessLog, Version: tree.Version, Settings: a.sim, Crash: a.crash,
	})
	if a.devMode {
		a.out.Warn("__init__.py:44", "SECURITY WARNING: Development endpoints are enabled! This should NOT be used in production!")
	}
	a.out.Info("entry.py:139", "Starting vLLM server on http://%s:%d", a.host, a.port)
	a.out.Info("launcher.py:61", "Available routes are:")
	for _, line := range handler.Routes() {
		a.out.Info("launcher.py:70", "%s", line)
	}
	srv := &http.Server{Handler: handler, IdleTimeout: a.keepAlive, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	if ln != nil {
		// It always ends with an error: that it was closed.
		serving.Go(func() { _ = srv.Serve(ln) })
	}
	a.errs.Plain("INFO:     Started server process [%d]\nINFO:     Waiting for application startup.\nINFO:     Application startup complete.", os.Getpid())
	if a.sim.CrashAtReady.Due("api", a.sim.OnceFile) {
		go a.crash(a.sim.CrashAtReady)
	}
	if a.sim.MuteAfter > 0 {
		time.AfterFunc(a.sim.MuteAfter, func() { a.engine.Spoil(true) })
	}
	grace := a.untilTheEnd()
	err := a.ranks.Close()
	a.errs.Plain("INFO:     Shutting down")
	closeServer(srv, grace)
	serving.Wait()
	a.errs.Plain("INFO:     Waiting for application shutdown.\nINFO:     Application shutdown complete.")
	return err
}

// untilTheEnd returns when the server should end: on a signal, with the
// requests in flight ended, or some time after EngineCore has gone. grace is
// how long clients then have to take their answers.
func (a *apiServer) untilTheEnd() (grace time.Duration) {
	for {
		select {
		case <-a.signals:
			if a.sim.IgnoreTerm {
				continue
			}
			a.out.Info("launcher.py:129", "[shutdown] API server: shutdown triggered")
			if a.sim.TermWaits {
				a.engine.Freeze()
				return forever
			}
			a.drain()
			a.engine.Stop()
			return time.Second
		case <-a.ranks.Lost():
			a.out.Error("multiproc_executor.py:314", "Worker of another node died unexpectedly, shutting down executor.")
			a.engine.Die()
			time.Sleep(a.sim.DeadDelay)
			return time.Second
		case <-a.tree.Died():
			if a.crashing.Load() {
				select {}
			}
			a.out.Error("async_llm.py:843", "AsyncLLM output_handler failed.\nvllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.")
			a.engine.Die()
			time.Sleep(a.sim.DeadDelay)
			return time.Second
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
		// What is not done by then is cut.
		_ = a.engine.Drain(ctx)
	}
}

const forever = time.Duration(math.MaxInt64)

// closeServer lets answers be finished, and cuts what is not in time.
func closeServer(srv *http.Server, grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	if srv.Shutdown(ctx) != nil {
		// The process ends with the connections.
		_ = srv.Close()
	}
}
