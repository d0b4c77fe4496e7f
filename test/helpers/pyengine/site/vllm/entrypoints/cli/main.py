from vllm.engine import main  # which listens at args.uds, where the arguments have --uds
