package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"hotseat.dev/hotseat/spec/launcherapi"
)

const (
	tagService   = "service"
	tagInstances = "instances"
	tagGPUs      = "gpus"
	tagModels    = "models"
	tagCompiled  = "compile caches"
	tagPorts     = "port leases"
	tagDoor      = "front door"
)

// route is one operation of the API.
type route struct {
	id      string // names it in GET / and in the document
	method  string
	path    string
	tag     string
	summary string
	errors  []int // statuses of its own errors
	public  bool  // needs no token
	doc     func(*huma.Operation, huma.Registry)
	handle  func(*Server, huma.API, huma.Operation)
}

const (
	instancesPath = "/v2/vllm/instances"
	instancePath  = instancesPath + "/{instance_id}"
	modelsPath    = "/v2/models"
	modelPath     = modelsPath + "/{model_id}"
	warmPath      = modelPath + "/warm"
	swapsPath     = "/v2/swaps"
	oneSwap       = swapsPath + "/{swap_id}"
	portLeasePath = "/v2/port-leases/{instance_id}"
	doorPath      = "/v2/front-door"
	compiledPath  = "/v2/compile-caches"
	oneCompiled   = compiledPath + "/{key}"
	healthPath    = "/health"
	readyPath     = "/readyz"
	metricsPath   = "/metrics"
)

// routes is the whole API. It is a function, not a variable, since the handler of
// GET / reads the table.
func routes() []route {
	return []route{
		{id: "index", method: http.MethodGet, path: "/", tag: tagService, summary: "Name, version and operations", handle: handler((*Server).index)},
		{id: "health", method: http.MethodGet, path: healthPath, tag: tagService, summary: "The launcher runs", public: true, handle: handler((*Server).health)},
		{id: "ready", method: http.MethodGet, path: readyPath, tag: tagService, summary: "The launcher takes calls", public: true, doc: docReady, handle: handler((*Server).ready)},
		{id: "metrics", method: http.MethodGet, path: metricsPath, tag: tagService, summary: "Metrics for Prometheus", doc: docMetrics, handle: handler((*Server).metrics)},

		{id: "create_instance", method: http.MethodPost, path: instancesPath, tag: tagInstances, summary: "Create and start an instance; the launcher makes its id", errors: []int{400, 403, 409, 415, 422, 500, 502, 507}, doc: status(http.StatusCreated), handle: handler((*Server).createInstance)},
		{id: "create_named_instance", method: http.MethodPut, path: instancePath, tag: tagInstances, summary: "Create and start an instance with a given id", errors: []int{400, 403, 409, 415, 422, 500, 502, 507}, doc: status(http.StatusCreated), handle: handler((*Server).createNamedInstance)},
		{id: "get_all_instances", method: http.MethodGet, path: instancesPath, tag: tagInstances, summary: "Every instance, or with detail=false their ids", errors: []int{422}, doc: docList, handle: handler((*Server).listInstances)},
		{id: "get_instance_status", method: http.MethodGet, path: instancePath, tag: tagInstances, summary: "One instance", errors: []int{404}, handle: handler((*Server).getInstance)},
		{id: "delete_instance", method: http.MethodDelete, path: instancePath, tag: tagInstances, summary: "Stop an instance's whole process tree and forget it", errors: []int{404, 504}, handle: handler((*Server).deleteInstance)},
		{id: "delete_all_instances", method: http.MethodDelete, path: instancesPath, tag: tagInstances, summary: "Stop and forget every instance, all at once", errors: []int{504}, handle: handler((*Server).deleteInstances)},
		{id: "get_instance_logs", method: http.MethodGet, path: instancePath + "/log", tag: tagInstances, summary: "Bytes of an instance's log", errors: []int{400, 404, 416, 422, 429}, doc: docLog, handle: handler((*Server).instanceLog)},
		{id: "watch_instances", method: http.MethodGet, path: instancesPath + "/watch", tag: tagInstances, summary: "Stream of changes of instances", errors: []int{410, 422, 429}, doc: docWatch, handle: handler((*Server).watch)},
		{id: "sleep_instance", method: http.MethodPost, path: instancePath + "/sleep", tag: tagInstances, summary: "Put an instance to sleep", errors: []int{400, 404, 409, 415, 422, 502, 504}, doc: docVerb, handle: handler((*Server).sleep)},
		{id: "wake_instance", method: http.MethodPost, path: instancePath + "/wake", tag: tagInstances, summary: "Wake an instance", errors: []int{400, 404, 409, 415, 422, 502, 504}, doc: docVerb, handle: handler((*Server).wake)},

		{id: "get_preloaders", method: http.MethodGet, path: "/v2/vllm/preloaders", tag: tagInstances, summary: "Processes with a loaded engine, from which instances are forked", handle: handler((*Server).preloaders)},

		{id: "swap", method: http.MethodPost, path: "/v2/vllm/swap", tag: tagGPUs, summary: "Make one instance the awake one on a set of GPUs", errors: []int{400, 403, 404, 409, 415, 422, 500, 502, 504, 507}, doc: docSwap, handle: handler((*Server).swap)},
		{id: "call_off_swap", method: http.MethodDelete, path: "/v2/vllm/swap", tag: tagGPUs, summary: "Cancel a swap that waits for its turn or for go", errors: []int{404, 409, 422}, doc: docCallOff, handle: handler((*Server).callOffSwap)},
		{id: "get_swaps", method: http.MethodGet, path: swapsPath, tag: tagGPUs, summary: "Swaps that wait, run or are over", handle: handler((*Server).listSwaps)},
		{id: "get_swap", method: http.MethodGet, path: oneSwap, tag: tagGPUs, summary: "One swap, or with follow=true its steps as they happen", errors: []int{404, 422, 429}, doc: docGetSwap, handle: handler((*Server).getSwap)},
		{id: "cancel_swap", method: http.MethodDelete, path: oneSwap, tag: tagGPUs, summary: "Cancel a swap that waits for its turn or for go, whoever asked for it", errors: []int{404, 409}, doc: docCancelSwap, handle: handler((*Server).cancelSwap)},
		{id: "go_swap", method: http.MethodPost, path: oneSwap + "/go", tag: tagGPUs, summary: "Let a prepared swap begin", errors: []int{404, 409, 422, 500, 502, 503, 504, 507}, doc: docGo, handle: handler((*Server).goSwap)},
		{id: "commit_swap", method: http.MethodPost, path: oneSwap + "/commit", tag: tagGPUs, summary: "Let a swap open the gate of the instance that came in", errors: []int{404, 409, 422, 500, 502, 503, 504, 507}, doc: docCommit, handle: handler((*Server).commitSwap)},
		{id: "undo_swap", method: http.MethodPost, path: oneSwap + "/undo", tag: tagGPUs, summary: "Undo a swap that is not committed", errors: []int{404, 409, 503, 507}, doc: docUndo, handle: handler((*Server).undoSwap)},
		{id: "get_gpus", method: http.MethodGet, path: "/v2/gpus", tag: tagGPUs, summary: "GPUs, and what is on each", handle: handler((*Server).gpus)},

		{id: "lease_ports", method: http.MethodPut, path: portLeasePath, tag: tagPorts, summary: "Lease ports for an instance that is yet to be created", errors: []int{400, 409, 415, 422, 500, 507}, doc: docLeasePorts, handle: handler((*Server).leasePorts)},
		{id: "give_back_ports", method: http.MethodDelete, path: portLeasePath, tag: tagPorts, summary: "Give back ports that no instance has taken", errors: []int{404, 409}, handle: handler((*Server).giveBackPorts)},

		{id: "get_front_door", method: http.MethodGet, path: doorPath, tag: tagDoor, summary: "The models that the front door serves, and who waits for them", errors: []int{404}, handle: handler((*Server).frontDoor)},
		{id: "choose_profile", method: http.MethodPut, path: doorPath + "/profile", tag: tagDoor, summary: "Choose a profile of the configuration, or none; it is kept over restarts", errors: []int{400, 404, 415, 422, 507}, handle: handler((*Server).chooseProfile)},

		{id: "get_models", method: http.MethodGet, path: modelsPath, tag: tagModels, summary: "Every model of the model store", errors: []int{404, 500, 507}, handle: handler((*Server).listModels)},
		{id: "pull_model", method: http.MethodPut, path: modelsPath, tag: tagModels, summary: "Fetch a model into the model store", errors: []int{400, 403, 404, 409, 415, 422, 500, 502, 507}, doc: docPull, handle: handler((*Server).pullModel)},
		{id: "get_model", method: http.MethodGet, path: modelPath, tag: tagModels, summary: "One model", errors: []int{404, 500, 507}, handle: handler((*Server).getModel)},
		{id: "delete_model", method: http.MethodDelete, path: modelPath, tag: tagModels, summary: "End the fetch of a model, and remove it", errors: []int{404, 409, 422, 500, 507}, doc: docRemoveModel, handle: handler((*Server).deleteModel)},
		{id: "warm_model", method: http.MethodPost, path: warmPath, tag: tagModels, summary: "Read a model into main memory", errors: []int{404, 409, 500, 507}, doc: docWarm, handle: handler((*Server).warmModel)},
		{id: "watch_models", method: http.MethodGet, path: modelsPath + "/watch", tag: tagModels, summary: "Stream of changes of models", errors: []int{404, 422, 429}, doc: docWatchModels, handle: handler((*Server).watchModels)},

		{id: "get_compile_caches", method: http.MethodGet, path: compiledPath, tag: tagCompiled, summary: "The compiled code that the launcher keeps, for each kind of engine and GPU", errors: []int{404, 500, 507}, handle: handler((*Server).listCompiled)},
		{id: "export_compile_cache", method: http.MethodGet, path: oneCompiled, tag: tagCompiled, summary: "A compile cache as a tar stream, for a launcher of another node", errors: []int{404, 409, 500, 507}, doc: docExport, handle: handler((*Server).exportCompiled)},
		{id: "import_compile_cache", method: http.MethodPut, path: oneCompiled, tag: tagCompiled, summary: "Import a compile cache from a launcher of another node", errors: []int{404, 409, 422, 500, 507}, doc: docImport, handle: handler((*Server).importCompiled)},
		{id: "delete_compile_cache", method: http.MethodDelete, path: oneCompiled, tag: tagCompiled, summary: "Remove a compile cache; this launcher's own engines then compile anew", errors: []int{404, 409, 500, 507}, handle: handler((*Server).deleteCompiled)},
	}
}

// register puts every route on the API. security is what routes that are not public
// ask for.
func register(s *Server, api huma.API, security []map[string][]string) {
	for _, r := range routes() {
		op := huma.Operation{
			OperationID: r.id, Method: r.method, Path: r.path, Summary: r.summary, Tags: []string{r.tag},
			Responses:       map[string]*huma.Response{},
			MaxBodyBytes:    -1, // readBody and the server have seen to both
			BodyReadTimeout: -1,
		}
		schemas := api.OpenAPI().Components.Schemas
		refused := r.errors
		if !r.public && (r.path != metricsPath || !s.opts.PublicMetrics) {
			op.Security = security
			refused = append(refused, http.StatusServiceUnavailable)
		}
		if op.Security != nil {
			refused = append(refused, http.StatusUnauthorized)
		}
		for _, status := range refused {
			op.Responses[strconv.Itoa(status)] = problemResponse(meaning(status), schemas)
		}
		op.Responses["default"] = problemResponse("Any other error", schemas)
		if r.doc != nil {
			r.doc(&op, schemas)
		}
		r.handle(s, api, op)
	}
}

// handler makes a method of the server one of huma's handlers.
func handler[I, O any](do func(*Server, context.Context, *I) (*O, error)) func(*Server, huma.API, huma.Operation) {
	return func(s *Server, api huma.API, op huma.Operation) {
		huma.Register(api, op, func(ctx context.Context, in *I) (*O, error) {
			out, err := do(s, ctx, in)
			if err != nil {
				return nil, problemOf(err)
			}
			return out, nil
		})
	}
}

// body is an answer of one JSON document.
type body[T any] struct{ Body T }

func answer[T any](v T, err error) (*body[T], error) {
	if err != nil {
		return nil, err
	}
	return &body[T]{v}, nil
}

// status makes an operation answer with another status than 200.
func status(code int) func(*huma.Operation, huma.Registry) {
	return func(op *huma.Operation, _ huma.Registry) { op.DefaultStatus = code }
}

// meaning says what an error is, in a few words.
func meaning(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "No JSON, no UTF-8, no body where one is needed, or a malformed Range"
	case http.StatusUnauthorized:
		return "No token, or a wrong one"
	case http.StatusTooManyRequests:
		return "Too many watches, followed logs and followed swaps are open; Retry-After says when to try again"
	case http.StatusInternalServerError:
		return "The launcher may not read or write its own folders, or has an internal error"
	case http.StatusServiceUnavailable:
		return "The launcher is closing, or cannot do this at the moment"
	}
	return http.StatusText(status)
}

func problemResponse(text string, schemas huma.Registry) *huma.Response {
	return &huma.Response{
		Description: text,
		Content: map[string]*huma.MediaType{
			launcherapi.ProblemContentType: {Schema: schemaOf[launcherapi.Problem](schemas)},
		},
	}
}
