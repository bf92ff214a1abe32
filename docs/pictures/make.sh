#!/usr/bin/env bash
# Makes every picture of the book: make.sh FIRELIGHT FOLDER, with the command and a folder for the trained models.
# `cargo xtask book --pictures` calls it. The trainings take about five minutes on two cores; a model that is there is not trained again.
set -euo pipefail
pictures="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
firelight="$(realpath "$1")"
mkdir -p "$2"
cd "$2"

"$firelight" train stories --out runs/stories-1 --resume
"$firelight" train dates --out runs/dates-1 --resume

"$firelight" visualize attention runs/stories-1 --text "One day the fox" --layer 1 --head 0 --out "$pictures/one-head.svg" --force
"$firelight" visualize attention runs/stories-1 --text "One day the fox" --out "$pictures/all-heads.svg" --force
"$firelight" visualize attention runs/dates-1 --text "3rd of March 1997" --kind cross --layer 1 --head 2 \
    --out "$pictures/translation.svg" --force
"$firelight" visualize schedule --kinds cosine,wsd,noam --set schedule.warmup_steps=200 --set training.steps=2000 \
    --out "$pictures/schedules.svg" --force
"$firelight" scale stories --vary model.d_model=16,32,48,64,96 --set training.steps=300 --set data.stories=200000 \
    --set model.n_layers=2 --fit --out sizes
cp sizes/results.svg "$pictures/scaling.svg"
