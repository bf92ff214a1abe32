#!/usr/bin/env python3
"""The other side of `examples/measurements/embedding_speed.rs`: a sentence model through sentence-transformers, on a file of texts.

    pip install sentence-transformers
    python3 bench/sentence_vectors.py texts DATA texts.txt            # writes 1,000 texts of mixed length
    python3 bench/sentence_vectors.py measure MODEL texts.txt 4       # seconds, as often as that

DATA holds `ag_news/test.csv`, `sst2/dev.tsv` and `multi30k/val.en`: 400 descriptions, 300 sentences and 300 captions are taken, the first of each
file. The model computes in 32-bit floats on two threads, in batches of 32.
"""

import csv
import sys
import time
from pathlib import Path


def texts(data):
    with open(data / "ag_news/test.csv", newline="") as file:
        news = [row[2] for row in csv.reader(file)][:400]
    with open(data / "sst2/dev.tsv", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    reviews = [row[0] for row in rows if row[0] != "sentence"][:300]
    captions = (data / "multi30k/val.en").read_text().splitlines()[:300]
    return [" ".join(text.split()) for text in news + reviews + captions]


def measure(model, path, times):
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(2)
    model, lines = SentenceTransformer(model, device="cpu"), Path(path).read_text().splitlines()
    for _ in range(times):
        begin = time.perf_counter()
        model.encode(lines, batch_size=32)
        print(f"{time.perf_counter() - begin:.2f} s", flush=True)


def main():
    command, *rest = sys.argv[1:] or [""]
    if command == "texts" and len(rest) == 2:
        found = texts(Path(rest[0]))
        Path(rest[1]).write_text("\n".join(found) + "\n")
        print(f"{len(found)} texts, {sum(len(text.split()) for text in found)} words")
    elif command == "measure" and len(rest) == 3:
        measure(rest[0], rest[1], int(rest[2]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
