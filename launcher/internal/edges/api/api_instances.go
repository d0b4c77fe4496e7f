package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

// instanceInput names an instance.
type instanceInput struct {
	ID string `path:"instance_id" doc:"Id of the instance." example:"qwen3-8b"`
}

type createInput struct {
	Body launcherapi.InstanceSpec
}

type createNamedInput struct {
	ID   string `path:"instance_id" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" patternDescription:"usable as an instance id: a letter or digit, then letters, digits, '.', '_' or '-', at most 128 in all" doc:"Id of the instance; not watch." example:"qwen3-8b"`
	Body launcherapi.InstanceSpec
}

// create makes an instance of a client's request.
func (s *Server) create(c launcher.CreateRequest) (launcherapi.Instance, error) {
	if err := checkAnnotations("body.annotations", c.Spec.Annotations); err != nil {
		return launcherapi.Instance{}, err
	}
	return s.opts.Instances.Create(c)
}

// checkAnnotations refuses those by which the front door knows the instances that it has made: it
// deletes them when their model is gone.
func checkAnnotations(field string, annotations map[string]string) error {
	for _, name := range []string{launcherapi.AnnotationModel, launcherapi.AnnotationModelDigest} {
		if _, given := annotations[name]; given {
			return launcher.Invalidf(field, "the annotation %s is the front door's own; leave it out, or describe the model in the launcher's configuration", name)
		}
	}
	return nil
}

func (s *Server) createInstance(_ context.Context, in *createInput) (*body[launcherapi.Instance], error) {
	return answer(s.create(launcher.CreateRequest{Spec: in.Body}))
}

func (s *Server) createNamedInstance(_ context.Context, in *createNamedInput) (*body[launcherapi.Instance], error) {
	return answer(s.create(launcher.CreateRequest{ID: in.ID, Spec: in.Body}))
}

func (s *Server) getInstance(_ context.Context, in *instanceInput) (*body[launcherapi.Instance], error) {
	return answer(s.opts.Instances.Get(in.ID))
}

func (s *Server) deleteInstance(ctx context.Context, in *instanceInput) (*body[launcherapi.Instance], error) {
	return answer(s.opts.Instances.Delete(ctx, in.ID))
}

func (s *Server) deleteInstances(ctx context.Context, _ *none) (*body[launcherapi.StoppedList], error) {
	stopped, err := s.opts.Instances.DeleteAll(ctx)
	return answer(launcherapi.StoppedList{
		Status: launcherapi.AllStopped, StoppedInstances: listed(stopped), TotalStopped: len(stopped),
	}, err)
}

type listInput struct {
	Detail bool `query:"detail" default:"true" doc:"false: ids alone."`
}

func (s *Server) listInstances(_ context.Context, in *listInput) (*body[any], error) {
	all, revision := s.opts.Instances.List()
	if !in.Detail {
		list := launcherapi.InstanceIDList{Revision: revision, InstanceIDs: []string{}, Count: len(all)}
		for _, i := range all {
			list.InstanceIDs = append(list.InstanceIDs, i.InstanceID)
		}
		return answer[any](list, nil)
	}
	list, err := s.listing.encode(all, revision)
	return answer[any](list, err)
}

func docList(op *huma.Operation, schemas huma.Registry) {
	op.Responses["200"] = &huma.Response{
		Description: "The list, and the revision at which it was true",
		Content: map[string]*huma.MediaType{jsonContentType: {Schema: &huma.Schema{OneOf: []*huma.Schema{
			schemaOf[launcherapi.InstanceList](schemas), schemaOf[launcherapi.InstanceIDList](schemas),
		}}}},
	}
}

// listed is never nil, so that an empty list is [] and not null.
func listed[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
