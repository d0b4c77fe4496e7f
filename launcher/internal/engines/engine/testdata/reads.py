"""Says how vLLM itself reads command lines: a JSON list of arguments on each
line of standard input (beginning with "serve"), a JSON object on each line of
standard output. Run it in the folder above this one, where the paths in the
arguments lead, with a Python that has vLLM:

    python testdata/reads.py < testdata/argvs.jsonl > testdata/reads.jsonl
    python testdata/reads.py < testdata/odd.jsonl > testdata/odd-reads.jsonl

(with VLLM_TARGET_DEVICE=cpu where there is no GPU). The first is what the
launcher makes of the plans, the second whatever else tells one parser from
another.
"""

import contextlib
import io
import json
import os
import sys

answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # vLLM logs to standard output
sys.argv = ["vllm", "serve"]  # vLLM looks at it while it builds the parser

from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser

FIELDS = """model served_model_name host port uds
ssl_keyfile ssl_certfile ssl_ca_certs ssl_cert_reqs ssl_ciphers enable_ssl_refresh
headless grpc api_server_count nnodes data_parallel_multi_port_external_lb
tensor_parallel_size pipeline_parallel_size prefill_context_parallel_size
data_parallel_size data_parallel_size_local data_parallel_rank data_parallel_external_lb
gpu_memory_utilization enable_sleep_mode api_key device_ids""".split()

parser = FlexibleArgumentParser(prog="vllm")
ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))


def read(argv):
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            args = parser.parse_args(argv)
    except SystemExit:
        return {"error": errors.getvalue().strip().rpartition("\n")[2]}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}
    if args.model_tag is not None:  # as ServeSubcommand.cmd does
        args.model = args.model_tag
    return {field: getattr(args, field) for field in FIELDS}


for line in sys.stdin:
    answers.write(json.dumps(read(json.loads(line)), default=repr) + "\n")
