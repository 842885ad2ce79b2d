#!/bin/bash
# The documentation as a site, in scripts/site/out; every link is checked, and one that leads nowhere is an error.
# Wants Python: pip install mkdocs-material==9.8.2, or a network the first time, for a virtual environment of its own.
set -euo pipefail
cd "$(dirname "$0")"
python=${LFACTOR_SITE_PYTHON:-}
if [ -z "$python" ]; then
  [ -x .venv/bin/mkdocs ] || { python3 -m venv .venv && .venv/bin/pip install -q mkdocs-material==9.8.2; }
  python=.venv/bin/python
fi
NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs build --strict --quiet -f mkdocs.yml
echo "$PWD/out/index.html: $(find out -name '*.html' | wc -l) pages"
