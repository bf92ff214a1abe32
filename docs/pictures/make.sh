#!/usr/bin/env bash
# Makes every picture of the book: make.sh FIRELIGHT FOLDER, with the command and a folder for the trained models.
# `cargo xtask book --pictures` calls it. The trainings take about eight minutes on two cores; a model that is there is not trained again.
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
# For the tour's stacks: all tokens of the source, and the past alone of the target.
"$firelight" visualize attention runs/dates-1 --text "3rd of March 1997" --kind encoder --layer 1 --head 0 \
    --out "$pictures/encoder.svg" --force
"$firelight" visualize attention runs/dates-1 --text "3rd of March 1997" --kind decoder --layer 1 --head 0 \
    --out "$pictures/decoder.svg" --force
# For its writing: what each new token reads.
"$firelight" visualize attention runs/stories-1 --text "One day the fox" --generate 20 --layer 1 --head 0 \
    --out "$pictures/written.svg" --force
# Which token, in which layer, carries the animal that is named again.
"$firelight" patch runs/stories-1 --clean "The fox ran home. The " --corrupted "The hen ran home. The " --answer f --wrong h \
    --out "$pictures/patched.svg" --force
# By a vision transformer and an image that are not in the repository: VIT is the absolute path of a run of `firelight train images` or of a
# published model, or its name on the hub, IMAGE the absolute path of a PNG or JPEG file. Without them the picture stays as it is.
if [[ -n "${VIT:-}" && -n "${IMAGE:-}" ]]; then
    "$firelight" visualize attention "$VIT" --image "$IMAGE" --out "$pictures/where.png" --force
fi
# The page of a text, step by step, as a browser shows it at its softmax. Without Chromium the picture stays as it is.
if command -v chromium > /dev/null; then
    "$firelight" explain runs/stories-1 --text "One day" --layer 0 --head 1 --out steps.html --force
    printf '<script>for (let step = 0; step < 5; step++) document.getElementById("next").click();</script>' >> steps.html
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=900,760 --virtual-time-budget=5000 \
        --screenshot="$pictures/steps.png" "file://$PWD/steps.html"
fi
"$firelight" visualize schedule --kinds cosine,wsd,noam --set schedule.warmup_steps=200 --set training.steps=2000 \
    --out "$pictures/schedules.svg" --force
"$firelight" visualize loss runs/stories-1 --out "$pictures/loss.svg" --force
"$firelight" scale stories --vary model.d_model=16,32,48,64,96 --set training.steps=300 --set data.stories=200000 \
    --set model.n_layers=2 --fit --out sizes
cp sizes/results.svg "$pictures/scaling.svg"

"$firelight" visualize positions sinusoidal --length 64 --width 64 --out "$pictures/positions.png" --force
"$firelight" visualize positions alibi --heads 4 --length 16 --out "$pictures/alibi.svg" --force
"$firelight" visualize mask window:2 --length 9 --layers 3 --out "$pictures/window.svg" --force
"$firelight" visualize mask local_global:3,2 --length 16 --layers 2 --out "$pictures/local-global.svg" --force
"$firelight" visualize embeddings runs/stories-1 --word fox --text "One day the fox ran home." --text "The hen saw the fox." \
    --text "The fox was sad." --out "$pictures/one-word.svg" --force
# By a published model, which is not in the repository: MINILM is the absolute path of all-MiniLM-L6-v2, or its name on the hub. Without it
# the picture stays as it is.
if [[ -n "${MINILM:-}" ]]; then
    "$firelight" visualize embeddings "$MINILM" --word bank --text "She opened an account at the bank to save her money." \
        --text "The bank raised the interest on every loan." --text "They sat on the bank of the river and watched the water." \
        --text "The river left its bank after the rain." --text "You can bank on him to be late." \
        --out "$pictures/bank.svg" --force
fi

# A tokenizer of words and parts of words, of a run that is not trained further.
"$firelight" train stories --set 'data.tokenizer={ kind = "bpe", vocab_size = 400 }' --set data.stories=200000 --set training.steps=2 \
    --set schedule.warmup_steps=1 --set schedule.steps=2 --out runs/pieces --resume
"$firelight" visualize tokens runs/pieces --text "One day the fox ran home." --out "$pictures/tokens.svg" --force

"$firelight" ablate stories --vary model.position=none,sinusoidal,learned,rotary --seeds 2 --set training.steps=300 \
    --set data.stories=200000 --set model.n_layers=2 --out schemes
cp schemes/results.svg "$pictures/ablation.svg"
"$firelight" bench attention --lengths 256,512,1024,2048,4096 --kinds softmax,window:64,linear,feed-forward \
    --out "$pictures/growth.svg" --force
