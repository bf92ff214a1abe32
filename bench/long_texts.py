#!/usr/bin/env python3
"""What the options for long texts change: makes long texts of short ones, and counts how often their labels or documents are found.

    python3 bench/long_texts.py texts RUN texts.txt                       # the texts that a classifier's run was validated on
    python3 bench/long_texts.py accuracy RUN labels.jsonl                 # of them, what `firelight classify RUN --file texts.txt --json` says
    python3 bench/long_texts.py documents AG_NEWS/test.csv 300 10 DIR     # 300 documents of 10 articles each, and the titles of those
    python3 bench/long_texts.py found documents.jsonl titles.jsonl        # of both, what `firelight embed MODEL --file FILE --json` prints
    python3 bench/long_texts.py joined 3 test.de joined.de                # every three lines as one; left-over lines are dropped

`accuracy` prints the share of right labels. It needs only Python.

`documents` writes DIR/documents.txt and DIR/titles.txt, a line for each text. A document is the descriptions of articles that were drawn with seed 1,
without their titles. `found` takes the title of every article as a query: it prints the share of them whose document has the largest cosine, and the
mean of one over the rank, over all articles and by the article's place in its document. It needs NumPy.
"""

import csv
import json
import random
import sys
from pathlib import Path


def rows(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def plain(text):
    return " ".join(text.split())


def write(path, lines):
    Path(path).write_text("\n".join(lines) + "\n")


def texts(run, path):
    write(path, [plain(row["text"]) for row in rows(Path(run) / "validation.jsonl")])


def accuracy(run, path):
    expected, found = [[row["label"] for row in rows(file)] for file in (Path(run) / "validation.jsonl", path)]
    right = sum(a == b for a, b in zip(expected, found, strict=True))
    print(f"{100 * right / len(expected):.2f} % of {len(expected)}")


def documents(path, count, size, folder):
    with open(path, newline="") as file:
        articles = list(csv.reader(file))
    count, size, folder = int(count), int(size), Path(folder)
    chosen = random.Random(1).sample(articles, count * size)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "titles.txt", [plain(title) for _, title, _ in chosen])
    parts = [plain(description) for _, _, description in chosen]
    write(folder / "documents.txt", [" ".join(parts[at : at + size]) for at in range(0, len(parts), size)])


def found(documents, titles):
    import numpy as np

    vectors = [np.array([row["embedding"] for row in rows(file)]) for file in (documents, titles)]
    of_documents, of_titles = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors]
    size = len(of_titles) // len(of_documents)
    cosines = of_titles @ of_documents.T
    own = cosines[np.arange(len(of_titles)), np.arange(len(of_titles)) // size]
    ranks = (1 + (cosines > own[:, None]).sum(axis=1)).reshape(-1, size)
    print(f"first: {100 * (ranks == 1).mean():.1f} % of {ranks.size}, 1/rank {(1 / ranks).mean():.3f}")
    print("first, by place:", ", ".join(f"{share:.1f}" for share in 100 * (ranks == 1).mean(axis=0)))


def joined(size, path, out):
    lines, size = Path(path).read_text().splitlines(), int(size)
    whole = range(0, len(lines) - size + 1, size)
    write(out, [" ".join(lines[at : at + size]) for at in whole])


COMMANDS = {"texts": (texts, 2), "accuracy": (accuracy, 2), "documents": (documents, 4), "found": (found, 2), "joined": (joined, 3)}


def main():
    command, *rest = sys.argv[1:] or [""]
    call, arguments = COMMANDS.get(command, (None, 0))
    if call is None or len(rest) != arguments:
        sys.exit(__doc__)
    call(*rest)


if __name__ == "__main__":
    main()
