"""llama.cpp's server with a GGUF file, until its standard input ends: for bench/serve.py.

    python bench/serve_llama.py FILE --threads 2 --requests 32 --tokens 128

Prints {"url": …, "version": …}. Needs the package xllamacpp, whose wheel carries llama.cpp for processors, built for each of their kinds.
"""

import argparse
import json
import sys

import xllamacpp


def main():
    p = argparse.ArgumentParser()
    p.add_argument("file")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--requests", type=int, default=32)
    p.add_argument("--tokens", type=int, default=128, help="of a prompt with its answer, at most")
    p.add_argument("--cache", default="f32", help="of keys and values: f32 or f16")
    args = p.parse_args()
    o = xllamacpp.CommonParams()
    o.model.path = args.file
    o.n_parallel, o.n_ctx = args.requests, args.requests * args.tokens
    o.n_batch = o.n_ubatch = 512
    o.cpuparams.n_threads = o.cpuparams_batch.n_threads = args.threads
    kinds = {"f32": xllamacpp.ggml_type.GGML_TYPE_F32, "f16": xllamacpp.ggml_type.GGML_TYPE_F16}
    o.cache_type_k = o.cache_type_v = kinds[args.cache]
    o.port = 0
    server = xllamacpp.Server(o)
    print(json.dumps({"url": server.listening_address, "version": xllamacpp._version.get_versions()["version"]}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
