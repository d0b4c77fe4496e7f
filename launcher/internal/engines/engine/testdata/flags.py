"""Writes vllm_flags.txt: every option of `vllm serve` and how many values it
takes: 0, 1, ? (none or one) or + (one or more). Run it with a Python that has
vLLM:

    python testdata/flags.py > vllm_flags.txt
"""

import sys
from importlib.metadata import version

sys.argv = ["vllm", "serve"]  # vLLM looks at it while it builds the parser

from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = ServeSubcommand().subparser_init(FlexibleArgumentParser().add_subparsers())
flags = sorted(
    (option, "1" if action.nargs is None else str(action.nargs))
    for action in parser._actions
    for option in action.option_strings
)
sys.stdout.write(f"# vLLM {version('vllm')}, written by testdata/flags.py\n")
sys.stdout.writelines(f"{option} {nargs}\n" for option, nargs in flags)
