"""``python -m conformance``, which ``scripts/conformance`` runs."""

import sys

from .command import main

sys.exit(main())
