package api

import (
	"context"
	"net/http"
	"regexp"

	"github.com/danielgtaylor/huma/v2"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/spec/launcherapi"
)

type swapInput struct {
	Accept string `header:"Accept" hidden:"true"`
	Trace  string `header:"traceparent" doc:"W3C Trace Context: the launcher logs the id of the trace with that of the swap."`
	Key    string `header:"Idempotency-Key" maxLength:"255" doc:"Made by the client. A second call with the same key and body joins the first swap, or gets its answer, also after the launcher has died. The last 1,000 keys are remembered."`
	Body   launcherapi.SwapRequest
}

// swap begins a swap. The swap goes on when the client goes away.
func (s *Server) swap(ctx context.Context, in *swapInput) (*streamOutput, error) {
	if in.Body.In != nil {
		if err := checkAnnotations("body.in.annotations", in.Body.In.Annotations); err != nil {
			return nil, err
		}
	}
	run, err := s.opts.Swaps.Begin(in.Body, in.Key)
	if err != nil {
		return nil, err
	}
	if trace := traceID(in.Trace); trace != "" {
		s.log.InfoContext(ctx, "a swap belongs to a trace", "swap", run.ID(), "trace_id", trace)
	}
	contentType := negotiate(in.Accept, jsonContentType, ndjsonContentType, sseContentType)
	if contentType != jsonContentType {
		return &streamOutput{func(ctx huma.Context) { streamSwap(ctx, run, contentType) }}, nil
	}
	result, err := run.Wait(ctx)
	if err != nil {
		return nil, err
	}
	return inOnePiece(result), nil
}

// inOnePiece is an answer in one piece of an operation that can also answer with a stream.
func inOnePiece(document any) *streamOutput {
	return &streamOutput{func(ctx huma.Context) {
		ctx.SetHeader("Content-Type", jsonContentType)
		ctx.SetStatus(http.StatusOK)
		if err := jsonFormat.Marshal(ctx.BodyWriter(), document); err != nil {
			panic(err) // a Swap and a SwapResult cannot fail to marshal
		}
	}}
}

// traceparent is the header of https://www.w3.org/TR/trace-context/; later versions
// may append fields.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-|$)`)

// traceID is the trace id of a traceparent; empty for one that cannot be read,
// which the standard says to ignore.
func traceID(header string) string {
	if parts := traceparent.FindStringSubmatch(header); parts != nil {
		return parts[1]
	}
	return ""
}

type callOffInput struct {
	Key string `header:"Idempotency-Key" required:"true" minLength:"1" maxLength:"255" doc:"Key that the swap came with."`
}

// callOffSwap answers at once: the client that waits for the swap gets its refusal
// a moment later.
func (s *Server) callOffSwap(_ context.Context, in *callOffInput) (*body[launcherapi.CalledOff], error) {
	return calledOff(s.opts.Swaps.CallOff(in.Key))
}

func calledOff(run launcher.SwapRun, err error) (*body[launcherapi.CalledOff], error) {
	if err != nil {
		return nil, err
	}
	return answer(launcherapi.CalledOff{SwapID: run.ID()}, nil)
}

func docCallOff(op *huma.Operation, _ huma.Registry) {
	op.Description = "A client that waits for the swap gets 409 with the outcome refused: the swap has changed nothing. A swap that has begun, or is over, cannot be cancelled (409): delete the instance that it creates, or swap back. If no swap has come with the key, the answer is 404, and the launcher refuses a swap that comes with it later."
}

// viewOf returns a swap with its problem.
func viewOf(run launcher.SwapRun) launcherapi.Swap {
	shown, err := run.Show()
	if err != nil {
		problem := problemOf(err).Problem
		shown.Problem = &problem
	}
	return shown
}

// brief leaves out of a swap what only makes a list of many longer.
func brief(swap launcherapi.Swap) launcherapi.Swap {
	if swap.Result != nil {
		result := *swap.Result
		result.In, result.Out, result.Phases = nil, []launcherapi.Instance{}, []launcherapi.PhaseTime{}
		swap.Result = &result
	}
	if swap.Problem != nil {
		p := *swap.Problem
		p.In, p.Out, p.Phases, p.LastLogLines, p.Fit = nil, nil, nil, nil, nil
		swap.Problem = &p
	}
	return swap
}

func (s *Server) listSwaps(context.Context, *none) (*body[launcherapi.SwapList], error) {
	list := launcherapi.SwapList{Swaps: []launcherapi.Swap{}}
	for _, run := range s.opts.Swaps.List() {
		list.Swaps = append(list.Swaps, brief(viewOf(run)))
	}
	return answer(list, nil)
}

type getSwapInput struct {
	ID     string `path:"swap_id" doc:"Id of the swap: the swap_id of its answer, of its steps, and of the instances that it has claimed. The launcher does not remember a request that it refuses at once: only its log has the swap_id of that answer." example:"0b7e2b3e-5d0c-4a8e-9a51-2f0f6c2f8d11"`
	Accept string `header:"Accept" hidden:"true"`
	Follow bool   `query:"follow" doc:"Follow the steps of the swap from its beginning until it is over."`
}

func (s *Server) getSwap(_ context.Context, in *getSwapInput) (*streamOutput, error) {
	run, err := s.opts.Swaps.Get(in.ID)
	if err != nil {
		return nil, err
	}
	if !in.Follow {
		return inOnePiece(viewOf(run)), nil
	}
	contentType := negotiate(in.Accept, ndjsonContentType, sseContentType)
	return s.stream(func(ctx huma.Context) { streamSwap(ctx, run, contentType) }), nil
}

func docGetSwap(op *huma.Operation, schemas huma.Registry) {
	op.Description = "With follow=true the answer is the stream that the call of the swap gives with Accept: application/x-ndjson or text/event-stream; the swap goes on when the client leaves. The launcher keeps the phases of the last 100 swaps that are over, until it ends; of an older swap, which had an Idempotency-Key, the stream has the last line alone."
	content := eventContent(schemaOf[launcherapi.SwapProgress](schemas), "A step each")
	content[jsonContentType] = &huma.MediaType{Schema: schemaOf[launcherapi.Swap](schemas)}
	op.Responses["200"] = &huma.Response{Description: "The swap as it is now; with follow=true its steps", Content: content}
}

type oneSwapInput struct {
	ID string `path:"swap_id" doc:"Id of the swap."`
}

func (s *Server) cancelSwap(_ context.Context, in *oneSwapInput) (*body[launcherapi.CalledOff], error) {
	return calledOff(s.opts.Swaps.Cancel(in.ID))
}

func docCancelSwap(op *huma.Operation, _ huma.Registry) {
	op.Description = "The client that asked for the swap gets 409 with the outcome refused: the swap has changed nothing. A swap that has begun, or is over, cannot be cancelled (409). A second call has no effect, and the same answer."
}

func (s *Server) goSwap(_ context.Context, in *oneSwapInput) (*body[launcherapi.Swap], error) {
	return swapNow(s.opts.Swaps.Go(in.ID))
}

func (s *Server) commitSwap(_ context.Context, in *oneSwapInput) (*body[launcherapi.Swap], error) {
	return swapNow(s.opts.Swaps.Commit(in.ID))
}

func (s *Server) undoSwap(_ context.Context, in *oneSwapInput) (*body[launcherapi.Swap], error) {
	return swapNow(s.opts.Swaps.Undo(in.ID))
}

// swapNow returns a swap as it is now.
func swapNow(run launcher.SwapRun, err error) (*body[launcherapi.Swap], error) {
	if err != nil {
		return nil, err
	}
	return answer(viewOf(run), nil)
}

func docGo(op *huma.Operation, _ huma.Registry) {
	op.Description = "For a swap with prepare. It may come before the swap has its turn, and has no effect on a swap that has begun. The answer for a swap that has failed is its problem: after its hold the swap is refused (409). If an instance of the swap has ended while it was held, the swap is refused after this call."
}

func docCommit(op *huma.Operation, _ huma.Registry) {
	op.Description = "For a swap with until: healthy, in its phase commit. The commit is written down before the answer, and the gate opens after that. A second call has no effect. The answer is 409 if the swap has not got to that phase, or is being undone; if the swap has failed, it is its problem. 507: the commit could not be written down; the swap is done all the same, unless the launcher dies at once. Call again."
}

func docUndo(op *huma.Operation, _ huma.Registry) {
	op.Description = "For a swap with until: healthy. It may come at any time before the commit, and interrupts the phase that runs; a swap that waits is cancelled. It is written down before the answer, which does not wait for the end of the undo: follow the swap to learn of that. A second call has no effect, and neither has a call for a swap that has failed or had nothing to do. If the swap is committed, the answer is 409. 507: as for a commit."
}

// streamSwap writes each step of a swap as it happens. The last line has the
// result or the problem.
func streamSwap(ctx huma.Context, run launcher.SwapRun, contentType string) {
	out, ok := beginEvents(ctx, contentType)
	if !ok {
		return
	}
	send := func(p launcherapi.SwapProgress) error { return out.send(p.Type, "", p) }
	err := run.Follow(ctx.Context(), send)
	switch {
	case err == nil:
		if _, err = run.Wait(ctx.Context()); err == nil {
			return // the result was the last step
		}
	case launcher.CodeOf(err) == "":
		return // the client has left
	}
	problem := problemOf(err).Problem
	_ = send(launcherapi.SwapProgress{Type: launcherapi.ProgressProblem, SwapID: run.ID(), Problem: &problem}) // the stream ends either way
}

func docSwap(op *huma.Operation, schemas huma.Registry) {
	op.Description = "Answers when the swap is over. The problem document of a swap that failed has its swap_id and its outcome. refused (409 and others): the swap changed nothing. undone (502 or 504): the detail says which phase failed and why; what was awake is awake again. undo_failed (502 or 504): the detail says which instances the launcher could not bring back, or not in time, and their states. interrupted (503): the launcher finishes or undoes the swap when it is back. A duration of 0 is the default. With Accept: application/x-ndjson or text/event-stream the answer is a stream: one step when a phase begins and when it ends; the last step has the result or the problem."
	content := eventContent(schemaOf[launcherapi.SwapProgress](schemas), "A step each")
	content[jsonContentType] = &huma.MediaType{Schema: schemaOf[launcherapi.SwapResult](schemas)}
	op.Responses["200"] = &huma.Response{Description: "Done, or nothing to do; or a stream of steps", Content: content}
}
