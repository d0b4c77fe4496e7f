from vllm.engine import main
