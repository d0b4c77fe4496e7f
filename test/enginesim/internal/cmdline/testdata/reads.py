"""Reads the command lines of argvs.jsonl with vLLM's own parser and writes what
comes of each to reads.jsonl, a line a line. Run it with vLLM's Python in this
folder."""

import contextlib
import io
import json

from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser

SHOWN = (
    "model_tag model served_model_name host port tensor_parallel_size pipeline_parallel_size "
    "data_parallel_size data_parallel_size_local gpu_memory_utilization max_model_len max_num_seqs "
    "enforce_eager enable_sleep_mode api_key seed dtype uvicorn_log_level hf_overrides "
    "middleware enable_prefix_caching"
).split()


def read(argv):
    parser = FlexibleArgumentParser(prog="vllm")
    ServeSubcommand().subparser_init(parser.add_subparsers(required=False, dest="subparser"))
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            given = parser.parse_args(["serve", *argv])
    except SystemExit:
        return {"usage": errors.getvalue().strip().splitlines()[-1]}
    except Exception as error:
        return {"failure": f"{type(error).__name__}: {error}"}
    return {"values": {k: getattr(given, k) for k in SHOWN}}


with open("argvs.jsonl") as argvs, open("reads.jsonl", "w") as reads:
    for line in argvs:
        reads.write(json.dumps(read(json.loads(line))) + "\n")
