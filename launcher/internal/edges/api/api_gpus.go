package api

import (
	"context"

	"hotseat.dev/hotseat/spec/launcherapi"
)

func (s *Server) gpus(context.Context, *none) (*body[launcherapi.GPUList], error) {
	return answer(s.opts.Instances.GPUs(), nil)
}

func (s *Server) preloaders(context.Context, *none) (*body[launcherapi.PreloaderList], error) {
	return answer(s.opts.Preloaders(), nil)
}
