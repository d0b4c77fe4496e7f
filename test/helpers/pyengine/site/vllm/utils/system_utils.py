import multiprocessing
import os
import sys


def get_mp_context():
    method = os.environ.get("VLLM_WORKER_MULTIPROC_METHOD", "fork")
    return multiprocessing.get_context("spawn" if "--numa-bind" in sys.argv else method)
