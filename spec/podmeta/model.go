package podmeta

// Labels of what a Model has made.
const (
	// LabelModel and LabelModelEntry are on the objects and Pods of a Model: its name, and that of the
	// entry.
	LabelModel      = PrefixOwn + "model"
	LabelModelEntry = PrefixOwn + "model-entry"
	// LabelServes is on a Pod while it answers requests for a Model: the Model's name. The controller
	// adds it when the engine answers, and removes it before the engine is taken away. Front doors and
	// InferencePools select by it.
	LabelServes = PrefixOwn + "serves"
)

// PortModel is where the Pods of a Model answer inference requests.
const PortModel int32 = 8000

// Annotations of what a Model has made.
const (
	// AnnotationTemplateStored is on a Deployment of a Model: AnnotationTemplateHash, a dot, and a hash of the Pod
	// template as the API server has stored it. An edit by somebody else changes that hash.
	AnnotationTemplateStored = PrefixOwn + "template-stored"
	// AnnotationEditions is on an InferenceServerConfig of a Model: its earlier editions, which may have sleepers, as
	// JSON. The controller removes it when it has deleted these sleepers.
	AnnotationEditions = PrefixOwn + "earlier-editions"
	// AnnotationAsked is on a Deployment of a Model: what the controller asked for last, as JSON.
	AnnotationAsked = PrefixOwn + "asked"
	// AnnotationServed is on a Pod of a Model that has had LabelServes: since when, in RFC 3339.
	AnnotationServed = PrefixOwn + "served"
)
