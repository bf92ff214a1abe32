#!/usr/bin/env python3
"""The llama.cpp side of the benchmarks that `cargo xtask bench` runs, on a GGUF file that `firelight bench --keep` wrote.

    pip install llama-cpp-python numpy
    firelight bench prefill --config llama110m --dtype q8_0 --runs 1 --keep model.gguf
    python3 llama_cpp_reference.py decode --model model.gguf --threads 2    # 128-token prompt, 64 greedy tokens with a KV cache
    python3 llama_cpp_reference.py prefill --model model.gguf --threads 2   # 512-token prompt, one pass, the logits of its last

Each run prints one JSON line: name, median seconds, tokens per second, threads, peak resident memory in MiB. Random ids; on the CPU alone.
The settings are those that llama.cpp has by default: keys and values are cached in 16 bits, where Firelight keeps the type that it
computes in. `--config` and `--dtype` only name what is in the file. Compare only figures taken in the same run on the same machine,
the two programs in turn.
"""
import argparse, ctypes, json, os, random, resource, sys, time

try:
    import llama_cpp
    import numpy
except ImportError as error:
    package = "numpy" if error.name == "numpy" else "llama-cpp-python"
    sys.exit(f"the Python package {package} is missing ({error}): pip install {package}")

PREFILL, DECODE = 512, (128, 64)
messages = []


@llama_cpp.llama_log_callback
def listen(level, text, _):
    """Keeps what llama.cpp logs, for the case of a failure."""
    messages.append(text.decode(errors="replace"))


class Model:
    def __init__(self, path, threads):
        settings = llama_cpp.llama_model_default_params()
        settings.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(path), settings)
        if not self.model:
            sys.exit(f"llama.cpp does not load {path}: " + " ".join("".join(messages[-4:]).split()))
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.longest = llama_cpp.llama_model_n_ctx_train(self.model)
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = max(min(PREFILL, self.longest), sum(DECODE))
        settings.n_batch = settings.n_ubatch = PREFILL
        settings.n_threads = settings.n_threads_batch = threads
        settings.offload_kqv = settings.op_offload = False
        self.context = llama_cpp.llama_init_from_model(self.model, settings)
        if not self.context:
            sys.exit("llama.cpp makes no context: " + " ".join("".join(messages[-4:]).split()))

    def forget(self):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), False)

    def next(self, tokens):
        """The most probable token behind the last of `tokens`."""
        ids = (llama_cpp.llama_token * len(tokens))(*tokens)
        status = llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(ids, len(tokens)))
        if status:
            sys.exit(f"llama.cpp fails with status {status} at {len(tokens)} tokens")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return int(numpy.ctypeslib.as_array(logits, shape=(self.vocabulary,)).argmax())


def timed(step, runs):
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[runs // 2]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["decode", "prefill"])
    p.add_argument("--model", metavar="FILE", required=True)
    p.add_argument("--config")
    p.add_argument("--dtype")
    p.add_argument("--runs", type=int, default=10)
    p.add_argument("--threads", type=int, default=0)
    a = p.parse_args()
    threads = a.threads or len(os.sched_getaffinity(0))
    llama_cpp.llama_log_set(listen, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = Model(a.model, threads)
    decodes = a.what == "decode"
    tokens = DECODE[1] if decodes else min(PREFILL, model.longest)
    if decodes and sum(DECODE) > model.longest:
        sys.exit(f"decode takes {sum(DECODE)} tokens, and the context of {a.model} is {model.longest}")
    draw = random.Random(0)
    prompt = [draw.randrange(model.vocabulary) for _ in range(DECODE[0] if decodes else tokens)]

    def step():
        model.forget()
        token = model.next(prompt)
        for _ in range(tokens - 1 if decodes else 0):
            token = model.next([token])

    seconds = timed(step, a.runs)
    name = f"{a.what}-{a.config or os.path.splitext(os.path.basename(a.model))[0]}"
    print(json.dumps({"name": name, "framework": f"llama.cpp by llama-cpp-python {llama_cpp.__version__}", "device": "cpu", "dtype": a.dtype,
                      "compile": False, "threads": threads, "seconds": round(seconds, 6), "tokens_per_second": round(tokens / seconds, 1),
                      "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)}))


if __name__ == "__main__":
    main()
